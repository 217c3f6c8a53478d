"""Intervals of quantiles hold them whatever the values are, and intervals of the population hold
what the records were drawn from.

Every case is `RUNS` runs. A right program, which holds 95 %, fails one in under 10^-7 runs.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Column, Holdings, deal
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.ecdf import CumulativeHistogram, Ecdf, Quantile
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.planned import laplace_noise, planned
from tallyroom.protocols.statistics.release import Answer

RUNS = 150
SERVERS = 2
WANTED = (0.25, 0.5, 0.9)
Drawn = Callable[[np.random.Generator, int], Column]


def answers(statistic: Statistic, epsilon: Fraction, held: list[Holdings]) -> list[Answer]:
    """One answer about each holdings, with the noise of `SERVERS`."""
    records = held[0].rows
    asked = planned(statistic, Facts.of_one_server(records, 1, epsilon, False, b""))
    law = DiscreteLaplace.spending(epsilon, asked.plan.sensitivity.l1)
    randomness = Randomness.from_seed(3, statistic.name)
    noise = laplace_noise(SERVERS * law.variance, SERVERS)
    found = []
    by_id = {id(each): each for each in held}
    totals = {key: asked.plan.measure(asked.total(each)) for key, each in by_id.items()}
    for each in held:
        released = totals[id(each)]
        for _ in range(SERVERS):
            drawn = law.draw(asked.plan.noises, randomness).view(np.uint64)
            released = released + asked.plan.place(drawn)
        found.append(asked.read(released, records, noise))
    return found


def enough(hits: int, runs: int = RUNS) -> bool:
    return bool(stats.binomtest(hits, runs, 0.95, "less").pvalue > 1e-7)


def gains(generator: np.random.Generator, records: int) -> Column:
    """As capital gains: nine in ten are 0, the others far up."""
    some = np.rint(generator.lognormal(8.0, 1.2, records))
    return np.where(generator.random(records) < 0.1, np.minimum(some, 99_999), 0.0)


def balances(generator: np.random.Generator, records: int) -> Column:
    """As balances: a range of which nearly all records are in a hundredth."""
    return np.clip(np.rint(generator.lognormal(6.0, 1.3, records) - 80), -8_000, 99_000)


def ages(generator: np.random.Generator, records: int) -> Column:
    """Whole years, so that most thresholds pass no record."""
    return np.rint(generator.normal(41, 11, records)).clip(18, 95)


COLUMNS: dict[str, tuple[Drawn, float, float]] = {
    "gains": (gains, 0, 100_000),
    "balances": (balances, -10_000, 120_000),
    "ages": (ages, 0, 128),
}


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(5)])
@pytest.mark.parametrize("records", [500, 20_000])
@pytest.mark.parametrize("column", COLUMNS)
def test_an_interval_holds_the_quantile_of_the_raw_records(
    column: str, records: int, epsilon: Fraction
) -> None:
    draw, lower, upper = COLUMNS[column]
    values = draw(np.random.default_rng(4), records)
    truth = np.quantile(values, WANTED, method="inverted_cdf")
    statistic = Quantile(lower=lower, upper=upper, thresholds=256, quantile=WANTED)
    hits = np.zeros(len(WANTED), dtype=int)
    for answer in answers(statistic, epsilon, [deal({"value": values}, 1)] * RUNS):
        assert answer.interval is not None
        hits += (answer.interval.low <= truth) & (truth <= answer.interval.high)
    assert all(enough(int(each)) for each in hits), hits


def test_a_quantile_between_two_atoms_is_held_where_the_rank_is_at_the_edge() -> None:
    """Half of the records and one more are 1, the others 9: the least noise moves the median."""
    values = np.repeat([1.0, 9.0], [1_001, 999])
    statistic = Quantile(lower=0, upper=10, thresholds=64)
    hits = 0
    for answer in answers(statistic, Fraction(1), [deal({"value": values}, 1)] * RUNS):
        assert answer.interval is not None
        hits += int(answer.interval.low[0] <= 1.0 <= answer.interval.high[0])
    assert enough(hits)


def test_an_interval_of_a_quantile_is_not_wider_than_its_noise_explains() -> None:
    """20,000 uniform records: ± of the count's noise, in records, is ± of the quantile's in value;
    two cells more at either end, and half again for the noise at thresholds close by."""
    values = np.random.default_rng(5).random(20_000)
    statistic = Quantile(lower=0, upper=1, thresholds=256)
    law = DiscreteLaplace.spending(Fraction(1), int(statistic.curve_strategy.sensitivity.l1))
    deviation = math.sqrt(statistic.curve_strategy.count_variances(SERVERS * law.variance).max())
    for answer in answers(statistic, Fraction(1), [deal({"value": values}, 1)] * 20):
        assert answer.interval is not None
        width = float(answer.interval.high[0] - answer.interval.low[0])
        assert width <= 1.5 * 2 * 2.2 * deviation / 20_000 + 4 / 256


LAW = stats.beta(2, 5)
EDGES = np.linspace(0, 1, 11)
POPULATION: dict[str, tuple[Statistic, Column]] = {
    "quantile": (
        Quantile(lower=0, upper=1, thresholds=256, quantile=WANTED),
        LAW.ppf(WANTED),
    ),
    "ecdf": (Ecdf(lower=0, upper=1, thresholds=10), LAW.cdf(EDGES[1:])),
    "histogram": (Histogram(lower=0, upper=1, bins=10), 2_000 * np.diff(LAW.cdf(EDGES))),
    "cumulative-histogram": (
        CumulativeHistogram(lower=0, upper=1, thresholds=10),
        2_000 * np.diff(LAW.cdf(EDGES)),
    ),
}


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(50)])
@pytest.mark.parametrize("name", POPULATION)
def test_an_interval_of_the_population_holds_what_records_were_drawn_from(
    name: str, epsilon: Fraction
) -> None:
    """Other records in every run. At ε = 50 the noise is next to nothing: an interval of the noise
    alone would miss most of them."""
    statistic, truth = POPULATION[name]
    generator = np.random.default_rng(6)
    drawn = LAW.rvs((RUNS, 2_000), random_state=generator)
    held = [deal({"value": each}, 1) for each in drawn]
    hits, noise_hits = np.zeros(len(truth), dtype=int), np.zeros(len(truth), dtype=int)
    for answer in answers(statistic, epsilon, held):
        assert answer.population is not None
        assert answer.interval is not None
        assert answer.population.covers == "population"
        assert (answer.population.low <= answer.interval.low).all() or name == "quantile"
        hits += (answer.population.low <= truth) & (truth <= answer.population.high)
        noise_hits += (answer.interval.low <= truth) & (truth <= answer.interval.high)
    assert all(enough(int(each)) for each in hits), hits
    if epsilon == 50:
        assert noise_hits.min() < 0.8 * RUNS


def test_the_exact_release_still_tells_what_sampling_does() -> None:
    held = deal({"value": LAW.rvs(2_000, random_state=np.random.default_rng(7))}, 1)
    statistic = Histogram(lower=0, upper=1, bins=4)
    asked = planned(statistic, Facts.of_one_server(2_000))
    answer = asked.read(asked.plan.measure(asked.total(held)), 2_000, None)
    assert answer.interval is None
    found = answer.intervals["population"]
    assert found is not None
    counts = np.histogram(held.column("value"), bins=4, range=(0, 1))[0]
    expected = 1.96 * np.sqrt(counts * (1 - counts / 2_000))
    inner = counts > 100
    assert found.high[inner] - counts[inner] == pytest.approx(expected[inner], rel=0.05)


def test_quantiles_at_the_ends_have_no_interval_of_the_population() -> None:
    held = deal({"value": np.linspace(0, 1, 500)}, 1)
    statistic = Quantile(lower=0, upper=1, thresholds=64, quantile=(0.5, 1.0))
    (answer,) = answers(statistic, Fraction(1), [held])
    assert answer.population is not None
    assert "nearer to the middle" in answer.population.unknown
