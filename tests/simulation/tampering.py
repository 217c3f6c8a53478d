"""Messages that are changed on their way."""

from collections.abc import Callable, Iterable

from tallyroom.protocols.wire.messages import Message
from tallyroom.simulation.runtimes.inprocess import InProcess

Change = Callable[[Message], Message]


class Tampered(InProcess):
    """What servers say to each other is changed on the way."""

    change: Change

    def on_way(self, message: Message) -> Iterable[Message]:
        return (self.change(message),)
