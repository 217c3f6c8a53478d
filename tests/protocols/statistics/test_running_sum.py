"""Running sums: exact without noise, and refused where times make no sense."""

import numpy as np
import pytest

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import deal
from tallyroom.protocols.statistics import Curve
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.running_sum import RunningSum


@pytest.mark.parametrize("lower", [0.0, 1.0, -5.5, 1.7e9])
def test_parties_sums_add_up_to_the_running_sum(lower: float) -> None:
    values = lower + np.random.default_rng(1).random(50)
    times = np.random.default_rng(2).permutation(50).astype(np.float64) + 1.0
    statistic = RunningSum(lower=lower, upper=lower + 1.0, steps=64)
    holdings = deal({"value": values, "time": times}, 7)
    asked = planned(statistic)
    answer = asked.decode(asked.total(holdings), 50, exact=True)
    truth = statistic.reference(holdings)
    assert isinstance(answer, Curve)
    assert isinstance(truth, Curve)
    assert np.allclose(answer.y, truth.y, rtol=1e-12, atol=50 * statistic.encoding.grid.step)
    expected = [values[times <= t].sum() for t in range(1, 65)]
    assert np.allclose(truth.y, expected)


@pytest.mark.parametrize("time", [0.0, 65.0, 1.5, -3.0])
def test_impossible_times_are_refused(time: float) -> None:
    statistic = RunningSum(lower=0.0, upper=1.0, steps=64)
    holdings = deal({"value": np.array([0.5]), "time": np.array([time])}, 1)
    with pytest.raises(LocalError, match="whole numbers"):
        statistic.reference(holdings)


@pytest.mark.parametrize(("steps", "nodes"), [(1, 1), (2, 1), (4, 2), (64, 4), (1024, 6)])
def test_the_sensitivity_is_theorem_3s(steps: int, nodes: int) -> None:
    statistic = RunningSum(lower=0.0, upper=1.0, steps=steps, strategy="tree")
    assert planned(statistic).plan.sensitivity.l1 == nodes * statistic.encoding.grid.steps
