"""A host that is killed and started again says what it said, or nothing: at whatever moment of a
run of pairs, the total is right over the pairs that count."""

import datetime as dt
import errno
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tallyroom.parties.block import PartyBlock
from tallyroom.parties.process import PartyConfig, PartyHost
from tallyroom.protocols.aggregation.contract import Memory, Total
from tallyroom.protocols.algebra.ring import signed
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.certificates import Authority, Identity
from tallyroom.protocols.pairwise.roles.server_and_collector import PairwiseCollector
from tallyroom.protocols.pairwise.sampling.pair_assignment import draw_meetings
from tallyroom.protocols.pairwise.sampling.schedule import pairs_of
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.run.machines import collector_machine, server_machine
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.machine import Done, Failed, Rejected, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role, milliseconds
from tallyroom.protocols.wire.messages import number as run_number
from tallyroom.storage import party_answers as answers_module
from tallyroom.storage.mark import Mark
from tallyroom.storage.party_answers import MOST_SAID, PartyAnswers, things_told
from tests.protocols.pairwise.gathering import a_pairs_query, deal_base_ots, held
from tests.samples import RUN, a_message, a_query, holdings_of

COUNTS = [2, 1, 2]
HOLDINGS = held(COUNTS, {"value": np.array([0.1, 0.9, 0.4, 0.7, 0.2])})
HOSTS = list(HOLDINGS.blocks(3))


class Room:
    """Three hosts with a store each, two servers and a coordinator, message by message."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.query = a_pairs_query(Gini(lower=0.0, upper=1.0, bits=4), HOLDINGS, min_parties=1)
        self.hosts = [self._host(number) for number in range(3)]
        self.servers = [
            server_machine(self.query, i, Randomness.from_seed(1, f"server-{i}"), Memory())
            for i in range(2)
        ]
        counts = HOLDINGS.counts.astype(np.int64)
        collector = collector_machine(self.query, counts, Randomness.from_seed(1, "c"))
        assert isinstance(collector, PairwiseCollector)
        self.collector = collector
        self.total: Total | None = None
        self.failed: Failed | None = None
        self.queue: list[Message] = []
        self.told: list[Message] = []

    def _host(self, number: int) -> PartyBlock:
        secret = Randomness.from_seed(1, f"host-{number}")
        return PartyBlock(
            HOSTS[number], secret, answers=PartyAnswers(self.folder / f"host-{number}")
        )

    def run(self, victim: int | None = None, at: int = -1) -> int:
        """Kills a host before the delivery of that number; returns how many there were."""
        for server in self.servers:
            self._take(server.start())
        step = self.collector.start()
        self._take(step)
        self.told = [m for m in self.queue if m.receiver_role is Role.PARTY]
        delivered = 0
        while self.total is None and self.failed is None:
            if delivered == at and victim is not None:
                self.kill(victim)
            if self.queue:
                self._deliver(self.queue.pop(0))
                delivered += 1
            else:
                self._pass_deadline()
        return delivered

    def kill(self, number: int) -> None:
        """What it had not got rid of is lost; the coordinator tells it again what it told."""
        mine = HOSTS[number].ids
        self.queue = [
            m for m in self.queue if m.sender_role is not Role.PARTY or m.senders[0] not in mine
        ]
        self.hosts[number] = self._host(number)
        for message in self.told:
            here = np.flatnonzero(np.isin(message.receivers, mine))
            if len(here):
                self.queue.append(message.select(here))

    def _pass_deadline(self) -> None:
        for host in self.hosts:
            self.queue += host.expire(self.query.run).messages
        for server in self.servers:
            if not self.queue:
                self._take(server.expire())
        if not self.queue:
            self._take(self.collector.expire())

    def _deliver(self, message: Message) -> None:
        match message.receiver_role:
            case Role.COORDINATOR:
                self._take(self.collector.receive(message))
            case Role.SERVER if message.phase is not Phase.QUERY:
                self._take(self.servers[int(message.receivers[0])].receive(message))
            case Role.PARTY:
                for host, block in zip(self.hosts, HOSTS, strict=True):
                    here = np.flatnonzero(np.isin(message.receivers, block.ids))
                    if len(here):
                        self.queue += host.handle(message.select(here)).messages

    def _take(self, step: Step) -> None:
        match step:
            case Rejected():
                return
            case Failed():
                self.failed = step
                return
            case Done(output=Total() as total):
                self.total = total
        self.queue += step.messages

    @property
    def released(self) -> int:
        assert self.total is not None
        return int(signed(self.query.plan.measure(self.total.vector))[0])

    @property
    def expected(self) -> tuple[int, int]:
        """The kernel in the clear over the pairs that the coordinator counts, and their number."""
        plan, cells = pairs_of(self.query), self.collector._cells
        parties, entries = draw_meetings(plan.sample, HOLDINGS.counts.astype(np.int64))
        counted = cells[parties, entries["slot"]] & (entries["second"] == 0)
        records, each = plan.measured(HOLDINGS), plan.sample.matchings
        mine = HOLDINGS.starts[parties] + entries["slot"] // each
        theirs = HOLDINGS.starts[entries["partner"]] + entries["theirs"] // each
        values = plan.kernel.reference(records[mine[counted]], records[theirs[counted]])
        return int(values.sum()), int(np.count_nonzero(counted))


def test_nobody_is_killed(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.run()
    assert room.total is not None
    assert (room.released, room.total.records) == room.expected


@pytest.mark.parametrize("victim", range(3))
def test_a_host_killed_at_any_moment_makes_no_total_wrong(
    victim: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before every single delivery of the run. What was submitted to one server only is submitted
    to the other as it was; pairs that were lost are lost at all servers alike."""
    deal_base_ots(monkeypatch)
    monkeypatch.setattr(answers_module, "sync", lambda _: None)  # no power is cut here
    deliveries = Room(tmp_path / "calm")
    lost = 0
    for at in range(deliveries.run()):
        room = Room(tmp_path / str(at))
        room.run(victim, at)
        if room.failed is not None:
            assert "completed" in room.failed.reason
            continue
        assert room.total is not None
        assert (room.released, room.total.records) == room.expected
        lost += room.total.records < deliveries.expected[1]
    assert lost  # some kills do cost pairs, and the result says how many count


