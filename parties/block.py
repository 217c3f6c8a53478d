"""The parties of one host: their records, and what they answer to a query."""

import hashlib
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tallyroom.parties.patience import Patience, why_not_written
from tallyroom.protocols.errors import LocalError, NotWritten, PeerError
from tallyroom.protocols.identity.vouchers import PartySigner
from tallyroom.protocols.query import Query, decode_query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings, bound_to_data
from tallyroom.protocols.run.machines import party_machine, repeatable
from tallyroom.protocols.run.participant import Participant
from tallyroom.protocols.run.refusal import RefusingParty
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.machine import (
    Continue,
    Done,
    Failed,
    Machine,
    Rejected,
    Step,
    proceed,
)
from tallyroom.protocols.wire.messages import NONCE_BYTES, Message, Phase, Role
from tallyroom.storage.party_answers import PartyAnswers, things_told

if TYPE_CHECKING:
    from tallyroom.parties.consent import Consent

log = logging.getLogger(__name__)

Result = TypeVar("Result")

MOST_REPEATED = 8
"""Runs of pairs whose shares are kept, to be submitted again if asked."""


class PartyBlock(Participant):
    """One party, or many whose vectors are computed together as array rows.

    Without `consent` they take part in whatever is asked. With `answers`, a host that is killed and
    started again says in a run what it said before, or nothing.
    """

    def __init__(
        self,
        holdings: Holdings,
        randomness: Randomness,
        consent: "Consent | None" = None,
        answers: PartyAnswers | None = None,
        signer: PartySigner | None = None,
    ) -> None:
        super().__init__(Role.PARTY, lambda _: None)
        self.disk_patience: Patience | None = None
        """What its host has while its disk is full."""
        self.decided: Callable[[str], None] = lambda _: None
        """Hears of each question whether it is answered or refused."""
        self._consent = consent
        self.holdings = holdings
        self.signer = signer
        self._answering = holdings
        self._led: set[bytes] = set()
        self._told_before: dict[bytes, dict[bytes, bytes]] = {}
        self._of_pairs: dict[bytes, list[Message]] = {}
        self._randomness = bound_to_data(randomness, holdings)
        self._answers = answers

    def handle(self, message: Message) -> Reply:
        if message.phase is Phase.PAIRING and self._is_over(message.run):
            return Reply(message.run)  # a coordinator that was restarted says it again
        return super().handle(message)

    def deadline_of(self, run: bytes) -> float:
        """For how many seconds a run waits for what its parties say; 0 if it is not known."""
        if (asked := self._queries.get(run)) is None:
            return 0.0
        return decode_query(run, asked, "coordinator").deadline

    def _is_over(self, run: bytes) -> bool:
        return run in self._of_pairs and not self.is_open(run)

    def _asked_again(self, message: Message) -> Reply:
        """The same shares again, drawn from the same randomness: servers count them once.

        A machine that still waits for others has said what there is to say. So has one that was
        told more than the question, such as a key or who takes part: begun anew, it could be told
        something else than before, and what it gives the two times may together be more than it
        must give. Shares of pairs depend on the other side as well, which may have been started
        anew since: those are repeated as they were, for to meet again would give others, and half
        of them.
        """
        run = message.run
        if message.body[0].tobytes() != self._queries[run]:
            return super()._asked_again(message)
        if self.is_open(run) or run in self._led:
            return Reply(run)
        if run in self._of_pairs:
            return Reply(run, list(self._of_pairs[run]))
        return self.resume(run, self._opened(message))

    def open(self, message: Message) -> Machine:
        machine = self._opened(message)
        if isinstance(machine, RefusingParty):
            log.info("run %s is refused: %s", message.run.hex(), machine.reason)
            self.decided("refused")
        else:
            log.info("run %s is answered", message.run.hex())
            self.decided("answered")
        return machine

    def _opened(self, message: Message) -> Machine:
        query = decode_query(message.run, message.body[0].tobytes(), message.sender)
        try:
            most = int(self._answering.counts.max())
            reason = None if self._consent is None else self._consent.refusal(query, most)
            if reason is not None:
                # Nothing is kept of it: refused questions must not drive out what is.
                return RefusingParty(query.run, self._answering.ids, reason)
        except LocalError as error:
            raise PeerError(message.sender, f"cannot answer: {error}") from error
        try:
            return self._agreed(message, query)
        except NotWritten as error:
            return RefusingParty(query.run, self._answering.ids, why_not_written(error))

    def _agreed(self, message: Message, query: Query) -> Machine:
        """Whatever must be on disk before the first answer is. Raises `NotWritten` otherwise."""
        self._begin(message, query.deadline)
        if not repeatable(query):
            self._of_pairs[message.run] = []
            for run in list(self._of_pairs)[:-MOST_REPEATED]:
                self._of_pairs[run].clear()
            if (said := self._said_before(message)) is not None:
                return Repeating(said)
        try:
            machine = self._answer(query, self._answering)
        except LocalError as error:
            if (absent := self._absent(query)) is not None:
                return RefusingParty(query.run, self._answering.ids, absent)
            raise PeerError(message.sender, f"cannot answer: {error}") from error
        if self._consent is None:
            return machine
        charge = partial(self._consent.charge, query)
        if (reason := self._written(query.run, query.deadline, charge)) is not None:
            return RefusingParty(query.run, self._answering.ids, reason)
        return machine

    def _written(self, run: bytes, seconds: float, work: Callable[[], Result]) -> Result:
        """Raises `NotWritten` if that could not be written in so many seconds."""
        try:
            return (
                work()
                if self.disk_patience is None
                else self.disk_patience.write(run, seconds, work)
            )
        except OSError as error:
            raise NotWritten(error.strerror or str(error)) from error

    def _absent(self, query: Query) -> str | None:
        """Names a column of the question that is not there. Which ones are there is said only if
        the policy says so: in a file without a header they are cells of a record."""
        columns = self._answering.columns
        missing = [name for name in query.statistic.columns if name not in columns]
        if not missing:
            return None
        told = self._consent is not None and self._consent.tells_columns
        there = f"; there are {', '.join(sorted(columns))}" if told else ""
        return f"no column {missing[0]!r}{there}"

    def _answer(self, query: Query, holdings: Holdings) -> Machine:
        randomness = self._randomness.derive(query.stream)
        return party_machine(query, holdings, randomness, self.signer)

    def _begin(self, message: Message, seconds: float) -> None:
        """Raises `PeerError` if this run was begun with other data, or another query: what servers
        hold of the first sharing would be added to a part of the second."""
        if self._answers is None:
            return
        data = self._randomness.rows("begun", self.holdings.ids, 16).tobytes()
        digest = hashlib.blake2s(data + message.body[0].tobytes()).digest()
        begin = partial(self._answers.begin, message.run[:NONCE_BYTES], digest)
        if not self._written(message.run, seconds, begin):
            reason = (
                "this run was begun with other data or another query, or is too old: "
                "nothing is added"
            )
            raise PeerError(message.sender, reason)
        try:
            self._told_before[message.run] = self._answers.told(message.run[:NONCE_BYTES])
        except OSError as error:
            raise PeerError(message.sender, f"cannot answer: {error}") from error

    def _said_before(self, message: Message) -> list[Message] | None:
        try:
            return None if self._answers is None else self._answers.kept(message.run)
        except (LocalError, OSError) as error:
            raise PeerError(message.sender, f"cannot answer: {error}") from error

    def _carry_out(self, run: bytes, step: Step) -> Reply:
        """Shares of pairs are on disk before they are sent: what cannot be repeated is not said."""
        try:
            return super()._carry_out(run, step)
        except NotWritten as error:
            self.abandon(run)
            reason = f"cannot keep what is to be said: {error}"
            return Reply(run, refused=[Rejected("store", reason)], finished=Failed(reason))

    def proceed(self, run: bytes) -> Reply:
        return self.advance(run, proceed)

    def _receive(self, machine: Machine, message: Message) -> Step:
        """What stations tell is on disk before it is answered: a host that is killed and started
        again takes nothing else in its place."""
        if self._answers is None or message.sender_role is Role.PARTY:
            return super()._receive(machine, message)
        before = self._told_before.get(message.run, {})
        told = things_told(message)
        if any(before.get(key, digest) != digest for key, digest in told.items()):
            return Rejected(message.sender, "tells something else than before we were restarted")
        step = super()._receive(machine, message)
        new = {key: digest for key, digest in told.items() if key not in before}
        if new and not isinstance(step, Rejected):
            tell = partial(self._answers.tell, message.run[:NONCE_BYTES], new)
            try:
                self._written(message.run, self.deadline_of(message.run), tell)
            except NotWritten as error:
                return Failed(f"cannot keep what was told: {error}")
        return step

    def _hear(self, message: Message) -> None:
        super()._hear(message)
        asks = message.phase in (Phase.QUERY, Phase.PAIRING)
        if not asks and message.sender_role is not Role.PARTY:
            self._led.add(message.run)

    def forget(self, run: bytes) -> None:
        super().forget(run)
        self._led.discard(run)
        self._told_before.pop(run, None)
        self._of_pairs.pop(run, None)

    def _remember(self, run: bytes, outgoing: list[Message]) -> None:
        super()._remember(run, outgoing)
        to_stations = [m for m in outgoing if m.receiver_role is not Role.PARTY]
        if run in self._of_pairs and to_stations:
            self._of_pairs[run] += to_stations
            if self._answers is not None:
                keep = partial(self._answers.keep, run, self._of_pairs[run])
                self._written(run, self.deadline_of(run), keep)


class Repeating:
    """Says what was said before this process was started, and is done."""

    def __init__(self, said: list[Message]) -> None:
        self._said = tuple(said)

    def start(self) -> Step:
        return Done(messages=self._said)

    def receive(self, message: Message) -> Step:
        return Rejected(message.sender, "all has been said")

    def expire(self) -> Step:
        return Continue()
