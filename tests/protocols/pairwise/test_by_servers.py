"""Pairs that two servers compute: the totals of the clear, and nothing to see on the way."""

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tallyroom.parties.data import Dataset
from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.pairwise.roles.by_servers import MeetingServer, SubmittingParty
from tallyroom.protocols.pairwise.sampling.schedule import pairs_of
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import deal
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.of_pairs import (
    Auc,
    CollisionEntropy,
    Gini,
    KendallTau,
    Pairwise,
    Variance,
)
from tallyroom.protocols.statistics.pairwise import Pairs
from tallyroom.protocols.wire.machine import Continue, Done, Rejected
from tallyroom.protocols.wire.messages import Message, Phase, Role, address, body_of
from tallyroom.simulation import Federation
from tallyroom.simulation.runtimes.inprocess import InProcess
from tests.goodness import ALPHA, uniform_bytes_p

RNG = np.random.default_rng(5)
DATA = Dataset(
    "mixed",
    {
        "value": RNG.integers(0, 5, 23) / 4,
        "x": RNG.integers(0, 4, 23) / 4,
        "y": RNG.integers(0, 4, 23) / 4,
        "score": RNG.random(23),
        "label": RNG.integers(0, 2, 23).astype(float),
    },
    dict.fromkeys(("value", "x", "y", "score"), (0.0, 1.25)),
)
KERNEL = "if(a.label != b.label, a.score - b.score, 0)"


@pytest.mark.parametrize(
    "statistic",
    [
        Gini(value="value", bits=6),
        Variance(value="value", bits=5),
        CollisionEntropy(value="value"),
        KendallTau(x="x", y="y"),
        KendallTau(x="x", y="y", tau="b"),
        Auc(score="score", label="label"),
        Pairwise(kernel_name=KERNEL, lower=0.0, upper=1.25, bits=8),
    ],
    ids=lambda each: f"{each.name} {getattr(each, 'tau', '')}",
)
@pytest.mark.parametrize("pairs", ["2", "all"])
def test_servers_find_what_parties_find(statistic: Pairs, pairs: str) -> None:
    """Without noise, every kernel, in whole runs on the same pairs: to the last bit."""
    answers = []
    for meet in ("parties", "servers"):
        asked = replace(statistic, meet=meet, pairs_per_party=pairs)
        with Federation(parties=2, hosts=1, data=DATA, seed=2) as federation:
            answers.append(federation.run(asked, "inf").estimate)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("bits", [1, 6, 8, 25, 32])
def test_records_of_any_width_are_taken(bits: int) -> None:
    """One record of each party, in so many bits that rows have 5 to 8 bytes."""
    statistic = Gini(value="value", bits=bits, meet="servers", pairs_per_party="2")
    with Federation(parties=23, hosts=1, data=DATA, seed=2) as federation:
        result = federation.run(statistic, "inf")
    assert result.estimate == result.noiseless


def test_who_drops_out_costs_no_pair() -> None:
    statistic = CollisionEntropy(value="value", meet="servers", pairs_per_party="all")
    with Federation(parties=6, hosts=1, data=DATA, seed=2, dropout=0.34) as federation:
        result = federation.run(statistic, "inf", deadline=0.1)
    assert result.lost_pairs == 0
    assert result.estimate == pytest.approx(result.truth)


def test_noise_is_joint_and_on_the_total() -> None:
    statistic = Gini(value="value", bits=6, meet="servers")
    with Federation(parties=4, hosts=1, data=DATA, seed=2) as federation:
        result = federation.run(statistic, 1.0)
        assert result.privacy.noise == "joint"
        assert result.bill.by_phase()["together"].bytes > 20_000
        assert "party->party" not in result.bill.by_link()
        each = federation.run(statistic, 1.0, noise="each-server")
        # A tenth of the variance may come from the drawing of pairs, by the released mean.
        assert each.deviations[0] == pytest.approx(np.sqrt(2) * result.deviations[0], rel=0.05)
        with pytest.raises(LocalError, match="noise on the total"):
            federation.run(statistic, 1.0, noise="per-pair")


@pytest.mark.parametrize(("aggregator", "servers"), [("curator", 1), ("additive", 3)])
def test_other_servers_are_refused_in_one_line(aggregator: str, servers: int) -> None:
    statistic = Gini(value="value", meet="servers")
    with (
        Federation(parties=4, servers=servers, aggregator=aggregator, data=DATA) as federation,
        pytest.raises(LocalError, match="takes the two servers of additive"),
    ):
        federation.run(statistic, 1.0, noise="each-server")


# --- one server by itself ---


