"""S2's private residual plot: the plain histogram without noise, and what tells models apart."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

from protocols.errors import LocalError, RunFailed
from protocols.privacy.prirp import (
    PlotGrid,
    TruePlot,
    bound_of,
    first_bound,
    prirp,
    private_bound,
    separation,
    side_for,
)
from protocols.randomness import Randomness
from protocols.records import Column, deal
from protocols.statistics.residual_estimates import ResidualCounts
from protocols.statistics.residuals import CuratedCells, CuratedReach, ResidualCells, ResidualReach
from protocols.studies.residual_plot import ResidualPlot
from simulation.federation import Federation


def lines(kind: str, records: int, seed: int) -> tuple[Column, Column]:
    """S2 §4.3.1's data."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(1, 50, records)
    noise = generator.normal(size=records)
    bent = 0.01 * x**2 + x + noise
    return x, {"I": x + noise, "H": x + np.sqrt(x) * noise, "N": bent}[kind]


def residuals_of(x: Column, y: Column) -> tuple[Column, Column]:
    slope, intercept = np.polyfit(x, y, 1)
    fitted = intercept + slope * x
    return fitted, y - fitted


X, Y = lines("N", 600, 3)
HELD = deal({"x": X, "y": Y}, 5)


@pytest.mark.parametrize("method", ["dawa", "hb", "laplace"])
@pytest.mark.parametrize("aggregator", ["curator", "additive", "masking"])
def test_without_noise_it_is_numpys_histogram(method: str, aggregator: str) -> None:
    study = ResidualPlot(coefficients=(0.5, 1.2), method=method, side=8)
    with Federation(parties=5, data={"x": X, "y": Y}, aggregator=aggregator) as federation:
        found = federation.run(study, epsilon="inf").estimate
    assert isinstance(found, ResidualCounts)
    fitted = 0.5 + 1.2 * X
    reaches = []
    for values in (fitted, Y - fitted):
        bound = 1.0
        while np.mean(np.abs(values) <= bound) < 0.95:
            bound *= 2
        reaches.append(bound)
    assert (found.grid.fitted_reach, found.grid.residual_reach) == tuple(reaches)
    sides = [[-reach, reach] for reach in reaches]
    plain, _, _ = np.histogram2d(fitted, Y - fitted, bins=8, range=sides)
    assert (found.counts == plain.T).all()
    assert found.noisy[-1] == 600 - plain.sum()


@pytest.mark.parametrize("lengths", [(1.0,) * 17, (3.0, 9.0, 5.0), (16.0, 1.0)])
def test_buckets_are_linear_and_their_exact_counts_come_back(lengths: tuple[float, ...]) -> None:
    cells = ResidualCells(("x",), "y", (0.5, 1.2), 64.0, 16.0, "dawa", 4, 1.0, lengths)
    total = cells.encode(HELD).sum(axis=0, dtype=np.uint64)
    shares = np.random.default_rng(1).integers(0, 2**64, len(total), dtype=np.uint64)
    released = cells.measure(shares) + cells.measure(total - shares)
    assert (released == cells.measure(total)).all()
    found = cells.decode(released, 600)
    assert isinstance(found, ResidualCounts)
    ends = np.cumsum(lengths).astype(int)[:-1]
    for ours, exact in zip(np.split(found.noisy, ends), np.split(total, ends), strict=True):
        assert ours.sum() == pytest.approx(exact.sum(), abs=1e-6)
        assert np.ptp(ours) < 1e-6


def test_one_bucket_is_refused() -> None:
    """Its count is the number of records, so its sensitivity is 0, and a release of sensitivity 0
    has no noise: exact cells would leave the servers."""
    with pytest.raises(LocalError, match="two or more"):
        ResidualCells(("x",), "y", (0.0, 1.0), 1.0, 1.0, "dawa", 4, 1.0, (17.0,))
    for lengths in ((16.0, 2.0), (16.5, 0.5), (18.0, -1.0)):
        with pytest.raises(LocalError, match="buckets"):
            ResidualCells(("x",), "y", (0.0, 1.0), 1.0, 1.0, "dawa", 4, 1.0, lengths)


def test_the_search_for_bounds_finds_them_and_ends() -> None:
    values = np.random.default_rng(2).normal(0, 10, 4000)
    counts = np.bincount(bound_of(values, 1.0, 20), minlength=21)
    assert first_bound(counts, 4000) == 5  # 1.96 deviations are within 2^5
    randomness = Randomness.from_seed(3, "bounds")
    found = [private_bound(counts, Fraction(1), randomness) for _ in range(50)]
    assert found.count(5) > 40
    beyond = np.zeros(21, dtype=np.int64)
    beyond[-1] = 4000  # nothing lies within any bound: the cap ends it
    assert {private_bound(beyond, Fraction(1), randomness) for _ in range(20)} == {19}


