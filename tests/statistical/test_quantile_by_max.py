"""`quantile --strategy max` against the exponential mechanism of a trusted curator, at the same ε
and adjacency."""

from fractions import Fraction

import numpy as np
import pytest

from tallyroom.protocols.statistics.ecdf import Quantile
from tallyroom.simulation import Federation
from tallyroom.simulation.in_the_clear import InTheClear
from tests.statistical.quantile_draws import errors, exponential_mechanism_rmse

VALUES = np.rint(np.random.default_rng(4).lognormal(6.5, 1.2, 20_000))
UPPER = 131072.0


@pytest.mark.parametrize(
    ("epsilon", "quantile"), [(Fraction(1, 10), 0.5), (Fraction(1), 0.9), (Fraction(4), 0.5)]
)
def test_it_errs_no_more_than_a_curators(epsilon: Fraction, quantile: float) -> None:
    """n = 200 draws under one seed, over a range of 131,072 with 4096 thresholds, 32 apart: the
    root mean square of such errors has a relative deviation of 10 %. Told by thresholds, the last
    would err 20 times as much."""
    asked = Quantile(lower=0.0, upper=UPPER, quantile=(quantile,), strategy="max", thresholds=4096)
    ours = float(np.sqrt(np.mean(errors(VALUES, asked, epsilon, 200) ** 2)))
    theirs = exponential_mechanism_rmse(VALUES, quantile, 0.0, UPPER, float(epsilon))
    assert ours < 1.25 * theirs


@pytest.mark.parametrize("records", [500, 20_000])
@pytest.mark.parametrize("quantile", [(0.5,), (0.2, 0.8)], ids=["one", "two"])
def test_its_interval_holds_atoms_and_skew(quantile: tuple[float, ...], records: int) -> None:
    """Half of the values are one number, and the others are skewed. n = 40 draws under one seed: an
    interval that holds 95 % holds fewer than 28 of 40 once in 10^7."""
    values = np.where(np.arange(records) % 2, VALUES[:records], 640.0)
    clear = InTheClear(Federation(parties=2, data={"value": values}), {})
    asked = Quantile("value", 0.0, UPPER, thresholds=4096, quantile=quantile, strategy="max")
    truth = np.quantile(values, quantile, method="inverted_cdf")
    held = np.zeros(len(quantile))
    for seed in range(40):
        found = clear.answer(asked, Fraction(1), seed)
        assert found is not None
        interval = found.intervals["noise"]
        assert interval is not None
        held += (interval.low <= truth) & (truth <= interval.high)
    assert (held >= 28).all()