def asked(query: Query) -> Message:
    return a_message(
        Phase.QUERY,
        Role.COORDINATOR,
        Role.PARTY,
        receivers=(0, 1, 2, 3),
        body=query.encode(),
        run=query.run,
    )


def block_of(values: list[float], folder: Path) -> PartyBlock:
    return PartyBlock(holdings_of(values, 4), Randomness(bytes(16)), answers=PartyAnswers(folder))


def test_a_run_is_not_answered_again_with_other_data(tmp_path: Path) -> None:
    """Servers that hold a part of the first sharing would add a part of the second to it."""
    query = a_query()
    first = block_of([0.1, 0.4, 0.6, 0.9], tmp_path).handle(asked(query))
    assert first.messages
    again = block_of([0.1, 0.4, 0.6, 0.9], tmp_path).handle(asked(query))
    assert [m.encode() for m in again.messages] == [m.encode() for m in first.messages]
    for values in ([0.1, 0.4, 0.6, 0.8], [0.4, 0.1, 0.6, 0.9]):
        other = block_of(values, tmp_path).handle(asked(query))
        assert other.messages == []
        assert "begun with other data" in other.refused[0].reason
    another = a_query(nonce=b"run-0002")
    assert block_of([0.1, 0.4, 0.6, 0.8], tmp_path).handle(asked(another)).messages


def test_a_run_is_not_answered_again_with_another_query(tmp_path: Path) -> None:
    values = [0.1, 0.4, 0.6, 0.9]
    assert block_of(values, tmp_path).handle(asked(a_query())).messages
    for query in (a_query(data="other"), a_query(deadline=31.0)):
        other = block_of(values, tmp_path).handle(asked(query))
        assert other.messages == []
        assert "another query" in other.refused[0].reason


