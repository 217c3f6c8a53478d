"""Encodings code each record by itself, and state exactly how far a replaced record moves a sum."""

import numpy as np
import pytest

from tallyroom.protocols.plans.contract import NoisySum, PlainSum
from tallyroom.protocols.plans.encodings import ClippedNumber, EqualBins
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.records import deal

VALUES = np.array([-1e300, -3.0, 0.0, 0.1, 2.5, 2.5, 7.0, np.nan, 1e300])


@pytest.mark.parametrize(("lower", "upper"), [(0.0, 7.0), (-3.0, 2.5), (1e9, 1e9 + 1)])
def test_a_number_is_its_nearest_step_whoever_holds_it(lower: float, upper: float) -> None:
    number = ClippedNumber("v", lower, upper)
    alone = number.encode(deal({"v": VALUES}, len(VALUES)))
    together = number.encode(deal({"v": VALUES}, 1))
    assert np.array_equal(alone.sum(axis=0, dtype=np.uint64), together[0])
    clipped = np.clip(np.where(np.isnan(VALUES), lower, VALUES), lower, upper)
    found = (alone[:, 0].astype(float) + number.grid.origin) * number.grid.step
    assert np.abs(found - clipped).max() <= number.grid.step
    assert alone[:, 0].min() == 0
    assert alone[:, 0].max() <= number.grid.steps


def test_a_plain_sum_moves_as_its_encoding_does() -> None:
    number, bins = ClippedNumber("v", 0.0, 1.0), EqualBins("v", 0.0, 1.0, 5)
    steps = number.grid.steps
    assert NoisySum(number, PlainSum.of(number)).sensitivity == Sensitivity(steps, steps**2)
    assert NoisySum(bins, PlainSum.of(bins)).sensitivity == Sensitivity(2, 2)
