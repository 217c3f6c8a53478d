"""Bounds that are found: wide enough, not wild, and refused where nothing can be told."""

import math

import numpy as np
import pytest
from scipy import stats

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf, Quantile
from tallyroom.protocols.statistics.estimates import Curve
from tallyroom.protocols.statistics.magnitudes import BINS, EDGES, Magnitudes
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.of_pairs import Gini, KendallTau
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.studies.conformance import conducted
from tallyroom.protocols.studies.contract import Answer, Ask, Finding
from tallyroom.protocols.studies.private_bounds import (
    FAILURE,
    PrivateBounds,
    bounds_of,
    left_out,
    noise_threshold,
)
from tests.samples import holdings_of

generator = np.random.default_rng(11)
SHAPES: dict[str, Column] = {
    "positive": generator.lognormal(10, 0.5, 2000),
    "negative": -generator.gamma(3.0, 20.0, 2000),
    "both signs": generator.normal(0, 3, 2000),
    "large offset": 1e6 + generator.normal(0, 10, 2000),
    "outliers": np.concatenate([generator.uniform(1, 7, 1995), [1e12, -1e12, 1e9, -5e7, 1e300]]),
    "all zero": np.zeros(2000),
    "all the same": np.full(2000, -3.0),
    "powers of two": np.exp2(generator.integers(0, 4, 2000)),
    "tiny": generator.uniform(-1e-12, 1e-12, 2000),
}


def counts(values: Column, noise: Column, deviation: float) -> Answer:
    curve = planned(Magnitudes()).noiseless(holdings_of(values.tolist(), 1))
    assert isinstance(curve, Curve)
    noisy = Curve(curve.x, (np.asarray(curve.y) + noise).tolist())
    return Answer.told(noisy, np.full(BINS, deviation), len(values))


@pytest.mark.parametrize("shape", SHAPES)
def test_bounds_hold_nearly_all_records_and_are_at_most_four_times_as_wide(
    shape: str,
) -> None:
    """Noise of two servers at ε = 0.2, n = 200 times. What is left out is what thresholds cost:
    bins with fewer records than stand out from noise. A thin tail has one bin more. Of the draws
    at most one in 50 goes too far beyond that (STRAY on either side), so that 24 of 200 do with α
    below 1e-9."""
    values = SHAPES[shape]
    scale, runs = 10.0, 200
    p = math.exp(-1 / scale)
    deviation = math.sqrt(2 * 2 * p / (1 - p) ** 2)
    each = stats.dlaplace.rvs(1 / scale, size=(runs, 2, BINS), random_state=5)
    drawn = np.asarray(each).sum(axis=1)
    stands_out = noise_threshold(deviation, FAILURE / BINS)
    small = float(EDGES[0])  # what is closer to 0 counts as 0
    too_wide = 0
    for noise in drawn:
        lower, upper = bounds_of(counts(values, noise, deviation))
        assert lower < upper
        for outside in (values < lower - small, values > upper + small):
            assert np.count_nonzero(outside) <= stands_out + 10 * deviation
        # Of the values that are not alone: five outliers are not to be followed.
        low, high = np.sort(values)[[5, -6]]
        reach = 4 * max(abs(low), abs(high), float(EDGES[0]))
        too_wide += not (-reach <= lower and upper <= reach)
    assert too_wide <= 24


@pytest.mark.parametrize("shape", [name for name in SHAPES if name != "outliers"])
def test_without_noise_all_records_are_within(shape: str) -> None:
    values = SHAPES[shape]
    lower, upper = bounds_of(counts(values, np.zeros(BINS), 0.0))
    small = float(EDGES[0])
    assert lower - small <= values.min()
    assert values.max() <= upper + small


