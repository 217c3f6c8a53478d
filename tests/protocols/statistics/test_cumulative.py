"""Counts at thresholds: the grid is exact, the noise is placed as the strategies say."""

import dataclasses
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.thresholds import RESOLUTION_BITS
from tallyroom.protocols.records import Column, deal
from tallyroom.protocols.statistics import Curve
from tallyroom.protocols.statistics.ecdf import CumulativeHistogram, Ecdf, Quantile, inverse
from tallyroom.protocols.statistics.estimates import shape_of
from tallyroom.protocols.statistics.planned import planned

FINITE = st.floats(-1e6, 1e6, allow_nan=False)


@given(
    st.lists(FINITE, min_size=1, max_size=30),
    FINITE,
    st.floats(1e-3, 1e6),
    st.integers(1, 300),
)
@example([0.5, 1.0, 0.0], 0.0, 1.0, 1)
@example([0.1 * k for k in range(11)], 0.0, 1.0, 10)
def test_alphas_decide_every_comparison_exactly(
    values: list[float], lower: float, width: float, thresholds: int
) -> None:
    statistic = Ecdf(lower=lower, upper=lower + width, thresholds=thresholds)
    x = np.array(values)
    encoding, clipped = statistic.encoding, np.clip(x, *statistic.bounds)
    truth = clipped[:, None] <= statistic.x[None, :]
    for bits in (RESOLUTION_BITS, max(1, (thresholds - 1).bit_length())):
        alphas = encoding.measurement.points(bits)[encoding.measured(deal({"value": x}, 1))]
        assert int(alphas.max()) < 2**bits
        assert ((alphas[:, None] <= encoding.measurement.points(bits)[None, :]) == truth).all()


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30), st.integers(1, 200))
def test_a_logarithmic_grid_is_exact_too(values: list[float], thresholds: int) -> None:
    statistic = Ecdf(lower=1e-3, upper=1e3, thresholds=thresholds, spacing="log")
    x = np.array(values)
    points = statistic.encoding.measurement.points(RESOLUTION_BITS)
    alphas = points[statistic.encoding.measured(deal({"value": x}, 1))]
    decided = alphas[:, None] <= points[None, :]
    assert (decided == (x[:, None] <= statistic.x[None, :])).all()
    ratios = statistic.x[1:] / statistic.x[:-1]
    assert np.allclose(ratios, ratios[:1] if len(ratios) else 1.0, rtol=1e-6)


def test_the_last_threshold_is_the_upper_bound() -> None:
    for thresholds, upper in product((1, 2, 3, 7, 64, 1000), (0.1, 1.0, 1e9)):
        statistic = Ecdf(lower=-0.3, upper=upper, thresholds=thresholds)
        assert statistic.x[-1] == upper
        assert len(statistic.x) == thresholds


def test_thresholds_that_doubles_cannot_tell_apart_are_refused() -> None:
    with pytest.raises(LocalError, match="told apart"):
        _ = Ecdf(lower=1e9, upper=1e9 + 1e-6, thresholds=1024).x


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=60), st.integers(1, 60), st.integers(1, 12))
def test_parties_counts_add_up_to_the_curve(
    values: list[float], thresholds: int, parties: int
) -> None:
    statistic = Ecdf(lower=-1.0, upper=1.0, thresholds=thresholds)
    holdings = deal({"value": np.array(values)}, min(parties, len(values)))
    asked = planned(statistic)
    decoded = asked.decode(asked.total(holdings), len(values), exact=True)
    inside = deal({"value": np.clip(values, -1.0, 1.0)}, 1)
    assert decoded == statistic.reference(inside) == asked.noiseless(holdings)


@pytest.mark.parametrize("thresholds", [2, 3, 5, 8, 12])
def test_no_replacement_moves_a_hierarchy_by_more_than_its_sensitivity(thresholds: int) -> None:
    """Every pair of cells: a record leaves one and enters the other."""
    statistic = Ecdf(lower=0.0, upper=1.0, thresholds=thresholds)
    plan, middles = planned(statistic).plan, statistic.x - 0.5 / thresholds
    measured = [plan.measure(plan.encode(deal({"value": np.array([x])}, 1))[0]) for x in middles]
    moves = [int(np.abs((a - b).view(np.int64)).sum()) for a, b in product(measured, repeat=2)]
    assert max(moves) == plan.sensitivity.l1