def test_counts_within_bounds_all_move_the_same_way_by_one_at_most() -> None:
    """Every replacement of a record: what the halved noise of the search rests on."""
    for before in range(5):
        for after in range(5):
            moved = np.bincount([after], minlength=5) - np.bincount([before], minlength=5)
            within = np.cumsum(moved[:-1])
            assert np.abs(within).max() <= 1
            assert (within >= 0).all() or (within <= 0).all()


def test_empirical_epsilon_of_bounds_by_the_sparse_vector_technique() -> None:
    """700 searches at ε = 1 on either of two adjacent data sets, one record moved from beyond a
    bound to within the first. No index may be more than e times as likely on one of them. With 5
    standard errors of the log ratio allowed, a right program fails under 1 of 10^6."""
    found = []
    for at, counts in enumerate(([18, 1, 1, 0], [19, 1, 0, 0])):
        randomness = Randomness.from_seed(at, "empirical")
        array = np.array(counts, dtype=np.int64)
        picks = [private_bound(array, Fraction(1), randomness) for _ in range(700)]
        found.append(np.bincount(picks, minlength=3))
    one, two = found
    assert min(one.min(), two.min()) > 20
    error = 5 * np.sqrt(1 / one + 1 / two)
    assert (np.abs(np.log(one / two)) <= 1 + error).all()


def test_models_are_told_apart_at_a_thousand_records_and_epsilon_one() -> None:
    """S2 §4.3.1 in small, at n·ε = 1000: a threshold on the similarity with the true ideal plot
    tells 20 private ideal plots from 20 heteroscedastic and from 20 bent ones, but for one."""
    true = TruePlot(*residuals_of(*lines("I", 1000, 0)))
    found: dict[str, list[float]] = {}
    for kind in "IHN":
        for seed in range(20):
            fitted, residuals = residuals_of(*lines(kind, 1000, seed))
            randomness = Randomness.from_seed(seed, kind)
            grid, counts = prirp(fitted, residuals, 1.0, Fraction(1), randomness)
            points = grid.sampled(counts, np.random.default_rng(seed))
            found.setdefault(kind, []).append(true.similarity(*points))
    assert separation(found["I"], found["H"]) >= 0.95
    assert separation(found["I"], found["N"]) >= 0.95


def test_similarity_is_a_total_variation_distance() -> None:
    true = TruePlot(*residuals_of(*lines("I", 500, 1)))
    assert true.similarity(true.fitted, true.residuals) == 0
    assert true.similarity(true.fitted + 1e6, true.residuals) == pytest.approx(1)
    assert true.similarity(np.empty(0), np.empty(0)) == pytest.approx(1)


def test_points_are_sampled_in_their_cells() -> None:
    grid = PlotGrid(3.0, 2.0, 7)
    counts = np.random.default_rng(0).integers(0, 9, (7, 7))
    fitted, residuals = grid.sampled(counts, np.random.default_rng(1))
    assert (grid.grid(grid.counts(fitted, residuals)) == counts).all()


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
            coefficients=(0.0, 1.3),
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
    if aggregator != "prio3":  # cells one by one: what noise adds to empty ones hides it
        assert means[len(means) // 2] < 0  # bent: below the line in the middle
    result.plot()


def test_parties_send_counts_and_no_residual() -> None:
    """Whatever is encoded depends on cells alone: moving records within theirs changes nothing."""
    for statistic in (
        ResidualCells(("x",), "y", (0.0, 1.0), 8.0, 8.0, "hb", 4),
        ResidualReach(("x",), "y", (0.0, 1.0)),
        CuratedCells(("x",), "y", (0.0, 1.0), 8.0, 8.0, "dawa", 4),
        CuratedReach(("x",), "y", (0.0, 1.0)),
    ):
        one, two = (
            deal({"x": np.array([5.1, 6.2 + each]), "y": np.array([7.2 - each, 6.9 + each])}, 2)
            for each in (0.0, 0.05)
        )
        assert (statistic.encode(one) == statistic.encode(two)).all()


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
        near = ResidualPlot(coefficients=(0.0, 1.0), fitted_reach=1e-3, residual_reach=1e-3)
        note = next(note for note in federation.run(near).notes if "outside" in note)
        assert note.endswith(
            "lie outside the plot: give larger --fitted-reach and --residual-reach"
        )
        with pytest.raises(RunFailed, match=r"larger epsilon|too large"):
            federation.run(ResidualPlot(coefficients=(0.0, 1.0)), epsilon=1e-6)
    with pytest.raises(LocalError, match="one value only"):
        ResidualPlot().reference(deal({"x": np.ones(9), "y": np.arange(9.0)}, 1))
