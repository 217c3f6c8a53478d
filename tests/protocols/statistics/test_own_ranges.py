"""Statistics of two columns, each with public bounds of its own."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from tallyroom import Federation
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.kernels.ordered_grid import OrderedGrid
from tallyroom.protocols.offers import Offer
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.pairs import PairwiseMean
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import clipped_records, with_published_bounds
from tallyroom.protocols.statistics.of_pairs import KendallTau, Pairwise
from tallyroom.protocols.statistics.planned import planned

RANGES = ("when=1.7e9:1.7001e9", "rate=0:0.02")
OWN = KendallTau(x="when", y="rate", pairs_per_party="all", ranges=RANGES)
FORMULA = Pairwise(
    kernel_name="abs(a.x - b.x) * abs(a.y - b.y)", lower=0, upper=1, pairs_per_party="all"
)


def columns(records: int = 120) -> Mapping[str, Column]:
    """Time stamps of one day, and a rate near 0.01 that grows with them."""
    generator = np.random.default_rng(4)
    when = 1.7e9 + np.sort(generator.random(records)) * 86400
    rate = 0.01 + (when - 1.7e9) * 2e-8 + generator.normal(scale=4e-4, size=records)
    return {"when": when, "rate": rate}


def held(found: Mapping[str, Column]) -> Holdings:
    return Holdings(np.zeros(1, dtype=np.uint32), np.zeros(1, dtype=np.intp), dict(found))


def exactly(statistic: KendallTau | Pairwise, found: Mapping[str, Column]) -> object:
    known = Facts.of_one_server(len(next(iter(found.values()))))
    return planned(statistic, known).noiseless(held(found))


@pytest.mark.parametrize("tau", ["a", "b"])
def test_time_stamps_and_a_rate_keep_their_order(tau: str) -> None:
    """By scipy. One range that holds both leaves the rate one value: tau is 0."""
    found = columns()
    truth = stats.kendalltau(found["when"], found["rate"]).statistic
    assert truth > 0.5
    assert exactly(replace(OWN, tau=tau), found) == pytest.approx(truth, abs=1e-3)
    assert exactly(replace(OWN, ranges=(), lower=0, upper=1.7001e9), found) == 0


def test_by_whole_machines() -> None:
    found = columns(12)
    truth = stats.kendalltau(found["when"], found["rate"]).statistic
    with Federation(parties=3, data=found, seed=1) as federation:
        result = federation.run(OWN, epsilon="inf")
    assert result.estimate == pytest.approx(truth)
    assert result.truth == pytest.approx(truth)


def test_a_formula_takes_columns_of_different_ranges() -> None:
    found = {"x": np.array([10.0, 30.0, 20.0, 10.5]), "y": np.array([0.25, 0.75, 0.0, 1.0])}
    statistic = replace(FORMULA, ranges=("x=0:40",), bits=12)
    first, second = np.triu_indices(4, 1)
    x, y = found["x"], found["y"]
    truth = np.mean(np.abs(x[first] - x[second]) * np.abs(y[first] - y[second]))
    assert exactly(statistic, found) == pytest.approx(truth)
    assert planned(statistic).plan.sensitivity.l1 >= 999 * 40  # in steps of the product


def test_one_column_may_go_without() -> None:
    plan = planned(replace(OWN, ranges=RANGES[:1])).plan
    assert isinstance(plan, PairwiseMean)
    when, rate = plan.kernel.grids
    assert not isinstance(when, OrderedGrid)
    assert isinstance(rate, OrderedGrid)
    assert plan.compared_within == ((1.7e9, 1.7001e9), (-np.inf, np.inf))
    assert "those of when to multiples of" in plan.grid_words
    assert plan.grid_step == when.step
    plan.check_resolution(held(columns()))
    unbounded = planned(replace(OWN, ranges=RANGES[1:])).plan.pairs
    assert unbounded is not None
    with pytest.raises(LocalError, match="cannot be told apart in 24 significant bits"):
        unbounded.check_resolution(held(columns()))


def test_values_outside_are_clipped_and_counted_by_column() -> None:
    found = columns()
    narrow = replace(OWN, ranges=("when=1.7e9:1.7001e9", "rate=0.0105:0.02"))
    assert clipped_records(OWN, held(found)) == 0
    assert clipped_records(narrow, held(found)) == np.count_nonzero(found["rate"] < 0.0105)


def test_the_local_model_has_bins_of_each_range() -> None:
    """Two bins a column: below and above the middle of its range."""
    statistic = replace(OWN, bins="2", ranges=("when=0:100", "rate=0:1"))
    known = replace(Facts.of_one_server(4), offers=frozenset({Offer.RANDOMIZE}))
    plan = statistic.plan(known)
    found = {"when": np.array([10.0, 60.0, 40.0, 90.0]), "rate": np.array([0.6, 0.9, 0.4, 0.1])}
    assert plan.measured(held(found)).tolist() == [1, 3, 0, 2]


def test_published_bounds_of_each_column_are_taken() -> None:
    published = {"x": (0.0, 40.0), "y": (0.0, 1.0)}
    formula = replace(FORMULA, lower=None, upper=None)
    taken = with_published_bounds(formula, published, frozenset({Offer.SUM}))
    assert taken == replace(formula, ranges=("x=0.0:40.0", "y=0.0:1.0"))
    bins = with_published_bounds(KendallTau(), published, frozenset({Offer.RANDOMIZE}))
    assert bins == KendallTau(ranges=("x=0.0:40.0", "y=0.0:1.0"))
    same = dict.fromkeys(published, (0.0, 1.0))
    taken = with_published_bounds(formula, same, frozenset({Offer.SUM}))
    assert taken == replace(formula, lower=0.0, upper=1.0)


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        (("other=0:1",), "kendall-tau is not about that column"),
        (("when=1:0",), "1 must be below 0"),
        (("when",), "a range is COLUMN=LOWER:UPPER"),
        (("when=0:1", "when=0:2"), "has two ranges"),
    ],
)
def test_bad_ranges_are_refused(ranges: tuple[str, ...], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        replace(OWN, ranges=ranges)


def test_a_column_without_bounds_is_named() -> None:
    statistic = replace(FORMULA, lower=None, upper=None, ranges=("x=0:1",))
    with pytest.raises(LocalError, match="bounds of column 'y': give --range y=LOWER:UPPER"):
        with_published_bounds(statistic, {}, frozenset({Offer.SUM}))


def test_ranges_decide_what_all_roles_sign() -> None:
    """Another range is another plan: nobody answers one question as if it were the other."""
    other = replace(OWN, ranges=("when=1.7e9:1.7001e9", "rate=0:0.03"))
    assert planned(OWN).plan.identity != planned(other).plan.identity
    assert KendallTau.from_parameters(OWN.parameters()) == OWN
