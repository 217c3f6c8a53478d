"""Intervals of means over drawn pairs: what the noise did, and which pairs were drawn, to the
answer about all pairs of these records.

The noise's law is public. How far the drawing of pairs is off follows from the means themselves, by
bounds that hold for any records (`Kernel.pair_variance`): they reach what is told for some records
and are above it for others, so that intervals hold at least what they say.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tallyroom.protocols.kernels.contract import Kernel
from tallyroom.protocols.kernels.estimator import drawing_variance
from tallyroom.protocols.plans.interval import NORMAL, Interval
from tallyroom.protocols.plans.pairs import PairwiseMean
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics.release import Noise

HALVINGS = 60


@dataclass(frozen=True)
class PairError:
    """How far means over pairs are off: `noise` is the standard deviation in each mean, of which
    `width` to either side hold 95 %; `drawing` is the variance that the drawing of pairs adds for
    each unit of ζ2 − 2ζ1."""

    kernel: Kernel
    noise: float
    width: float
    drawing: float

    @classmethod
    def of(cls, plan: PairwiseMean, noise: Noise | None, pairs: int) -> "PairError":
        drawing = drawing_variance(1.0, pairs, plan.sample.matchings) * plan.clustering
        if noise is None:
            return cls(plan.kernel, 0.0, NORMAL, drawing)
        # One noise on each total, or one of every pair. A total is an integer; what circuits draw
        # is half an integer off.
        in_value = float(pairs) if plan.inside else 1.0
        width = noise.width(in_value, whole=plan.outputs == 1 and not plan.inside)
        divisor = pairs if plan.inside else pairs**2
        return cls(plan.kernel, math.sqrt(noise.variance / divisor), width, drawing)

    def drawn(self, means: Column, weights: Column) -> float:
        """The standard deviation that the drawing gives a weighted sum of these means."""
        return math.sqrt(self.drawing * self.kernel.pair_variance(means, weights))

    def deviation(self, means: Column, weights: Column) -> float:
        return math.hypot(self.noise * float(np.linalg.norm(weights)), self.drawn(means, weights))

    def reach(self, means: Column, weights: Column) -> float:
        """What 95 % of all sums are within. Noise has longer tails than the drawing, which is a
        mean over many pairs; their 95 % add up like standard deviations."""
        noise = self.width * self.noise * float(np.linalg.norm(weights))
        return math.hypot(noise, NORMAL * self.drawn(means, weights))


def of_one_output(error: PairError, mean: float, exact: bool) -> Interval:
    """All values that would have made this mean likely (Wilson 1927): a share that was seen to be 0
    need not be 0."""
    kernel, (output,) = error.kernel, error.kernel.outputs
    one = np.ones(1)

    def likely(candidate: float) -> bool:
        return abs(candidate - mean) <= error.reach(np.array([candidate]), one)

    if error.drawing:
        least = _last(likely, mean, min(mean, float(output.low)))
        most = _last(likely, mean, max(mean, float(output.high)))
    else:
        reach = error.reach(np.array([mean]), one)
        reach *= 1 + 1e-12  # an end that is an integer may come out a hair less
        least, most = mean - reach, mean + reach
    ends = [kernel.decode(np.array([end]), exact) for end in (least, most)]
    low, high = np.array([min(ends)]), np.array([max(ends)])
    slope = (high - low) / max(most - least, 1e-300)
    unknown = not np.isfinite(slope).all()  # an entropy may be infinite
    each = math.inf if unknown else error.deviation(np.array([mean]), one) * slope
    return Interval(np.broadcast_to(each, 1), low, high)


def _last(likely: Callable[[float], bool], inside: float, outside: float) -> float:
    """The last likely value on the way from one that is."""
    if likely(outside):
        return outside
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if likely(middle) else (inside, middle)
    return inside


def of_several_outputs(error: PairError, means: Column, span: tuple[float, float]) -> Interval:
    """By the delta method: decoding is as good as linear nearby."""
    kernel = error.kernel
    slopes = np.zeros(len(means))
    for place in range(len(means)):
        step = np.zeros(len(means))
        step[place] = error.noise or 1e-6
        above, below = (kernel.decode(means + s * step, exact=True) for s in (1, -1))
        slopes[place] = (above - below) / (2 * step[place])
    centre, reach = kernel.decode(means, exact=True), error.reach(means, slopes)
    ends = np.clip([centre - reach, centre + reach], *span)
    return Interval(np.array([error.deviation(means, slopes)]), ends[:1], ends[1:])