def test_unmeasured_and_measured_shapes() -> None:
    for strategy, thresholds in product(("tree", "hierarchy"), (1, 2, 3, 64, 100)):
        statistic = Ecdf(lower=0.0, upper=1.0, thresholds=thresholds, strategy=strategy)
        plan, total = planned(statistic).plan, np.arange(thresholds, dtype=np.uint64)
        assert len(plan.measure(total)) == plan.released
        noise = np.ones(plan.noises, dtype=np.uint64)
        assert len(plan.place(noise)) == plan.released


def curve_of(statistic: Ecdf, noisy: Vector) -> Column:
    """About a hundred records."""
    return shape_of(planned(statistic).decode(noisy, 100)).values()


@pytest.mark.parametrize(("strategy", "smooth"), [("tree", "1"), ("tree", "2"), ("hierarchy", "2")])
def test_smoothed_curves_do_not_decrease(strategy: str, smooth: str) -> None:
    statistic = Ecdf(lower=0.0, upper=1.0, thresholds=50, strategy=strategy, smooth=smooth)
    generator = np.random.default_rng(5)
    noisy = generator.integers(-40, 140, statistic.curve_strategy.released).view(np.uint64)
    curve = curve_of(statistic, noisy)
    assert (np.diff(curve) >= 0).all()
    assert curve[0] >= 0
    assert curve[-1] <= 1
    plain = curve_of(dataclasses.replace(statistic, smooth="none"), noisy)
    assert (np.diff(plain) < 0).any(), "the test needs a curve that smoothing has to change"


def test_the_reference_solver_gives_the_same_curve() -> None:
    pytest.importorskip("cvxopt")
    own = Ecdf(lower=0.0, upper=1.0, thresholds=64, strategy="tree", smooth="2")
    noisy = np.random.default_rng(6).integers(-10, 110, 64).view(np.uint64)
    theirs = dataclasses.replace(own, solver="cvxopt")
    assert np.allclose(curve_of(own, noisy), curve_of(theirs, noisy), atol=1e-5)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=40), st.floats(0, 1))
def test_the_inverse_is_the_first_index_that_reaches(steps: list[int], quantile: float) -> None:
    curve = np.cumsum(steps) / max(1, sum(steps))
    found = int(inverse(curve, np.array([quantile]))[0])
    reached = np.flatnonzero(curve >= quantile)
    assert found == (int(reached[0]) if len(reached) else len(curve) - 1)


def test_quantiles_of_exact_counts() -> None:
    values = np.arange(1.0, 101.0)
    holdings = deal({"value": values}, 10)
    statistic = Quantile(lower=0.0, upper=100.0, thresholds=100, quantile=(0.0, 0.25, 0.5, 1.0))
    asked = planned(statistic)
    answer = asked.decode(asked.total(holdings), 100, exact=True)
    assert isinstance(answer, Curve)
    assert np.allclose(answer.y, [1.0, 25.0, 50.0, 100.0])


def test_a_cumulative_histogram_counts_as_numpy_does() -> None:
    values = np.random.default_rng(7).random(1000)
    holdings = deal({"value": values}, 10)
    statistic = CumulativeHistogram(lower=0.0, upper=1.0, thresholds=16)
    asked = planned(statistic)
    answer = asked.decode(asked.total(holdings), 1000, exact=True)
    assert isinstance(answer, Curve)
    assert answer.y == np.histogram(values, 16, (0, 1))[0].tolist()


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"thresholds": 0}, "thresholds"),
        ({"spacing": "cubic"}, "spacing"),
        ({"strategy": "tre"}, "did you mean tree"),
        ({"smooth": "3"}, "smooth"),
        ({"smooth": "1"}, "2-norm"),
        ({"spacing": "log", "lower": 0.0, "upper": 1.0}, "above 0"),
    ],
)
def test_bad_parameters_get_one_line(parameters: dict[str, object], reason: str) -> None:
    with pytest.raises(LocalError, match=reason):
        Ecdf.from_parameters(parameters)


@pytest.mark.parametrize("quantile", [[1.5], [-0.1], [], [float("nan")], ["a"], 0.5])
def test_bad_quantiles_get_one_line(quantile: object) -> None:
    with pytest.raises(LocalError):
        Quantile.from_parameters({"quantile": quantile})
