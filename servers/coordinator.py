"""The coordinator: enrols parties, asks, opens the noisy shares, answers.

Trusted to be there, not with data: what it sees is noisy before it arrives.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols import aggregation
from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.collector import Collector
from tallyroom.protocols.aggregation.contract import Records, Total
from tallyroom.protocols.errors import LocalError, PeerError, RunFailed
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import VERSION_BYTES
from tallyroom.protocols.run.evidence import Answered, Evidence
from tallyroom.protocols.run.machines import check, collector_machine
from tallyroom.protocols.run.participant import Participant, RecordSpends
from tallyroom.protocols.run.party_states import party_states
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.run.receipts import RECEIPT_BYTES, request_of
from tallyroom.protocols.run.refusal import Refusals, refusal_words
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.machine import Continue, Done, Failed, Machine, Rejected, Spend, Step
from tallyroom.protocols.wire.messages import (
    NONCE_BYTES,
    Message,
    Phase,
    Role,
    address,
    body_of,
    number,
    time_of,
)
from tallyroom.protocols.wire.meter import Direction, Meter
from tallyroom.servers.releases import Releases
from tallyroom.storage.certificates import Certificates
from tallyroom.storage.ledger import Ledger


class EvidenceKeeper(Participant):
    """Keeps what servers were asked to release, and what they signed for it: takes receipts off
    shares, and adds them to the total as evidence for it.

    `certificates` are those that servers sign with, as far as they are known.
    """

    def __init__(self, role: Role, record_spends: RecordSpends) -> None:
        super().__init__(role, record_spends, 0)
        self.certificates = Certificates(None)
        self._evidence: dict[bytes, Evidence] = {}

    def keep_evidence(self, query: Query, release: bytes | None = None) -> None:
        """From here on, for the run of this query; `release` is what it was released over before,
        if it was."""
        evidence = Evidence(query.run, query.encode())
        self._evidence[query.run] = evidence if release is None else evidence.released(release)

    def forget(self, run: bytes) -> None:
        super().forget(run)
        self._evidence.pop(run, None)

    def _receive(self, machine: Machine, message: Message) -> Step:
        """A collector takes shares; their receipts are kept beside it."""
        if message.phase is Phase.SHARE:
            if message.links != 1 or message.width < RECEIPT_BYTES:
                return Rejected(message.sender, "a share without its receipt")
            evidence = self._evidence.get(message.run)
            request = request_of(message.body[0, :RECEIPT_BYTES].tobytes())
            if evidence is not None and evidence.is_stale(request):
                return Rejected(message.sender, "a share of other points than were asked last")
            message = replace(message, body=message.body[:, RECEIPT_BYTES:])
        return super()._receive(machine, message)

    def _hear(self, message: Message) -> None:
        super()._hear(message)
        if message.phase is Phase.SHARE:
            machine, server = self._machines.get(message.run), int(message.senders[0])
            public = isinstance(machine, Collector) and machine.public
            body = message.body[0].tobytes()
            answer = Answered(
                server,
                body[RECEIPT_BYTES:] if public else b"",
                body[:RECEIPT_BYTES],
                self.certificates.get(server, b""),
            )
            if (evidence := self._evidence.get(message.run)) is not None:
                self._evidence[message.run] = evidence.answered(answer)

    def _send(self, run: bytes, messages: Sequence[Message]) -> list[Message]:
        for message in messages:
            evidence = self._evidence.get(run)
            if evidence is not None and message.phase is Phase.RELEASE:
                self._evidence[run] = evidence.released(message.body[0].tobytes())
            elif evidence is not None and message.phase is Phase.ASK:
                self._evidence[run] = evidence.asked(message.body[0].tobytes())
        return super()._send(run, messages)

    def _carry_out(self, run: bytes, step: Step) -> Reply:
        """What a machine is done with goes with the evidence for it."""
        if isinstance(step, Done) and isinstance(step.output, Total):
            step = replace(
                step, output=replace(step.output, evidence=self._evidence.pop(run, None))
            )
        return super()._carry_out(run, step)


Ids = NDArray[np.uint32]

MOST_QUESTIONS = 4096
"""Of so many, the last, it is known what was asked under their keys."""
MAX_RECORDS_EACH = 1 << 24
"""One party must not be able to claim more records than any question could be about."""


KEY_BYTES = 16


class Coordinator(EvidenceKeeper):
    """`seeded`: questions without a key get one from the seed as well, and not at random.
    `last_time` is that of the last run that was numbered (`protocols.run.begun`)."""

    def __init__(
        self,
        servers: int,
        parties: int,
        ledger: Ledger,
        randomness: Randomness,
        max_records_per_party: int = MAX_RECORDS_EACH,
        seeded: bool = False,
    ) -> None:
        super().__init__(Role.COORDINATOR, self._record)
        self._max_records_per_party = max_records_per_party
        self._seeded = seeded
        self._questions: dict[str, Query] = {}
        self.last_time = 0
        self._refusals: dict[bytes, Refusals] = {}
        self.servers = servers
        self.parties = parties
        self.ledger = ledger
        self._askers: dict[str, str] = {}
        self._randomness = randomness
        self._records = np.zeros(parties, dtype=np.int64)
        self._present = np.zeros(parties, dtype=bool)
        self._versions = np.zeros((parties, VERSION_BYTES), dtype=np.uint8)
        self._data: bytes | None = None
        self.releases = Releases(parties)

    @property
    def enrolled(self) -> int:
        """How many parties are here now."""
        return int(np.count_nonzero(self._present))

    def states(self, run: bytes, submitted: NDArray[np.bool_], closed: bool) -> NDArray[np.uint8]:
        """Of each party, how it stands in a run; `closed` is when nobody is waited for any more."""
        refusals = self._refusals.get(run)
        refusing = np.zeros(self.parties, dtype=bool) if refusals is None else refusals.refusing
        return party_states(self._present, submitted, refusing, closed)

    @property
    def most_records(self) -> int:
        """The number of records of the largest party that ever joined."""
        return int(self._records.max())

    @property
    def all_records(self) -> int:
        """The number of records of all parties; one that has not joined yet has at least one."""
        return int(np.maximum(self._records, 1).sum())

    @property
    def data(self) -> bytes:
        """Names the data that parties hold, as far as they have said what it is. Of a million
        parties these are 24 MB, which are read again only when one has joined."""
        if self._data is None:
            digest = hashlib.blake2s(self._records.astype("<i8").tobytes(), person=b"the data")
            digest.update(self._versions.tobytes())
            self._data = digest.digest()
        return self._data

    def enrol(self, ids: Ids, records: NDArray[np.uint32], version: bytes = b"") -> None:
        """Parties join, with the number of records that each holds, which is public, and a version
        of their data that is all the same to us: another one is of other data."""
        if len(ids) != len(records) or len(ids) == 0 or int(records.min()) < 1:
            raise LocalError("every party needs at least one record to join")
        if int(records.max()) > self._max_records_per_party:
            raise LocalError(
                f"a party holds at most {self._max_records_per_party} records in this federation, "
                f"not {int(records.max())}"
            )
        if int(ids.max()) >= self.parties:
            raise LocalError(f"this federation has room for {self.parties} parties")
        if len(version) not in (0, VERSION_BYTES):
            raise LocalError(f"a version of data has {VERSION_BYTES} bytes, not {len(version)}")
        self._records[ids] = records
        self._versions[ids] = np.frombuffer(version or bytes(VERSION_BYTES), dtype=np.uint8)
        self._present[ids] = True
        self._data = None

    def leave(self, ids: Ids) -> None:
        """Parties are gone; they may join again."""
        self._present[ids] = False

    def open(self, message: Message) -> Machine:
        raise PeerError(message.sender, "a coordinator asks, it is not asked")

    def asked_by(self, run: bytes, analyst: str) -> None:
        """This analyst is told what the run releases."""
        self._askers[run.hex()] = analyst

    def _record(self, spends: Sequence[Spend]) -> None:
        for spend in spends:  # a collector has one
            self.ledger.record([spend], analyst=self._askers.get(spend.receipt, ""))

    def forget(self, run: bytes) -> None:
        super().forget(run)
        self._askers.pop(run.hex(), None)

    def keyed(self, question: Question) -> Question:
        """The question under a key: one of its own where the analyst gave none."""
        if question.key:
            return question
        key = self._randomness.bytes(KEY_BYTES) if self._seeded else os.urandom(KEY_BYTES)
        return replace(question, key=key.hex())

    def named(self, key: str) -> bytes:
        """What a question under this key is called, also after a restart."""
        return self._randomness.derive(f"question {key}").bytes(NONCE_BYTES)

    def query(self, question: Question, time: int | None = None) -> Query:
        """The query for a question, in a run of this time, or else one that is named for its key.
        The same question under the same key is the same run. Raises `LocalError` where it cannot be
        asked here, or where its key was another question's."""
        if self.enrolled == 0:
            raise RunFailed("no party is here")
        question = self.keyed(question)
        if (known := self._questions.get(question.asking)) is not None:
            if question.as_put(known) != known:
                raise LocalError("another question was asked under this key: choose a new one")
            return known
        nonce = self.named(question.key)
        if time is not None:
            nonce = number(time, int.from_bytes(nonce, "big"))
        query = question.query(
            nonce, self.parties, self.servers, self.all_records, self.most_records
        )
        check(query)
        releases, data = self.releases, self.data
        if question.fresh or not releases.knows(query, data):
            spend = aggregator_named(query.aggregator).mechanism(query).spend
            self.ledger.check(query.foreseen(spend))
        if question.fresh:
            releases.outdate(query, data)
        return query

    def name_of(self, query: Query) -> bytes:
        """The run in which a query is put: its own, or that of the tree it asks more points of."""
        found = self.releases.held(query, self.data)
        return query.run if found is None else found[0].run

    def ask(self, query: Query) -> Reply:
        """Puts the query to all; servers are told not to wait for parties that are not here."""
        self._remember_question(query)
        if (found := self.releases.held(query, self.data)) is not None:
            held, members = found
            self.keep_evidence(held, np.packbits(members).tobytes())
            self._rounds.setdefault(held.run, 0)  # it may have been begun before a restart
            collector = aggregation.OnDemandCollector(query, self._records, members, held.run)
            return self.resume(held.run, collector)
        outcome = self.start(query, self.records)
        outcome.messages += self.excuse_absent(query.run).messages
        return outcome

    def start(self, query: Query, records: Records) -> Reply:
        """Begins a run; after a restart, with the records that parties held when it was asked."""
        randomness = self._randomness.derive(query.stream)
        collector = collector_machine(query, records, randomness)
        self._remember_question(query)
        self.keep_evidence(query)
        self._refusals[query.run] = Refusals(query.parties, query.min_parties)
        return self.begin(query.run, collector)

    def withdraw(self, run: bytes) -> None:
        """Takes back a run that nobody has heard of."""
        self.forget(run)
        for asking in [key for key, query in self._questions.items() if query.run == run]:
            del self._questions[asking]

    def remember_time(self, run: bytes) -> None:
        """This run was begun: all that follow are of a later time."""
        self.last_time = max(self.last_time, time_of(run[:NONCE_BYTES]))

    def _remember_question(self, query: Query) -> None:
        self.remember_time(query.run)
        self._questions.setdefault(query.asking, query)
        while len(self._questions) > MOST_QUESTIONS:
            del self._questions[next(iter(self._questions))]

    @property
    def records(self) -> Records:
        return self._records.copy()

    def remind(self, query: Query, parties: Ids) -> Message:
        """The question again, for parties that may have missed it."""
        return self._query_message(query.run, query.encode(), Role.PARTY, parties)

    def remind_server(self, run: bytes, server: int) -> Message | None:
        """The question that a server knows a run by, which a stored tree has from the first that
        asked it; None if it is over."""
        if (evidence := self._evidence.get(run)) is None:
            return None
        return self._query_message(run, evidence.query, Role.SERVER, address(server))

    def _query_message(self, run: bytes, query: bytes, to: Role, receivers: Ids) -> Message:
        message = Message(
            run,
            Phase.QUERY,
            Role.COORDINATOR,
            to,
            address(0),
            receivers,
            body_of(query),
            round=1,
        )
        self.meters.setdefault(run, Meter()).record(Direction.SENT, message)
        return message

    def excuse_absent(self, run: bytes) -> Reply:
        """Servers need not wait for what parties that are not here have not submitted."""
        absent = np.flatnonzero(~self._present).astype(np.uint32)
        if not len(absent):
            return Reply(run)
        return self.advance(
            run,
            lambda machine: machine.lose(absent) if isinstance(machine, Collector) else Continue(),
        )

    def awaits(self, message: Message) -> bool:
        """Nothing is written down of a refusal that was heard before, however often it comes."""
        if message.phase is Phase.REFUSE and message.sender_role is Role.PARTY:
            refusals = self._refusals.get(message.run)
            return refusals is not None and not refusals.is_known(message)
        return super().awaits(message)

    def abandon(self, run: bytes) -> None:
        super().abandon(run)
        self._refusals.pop(run, None)

    def _receive(self, machine: Machine, message: Message) -> Step:
        """Whether parties take part is no matter of the aggregator."""
        if message.phase is not Phase.REFUSE or message.sender_role is not Role.PARTY:
            return super()._receive(machine, message)
        refusals = self._refusals.get(message.run)
        if refusals is None:
            return Rejected(message.sender, "nobody waits for it to take part")
        if (rejected := refusals.take(message)) is not None:
            return rejected
        if (reason := refusals.too_many) is not None:
            return Failed(reason)
        return machine.lose(message.senders) if isinstance(machine, Collector) else Continue()

    def _carry_out(self, run: bytes, step: Step) -> Reply:
        """How a run ends is told with who would have no part in it."""
        refusals = self._refusals.get(run)
        if refusals is not None and refusals.count:
            reasons, count = refusals.reasons, refusals.count
            if isinstance(step, Failed):
                step = Failed(f"{step.reason}; {refusal_words(reasons, count)}")
            elif isinstance(step, Done) and isinstance(step.output, Total):
                told = replace(step.output, refusals=reasons, refusing=count)
                step = replace(step, output=told)
        return super()._carry_out(run, step)

    def awaits_parties(self, run: bytes) -> bool:
        """Whether a party that was away may still submit."""
        machine = self._machines.get(run)
        return isinstance(machine, Collector) and machine.awaits_parties

    def can_spare(self, run: bytes) -> bool:
        """Whether a run goes on if one more server is lost."""
        machine = self._machines.get(run)
        return isinstance(machine, Collector) and machine.can_spare

    def lose_server(self, run: bytes, server: int, reason: str) -> Reply:
        """A server is gone: the run goes on if it can do without."""
        return self.advance(
            run,
            lambda machine: (
                machine.lose_servers({server}, reason)
                if isinstance(machine, Collector)
                else Failed(f"{Role.SERVER.named(server)} {reason}")
            ),
        )

    def is_releasing(self, run: bytes) -> bool:
        """Whether servers were told to release: then ε may be spent, and the answer is due."""
        machine = self._machines.get(run)
        unpaid = bool(self.unpaid(run))
        return isinstance(machine, Collector) and (machine.releases or unpaid)

    def awaited_servers(self, run: bytes) -> list[int]:
        machine = self._machines.get(run)
        return machine.awaited_servers if isinstance(machine, Collector) else []