def asked(**changes: object) -> Query:
    statistic = Gini(value="value", lower=0.0, upper=1.0, bits=8, meet="servers")
    question = Question(
        replace(statistic, pairs_per_party="2"), "additive", Fraction(1), Placement.EACH_SERVER
    )
    query = question.query(bytes(8), parties=3, servers=2, records=6, max_records_per_party=2)
    return replace(query, **changes)  # type: ignore[arg-type]


def submitted(query: Query, values: list[float], seed: int = 1) -> tuple[Message, ...]:
    holdings = deal({"value": np.array(values)}, 3)
    step = SubmittingParty(query, holdings, Randomness.from_seed(seed, "parties")).start()
    assert isinstance(step, Done)
    return step.messages


def server(query: Query, index: int = 0) -> MeetingServer:
    return MeetingServer(query, index, Randomness.from_seed(1, f"server-{index}"), Memory())


def release(query: Query, pairs: int, members: int = 0b11100000) -> Message:
    body = bytes([members]) + pairs.to_bytes(8, "little")
    return Message(
        query.run,
        Phase.RELEASE,
        Role.COORDINATOR,
        Role.SERVER,
        address(0),
        address(0),
        body_of(body),
    )


def test_each_share_of_records_is_uniform_and_both_together_are_the_records() -> None:
    query = asked()
    views: list[list[bytes]] = [[], []]
    for seed in range(400):
        messages = submitted(query, [0.0] * 6, seed)
        for view, message in zip(views, messages, strict=True):
            view.append(message.body[:, 4:].tobytes())
    for view in views:
        assert uniform_bytes_p(b"".join(view)) > ALPHA
    plan = pairs_of(query)
    values = [0.0, 0.25, 0.5, 0.75, 1.0, 0.1]
    records = []
    for index in (0, 1):
        machine = server(query, index)
        machine.receive(submitted(query, values)[index])
        step = machine.receive(release(query, 6))
        assert step == Continue()
        records.append(machine._records)
    expected = plan.kernel.input_bits(plan.measured(deal({"value": np.array(values)}, 3)))
    assert np.array_equal(records[0] ^ records[1], expected)


def test_a_submission_that_is_none_is_refused() -> None:
    query = asked()
    good = submitted(query, [0.5] * 6)[0]
    for body in (
        good.body[:, :3],
        good.body[:, :-1],
        np.pad(good.body, ((0, 0), (0, 1))),
        np.where(np.arange(good.width) == 0, 3, good.body).astype(np.uint8),
        np.where(np.arange(good.width) < 4, 255, good.body).astype(np.uint8),
        np.where(np.arange(good.width) < 4, 0, good.body).astype(np.uint8),
    ):
        assert isinstance(server(query).receive(replace(good, body=body)), Rejected)


def test_no_release_of_other_pairs_than_there_are() -> None:
    query = asked()
    machine = server(query)
    machine.receive(submitted(query, [0.5] * 6)[0])
    for wrong in (release(query, 5), release(query, 2**60), release(query, 6, members=0b11000000)):
        assert isinstance(machine.receive(wrong), Rejected)
    short = replace(release(query, 6), body=body_of(b"\xe0"))
    assert isinstance(machine.receive(short), Rejected)


def test_no_release_of_records_in_more_pairs_than_the_noise_is_for() -> None:
    """A coordinator that says that there are five records, each of which sits out one matching of
    five, would have noise for four pairs where each of six is in five."""
    honest = asked()
    statistic = honest.statistic
    assert isinstance(statistic, Pairs)
    query = replace(honest, records=5, statistic=replace(statistic, pairs_per_party="all"))
    assert pairs_of(query).sample.met == 4
    machine = server(query)
    machine.receive(submitted(query, [0.5] * 6)[0])
    step = machine.receive(release(query, 15))
    assert isinstance(step, Rejected)
    assert "more pairs than the noise is for" in step.reason


class OfOthers(InProcess):
    """The coordinator tells server 1 of fewer parties than server 0."""

    def on_way(self, message: Message) -> Iterable[Message]:
        if message.phase is Phase.RELEASE and message.receivers[0] == 1:
            body = message.body.copy()
            body[0, 0] &= 0b11000000
            body[0, 1:] = np.frombuffer((4).to_bytes(8, "little"), dtype=np.uint8)
            message = replace(message, body=body)
        return (message,)


def test_servers_that_are_told_of_other_parties_compute_nothing() -> None:
    data = Dataset("six", {"value": np.arange(6) / 6}, {"value": (0.0, 1.0)})
    with Federation(parties=3, hosts=1, data=data) as federation:
        federation.runtime = OfOthers(federation.runtime.layout)
        statistic = Gini(value="value", bits=6, meet="servers", pairs_per_party="2")
        with pytest.raises(RunFailed, match=r"server-1: computes something else"):
            federation.run(statistic, 1.0, min_parties=2)
