"""Streams: exact batch by batch, paid once, every batch released once whoever asks or repeats."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.aggregation.exchange import MachineLoop
from tallyroom.protocols.aggregation.stream import StreamServer, numbered, plan_of
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.run.machines import (
    check,
    collector_machine,
    party_machine,
    server_machine,
)
from tallyroom.protocols.statistics import Curve
from tallyroom.protocols.statistics.planned import laplace_noise
from tallyroom.protocols.statistics.release import Release
from tallyroom.protocols.statistics.running_sum import RunningSum
from tallyroom.protocols.wire.machine import Continue, Rejected, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.simulation import Federation
from tests.protocols.aggregation.streams import (
    BATCHES,
    PARTIES,
    a_server,
    ask,
    asked,
    batches,
    opening,
    said,
    some_holdings,
)
from tests.samples import a_query, bitmap


def share(step: Step) -> bytes:
    assert isinstance(step, Continue)
    [found] = [m for m in step.messages if m.phase is Phase.SHARE]
    told: bytes = found.body[0].tobytes()
    return told


def why(step: Step) -> str:
    assert isinstance(step, Rejected)
    return step.reason


def a_run(query: Query, lost: Iterable[tuple[int, int]] = ()) -> Any:
    """The release, where these batches of these parties are lost on the way."""

    def on_way(message: Message) -> Iterable[Message]:
        if message.phase is not Phase.SUBMIT:
            return (message,)
        batch = int.from_bytes(message.body[0, :8].tobytes(), "little")
        gone = [party for party, of in lost if of == batch]
        kept = np.flatnonzero(~np.isin(message.senders, gone))
        return (message.select(kept),) if len(kept) else ()

    holdings = some_holdings(getattr(query.statistic, "lower", 0.0))
    servers = [
        server_machine(query, i, Randomness.from_seed(i, "server"), Memory()) for i in range(2)
    ]
    records = holdings.counts.astype(np.int64)
    coordinator = collector_machine(query, records, Randomness.from_seed(1, "coordinator"))
    loop = MachineLoop(servers, coordinator, on_way)
    for machine in (*servers, coordinator):
        loop.say(machine, machine.start())
    parties = party_machine(query, holdings, Randomness.from_seed(1, "parties"))
    loop.enter(holdings.ids, parties)
    loop.say(parties, parties.start())
    loop.finish()
    assert loop.failed is None
    assert loop.total is not None
    return loop


def sums(query: Query, loop: Any) -> list[float]:
    release = Release(query.plan, loop.total.vector, loop.total.records, None)
    estimate = query.statistic.read(release).estimate
    assert isinstance(estimate, Curve)
    return estimate.y


@pytest.mark.parametrize("lower", [0.0, -3.5])
def test_without_noise_every_sum_is_exact(lower: float) -> None:
    query = asked(None, lower)
    held = some_holdings(lower)
    times, values = held.column("time"), held.column("value")
    truth = [values[times <= at].sum() for at in range(1, BATCHES + 1)]
    assert sums(query, a_run(query)) == pytest.approx(truth, abs=1e-6)


def test_a_stream_is_paid_once() -> None:
    query = asked()
    loop = a_run(query)
    of_servers, of_analyst = loop.spends[:-1], loop.spends[-1]
    assert of_servers == [query.spend] * 2 * BATCHES, "paid again under one receipt: once"
    assert of_analyst.loss == query.spend.loss
    with Federation(parties=4, data="synthetic:stream?n=20", seed=1) as federation:
        result = federation.run(RunningSum(steps=20, stream=True), 1)
    assert result.privacy.epsilon == 1
    assert result.privacy.mechanism.startswith("stream: ")


def test_who_misses_a_batch_is_left_out_of_that_alone() -> None:
    query = asked(None)
    held = some_holdings()
    times, values = held.column("time"), held.column("value")
    owner = np.repeat(np.arange(PARTIES), held.counts)
    batch = int(times[0]) - 1
    kept = ~((owner == owner[0]) & (times == batch + 1))
    truth = [values[kept & (times <= at)].sum() for at in range(1, BATCHES + 1)]
    found = sums(query, a_run(query, lost=[(int(owner[0]), batch)]))
    assert found == pytest.approx(truth, abs=1e-6)


def test_each_value_is_in_as_many_blocks_as_is_said_and_each_block_is_released_once() -> None:
    """By enumeration of pairs of streams that differ in one value, over all that is released."""
    plan = plan_of(asked())
    steps = plan.encoding.grid.steps  # type: ignore[attr-defined]
    streams = [np.uint64(steps) * (np.arange(BATCHES) >= at).astype(np.uint64) for at in range(9)]
    nothing = plan.measure(np.zeros(BATCHES, dtype=np.uint64))
    moved = [int((plan.measure(each) - nothing).sum()) for each in streams]
    assert max(moved) == plan.sensitivity.l1
    assert sum(plan.released_at(batch) for batch in range(BATCHES)) == plan.released
    assert len({tuple(plan.measure(each)) for each in streams}) == BATCHES
    assert all(not (one == other).all() for one, other in combinations(streams, 2))


# --- attacks ---


def test_a_batch_that_is_submitted_twice_counts_once() -> None:
    query = asked()
    server, [first, second, *_] = a_server(query), batches(query)
    server.receive(second)
    alone = first.select(np.array([1]))
    server.receive(alone)
    again = server.receive(alone)
    assert isinstance(again, Continue)
    assert again.repeated
    other = replace(alone, body=numbered(0, alone.body[:, 8:] ^ np.uint8(1)))
    assert "two different batches 1" in why(server.receive(other))
    closed = server.receive(first.select(np.array([0, 2, 3])))
    assert isinstance(closed, Continue)
    assert closed.messages[0].phase is Phase.ROSTER
    told = share(_released(server, query, 0))
    honest = a_server(query)
    honest.receive(first)
    assert told == share(_released(honest, query, 0))


def test_parties_may_be_ahead() -> None:
    query = asked()
    orderly, ahead = a_server(query), a_server(query)
    for message in batches(query)[::-1]:
        for single in message.split():
            ahead.receive(single)
    for batch, message in enumerate(batches(query)):
        orderly.receive(message)
        told = share(_released(orderly, query, batch))
        assert share(_released(ahead, query, batch)) == told


def _released(server: StreamServer, query: Query, batch: int) -> Step:
    if batch == 0:
        server.receive(opening(query))
    return server.receive(ask(query, batch))


def test_a_batch_for_a_past_step_comes_too_late() -> None:
    query = asked()
    server, [first, *_] = a_server(query), batches(query)
    server.receive(first.select(np.array([0, 1, 2])))
    late = first.select(np.array([3]))
    server.expire()
    assert "batch 1 is over" in why(server.receive(late))
    server.receive(opening(query))
    told = share(server.receive(ask(query, 0, [0, 1, 2])))
    assert "batch 1 is over" in why(server.receive(late))
    assert share(server.receive(ask(query, 0, [0, 1, 2]))) == told
    again = server.receive(first.select(np.array([0])))
    assert isinstance(again, Continue)
    assert again.repeated


def test_no_batch_is_released_twice() -> None:
    query = asked()
    server, [first, second, *_] = a_server(query), batches(query)
    server.receive(first)
    told = share(_released(server, query, 0))
    assert share(server.receive(ask(query, 0))) == told
    assert "a second release of batch 1" in why(server.receive(ask(query, 0, [0, 1])))
    other = said(query, Phase.RELEASE, bitmap(PARTIES, [0, 1]))
    assert "a second release" in why(server.receive(other))
    server.receive(second)
    server.receive(ask(query, 1))
    assert "a second release of batch 1" in why(server.receive(ask(query, 0)))


@pytest.mark.parametrize("batch", [BATCHES, 2**64 - 1])
def test_there_are_no_more_batches_than_the_stream_has(batch: int) -> None:
    query = asked()
    server, [first, *_] = a_server(query), batches(query)
    beyond = replace(first, body=numbered(batch, first.body[:, 8:]))
    assert "the stream has 9 batches" in why(server.receive(beyond))
    server.receive(first)
    assert "the stream has 9 batches" in why(server.receive(ask(query, batch)))


def test_nothing_is_told_before_its_time_or_of_parties_that_are_not_there() -> None:
    query = asked()
    server, [first, second, *_] = a_server(query), batches(query)
    assert "not complete" in why(server.receive(ask(query, 0)))
    server.receive(first.select(np.array([0, 1])))
    server.receive(opening(query))
    assert "not complete" in why(server.receive(ask(query, 0, [0, 1])))
    server.expire()
    assert "did not submit" in why(server.receive(ask(query, 0)))
    assert "fewer than 1" in why(server.receive(ask(query, 0, [])))
    assert "not a bitmap" in why(server.receive(said(query, Phase.ASK, bytes(8) + b"\xff\xff")))
    assert "the stream has" in why(server.receive(said(query, Phase.ASK, b"\x00")))
    server.receive(second)
    assert "not complete" in why(server.receive(ask(query, 1)))
    assert "bytes" in why(server.receive(replace(first, body=first.body[:, :-1])))
    assert "must come from" in why(server.receive(replace(first, sender_role=Role.SERVER)))


def test_a_server_that_hears_the_same_again_says_the_same_with_the_same_noise() -> None:
    """As after a crash, from a journal: at any moment."""
    query = asked()
    heard: list[Message] = []
    server, told = a_server(query), []
    for batch, message in enumerate(batches(query)):
        heard += [message, *([opening(query)] if not batch else []), ask(query, batch)]
    for at, message in enumerate(heard):
        told.append(server.receive(message))
        if at % 5 == 0:
            server = a_server(query)
            for earlier in heard[: at + 1]:
                last = server.receive(earlier)
            told[-1] = last
    whole = a_server(query)
    for message, step in zip(heard, told, strict=True):
        again = whole.receive(message)
        assert isinstance(step, Continue)
        assert isinstance(again, Continue)
        assert [m.encode() for m in again.messages] == [m.encode() for m in step.messages]
    other = a_server(query, seed=8)
    other.receive(heard[0])
    assert share(_released(other, query, 0)) != share(told[2])


# --- bad input ---


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"batches": 3}, "--batches is of a stream"),
        ({"stream": True, "batches": 13}, "between 1 and 12"),
        ({"stream": True, "batches": -1}, "between 1 and 12"),
        ({"stream": True, "steps": 5000}, "between 1 and 4096"),
        ({"stream": True, "strategy": "tree"}, "leave --strategy out"),
    ],
)
def test_streams_that_cannot_be_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(LocalError, match=reason):
        RunningSum(**{"lower": 0.0, "upper": 1.0, "steps": 12} | options)


def test_aggregators_and_placements_without_streams_are_refused() -> None:
    with pytest.raises(LocalError, match="masking has no streams"):
        check(asked(aggregator="masking", servers=1))
    with pytest.raises(LocalError, match="not drawn batch by batch"):
        asked(noise=Placement.JOINT)


def test_long_streams_are_checked_to_the_end() -> None:
    with Federation(parties=2, hosts=1, data="synthetic:stream?n=300", seed=1) as federation:
        result = federation.run(RunningSum(steps=300, stream=True), "inf")
    assert isinstance(result.estimate, Curve)
    assert isinstance(result.truth, Curve)
    assert result.estimate.y == pytest.approx(result.truth.y, abs=1e-6)
    many = RunningSum(lower=0.0, upper=1.0, steps=4096, stream=True)
    check(a_query(statistic=many, servers=4))
    with pytest.raises(LocalError, match="5 servers has at most 3276 batches"):
        check(a_query(statistic=many, servers=5))


def test_times_that_are_none_are_refused_before_anything_is_asked() -> None:
    with (
        Federation(parties=4, data="synthetic:stream?n=20", seed=1) as federation,
        pytest.raises(LocalError, match="whole numbers from 1 to 19"),
    ):
        federation.run(RunningSum(steps=19, stream=True, batches=7), 1)


def test_a_stream_is_planned() -> None:
    """Its expected error is that of the sums as they are told."""
    query = asked()
    plan = plan_of(query)
    exact = plan.without_noise(some_holdings())
    noisy = plan.measure(exact) + plan.place(np.zeros(plan.noises, dtype=np.uint64))
    told = query.statistic.read(Release(plan, noisy, 12, laplace_noise(1.0))).estimate
    assert isinstance(told, Curve)
    truth = query.statistic.reference(some_holdings())
    assert isinstance(truth, Curve)
    assert told.y == pytest.approx(truth.y, abs=1e-6)


def test_batches_of_several_times_are_told_at_their_ends() -> None:
    with Federation(parties=4, data="synthetic:stream?n=20", seed=1) as federation:
        result = federation.run(RunningSum(steps=20, stream=True, batches=7), "inf")
    assert isinstance(result.estimate, Curve)
    assert isinstance(result.truth, Curve)
    assert result.estimate.x == [3.0, 6.0, 9.0, 12.0, 15.0, 18.0, 20.0]
    assert result.estimate.y == pytest.approx(result.truth.y, abs=1e-6)