@pytest.mark.parametrize("servers", [1, 2, 3])
@pytest.mark.parametrize("scale", [0.3, 1.0, 10.0])
@pytest.mark.parametrize("probability", [0.01, 1e-6 / BINS])
def test_noise_exceeds_its_threshold_as_rarely_as_is_said(
    servers: int, scale: float, probability: float
) -> None:
    """By the exact distribution of a sum of discrete Laplace noises, added up on a line."""
    reach = int(scale * 60) + 20
    line = np.arange(-reach, reach + 1)
    one = stats.dlaplace.pmf(line, 1 / scale)
    whole = one
    for _ in range(servers - 1):
        whole = np.convolve(whole, one)
    at = np.arange(len(whole)) - (len(whole) - 1) // 2
    deviation = math.sqrt(float((whole * at * at).sum()))
    threshold = noise_threshold(deviation, probability)
    assert noise_threshold(deviation, probability, servers) <= threshold
    assert float(whole[at > noise_threshold(deviation, probability, servers)].sum()) <= probability
    exceeded = float(whole[at > threshold].sum())
    assert exceeded <= probability
    if scale >= 1:  # nor is it far off, where noise is not 0 most of the time
        assert float(whole[at > threshold / 2].sum()) > probability


def test_nothing_that_stands_out_is_refused_with_what_to_do() -> None:
    with pytest.raises(RunFailed, match=r"--epsilon or --bounds-share, or give --lower") as said:
        bounds_of(counts(np.ones(20), np.zeros(BINS), 10.0))
    assert "\n" not in str(said.value)


ZEROS = np.concatenate([np.zeros(45000), np.full(3600, 7000.0), np.full(240, 99999.0)])
"""Like Adult's capital gain."""


def drawn(deviation: float, seed: int) -> Column:
    """Noise of one server."""
    scale = deviation / math.sqrt(2)
    found = stats.dlaplace.rvs(1 / scale, size=BINS, random_state=seed)
    return np.asarray(found, dtype=np.float64)


def test_zeros_alone_are_no_bounds_and_nothing_more_is_asked() -> None:
    """The other records are there, in bins that noise hides."""
    spread = np.concatenate([np.zeros(45000), np.exp2(generator.uniform(0, 40, 3840))])

    def answering(ask: Ask) -> Answer:
        assert isinstance(ask.statistic, Magnitudes)
        return counts(spread, drawn(150.0, 3), 150.0)

    with pytest.raises(RunFailed, match="zeros alone stand out") as said:
        conducted(PrivateBounds(Mean()), answering)
    assert "\n" not in str(said.value)


@pytest.mark.parametrize("seed", range(20))
def test_a_far_bin_behind_a_gap_is_within_the_bounds(seed: int) -> None:
    """With 3600 records in [2^12, 2^13) and 240 in [2^16, 2^17), two bins are empty between."""
    near = np.where(ZEROS == 7000.0, 20000.0, ZEROS)
    lower, upper = bounds_of(counts(near, drawn(28.0, seed), 28.0))
    assert lower <= 0
    assert 2.0**17 <= upper <= 2.0**20


def test_values_that_end_sharply_are_not_given_a_wider_range() -> None:
    values = generator.uniform(0, 1024, 50000)
    for seed in range(20):
        assert bounds_of(counts(values, drawn(28.0, seed), 28.0)) == (0.0, 1024.0)
        far = 1e6 + values
        assert bounds_of(counts(far, drawn(28.0, seed), 28.0)) == (2.0**19, 2.0**20)


def test_how_many_are_outside_is_told_and_too_many_leave_no_interval() -> None:
    """2000 of 20,000 records are spread so widely that no bin of theirs stands out."""
    spread = np.concatenate(
        [generator.uniform(512, 1024, 18000), -np.exp2(generator.uniform(-20, 40, 2000))]
    )
    counted = counts(spread, drawn(40.0, 4), 40.0)
    bounds = bounds_of(counted)
    found = left_out("value", counted, bounds)
    assert found is not None
    outside = np.count_nonzero((spread < bounds[0]) | (spread > bounds[1]))
    assert outside >= 1900
    assert abs(found.about - outside) < 6 * found.noise
    assert f"of 20000 records about {found.about:.0f}" in found.words
    assert found.certain
    within = counts(spread[:18000], drawn(40.0, 4), 40.0)
    inside = left_out("value", within, bounds_of(within))
    assert inside is not None
    assert not inside.certain


