"""Curves through the real servers on adjacent data: what an attacker can measure stays below ε.

The analyst sees what server-0 releases and all that server-1 holds, so that only server-0's noise
is left: the threat that `each-server` is for, and with one noise the view of any analyst. An attack
is an event of that view; `measured` bounds the logarithm of its probability ratio on the two data
sets by Clopper and Pearson, each probability on each side at ALPHA. A right program is accused
with probability at most 2·ALPHA; sizes are such that noise of half the scale escapes less than once
in a million.

Every run is a machine of its own. The noise that machines draw comes from the real sampler at the
scale that they ask for, many runs' at once (`in_bulk`): one by one it would take most of the time.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from protocols.aggregation import aggregator_named
from protocols.aggregation.contract import Memory
from protocols.aggregation.fss.aggregator import FssServer
from protocols.aggregation.one_round import SummingServer
from protocols.algebra.ring import Vector, signed
from protocols.privacy.mechanisms import Placement
from protocols.randomness import Randomness
from protocols.records import Holdings, deal
from protocols.run.machine import Continue, Done
from protocols.run.messages import Message, Phase, Role
from protocols.run.query import Query
from protocols.statistics import Statistic
from protocols.statistics.ecdf import Ecdf
from protocols.statistics.on_demand import EcdfPoints
from protocols.statistics.running_sum import RunningSum
from tests.goodness import ALPHA, discrete_laplace_pmf
from tests.samples import a_message, a_query, bitmap
from tests.statistical.bulk_noise import in_bulk

Event = Callable[[NDArray[np.int64]], NDArray[np.bool]]
"""Rows are views, one a run; which of them are in the event."""


@dataclass(frozen=True)
class Attack:
    """One record, (`value`, `time`), is replaced. `most` is the largest ln(p/p') there can be."""

    statistic: Statistic
    epsilon: Fraction
    here: tuple[float, float]
    there: tuple[float, float]
    event: Event
    most: float
    runs: int
    points: tuple[int, ...] = ()


def tell(query: Query, phase: Phase, body: bytes) -> Message:
    return a_message(phase, Role.COORDINATOR, Role.SERVER, (0,), (0,), body, query.run)


def submissions(query: Query, holdings: Holdings, role: str) -> tuple[Message, ...]:
    aggregator = aggregator_named(query.aggregator)
    step = aggregator.party(query, holdings, Randomness.from_seed(1, role)).start()
    assert isinstance(step, Done)
    return step.messages


def collected(query: Query, index: int, randomness: Randomness, keys: Message) -> SummingServer:
    """A server that holds the party's submission."""
    server = aggregator_named(query.aggregator).server(query, index, randomness, Memory())
    assert isinstance(server, SummingServer)
    server.start()
    step = server.receive(keys)
    assert isinstance(step, Continue)
    assert [message.phase for message in step.messages] == [Phase.ROSTER]
    return server


def released(query: Query, server: SummingServer, points: Sequence[int]) -> Vector:
    step = server.receive(tell(query, Phase.RELEASE, bitmap(1, [0])))
    if points:
        asked = np.array(points, dtype="<u8").tobytes()
        step = server.receive(tell(query, Phase.ASK, asked))
    assert isinstance(step, Continue)
    (share,) = step.messages
    assert share.phase is Phase.SHARE
    opened: Vector = share.body[0].view("<u8")
    return opened


def held(server: SummingServer, points: Sequence[int]) -> Vector:
    """What a colluding server can add: its share without its noise."""
    everyone = np.ones(1, dtype=bool)
    if points:
        assert isinstance(server, FssServer)
        return server.counts_at(np.array(points, dtype=np.uint64), everyone)
    return server._query.statistic.measure(server.sum_over(everyone))


def views(attack: Attack, aggregator: str, record: tuple[float, float]) -> NDArray[np.int64]:
    query = a_query(
        statistic=attack.statistic,
        aggregator=aggregator,
        parties=1,
        epsilon=attack.epsilon,
        noise=Placement.EACH_SERVER,
    )
    aggregator_named(aggregator).check(query)
    value, time = record
    holdings = deal({"value": np.array([value]), "time": np.array([time])}, 1)
    for_first, for_second = submissions(query, holdings, f"party {record}")
    colluder = collected(query, 1, Randomness.from_seed(1, "server-1"), for_second)
    known = held(colluder, attack.points)
    seen = []
    for run in range(attack.runs):
        randomness = Randomness.from_seed(run, f"server-0 {record}")
        server = collected(query, 0, randomness, for_first)
        seen.append(released(query, server, attack.points) + known)
    return signed(np.stack(seen))


def measured(attack: Attack, aggregator: str) -> tuple[float, float]:
    """Confidence bounds of ln(p/p') for the attack's event."""
    here, there = (
        int(np.count_nonzero(attack.event(views(attack, aggregator, record))))
        for record in (attack.here, attack.there)
    )
    (low, high), (low_there, high_there) = (interval(k, attack.runs) for k in (here, there))
    return math.log(low / high_there), math.log(high / max(low_there, 1e-300))


def interval(seen: int, runs: int) -> tuple[float, float]:
    low = stats.beta.ppf(ALPHA, seen, runs - seen + 1) if seen else 0.0
    high = stats.beta.ppf(1 - ALPHA, seen + 1, runs - seen) if seen < runs else 1.0
    return max(float(low), 1e-300), float(high)


def likelihood(views: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """Up to a constant, of every row as the path sums of a whole tree of Laplace noise.

    Leaves to root: what is below a node, given the noise above it, is independent of the rest.
    """
    reach = math.ceil(24 * scale) + 6
    above = np.arange(-reach, reach + 1)
    step = np.exp(-np.abs(above[:, None] - above[None, :]) / scale)
    below = np.exp(-np.abs(np.clip(views, -reach, reach)[:, :, None] - above) / scale)
    while below.shape[1] > 1:
        below = (below[:, 0::2] * below[:, 1::2]) @ step
    root: NDArray[np.float64] = below[:, 0, reach]
    return root


def likelier(
    there: list[int], here: list[int], scale: float, least: float, unit: float = 1.0
) -> Event:
    """Neyman and Pearson's event: the views whose log-likelihood ratio is at least `least`.

    The exact answers and `scale` are in steps of `unit`, to which views are rounded first.
    """

    def event(views: NDArray[np.int64]) -> NDArray[np.bool]:
        steps = np.rint(views / unit)
        ratio = likelihood(steps - here, scale) / likelihood(steps - there, scale)
        found: NDArray[np.bool] = np.log(ratio) >= least
        return found

    return event


def all_shifted(gained: list[int], lost: list[int]) -> Event:
    """Every count that the record moves is on its own side."""

    def event(views: NDArray[np.int64]) -> NDArray[np.bool]:
        inside: NDArray[np.bool] = np.hstack([views[:, gained] >= 1, views[:, lost] <= 0])
        found: NDArray[np.bool] = np.logical_and.reduce(inside, axis=1)
        return found

    return event


def ecdf(thresholds: int, mechanism: str) -> Ecdf:
    return Ecdf(lower=0.0, upper=1.0, thresholds=thresholds, mechanism=mechanism)


HIERARCHY = Attack(
    ecdf(4, "hierarchy"), Fraction(1), (0.1, 1), (0.9, 1), all_shifted([0], [3]), 1.0, 4000
)
"""One level of four counts: p = e^ε·p' exactly, p = 0.39. Halved noise gives p = 0.53 and 2ε, of
which 0.43 goes into the bounds: it is caught by 9 standard deviations."""

TWO_LEVELS = Attack(
    ecdf(64, "hierarchy"),
    Fraction(3, 2),
    (0.01, 1),
    (0.99, 1),
    all_shifted([0, 8], [7, 71]),
    1.5,
    4000,
)
"""8-ary: four counts move, of 72, and the event is as tight."""

TREE = Attack(
    ecdf(4, "tree"),
    Fraction(4),
    (0.3, 1),
    (0.9, 1),
    likelier([0, 0, 0, 1], [0, 1, 1, 1], 0.75, 1.6),
    4 * 2 / 3,
    6000,
)
"""Counts 2 and 3 of 4 move. Two noises explain that and no fewer, where the scale is for L + 1 = 3:
nothing above L/(L+1)·ε can be right. The event has ln(p/p') = 2.1; halved noise gives 5.0, of which
1.25 goes into the bounds: above the 2.67 that are due by 5.5 standard deviations."""

RUNNING = Attack(
    RunningSum(lower=0.0, upper=1.0, steps=2),
    Fraction(2),
    (1.0, 1),
    (0.0, 1),
    likelier([0, 0], [8, 8], 4.0, 0.8, RunningSum(lower=0.0, upper=1.0).grid.steps / 8),
    2.0,
    6000,
)
"""Both sums move by the whole width, which one noise explains: Theorem 3's scale has no slack. The
event has ln(p/p') = 1.5; halved noise gives 3.1, of which 0.5 goes into the bounds."""


def neighbours_ratio(scale: float) -> float:
    """ln P(D ≥ 0)/P(D ≥ 1) for the difference D of two noises."""
    support = np.arange(-200, 201)
    same = float((discrete_laplace_pmf(support, scale) ** 2).sum())
    return math.log((1 + same) / (1 - same))


POINTS = Attack(
    EcdfPoints(lower=0.0, upper=1.0, at=(0.5,)),
    Fraction(33),
    (0.5000000005, 1),
    (0.9, 1),
    lambda views: views[:, 1] - views[:, 0] >= 1,
    neighbours_ratio(1.0),
    1200,
    points=(10**9, 10**9 + 1),
)
"""Neighbours, 5e-10 apart, that share all nodes but their leaves, asked of a tree of 2^32 with
scale 33/ε = 1: the count between them is 1 or 0. The event's own ratio is exact, 0.58; halved noise
gives 1.39, of which 0.43 goes into the bounds."""


@pytest.mark.parametrize(
    ("attack", "aggregator"),
    [
        (HIERARCHY, "additive"),
        (HIERARCHY, "fss"),
        (TWO_LEVELS, "additive"),
        (POINTS, "fss"),
    ],
    ids=["hierarchy-additive", "hierarchy-fss", "two-levels", "points-on-demand"],
)
def test_what_can_be_measured_is_what_is_due(
    monkeypatch: pytest.MonkeyPatch, attack: Attack, aggregator: str
) -> None:
    """For an event whose ratio is known: no less privacy than that, and no more noise."""
    in_bulk(monkeypatch)
    low, high = measured(attack, aggregator)
    assert low <= attack.most <= high
    assert attack.most <= attack.epsilon


@pytest.mark.parametrize(
    ("attack", "aggregator", "least"),
    [(TREE, "fss", 0.9), (RUNNING, "additive", 0.7)],
    ids=["tree", "running-sum"],
)
def test_less_than_epsilon_can_be_measured(
    monkeypatch: pytest.MonkeyPatch, attack: Attack, aggregator: str, least: float
) -> None:
    """For the likeliest event of a given size. `least` shows that the estimator is not blind."""
    in_bulk(monkeypatch)
    low, _ = measured(attack, aggregator)
    assert least < low <= attack.most <= attack.epsilon


@pytest.mark.parametrize(
    ("attack", "aggregator"),
    [(HIERARCHY, "additive"), (TREE, "additive"), (RUNNING, "additive"), (POINTS, "fss")],
    ids=["hierarchy", "tree", "running-sum", "points-on-demand"],
)
def test_noise_that_was_halved_is_caught(
    monkeypatch: pytest.MonkeyPatch, attack: Attack, aggregator: str
) -> None:
    in_bulk(monkeypatch, Fraction(1, 2))
    low, _ = measured(attack, aggregator)
    assert low > attack.most


def test_noise_follows_from_a_machines_own_randomness() -> None:
    """The other half of `in_bulk`. Two of 72 noises of scale 4/3 agree with probability below
    0.3^72."""
    few = replace(TWO_LEVELS, runs=8)
    rows = views(few, "additive", few.here)
    assert len(np.unique(rows, axis=0)) == few.runs
    assert (rows == views(few, "additive", few.here)).all()


def test_asking_again_says_no_more() -> None:
    """Noise that was drawn anew for every question would average away."""
    repeated = tuple(point for _ in range(64) for point in POINTS.points)
    query = a_query(statistic=POINTS.statistic, aggregator="fss", parties=1, epsilon=Fraction(33))
    holdings = deal({"value": np.array([0.5])}, 1)
    keys = submissions(query, holdings, "party")[0]
    server = collected(query, 0, Randomness.from_seed(1, "server-0"), keys)
    answers = released(query, server, repeated).reshape(64, 2)
    assert (answers == answers[0]).all()
    assert (released(query, server, POINTS.points) == answers[0]).all()
