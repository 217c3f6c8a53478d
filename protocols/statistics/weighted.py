"""Options of statistics that weigh records, and the weighted mean."""

import math
from dataclasses import dataclass

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import NoisySum, PlainSum
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.groups import Groups
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.scaled import ScaledColumn
from tallyroom.protocols.plans.weights import MAX_RECORDS, STEPS, WeightedSums, Weights
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import BoundedColumn, finite_column
from tallyroom.protocols.statistics.option import option, role
from tallyroom.protocols.statistics.release import Answer, Release


@dataclass(frozen=True, kw_only=True)
class MayWeigh(BoundedColumn):
    """A statistic of one column, in which a record may weigh more than another."""

    weights: str = role(
        "", "A column of weights, at least 0; left out, all records weigh the same."
    )
    weight_upper: float | None = option(
        None, "Public upper bound of the weights, which are clipped to 0 and it."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        upper = self.weight_upper
        if upper is not None and not (math.isfinite(upper) and upper / STEPS**2 > 0):
            raise LocalError(f"--weight-upper is a number above 0, not {upper}")
        if upper is not None and not self.weights:
            raise LocalError("--weight-upper goes with --weights COLUMN")
        if self.weights and self.weights == self.value:
            raise LocalError(f"column {self.value!r} cannot be both --value and --weights")

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.value, self.weights) if self.weights else (self.value,)

    @property
    def valued(self) -> tuple[str, ...]:
        return (self.value,)

    @property
    def weighed_by(self) -> Weights:
        """Raises `LocalError` where the largest weight is not known."""
        if self.weight_upper is None:
            raise LocalError(
                "--weights needs the public upper bound of the weights: give --weight-upper"
            )
        return Weights(self.weights, float(self.weight_upper))

    def check_bounds(self) -> None:
        super().check_bounds()
        if self.weights:
            _ = self.weighed_by

    def raw_weights(self, holdings: Holdings) -> Column:
        """For the truth. Raises `LocalError` unless all are numbers from 0 on."""
        found = finite_column(holdings, self.weights)
        if (found < 0).any():
            raise LocalError(f"column {self.weights!r} has weights below 0")
        return found


def weighted_plan(asked: MayWeigh, facts: Facts, groups: Groups | None = None) -> NoisySum:
    """The plan of a weighted mean. Raises `LocalError` for too many records."""
    if facts.records > MAX_RECORDS:
        raise LocalError(f"--weights takes up to {MAX_RECORDS} records, not {facts.records}")
    sums = WeightedSums(ScaledColumn(asked.value, *asked.bounds), asked.weighed_by, groups)
    return NoisySum(sums, PlainSum.of(sums, unit=STEPS**-2, summed="weighted values and weights"))


def weighted_mean(release: Release, scaled: ScaledColumn) -> Answer:
    """Σwz/Σw, with all means for which the noise would not be unlikely (Fieller 1954)."""
    above, whole = (float(each) for each in release.integers / STEPS**2)
    middle, half = scaled.middle, scaled.half
    if (noise := release.noise) is None:
        mean = middle + half * above / whole if whole else math.nan
        return Answer(mean, None, release.records, foretold=True)
    variance = float(np.mean(noise.deviations(2) ** 2)) / STEPS**4
    deviation = math.sqrt(variance)
    found = min(max(above / max(whole, deviation, 1e-12), -1.0), 1.0)
    error = math.sqrt(variance * (1 + found**2)) / max(whole, deviation, 1e-12)
    alike = (1 + found**2) ** 2 / (1 + found**4)
    most = noise.width(round(4 * alike) / 4) ** 2 * variance  # few widths, each computed once
    ends = np.clip(_likely(above, whole, most), -1.0, 1.0)
    interval = Interval(
        np.array([min(error, 2.0) * half]), middle + half * ends[:1], middle + half * ends[1:]
    )
    mean = middle + half * found
    return Answer(mean, interval.holding(np.array([mean])), release.records)


def _likely(above: float, whole: float, most: float) -> Column:
    """The ends of all x with (above − whole·x)² ≤ most·(1 + x²)."""
    square = whole**2 - most
    within = most * (above**2 + whole**2 - most)
    if square <= 0 or within < 0:
        return np.array([-math.inf, math.inf])
    return (above * whole + np.array([-1.0, 1.0]) * math.sqrt(within)) / square
