"""Messages that are changed on their way."""

from collections.abc import Callable

from tallyroom.protocols.run.participant import Participant
from tallyroom.protocols.wire.messages import Message
from tallyroom.simulation.runtimes.inprocess import InProcess

Change = Callable[[Message], Message]


class Tampered(InProcess):
    """What servers say to each other is changed on the way."""

    change: Change

    def _receivers(self, message: Message) -> list[tuple[Participant, Message]]:
        return super()._receivers(self.change(message))
