"""A large block sent part by part is the same block, and never in memory as a whole."""

import asyncio
import datetime as dt
import tracemalloc
from fractions import Fraction
from typing import ClassVar

import grpc
import grpc.aio
import numpy as np
import pytest

from tallyroom.parties.block import PartyBlock
from tallyroom.parties.process import PARTS_IN_FLIGHT, PartyConfig, PartyHost
from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.identity.certificates import Authority, Identity
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings, deal, deal_by
from tallyroom.protocols.run import machines
from tallyroom.protocols.run.machines import party_machine
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.wire.machine import (
    Continue,
    Done,
    Failed,
    Machine,
    Rejected,
    Step,
    proceed,
)
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.simulation import Federation
from tests.samples import a_message

PARTIES = 400
NOISE = {
    "curator": Placement.CURATOR,
    "additive": Placement.PARTIES,
    "shamir": Placement.PARTIES,
    "masking": Placement.PARTIES,
}

SPECS = ["curator", "additive", "fss?verified=no", "fss?verified=yes"]


def holdings_of(parties: int = PARTIES) -> Holdings:
    """Parties with one, two or three records."""
    owner = np.repeat(np.arange(parties), 1 + np.arange(parties) % 3)
    values = np.random.default_rng(1).random(len(owner))
    return deal_by({"value": values}, owner)


def query_of(aggregator: str, holdings: Holdings) -> Query:
    statistic = (
        Ecdf(lower=0.0, upper=1.0, thresholds=8)
        if aggregator.startswith("fss")
        else Histogram(lower=0.0, upper=1.0, bins=8)
    )
    return Query(
        nonce=b"in parts",
        statistic=statistic,
        aggregator=aggregator,
        parties=len(holdings.ids),
        servers=1 if aggregator == "curator" else 2,
        records=holdings.rows,
        epsilon=Fraction(1),
        noise=NOISE.get(aggregator, Placement.EACH_SERVER),
        data="uniform",
        min_parties=len(holdings.ids),
        max_records_per_party=3,
    )


def spoken(machine: Machine) -> list[Step]:
    steps = [machine.start()]
    while isinstance(steps[-1], Continue) and steps[-1].more:
        steps.append(proceed(machine))
    return steps


def rows_of(steps: list[Step]) -> dict[tuple[int, int], bytes]:
    """What each party sends to each server; a party that sends twice is an error."""
    found: dict[tuple[int, int], bytes] = {}
    for step in steps:
        assert isinstance(step, Continue | Done)
        for message in step.messages:
            for one in message.split():
                link = int(one.senders[0]), int(one.receivers[0])
                assert link not in found
                found[link] = one.body.tobytes()
    return found