def test_what_cannot_be_kept_is_not_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: nothing is submitted that could not be repeated."""
    room = Room(tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(room.hosts[0]._answers, "keep", full)
    room.run()
    if room.total is not None:
        assert 0 not in room.total.contributors
        assert (room.released, room.total.records) == room.expected


def some_messages(count: int) -> Iterator[Message]:
    for number in range(count):
        yield a_message(Phase.SUBMIT, Role.PARTY, Role.SERVER, (number,), body=bytes([number] * 9))


def test_what_was_said_is_read_back_to_the_byte(tmp_path: Path) -> None:
    answers = PartyAnswers(tmp_path)
    assert answers.kept(RUN) is None
    said = list(some_messages(3))
    answers.keep(RUN, said)
    kept = PartyAnswers(tmp_path).kept(RUN)
    assert kept is not None
    assert [m.encode() for m in kept] == [m.encode() for m in said]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


@pytest.mark.parametrize("at", [0, 5, 40, -1])
def test_a_file_that_is_spoilt_is_not_taken_for_an_answer(at: int, tmp_path: Path) -> None:
    answers = PartyAnswers(tmp_path)
    answers.keep(RUN, list(some_messages(2)))
    (path,) = tmp_path.glob("*.said")
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(LocalError, match="messages sent in run"):
        answers.kept(RUN)
    path.write_bytes(bytes(data[:3]))
    with pytest.raises(LocalError, match="messages sent in run"):
        answers.kept(RUN)


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def test_old_runs_are_forgotten_and_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers_module, "sync", lambda _: None)
    monkeypatch.setattr(answers_module, "MOST_BEGUN", 16)
    answers = PartyAnswers(tmp_path)
    for value in range(1, 60):
        assert answers.begin(number(value), bytes(32))
        answers.keep(number(value), [])
    assert 16 <= len(list(tmp_path.glob("*.begun"))) <= 32
    said = [path.stat().st_size for path in sorted(tmp_path.glob("*.said"))]
    assert [size > 0 for size in said[-MOST_SAID - 1 :]] == [False] + [True] * MOST_SAID
    assert len(said) <= 32
    with pytest.raises(LocalError, match="can no longer be read"):
        answers.kept(number(59 - MOST_SAID))  # to meet again would give other shares
    assert answers.kept(number(59)) == []
    for started in (answers, PartyAnswers(tmp_path)):
        assert started.begin(number(59), bytes(32))
        assert not started.begin(number(59), bytes(31) + b"1")
        assert not any(started.begin(number(value), bytes(32)) for value in range(28))


def test_the_mark_is_on_disk_before_what_is_below_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers_module, "sync", lambda _: None)
    monkeypatch.setattr(answers_module, "MOST_BEGUN", 2)
    answers = PartyAnswers(tmp_path)
    for value in range(1, 5):
        answers.begin(number(value), bytes(32))

    def killed(*_: object) -> None:
        raise OSError("killed")

    monkeypatch.setattr(Mark, "write", killed)
    with pytest.raises(OSError, match="killed"):
        answers.begin(number(5), bytes(32))
    assert len(list(tmp_path.glob("*.begun"))) == 5


def test_a_run_is_not_answered_again_after_many_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that was started anew since, asked what it answered then."""
    monkeypatch.setattr(answers_module, "MOST_BEGUN", 4)
    values, old = [0.1, 0.4, 0.6, 0.9], a_query(nonce=number(1))
    block = block_of(values, tmp_path)
    for value in range(1, 14):
        assert block.handle(asked(a_query(nonce=number(value)))).messages
    again = block_of(values, tmp_path).handle(asked(old))
    assert again.messages == []
    assert "too old" in again.refused[0].reason


def test_a_store_without_what_was_said_answers_nothing_of_before(tmp_path: Path) -> None:
    """A copy of the secret alone, or what an earlier version left."""
    (tmp_path / f"{number(3).hex()}.begun").write_bytes(bytes(32))
    answers = PartyAnswers(tmp_path, number(5))
    assert [answers.begin(number(value), bytes(32)) for value in (3, 5, 6)] == [False, False, True]
    assert PartyAnswers(tmp_path, number(9)).begin(number(7), bytes(32))


def test_what_was_told_outlives_a_torn_end(tmp_path: Path) -> None:
    answers = PartyAnswers(tmp_path)
    answers.begin(number(1), bytes(32))
    first, second = (
        things_told(a_message(Phase.KEYS, Role.SERVER, Role.PARTY, receivers=(3, 4), body=body))
        for body in (b"one", b"other")
    )
    answers.tell(number(1), first)
    (path,) = tmp_path.glob("*.begun")
    with path.open("ab") as file:
        file.write(b"torn")
    assert PartyAnswers(tmp_path).told(number(1)) == first
    later = {b"\0" * 10: b"\1" * 16}
    answers.tell(number(1), later)
    assert answers.told(number(1)) == first | later
    assert first.keys() == second.keys()
    assert not first.items() & second.items()


def put_to_host(query: Query, folder: Path) -> Reply:
    """To a party as it is started for a deployment, with a store and its own clock."""
    now = dt.datetime.now(dt.UTC)
    authority = Authority.create("test", now, dt.timedelta(days=1))
    shown = authority.issue(Identity(Role.PARTY, 0, 3), now, dt.timedelta(days=1))
    held = holdings_of([0.1, 0.4, 0.6, 0.9], 4)
    host = PartyHost(PartyConfig(shown, "127.0.0.1:1", held, store=folder))
    assert host._lock is not None
    try:
        return host._block.handle(asked(query))
    finally:
        host._lock.release()


def of_time(seconds: float) -> Query:
    return a_query(nonce=run_number(milliseconds(time.time() + seconds), 0))


def test_a_deployed_party_goes_by_its_clock_and_its_store(tmp_path: Path) -> None:
    for seconds, words in ((400, "ahead of our clock"), (-90_000, "long before our clock")):
        assert words in put_to_host(of_time(seconds), tmp_path).refused[0].reason
    old, never = of_time(-60), of_time(-30)
    first = put_to_host(old, tmp_path).messages
    assert [m.encode() for m in put_to_host(old, tmp_path).messages] == [m.encode() for m in first]
    shutil.rmtree(tmp_path / "answers")  # a copy of its secret and its ledger alone
    for query in (old, never):
        assert "too old" in put_to_host(query, tmp_path).refused[0].reason
    assert put_to_host(of_time(1), tmp_path).messages


def test_a_store_that_cannot_be_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalError, match="cannot use"):
        PartyAnswers(tmp_path / "file" / "answers")
