"""The Gini coefficient against all pairs of numpy."""

import numpy as np
import pytest

from tallyroom.parties.data import Dataset
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.studies.gini_coefficient import GiniCoefficient
from tallyroom.simulation import Federation


def by_all_pairs(values: list[float]) -> float:
    apart = np.abs(np.subtract.outer(values, values))
    pairs = len(values) * (len(values) - 1)
    return float(apart.sum() / pairs / (2 * np.mean(values)))


@pytest.mark.parametrize(
    "values", [[0.0, 1.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 5.0], [1.0, 2.0, 2.0, 7.0, 3.0]]
)
def test_it_is_that_of_all_pairs(values: list[float]) -> None:
    data = Dataset("values", {"value": np.array(values)}, {"value": (0.0, 10.0)})
    with Federation(len(values), data=data, seed=1) as federation:
        result = federation.run(GiniCoefficient(pairs_per_party="all"), "inf")
    assert result.estimate == pytest.approx(by_all_pairs(values), abs=1e-6)
    assert result.truth == pytest.approx(by_all_pairs(values), abs=1e-12)
    assert [each.statistic for each in result.questions] == ["gini", "mean"]


def test_its_epsilon_is_that_of_both_questions() -> None:
    data = Dataset("values", {"value": np.linspace(1, 9, 40)}, {"value": (0.0, 10.0)})
    with Federation(4, data=data, seed=1) as federation:
        result = federation.run(GiniCoefficient(), 2)
    assert [each.privacy.epsilon for each in result.questions] == [1.5, 0.5]
    assert result.privacy.epsilon == 2


def test_what_has_no_coefficient_is_refused() -> None:
    with pytest.raises(LocalError, match="not negative"):
        GiniCoefficient(lower=-1.0, upper=1.0)
    data = Dataset("values", {"value": np.zeros(4)}, {"value": (0.0, 10.0)})
    with (
        Federation(4, data=data, seed=1) as federation,
        pytest.raises(RunFailed, match="so there is no coefficient"),
    ):
        federation.run(GiniCoefficient(pairs_per_party="all"), "inf")