def unknown_of(study: PrivateBounds, first: Answer) -> str:
    """Why the study has no interval after this answer to its first question; empty if it has."""
    steps = study.steps()
    next(steps)
    for _ in study.shares()[1:]:
        steps.send(first)
    with pytest.raises(StopIteration) as over:
        steps.send(Answer.told(3.0, np.array([0.1]), first.records))
    finding = over.value.value
    assert isinstance(finding, Finding)
    return finding.unknown


@pytest.mark.parametrize(
    ("deviation", "statistic", "words"),
    [
        (10.0, Mean(), ""),
        (40.0, Mean(), "noise may hide"),
        (40.0, Gini(), "noise may hide"),
        (40.0, Quantile(), ""),
        (40.0, Ecdf(), ""),
    ],
    ids=str,
)
def test_what_noise_may_hide_leaves_a_mean_no_interval(
    deviation: float, statistic: Statistic, words: str
) -> None:
    """Of 20,000 records noise of deviation 10 in 10 bins hides about 60, and of 40 about 240."""
    values = generator.uniform(0, 1024, 20_000)
    first = counts(values, drawn(deviation, 3), deviation)
    assert unknown_of(PrivateBounds(statistic), first)[: len("noise may hide")] == words


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_nobody_beyond_the_outermost_bin_is_said_to_be_inside(sign: float) -> None:
    """That bin has no outer end: all 20,000 records are outside bounds that end with it."""
    counted = counts(sign * generator.uniform(1e20, 2e20, 20000), drawn(40.0, 5), 40.0)
    found = left_out("value", counted, bounds_of(counted))
    assert found is not None
    assert abs(found.about - 20000) <= 6 * found.noise
    assert found.certain


def test_the_statistic_is_asked_with_the_bounds_and_the_rest() -> None:
    records = holdings_of([3.0] * 50 + [12.0] * 50, 4)

    def answering(ask: Ask) -> Answer:
        return Answer.told(planned(ask.statistic).noiseless(records), np.zeros(BINS), records.rows)

    finding, (first, second) = conducted(PrivateBounds(Mean(), 0.3), answering)
    assert (str(first.share), str(second.share)) == ("3/10", "7/10")
    assert second.statistic == Mean(lower=2.0, upper=16.0) == finding.statistic
    assert finding.estimate == pytest.approx(7.5, abs=1e-6)
    assert "[2, 16]" in finding.notes[0]


def test_the_truth_is_that_of_the_raw_values() -> None:
    values = [1.0, 2.0, 1e9]
    truth = PrivateBounds(Mean()).reference(holdings_of(values, 1))
    assert truth == pytest.approx(np.mean(values))
    assert PrivateBounds(Mean()).reference(holdings_of([0.0, 0.0], 1)) == 0.0


def test_what_needs_no_bounds_or_has_them_is_refused() -> None:
    for statistic in (Mean(lower=0.0), Mean(upper=1.0), Mean(lower=0.0, upper=1.0)):
        with pytest.raises(LocalError, match="leave --lower and --upper out"):
            PrivateBounds(statistic)
    with pytest.raises(LocalError, match="needs no bounds"):
        PrivateBounds(KendallTau())
    for share in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(LocalError, match="--bounds-share"):
            PrivateBounds(Gini(), share)


def test_values_that_are_not_numbers_count_as_zero() -> None:
    def measured(*values: float) -> list[int]:
        column = np.array(values)
        ids, starts = np.zeros(1, dtype=np.uint32), np.zeros(1, dtype=np.intp)
        held = Holdings(ids, starts, {"value": column})
        return [int(each) for each in planned(Magnitudes()).plan.measured(held)]

    assert measured(1, np.nan, np.inf, -np.inf) == measured(1, 0, 0, 0)
