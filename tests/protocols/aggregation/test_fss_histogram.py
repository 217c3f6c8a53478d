"""A histogram over comparison keys: its bins are differences of counts, with its own noise."""

from fractions import Fraction

import numpy as np
import pytest

from tallyroom.parties.data import Dataset
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.statistics import Curve
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.simulation import Federation


def values(count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Within the bounds, on the edges, and beyond."""
    drawn = np.random.default_rng(1).normal(0.5, 0.4, count)
    return np.concatenate([drawn, np.linspace(0.0, 1.0, 11), [-3.0, 7.0]])


@pytest.mark.parametrize("servers", [2, 3])
@pytest.mark.parametrize("bins", [1, 2, 10, 37])
def test_without_noise_it_is_numpys(servers: int, bins: int) -> None:
    x = values(60)
    data = Dataset("values", {"value": x})
    with Federation(7, servers, "fss", data=data, seed=1) as federation:
        result = federation.run(Histogram(lower=0.0, upper=1.0, bins=bins), "inf")
    counts, _ = np.histogram(np.clip(x, 0.0, 1.0), np.linspace(0.0, 1.0, bins + 1))
    assert isinstance(result.estimate, Curve)
    assert result.estimate.y == counts.tolist()


def test_noise_is_on_the_bins_and_independent() -> None:
    """As over additive shares: on every bin the discrete Laplace of scale 2/ε of each of two
    servers. With n = 4096 bins the sample variance of their sum has a relative deviation of
    √(3.5/n) and the correlation of neighbours one of 1/√n: six of either, α below 10^-8."""
    bins = 4096
    question = Histogram(lower=0.0, upper=1.0, bins=bins)
    found = {}
    for aggregator in ("fss", "additive"):
        data = Dataset("values", {"value": np.full(6, 0.5)})
        with Federation(3, 2, aggregator, data=data, seed=2) as federation:
            found[aggregator] = federation.run(question, 0.5)
    one, other = found["fss"], found["additive"]
    assert one.privacy.mechanism == other.privacy.mechanism
    assert (one.deviations == other.deviations).all()
    assert isinstance(one.estimate, Curve)
    assert isinstance(one.truth, Curve)
    noise = np.array(one.estimate.y) - np.array(one.truth.y)
    expected = 2 * DiscreteLaplace.spending(Fraction(1, 2), 2).variance
    assert abs(noise.var() / expected - 1) < 6 * np.sqrt(3.5 / bins)
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 6 / np.sqrt(bins)


def test_what_is_in_no_cell_is_refused() -> None:
    with (
        Federation(3, 2, "fss", seed=1) as federation,
        pytest.raises(LocalError, match="fss compares values with thresholds: it cannot do mean"),
    ):
        federation.run(Mean(value="score"), 1)
