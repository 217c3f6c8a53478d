"""A server: accumulates shares, keeps its own ledger, adds its own noise."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from tallyroom.protocols import joint
from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.contract import Bulk, Memory
from tallyroom.protocols.errors import LocalError, NotWritten, PeerError, TallyError
from tallyroom.protocols.identity.signing import SigningIdentity
from tallyroom.protocols.identity.vouchers import Vouchers
from tallyroom.protocols.privacy.loss import NO_LOSS, PrivacyLoss
from tallyroom.protocols.query import Query, decode_query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.run.machines import check, server_machine
from tallyroom.protocols.run.participant import Participant
from tallyroom.protocols.run.receipts import (
    Receipt,
    request_digest,
    share_digest,
    unsigned,
)
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.machine import Continue, Done, Machine, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role, address, body_of
from tallyroom.storage.ledger import Ledger


class AggregationServer(Participant):
    """Refuses a query its ledger would not pay for before any party works for it.

    Every share goes out behind a receipt that it signed, after the ledger has what it cost.
    """

    def __init__(
        self,
        index: int,
        ledger: Ledger,
        randomness: Randomness,
        bulk: Callable[[bytes], Bulk] = lambda _: Memory(),
        signing: SigningIdentity | None = None,
        vouchers: Vouchers | None = None,
    ) -> None:
        super().__init__(Role.SERVER, ledger.record, index)
        self.index = index
        self._ledger = ledger
        self._randomness = randomness
        self._bulk = bulk
        self._releases: dict[bytes, bytes] = {}
        self._asks: dict[bytes, bytes] = {}
        self._charged: dict[bytes, PrivacyLoss] = {}
        self._vouchers = vouchers
        self._signing = signing
        self.doubt = ""
        """Why nothing is begun: the ledger lacks a release that this server signed."""

    @cached_property
    def _bases(self) -> "joint.BaseTransfers":
        """Kept from run to run."""
        return joint.BaseTransfers(self._randomness)

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

    def shown(self, receipt: Receipt) -> None:
        """Takes a receipt of our own, whose signature was checked. What we signed is in our ledger,
        or that is an older copy: then it is restored while this process is not running, so no other
        receipt ends the doubt. Raises `NotWritten` if the ledger cannot be read now."""
        if not receipt.loss.nothing and not self._ledger.has_like(receipt.run.hex()):
            self.doubt = f"its ledger lacks run {receipt.run.hex()}, which it signed"

    def open(self, message: Message) -> Machine:
        if self.doubt:
            raise PeerError(message.sender, self.doubt)
        query = decode_query(message.run, message.body[0].tobytes(), message.sender)
        try:
            check(query)
            if self.index >= query.servers:
                raise LocalError(f"server-{self.index} is not among {query.servers} servers")
            spend = aggregator_named(query.aggregator).mechanism(query).spend
            if not self.replaying and self._ledger.has_like(query.nonce.hex()):
                # Begun anew, it would draw the same noise, and could be told other parties. So it
                # would under another deadline or reading, which are in the name and not in the
                # noise (`Query.stream`): a nonce is released once.
                raise LocalError(f"run {query.nonce.hex()} was released before")
            self._ledger.check(query.foreseen(spend))
        except NotWritten:
            raise  # nothing is refused: it can be asked again
        except (LocalError, TallyError) as error:
            raise PeerError(message.sender, str(error)) from error
        self.deadlines[query.run] = query.deadline
        randomness = self._randomness.derive(query.stream)
        try:
            return self._machine(query, randomness)
        except LocalError as error:
            raise PeerError(message.sender, str(error)) from error

    def _machine(self, query: Query, randomness: Randomness) -> Machine:
        return server_machine(
            query,
            self.index,
            randomness,
            self._bulk(query.run),
            self._vouchers,
            lambda: self._bases,
            self._signing,
        )

    def forget(self, run: bytes) -> None:
        super().forget(run)
        for kept in (self._releases, self._asks, self._charged):
            kept.pop(run, None)

    def _hear(self, message: Message) -> None:
        super()._hear(message)
        match message.phase:
            case Phase.RELEASE:
                self._releases[message.run] = message.body[0].tobytes()
            case Phase.ASK:
                self._asks[message.run] = message.body[0].tobytes()

    def _carry_out(self, run: bytes, step: Step) -> Reply:
        if isinstance(step, Continue | Done) and step.spends:
            self._charged[run] = step.spends[0].loss
        return super()._carry_out(run, step)

    def _remember(self, run: bytes, outgoing: list[Message]) -> None:
        """Of shares, the last: a stored tree may be asked for ever, and nobody asks on who has not
        heard what was said to the question before."""
        if any(message.phase is Phase.SHARE for message in outgoing):
            said = self._said.get(run, [])
            self._said[run] = [message for message in said if message.phase is not Phase.SHARE]
        super()._remember(run, outgoing)

    def _send(self, run: bytes, messages: Sequence[Message]) -> list[Message]:
        """Called once what the messages cost is in the ledger."""
        shares = [message for message in messages if message.phase is Phase.SHARE]
        if shares:
            head = np.frombuffer(self._receipt(run, shares).encode(), dtype=np.uint8)
            messages = [
                replace(message, body=np.hstack([head[None], message.body]))
                if message.phase is Phase.SHARE
                else message
                for message in messages
            ]
        return super()._send(run, messages)

    def _receipt(self, run: bytes, shares: list[Message]) -> Receipt:
        """One for all parts of a share. What was not charged is said to have cost nothing."""
        return Receipt(
            run,
            self.index,
            request_digest(self._releases.get(run, b""), self._asks.get(run, b"")),
            share_digest(share.body[0].tobytes() for share in shares),
            self._charged.get(run, NO_LOSS),
        ).signed(unsigned if self._signing is None else self._signing.sign)
