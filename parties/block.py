"""The parties of one host: their records, and what they answer to a query."""

from protocols.errors import LocalError, PeerError
from protocols.machine import Machine
from protocols.machines import party_machine
from protocols.messages import Message, Role
from protocols.participant import Outcome, Participant
from protocols.query import decode_query
from protocols.randomness import Randomness
from protocols.records import Holdings


class PartyBlock(Participant):
    """One party, or many whose vectors are computed together as array rows.

    Those that are `silent` are asked and never answer: a simulation's dropouts.
    """

    def __init__(
        self,
        holdings: Holdings,
        randomness: Randomness,
        silent: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(Role.PARTY, lambda _: None)
        self.holdings = holdings
        self._answering = holdings.without(silent) if silent else holdings
        self._randomness = randomness

    def handle(self, message: Message) -> Outcome:
        return Outcome(message.run) if self._answering is None else super().handle(message)

    def _asked_again(self, message: Message) -> Outcome:
        """The same shares again, drawn from the same randomness: servers count them once.

        A machine that still waits for others has said what there is to say.
        """
        run = message.run
        if message.body[0].tobytes() != self._queries[run]:
            return super()._asked_again(message)
        if self.is_open(run):
            return Outcome(run)
        return self.resume(run, self.open(message))

    def open(self, message: Message) -> Machine:
        if self._answering is None:
            raise PeerError(message.sender, "nobody here answers")
        query = decode_query(message.run, message.body[0].tobytes(), message.sender)
        try:
            randomness = self._randomness.derive(query.stream)
            return party_machine(query, self._answering, randomness)
        except LocalError as error:
            raise PeerError(message.sender, f"cannot answer: {error}") from error
