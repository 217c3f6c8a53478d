"""Hold-out: every statistic, over every aggregator that can, against numpy, scipy or scikit-learn.

The data are of odd shapes, raw, and the answers without noise. The two may differ by no more than
the stated grid step makes of it. A statistic without a case here fails the first test.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from tallyroom.parties.data import Dataset
from tallyroom.protocols.aggregation import aggregator_named, aggregator_names
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.offers import Offer
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics import Estimate, statistics
from tallyroom.protocols.statistics.bounded import Bounded
from tallyroom.protocols.statistics.choices import Mode, TopK
from tallyroom.protocols.statistics.ecdf import CumulativeHistogram, Ecdf, Quantile
from tallyroom.protocols.statistics.estimates import shape_of
from tallyroom.protocols.statistics.first_above import FirstAboveThreshold
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean, Sum
from tallyroom.protocols.statistics.of_pairs import (
    Auc,
    CollisionEntropy,
    Gini,
    KendallTau,
    Pairwise,
    Variance,
)
from tallyroom.protocols.statistics.on_demand import EcdfPoints, QuantileSearch
from tallyroom.protocols.statistics.pairwise import Pairs
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.running_sum import RunningSum
from tallyroom.simulation import Federation
from tallyroom.simulation.result import Result

GENERATOR = np.random.default_rng(20)
PARTIES = 2

# Values, and public bounds that hold all of them.
SHAPES: dict[str, tuple[Column, float, float]] = {
    "integers on every edge": (np.arange(0.0, 121.0), 0.0, 120.0),
    "ages": (GENERATOR.integers(18, 96, 60).astype(float), 0.0, 120.0),
    "tenths": (GENERATOR.integers(0, 11, 40) / 10, 0.0, 1.0),
    "time stamps": (1.7e9 + GENERATOR.random(30), 1.7e9, 1.7e9 + 1),
    "offset of 1e9": (1e9 + GENERATOR.integers(0, 13, 30).astype(float), 1e9, 1e9 + 12),
    "negative": (GENERATOR.uniform(-7.25, -2.5, 30), -7.5, -2.5),
    "ties around zero": (np.array([-1.0, -1, -1, 0, 0, 2, 2, 2, 2]), -1.0, 2.0),
    "all equal": (np.full(12, 3.0), 0.0, 12.0),
    "huge range": (np.array([-1e12, -3.5, 0, 1e-3, 7, 1e6, 1e12, 1e12]), -1e12, 1e12),
    "two records": (np.array([0.25, 1.0]), 0.0, 1.0),
    "one record": (np.array([7.0]), 0.0, 12.0),
}


def second_column(x: Column) -> Column:
    """In the same bounds, with ties of its own and no plain relation to the first."""
    return x[np.argsort(np.sin(np.arange(len(x)) * 7.0), kind="stable")]


@dataclass(frozen=True)
class Case:
    """`plain` gives the library's answer from the columns of a data set and the statistic.

    `slack` is how far an answer may be off, from the stated step, n and the spread of the values;
    an exact statistic has none.
    """

    statistic: Callable[[float, float], Bounded]
    plain: Callable[[dict[str, Column], Bounded], Column | float]
    slack: Callable[[float, int, float], float] = lambda step, n, spread: 0.0
    least: int = 1
    """The records that it needs."""
    constants: bool = True
    """Whether the library has an answer when all values are equal."""
    shapes: tuple[str, ...] = field(default_factory=lambda: tuple(SHAPES))


def bounded(kind: Callable[..., Bounded], **options: object) -> Callable[[float, float], Bounded]:
    return lambda lower, upper: kind(lower=lower, upper=upper, **options)


def _whole(lower: float, upper: float) -> int:
    """As many thresholds as the range has integers, so that each is one."""
    return int(upper - lower) if upper - lower < 1000 and upper - lower > 2 else 10


def at_thresholds(columns: dict[str, Column], statistic: Bounded) -> Column:
    return np.array([(columns["value"] <= t).mean() for t in nominal(statistic)])


def nominal(statistic: Bounded) -> Column:
    """lower + i·step for integers and tenths, where doubles add up exactly or numpy divides."""
    lower, upper = statistic.bounds
    if (lower, upper) == (0.0, 1.0):
        return np.arange(1, 11) / 10
    return np.linspace(lower, upper, _whole(lower, upper) + 1)[1:]


def right_closed_bins(columns: dict[str, Column], statistic: Bounded) -> Column:
    counts = [np.count_nonzero(columns["value"] <= t) for t in nominal(statistic)]
    return np.diff(counts, prepend=0).astype(float)


def bins(columns: dict[str, Column], statistic: Bounded) -> Column:
    lower, upper = statistic.bounds
    counts, _ = np.histogram(columns["value"], bins=_whole(lower, upper), range=(lower, upper))
    return counts.astype(float)


def fullest(columns: dict[str, Column], statistic: Bounded) -> Column:
    """The middles of the bins with most records, the lower one first where two tie."""
    assert isinstance(statistic, TopK)
    lower, upper = statistic.bounds
    edges = np.linspace(lower, upper, _whole(lower, upper) + 1)
    order = np.argsort(-bins(columns, statistic), kind="stable")[: statistic.k]
    return ((edges[:-1] + edges[1:]) / 2)[order]


def first_of_two(columns: dict[str, Column], statistic: Bounded) -> float:
    """The middle of the lowest bin with two records."""
    counts = bins(columns, statistic)
    lower, upper = statistic.bounds
    edges = np.linspace(lower, upper, len(counts) + 1)
    full = [i for i, count in enumerate(counts) if count >= 2]
    return (edges[full[0]] + edges[full[0] + 1]) / 2 if full else math.inf


QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


def numpy_quantiles(columns: dict[str, Column], _: Bounded) -> Column:
    return np.quantile(columns["value"], QUANTILES, method="inverted_cdf")


def running(columns: dict[str, Column], _: Bounded) -> Column:
    order = np.argsort(columns["time"], kind="stable")
    return np.cumsum(columns["value"][order])


def mean_difference(columns: dict[str, Column], _: Bounded) -> float:
    return float(np.mean([abs(a - b) for a, b in combinations(columns["value"].tolist(), 2)]))


def collisions(columns: dict[str, Column], _: Bounded) -> float:
    equal = np.mean([a == b for a, b in combinations(columns["value"].tolist(), 2)])
    return -math.log(equal) if equal else math.inf


def tau_a(columns: dict[str, Column], _: Bounded) -> float:
    x, y = columns["x"], columns["y"]
    pairs = combinations(range(len(x)), 2)
    return float(np.mean([np.sign(x[i] - x[j]) * np.sign(y[i] - y[j]) for i, j in pairs]))


def tau_b(columns: dict[str, Column], _: Bounded) -> float:
    return float(stats.kendalltau(columns["x"], columns["y"]).statistic)


def written(columns: dict[str, Column], statistic: Bounded) -> float:
    return 2 * mean_difference(columns, statistic)


ALL = {"pairs_per_party": "all"}
CASES: dict[str, list[Case]] = {
    "sum": [Case(bounded(Sum), lambda c, s: c["value"].sum(), lambda step, n, spread: n * step)],
    "mean": [Case(bounded(Mean), lambda c, s: c["value"].mean(), lambda step, n, spread: step)],
    "histogram": [Case(lambda a, b: Histogram(lower=a, upper=b, bins=_whole(a, b)), bins)],
    "mode": [Case(lambda a, b: Mode(lower=a, upper=b, bins=_whole(a, b)), fullest)],
    "top-k": [Case(lambda a, b: TopK(lower=a, upper=b, bins=_whole(a, b), k=2), fullest)],
    "first-above": [
        Case(
            lambda a, b: FirstAboveThreshold(lower=a, upper=b, bins=_whole(a, b), threshold=2),
            first_of_two,
            least=2,
        )
    ],
    "ecdf": [Case(lambda a, b: Ecdf(lower=a, upper=b, thresholds=_whole(a, b)), at_thresholds)],
    "cumulative-histogram": [
        Case(
            lambda a, b: CumulativeHistogram(lower=a, upper=b, thresholds=_whole(a, b)),
            right_closed_bins,
        )
    ],
    "quantile": [
        Case(
            lambda a, b: Quantile(
                lower=a, upper=b, thresholds=_whole(a, b), quantile=QUANTILES
            ),
            numpy_quantiles,
            lambda step, n, spread: step,
        ),
        Case(
            lambda a, b: Quantile(lower=a, upper=b, thresholds=120, quantile=QUANTILES),
            numpy_quantiles,
            shapes=("ages", "all equal"),
        ),
    ],
    "quantile-search": [
        Case(
            bounded(QuantileSearch, quantile=QUANTILES),
            numpy_quantiles,
            lambda step, n, spread: step,
        ),
        Case(
            bounded(QuantileSearch, quantile=QUANTILES),
            numpy_quantiles,
            shapes=("integers on every edge", "ages", "tenths", "offset of 1e9", "all equal"),
        ),
    ],
    "ecdf-points": [
        Case(
            lambda a, b: EcdfPoints(lower=a, upper=b, at=(a, (a + b) / 2, b)),
            lambda c, s: np.array(
                [(c["value"] <= t).mean() for t in (s.bounds[0], sum(s.bounds) / 2, s.bounds[1])]
            ),
        )
    ],
    "running-sum": [
        Case(
            bounded(RunningSum, steps=1),
            running,
            lambda step, n, spread: n * step,
        )
    ],
    "gini": [
        Case(bounded(Gini, **ALL), mean_difference, lambda step, n, spread: step, least=2)
    ],
    "variance": [
        Case(
            bounded(Variance, **ALL),
            lambda c, s: float(np.var(c["value"], ddof=1)),
            lambda step, n, spread: 2 * step * spread + step**2,
            least=2,
        )
    ],
    "collision-entropy": [
        Case(bounded(CollisionEntropy, **ALL), collisions, least=2),
        Case(lambda a, b: CollisionEntropy(pairs_per_party="all"), collisions, least=2, shapes=(
            "integers on every edge", "tenths", "ties around zero", "all equal")),
    ],
    "kendall-tau": [
        Case(bounded(KendallTau, **ALL), tau_a, least=2),
        Case(bounded(KendallTau, tau="b", **ALL), tau_b, least=2, constants=False),
    ],
    "auc": [
        Case(
            bounded(Auc, **ALL),
            lambda c, s: float(roc_auc_score(c["label"], c["score"])),
            least=2,
        )
    ],
    "pairwise": [
        Case(
            bounded(Pairwise, kernel_name="max(a.x, b.x) - min(a.x, b.x) + abs(a.x - b.x)", **ALL),
            written,
            lambda step, n, spread: 2 * step,
            least=2,
        )
    ],
}  # fmt: skip


ELSEWHERE = {
    "kaplan-meier": "tests/protocols/statistics/test_survival.py",
    "nelson-aalen": "tests/protocols/statistics/test_survival.py",
    "log-rank": "tests/protocols/statistics/test_log_rank.py",
    "t-test": "tests/protocols/statistics/test_mean_tests.py",
    "anova": "tests/protocols/statistics/test_mean_tests.py",
    "crosstab": "tests/protocols/statistics/test_crosstab.py",
    "chi-square": "tests/protocols/statistics/test_crosstab.py",
    "correlation": "tests/protocols/statistics/test_second_moments.py",
    "covariance": "tests/protocols/statistics/test_second_moments.py",
    "proportion": "tests/protocols/statistics/test_weights.py",
    "classifier-table": "tests/protocols/statistics/test_classifier_table.py",
    "linear-regression": "tests/protocols/statistics/test_linear_regression.py",
    "magnitudes": "tests/protocols/studies/test_private_bounds.py",
    "roc": "tests/protocols/statistics/test_classifier_curves.py",
    "pr-curve": "tests/protocols/statistics/test_classifier_curves.py",
    "average-precision": "tests/protocols/statistics/test_classifier_curves.py",
}
"""Where those are compared with a library that answer with more than numbers."""


def test_every_statistic_has_a_case() -> None:
    """Its own, or that of the one under whose name it is asked."""
    for name, kind in statistics().items():
        assert name in CASES or kind.part_of or Path(ELSEWHERE[name]).exists()
    assert CASES.keys() | ELSEWHERE.keys() <= statistics().keys()


def answers(
    case: Case, columns: dict[str, Column], lower: float, upper: float
) -> Iterator[tuple[str, Estimate, Estimate | None, Bounded]]:
    """What each aggregator that can says, the truth it reports, and the statistic that it asked."""
    statistic = case.statistic(lower, upper)
    if isinstance(statistic, RunningSum):
        statistic = replace(statistic, steps=len(columns["value"]))
    # Pairs within one party cost no circuit; that circuits compute the same is tested elsewhere.
    alone = isinstance(statistic, Pairs) and lower != 1.7e9
    parties = 1 if alone else min(PARTIES, len(columns["value"]))
    for name in aggregator_names():
        if isinstance(statistic, Pairs) and Offer.RANDOMIZE in aggregator_named(name).offers:
            continue  # quantized to bins, which is tested elsewhere
        servers = {aggregator_named(name).servers} | ({3} if name == "fss" else set())
        for count in sorted(servers):
            try:
                with Federation(
                    parties=parties, servers=count, aggregator=name, data=Dataset("odd", columns)
                ) as federation:
                    result = federation.run(statistic, "inf", delta=1e-6)
            except LocalError:
                continue
            assert result.noise_error == {"rmse": 0.0, "max": 0.0}
            if any("count as equal" in note for note in result.notes):
                assert shape_is_too_wide(columns, result), "ties where the grid tells all apart"
                continue
            yield f"{name}, {count} servers", result.estimate, result.truth, statistic


def shape_is_too_wide(columns: dict[str, Column], result: Result) -> bool:
    """Whether distinct values lie closer than the stated step."""
    gaps = np.diff(np.unique(columns["value"]))
    step = result.data["grid_step"]
    assert isinstance(step, float)
    return bool((gaps < step).any())


def values(estimate: Estimate | None) -> Column:
    assert estimate is not None
    return shape_of(estimate).values()


@pytest.mark.parametrize(
    ("name", "which", "shape"),
    [
        (name, which, shape)
        for name, cases in CASES.items()
        for which, case in enumerate(cases)
        for shape in case.shapes
    ],
)
def test_answers_are_the_plain_librarys(name: str, which: int, shape: str) -> None:
    case = CASES[name][which]
    x: Column
    x, lower, upper = SHAPES[shape]
    if not case.constants and np.ptp(x) == 0:
        pytest.skip("the library has no answer")
    n = len(x)
    columns: dict[str, Column] = {"value": x, "x": x, "y": second_column(x), "score": x}
    columns |= {
        "time": np.argsort(np.cos(np.arange(n))).astype(np.float64) + 1,
        "label": (np.arange(n) % 2).astype(np.float64),
    }
    if issubclass(statistics()[name], Pairs):
        columns = {key: column[:12] for key, column in columns.items()}
        n = min(n, 12)
    if n < case.least:
        assert not list(answers(case, columns, lower, upper)), "a clear refusal, nothing else"
        return
    said = list(answers(case, columns, lower, upper))
    assert said or shape == "huge range", "no aggregator can"
    for by, estimate, truth, statistic in said:
        wanted = np.atleast_1d(case.plain(columns, statistic))
        spread = float(np.ptp(columns["value"]))
        rounding = 1e-12 * float(np.abs(columns["value"]).max())
        if name in ("sum", "running-sum"):
            rounding *= n
        if name == "variance":
            rounding = 1e-9 * float(wanted[0])
        slack = case.slack(planned(statistic).plan.grid_step, n, spread)
        slack += rounding if slack or name not in EXACT else 0.0
        equal = np.array_equal(values(truth), wanted)
        assert equal or np.abs(values(truth) - wanted).max() <= rounding, f"{by}: truth"
        equal = np.array_equal(values(estimate), wanted)
        assert equal or np.abs(values(estimate) - wanted).max() <= slack, by


EXACT = ("histogram", "ecdf", "cumulative-histogram", "ecdf-points", "quantile", "quantile-search")
"""No rounding at all: counts and thresholds."""


@pytest.mark.parametrize("kind", [KendallTau, CollisionEntropy, Auc])
def test_time_stamps_are_not_compared_without_bounds(kind: type[Bounded]) -> None:
    """In 24 significant bits they are all the same: tau would be 0 where it is 1."""
    x = SHAPES["time stamps"][0][:12]
    columns = {"x": x, "y": x, "value": x, "score": x, "label": np.arange(12.0) % 2}
    with Federation(parties=1, aggregator="additive", data=Dataset("odd", columns)) as federation:
        with pytest.raises(LocalError, match=r"distinct values cannot be told apart.*lower"):
            federation.run(kind.from_parameters({"pairs_per_party": "all"}), "inf")
        bounds = {"lower": 1.7e9, "upper": 1.7e9 + 1, "pairs_per_party": "all"}
        result = federation.run(kind.from_parameters(bounds), "inf")
        assert result.estimate == result.truth


def test_values_that_are_tied_by_chance_are_compared_and_told_of() -> None:
    x = np.array([*np.arange(1.0, 30.0), 29.0 + 2.0**-30])
    columns = {"x": x, "y": x}
    with Federation(parties=1, aggregator="additive", data=Dataset("odd", columns)) as federation:
        result = federation.run(KendallTau(pairs_per_party="all"), "inf")
    assert result.estimate == 1 - 1 / 435
    assert any(note.startswith("2 distinct values were rounded") for note in result.notes)