@pytest.mark.parametrize(
    "aggregator", ["curator", "additive", "fss?verified=no", "fss?verified=yes"]
)
def test_parts_say_what_the_whole_says(aggregator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    holdings = holdings_of()
    query = query_of(aggregator, holdings)
    randomness = Randomness.from_seed(1, "parties")
    whole = spoken(party_machine(query, holdings, randomness))
    assert len(whole) == 1
    monkeypatch.setattr(machines, "PART_BYTES", 3000)
    parts = spoken(party_machine(query, holdings, randomness))
    assert len(parts) > 5
    assert all(isinstance(step, Continue) and step.more for step in parts[:-1])
    assert isinstance(parts[-1], Done)
    assert rows_of(parts) == rows_of(whole)


def test_a_part_holds_about_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most as many and one party's more, whatever each party holds."""
    holdings = holdings_of()
    query = query_of("fss?verified=no", holdings)
    monkeypatch.setattr(machines, "PART_BYTES", 10_000)
    for step in spoken(party_machine(query, holdings, Randomness.from_seed(1, "parties"))):
        assert isinstance(step, Continue | Done)
        size = sum(m.body.size for m in step.messages if m.receivers[0] == 0)
        assert 0 < size <= 10_000 + 3 * 240 + 16


@pytest.mark.parametrize("name", ["masking", "shamir", "shuffle", "prio3"])
def test_parties_that_must_be_computed_together_are(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under shamir a server may be gone: the others must not wait for it between two parts."""
    monkeypatch.setattr(machines, "PART_BYTES", 1)
    holdings = holdings_of(5)
    (whole,) = machines.parts(aggregator_named(name), query_of(name, holdings), holdings)
    assert whole.ids.tolist() == holdings.ids.tolist()


def test_memory_is_that_of_a_part() -> None:
    """24,000 keys are 2 × 19 MB; a part is 2 MiB to each of two servers."""
    holdings = deal({"value": np.random.default_rng(1).random(24_000)}, 24_000)
    query = query_of("fss?domain=fine&verified=no", holdings)
    machine = party_machine(query, holdings, Randomness.from_seed(1, "parties"))
    tracemalloc.start()
    try:
        step = machine.start()
        parts = 1
        while isinstance(step, Continue):
            assert step.more
            step = proceed(machine)
            parts += 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert parts == 9
    assert peak < 9 * machines.PART_BYTES


class Fickle:
    """A part whose data cannot be read, or that does not keep to its promise to speak once."""

    def __init__(self, step: Step) -> None:
        self._step = step

    def start(self) -> Step:
        return self._step

    def receive(self, message: Message) -> Step:
        return Rejected(message.sender, "no")

    def expire(self) -> Step:
        return Done()


def test_a_machine_that_speaks_twice_is_not_cut_in_parts() -> None:
    machine = machines.in_parts(iter([Fickle(Continue()), Fickle(Done())]))
    (step,) = spoken(machine)
    assert isinstance(step, Failed)
    assert "more than once" in step.reason


def test_a_block_takes_no_message_between_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "PART_BYTES", 3000)
    holdings = holdings_of()
    query = query_of("additive", holdings)
    block = PartyBlock(holdings, Randomness.from_seed(1, "parties"))
    asked = a_message(
        Phase.QUERY, Role.COORDINATOR, Role.PARTY, body=query.encode(), run=query.run, round_=1
    )
    first = block.handle(asked)
    assert first.more
    assert first.messages
    again = block.handle(asked)  # a coordinator that was restarted: the parts go on as they were
    assert not again.messages
    assert not again.more
    from_server = a_message(Phase.KEYS, Role.SERVER, Role.PARTY, run=query.run, round_=2)
    assert block.handle(from_server).refused
    outcomes = [first]
    while outcomes[-1].more:
        outcomes.append(block.proceed(query.run))
    assert not block.is_open(query.run)
    assert not block.proceed(query.run).messages
    repeated = block.handle(asked)  # all of it again, for a server that lost it
    assert repeated.more
    assert repeated.messages[0].body.tobytes() == first.messages[0].body.tobytes()


class Cut(PartyHost):
    """A host whose calls to one server end in an error."""

    calls: ClassVar[list[str]] = []

    async def _send(self, message: Message) -> None:
        self.calls.append(message.receiver)
        if message.receiver == "server-1":
            status, nothing = grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(status, nothing, nothing, "gone")


def test_a_server_that_is_gone_is_not_waited_for_at_every_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each wait may be as long as the question's deadline; the other server gets every part."""
    monkeypatch.setattr(machines, "PART_BYTES", 3000)
    holdings = holdings_of()
    query = query_of("additive", holdings)
    asked = a_message(
        Phase.QUERY, Role.COORDINATOR, Role.PARTY, body=query.encode(), run=query.run, round_=1
    )
    now, day = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
    shown = Authority.create("test", now, day).issue(Identity(Role.PARTY, 0, PARTIES), now, day)

    async def answer() -> None:
        await Cut(PartyConfig(shown, "127.0.0.1:1", holdings, seed=1))._answer(asked)

    asyncio.run(answer())
    parts = len(list(machines.parts(aggregator_named("additive"), query, holdings)))
    assert parts > PARTS_IN_FLIGHT + 1
    assert Cut.calls.count("server-0") == parts
    assert 1 <= Cut.calls.count("server-1") <= PARTS_IN_FLIGHT


def test_a_run_in_parts_has_the_same_answer_and_bill(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer() -> tuple[object, object]:
        with Federation(
            parties=300, aggregator="fss", hosts=2, data="synthetic:scores?n=700", seed=3
        ) as federation:
            result = federation.run(Ecdf(value="score", thresholds=16), epsilon=1)
        return result.as_json()["estimate"], result.communication

    whole = answer()
    monkeypatch.setattr(machines, "PART_BYTES", 5000)
    assert answer() == whole
