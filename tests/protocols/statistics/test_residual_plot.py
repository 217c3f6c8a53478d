"""S2's private residual plot: the plain histogram without noise, and what tells models apart."""

import dataclasses
import itertools
from fractions import Fraction

import numpy as np
import pytest

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.joint.above_threshold import FirstAbove
from tallyroom.protocols.plans.contract import Curated, NoisyChoice, NoisySum
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.tables import CountedCells
from tallyroom.protocols.privacy.prirp import (
    PlotGrid,
    TruePlot,
    side_for,
)
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Column, deal
from tallyroom.protocols.statistics.estimates import Rows
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.residual_estimates import ResidualCounts
from tallyroom.protocols.statistics.residuals import (
    BoundsInTurn,
    CuratedCells,
    CuratedReach,
    JointReach,
    ResidualCells,
    ResidualReach,
)
from tallyroom.protocols.studies.residual_plot import ResidualPlot
from tallyroom.simulation.federation import Federation


def lines(kind: str, records: int, seed: int) -> tuple[Column, Column]:
    """S2 §4.3.1's data."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(1, 50, records)
    noise = generator.normal(size=records)
    bent = 0.01 * x**2 + x + noise
    return x, {"I": x + noise, "H": x + np.sqrt(x) * noise, "N": bent}[kind]


PLAIN_SHAPES = [(0.0, 1.0), (-1.0, 0.0), (-0.25, 1.0), (-1.0, 0.25), (-1.0, 1.0)]


def residuals_of(x: Column, y: Column) -> tuple[Column, Column]:
    slope, intercept = np.polyfit(x, y, 1)
    fitted = intercept + slope * x
    return fitted, y - fitted


X, Y = lines("N", 600, 3)
HELD = deal({"x": X, "y": Y}, 5)


@pytest.mark.parametrize(
    ("aggregator", "method"),
    [
        ("curator", "dawa"),
        *itertools.product(("curator", "additive", "masking"), ("hb", "laplace")),
    ],
)
def test_without_noise_it_is_numpys_histogram(aggregator: str, method: str) -> None:
    study = ResidualPlot(coefficients=(0.5, 1.2), method=method, side=8)
    with Federation(parties=5, data={"x": X, "y": Y}, aggregator=aggregator) as federation:
        found = federation.run(study, epsilon="inf").estimate
    assert isinstance(found, ResidualCounts)
    fitted = 0.5 + 1.2 * X
    reach = next(2.0**i for i in range(9) if np.mean(np.abs(Y - fitted) <= 2.0**i) >= 0.95)
    axes = ((below * 2.0**i, above * 2.0**i) for i in range(9) for below, above in PLAIN_SHAPES)
    axis = next(each for each in axes if np.mean((each[0] <= fitted) & (fitted <= each[1])) >= 0.95)
    assert (found.grid.fitted, found.grid.residual_reach) == (axis, reach)
    plain, _, _ = np.histogram2d(fitted, Y - fitted, bins=8, range=[axis, (-reach, reach)])
    assert (found.counts == plain.T).all()
    assert found.outside == 600 - plain.sum()


def test_a_hierarchy_is_linear_and_exact_counts_come_back() -> None:
    cells = planned(ResidualCells(("x",), "y", (0.5, 1.2), -16.0, 64.0, 16.0, "hb", 4))
    total, plan = cells.total(HELD), cells.plan
    shares = np.random.default_rng(1).integers(0, 2**64, len(total), dtype=np.uint64)
    released = plan.measure(shares) + plan.measure(total - shares)
    assert (released == plan.measure(total)).all()
    found = cells.decode(released, 600)
    assert isinstance(found, ResidualCounts)
    assert found.noisy == pytest.approx(total.astype(float))


def test_dawa_is_for_a_curator() -> None:
    """Its partition follows from exact counts."""
    with pytest.raises(LocalError, match="exact counts: --aggregator curator"):
        ResidualCells(method="dawa")
    study = ResidualPlot(coefficients=(0.0, 1.3), method="dawa")
    with (
        Federation(parties=2, data={"x": X, "y": Y}, aggregator="additive") as federation,
        pytest.raises(LocalError, match="curator"),
    ):
        federation.run(study, epsilon=1)


def test_similarity_is_a_total_variation_distance() -> None:
    true = TruePlot(*residuals_of(*lines("I", 500, 1)))
    assert true.similarity(true.fitted, true.residuals) == 0
    assert true.similarity(true.fitted + 1e6, true.residuals) == pytest.approx(1)
    assert true.similarity(np.empty(0), np.empty(0)) == pytest.approx(1)


def test_points_are_sampled_in_their_cells() -> None:
    grid = PlotGrid((-1.0, 5.0), 2.0, 7)
    counts = np.random.default_rng(0).integers(0, 9, (7, 7))
    fitted, residuals = grid.sampled(counts, np.random.default_rng(1))
    cells = grid.counts(fitted, residuals).astype(np.float64)
    assert (grid.grid(cells, len(fitted)) == counts).all()


def test_the_side_of_the_grid_follows_the_paper() -> None:
    assert side_for(100_000, Fraction(1)) == 95  # S2 §4.2.2
    assert side_for(10, 0.001) == 2
    assert side_for(10**12, 1.0) == 512


@pytest.mark.parametrize("aggregator", ["curator", "additive", "prio3"])
def test_a_private_plot_of_a_private_fit(aggregator: str) -> None:
    """prio3 proves one-hot records: plain cells around given coefficients, within given bounds."""
    study = ResidualPlot(ranges=("x=0:50", "y=-20:100"))
    if aggregator == "prio3":
        study = ResidualPlot(
            coefficients=(-4.0, 1.5),
            method="laplace",
            fitted_reach=80.0,
            residual_reach=16.0,
            side=8,
        )
    x, y = lines("N", 3000, 5)
    with Federation(parties=6, data={"x": x, "y": y}, aggregator=aggregator, seed=2) as federation:
        result = federation.run(study, epsilon=2)
    assert isinstance(result.estimate, ResidualCounts)
    assert result.privacy.epsilon == pytest.approx(2)
    assert result.error is not None
    assert result.error["similarity"] < 0.5
    _, means, _ = result.estimate.trend()
    lowest = int(np.argmin(means))
    assert means[lowest] < 0  # bent: below the line between the ends
    assert 0 < lowest < len(means) - 1
    result.plot()


@pytest.mark.parametrize("reach_by", ["counts", "sparse-vector"])
@pytest.mark.parametrize("kind", "IHN")
def test_axes_hold_the_records_without_a_curator(reach_by: str, kind: str) -> None:
    """At n·ε = 4000 in all: neither twice too wide, nor with a third of the records outside."""
    x, y = lines(kind, 4000, 7)
    data = {"x": x, "y": y}
    slope, intercept = np.polyfit(x, y, 1)
    study = ResidualPlot(coefficients=(float(intercept), float(slope)), reach_by=reach_by)
    with Federation(parties=4, data=data, hosts=1, aggregator="additive", seed=4) as federation:
        result = federation.run(study, epsilon=1)
    assert isinstance(result.estimate, ResidualCounts)
    grid, (fitted, residuals) = result.estimate.grid, residuals_of(x, y)
    assert grid.counts(fitted, residuals)[-1] < 4000 / 4
    half = PlotGrid((grid.fitted[0] / 2, grid.fitted[1] / 2), grid.residual_reach, grid.side)
    low = PlotGrid(grid.fitted, grid.residual_reach / 2, grid.side)
    assert all(each.counts(fitted, residuals)[-1] > 4000 / 20 for each in (half, low))
    mended = result.estimate.noisy
    kept = mended[np.isfinite(mended)]  # not so are outer columns that hold noise alone
    assert (kept % 1 != 0).any()  # means of stretches: neighbours were merged
    assert result.error is not None
    assert result.error["similarity"] < 0.25


def test_the_axis_is_cut_to_what_public_ranges_allow() -> None:
    """A curator's plot of a fit on x in [1, 50]: no cell is left of what x = 1 has, none is right
    of what x = 50 has, and no record is lost at either end."""
    x, y = lines("I", 3000, 6)
    study = ResidualPlot(ranges=("x=1:50", "y=-20:100"))
    with Federation(parties=4, data={"x": x, "y": y}, aggregator="curator", seed=1) as federation:
        found = federation.run(study, epsilon=4).estimate
    assert isinstance(found, ResidualCounts)
    lower, upper = found.grid.fitted
    assert 0 < lower < 2
    assert 49 < upper < 52
    assert study._cut((-64.0, 64.0), (0.0, -2.0)) == pytest.approx((-64.0, -2.0))
    assert study._cut((0.0, 64.0), (0.0, -2.0)) == (0.0, 64.0)  # nothing in common: as found
    outer = 0.1 + 0.2 * 0.3
    edge = dataclasses.replace(study, x=("x", "z"), ranges=("x=0:0.3", "z=0:0.3", "y=0:1"))
    assert edge._cut((0.0, 64.0), (0.1, 0.1, 0.1))[1] >= max(outer, 0.1 + 0.1 * 0.3 + 0.1 * 0.3)
    assert ResidualPlot(coefficients=(0.0, 1.0))._cut((0.0, 64.0), (0.0, 1.0)) == (0.0, 64.0)


def bar(statistic: ResidualReach, facts: Facts) -> int:
    """How many records an axis is to hold."""
    match statistic.plan(facts):
        case NoisyChoice(rule=FirstAbove(thresholds=(one, two))):
            assert one == two
            return one
        case NoisySum(strategy=CountedCells(threshold=threshold)):
            return threshold
        case Curated(mechanism=BoundsInTurn(threshold=threshold)):
            return threshold
    raise AssertionError("no plan of a search")


def test_the_bar_is_lowered_by_the_noise_of_each_way() -> None:
    known = Facts.of_one_server(1000, 1, Fraction(1), False, b"")
    kinds = (CuratedReach, JointReach, ResidualReach)
    bars = [bar(kind(("x",), "y", (0.0, 1.0)), known) for kind in kinds]
    units = planned(JointReach(), known).plan.sensitivity.l1
    assert units == 3 + 2  # ε·s of a search that is not monotone, and of one
    assert bars == [935, 935, 933]  # 950 less ln 20 times 5, and times 4√2
    twice = dataclasses.replace(known, servers=2)
    assert bar(ResidualReach(), twice) == 926  # times 4√4
    assert bar(CuratedReach(), twice) == 935  # a curator draws one
    three = dataclasses.replace(known, records_per_unit=3)
    assert bar(ResidualReach(), three) == 950 - 51
    assert bar(JointReach(), three) == 950 - 45
    exact = dataclasses.replace(known, epsilon=None)
    assert bar(ResidualReach(), exact) == 0
    few = dataclasses.replace(known, epsilon=Fraction(1, 1000))
    assert bar(ResidualReach(), few) == 820


def test_a_curators_search_that_sees_noise_alone_finds_a_bound_of_residuals() -> None:
    """n·ε is below 1: the noise of any score could be the first above the bar, and each is about
    an axis that can be drawn."""
    facts = Facts.of_one_server(600, 120, Fraction(1, 1000))
    asked = planned(CuratedReach(("x",), "y", (0.0, 1.0), 0.5, 4), facts)
    total, plan = asked.total(HELD), asked.plan
    assert isinstance(plan, Curated)
    source = Randomness.from_seed(4, "noise alone")
    found = set()
    for _ in range(60):
        told = asked.decode(plan.mechanism.publish(total, Fraction(1, 1000), 0.0, source), 600)
        assert isinstance(told, Rows)
        lower, upper = told.values()[2:].tolist()
        assert lower == -upper
        found.add(upper)
    assert found == {0.5, 1.0, 2.0, 4.0}


def test_empty_scores_after_those_of_residuals_stand_for_the_widest_bound() -> None:
    """Two servers search both axes through as many scores: an index past the last bound of
    residuals is none of another axis."""
    asked = planned(JointReach(("x",), "y", (0.0, 1.0), 0.5, 4))
    for up, reach in ((0, 0.5), (3, 4.0), (4, 4.0), (19, 4.0), (20, 4.0)):
        told = asked.decode(np.array([2, up], dtype=np.uint64), 10)
        assert isinstance(told, Rows)
        assert told.rows[1] == ["residual", -reach, reach]
        assert told.rows[0] == ["fitted", -0.125, 0.5]
    held = deal({"x": np.array([0.3, 3.0]), "y": np.array([0.4, 9.0])}, 1)
    measured = asked.plan.measure(asked.plan.encode(held)[0])
    assert measured[20:].tolist() == [1, 1, 1, 1] + [0] * 16


def test_parties_send_counts_and_no_residual() -> None:
    """Whatever is encoded depends on cells alone: moving records within theirs changes nothing."""
    for statistic in (
        ResidualCells(("x",), "y", (0.0, 1.0), 0.0, 8.0, 8.0, "hb", 4),
        ResidualReach(("x",), "y", (0.0, 1.0)),
        CuratedCells(("x",), "y", (0.0, 1.0), 0.0, 8.0, 8.0, "dawa", 4),
        CuratedReach(("x",), "y", (0.0, 1.0)),
    ):
        one, two = (
            deal({"x": np.array([5.1, 6.2 + each]), "y": np.array([7.2 - each, 6.9 + each])}, 2)
            for each in (0.0, 0.05)
        )
        plan = planned(statistic).plan
        assert (plan.encode(one) == plan.encode(two)).all()


def test_bad_input_is_one_clear_line() -> None:
    for changes, words in (
        ({"coefficients": (1.0,)}, "2 coefficients"),
        ({"coefficients": (1.0, float("nan"))}, "finite"),
        ({"side": 1}, "side is from"),
        ({"method": "magic"}, "method"),
        ({"fitted_reach": 1.0}, "go together"),
        ({"fitted_reach": -1.0, "residual_reach": 1.0}, "positive"),
        ({"least_reach": 0.0}, "positive"),
        ({"doublings": 65}, "doublings"),
        ({"fit_share": 0.9, "reach_share": 0.2}, "together"),
        ({"coefficients": (0.0, 1.0), "ranges": ("x=0:1",)}, "leave it out"),
    ):
        with pytest.raises(LocalError, match=words):
            dataclasses.replace(ResidualPlot(), **changes)
    with Federation(parties=2, data={"x": X, "y": Y}) as federation:
        with pytest.raises(LocalError, match="needs public bounds of column 'x'"):
            federation.run(ResidualPlot())
        near = ResidualPlot(coefficients=(0.0, 1.0), fitted_reach=9.0, residual_reach=9.0)
        note = next(note for note in federation.run(near, epsilon=9).notes if "outside" in note)
        assert "lie outside the plot: give larger --fitted-reach and --residual-reach" in note
        none = dataclasses.replace(near, fitted_reach=1e-3, residual_reach=1e-3)
        with pytest.raises(RunFailed, match="no point in any cell: give larger --fitted-reach"):
            federation.run(none, epsilon=1000)
        with pytest.raises(RunFailed, match=r"larger epsilon|too large"):
            federation.run(ResidualPlot(coefficients=(0.0, 1.0)), epsilon=1e-6)
    with pytest.raises(LocalError, match="one value only"):
        ResidualPlot().reference(deal({"x": np.ones(9), "y": np.arange(9.0)}, 1))


def test_a_plot_without_points_leaves_errors_unknown() -> None:
    """The ε of the plot is spent by then: an error that cannot be told is no reason to fail."""
    grid = PlotGrid((0.0, 1.0), 1.0, 2)
    full = ResidualCounts.of(grid, np.full(5, 4.0), 20)
    empty = dataclasses.replace(full, counts=np.zeros_like(full.counts), outside=20)
    assert not len(empty.points[0])
    assert np.isnan(list(full.error(empty).values())).all()
    assert full.error(full)["rmse"] == 0
