"""A server: accumulates shares, keeps its own ledger, adds its own noise."""

from collections.abc import Callable

from protocols.aggregation import aggregator_named
from protocols.aggregation.contract import Bulk, Memory
from protocols.errors import LocalError, PeerError, TallyError
from protocols.machine import Machine
from protocols.machines import check, server_machine
from protocols.messages import Message, Phase, Role, address, body_of
from protocols.participant import Participant
from protocols.query import decode_query
from protocols.randomness import Randomness
from protocols.vouchers import Vouchers
from storage.ledger import Ledger


class AggregationServer(Participant):
    """Refuses a query its ledger would not pay for before any party works for it."""

    def __init__(
        self,
        index: int,
        ledger: Ledger,
        randomness: Randomness,
        bulk: Callable[[bytes], Bulk] = lambda _: Memory(),
        vouchers: Vouchers | None = None,
    ) -> None:
        super().__init__(Role.SERVER, ledger.record)
        self.index = index
        self._ledger = ledger
        self._randomness = randomness
        self._bulk = bulk
        self._vouchers = vouchers

    def is_addressed(self, message: Message) -> bool:
        return super().is_addressed(message) and message.receivers.tolist() == [self.index]

    def _farewell(self, run: bytes, reason: str) -> list[Message]:
        """The coordinator must not wait for a server that cannot go on."""
        message = Message(
            run,
            Phase.GIVE_UP,
            Role.SERVER,
            Role.COORDINATOR,
            address(self.index),
            address(0),
            body_of(reason.encode()),
        )
        return self._send(run, [message])

    def open(self, message: Message) -> Machine:
        query = decode_query(message.run, message.body[0].tobytes(), message.sender)
        try:
            check(query)
            _ = query.statistic.bounds  # parties could not answer without
            if self.index >= query.servers:
                raise LocalError(f"server-{self.index} is not among {query.servers} servers")
            _ = query.mechanism  # refuses bounds and an epsilon that there is no noise for
            self._ledger.check(aggregator_named(query.aggregator).release(query).spend)
        except (LocalError, TallyError) as error:
            raise PeerError(message.sender, str(error)) from error
        self.deadlines[query.run] = query.deadline
        randomness = self._randomness.derive(query.stream)
        return server_machine(query, self.index, randomness, self._bulk(query.run), self._vouchers)
