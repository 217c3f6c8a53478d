"""What noise may have done to numbers read off a classifier's curves: noise is drawn again and
added to the estimated curves, which spends nothing.

The estimated curves are monotone, like the true ones; the noisy curves are not, and would spread
less once they are made monotone. The release is the seed of the draws, so one answer has one
interval.

**Between thresholds.** Records between the same two thresholds are taken to be ordered by chance. A
score orders them better than that, up to as well as it orders all records: so far the upper end of
an interval goes beyond what noise does.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.plans.interval import LEVEL, Interval
from tallyroom.protocols.statistics.classifier_estimates import Ends, Judgement
from tallyroom.protocols.statistics.release import Noise, Release

DRAWS = 100
"""An interval's width has a relative error of 7 % by them, which differs between answers."""

Read = Callable[[Release], dict[str, Judgement]]


@dataclass(frozen=True)
class Redrawn:
    """The judgements of a release, and those of releases with the noise drawn anew; `width` is how
    many standard deviations to either side hold 95 %."""

    read: Read
    release: Release
    noise: Noise
    width: float

    @cached_property
    def found(self) -> dict[str, Judgement]:
        return self.read(self.release)

    @cached_property
    def draws(self) -> list[dict[str, Judgement]]:
        plan = self.release.plan
        curves = plan.measure(self._estimated_sum())
        generator = np.random.default_rng(self.release.values)
        drawn = []
        for _ in range(DRAWS):
            normal = generator.normal(scale=math.sqrt(self.noise.variance), size=plan.noises)
            noise = np.rint(normal).astype(np.int64).view(np.uint64)
            drawn.append(self.read(replace(self.release, values=curves + plan.place(noise))))
        return drawn

    def _estimated_sum(self) -> Vector:
        """The sum of all parties' vectors if the estimated curves were the true ones."""
        rows = []
        for each in self.found.values():
            rows.append(each.negatives * (1 - each.false_positive[1:]))
            rows.append(each.negatives + each.positives * (1 - each.true_positive[1:]))
        total: Vector = np.rint(np.concatenate(rows)).astype(np.int64).view(np.uint64)
        return total

    def area(self, name: str, of: Callable[[Judgement], float], most: float) -> Interval:
        """The interval of an area of this score, around the area and around the area less the bias
        of the draws; `most` is the area if records between thresholds were in perfect order."""
        found = self.found[name]
        value = of(found)
        drawn = np.array([of(each[name]) for each in self.draws])
        errors = np.array([drawn.std(ddof=1)])
        both = np.array([value, 2 * value - drawn.mean()])
        around = Interval.around(both, errors, self.width, (0.0, 1.0))
        order = order_within(found) * max(most - value, 0.0)
        high = np.minimum(around.high.max(keepdims=True) + order, 1.0)
        return Interval(errors, around.low.min(keepdims=True), high)

    def auc(self, name: str) -> Ends:
        return _ends(self.area(name, lambda each: each.auc, self.found[name].perfect_auc))

    def average_precision(self, name: str) -> Ends:
        most = self.found[name].perfect_average_precision
        return _ends(self.area(name, lambda each: each.average_precision, most))

    def best_threshold(self, name: str) -> Ends:
        """The lowest and the highest of the thresholds that may be the best of those compared.

        A threshold τ is left out if the gain of the best found exceeds that of τ by more than noise
        makes any gain exceed that of τ in 95 % of draws. The truly best one has no less gain than
        any other, so that it is left out in 5 % of cases at most, as far as draws tell (multiple
        comparisons with the best, Hsu 1981)."""
        found = self.found[name]
        errors = np.array([each[name].gain - found.gain for each in self.draws])
        beyond = np.quantile(errors.max(axis=1)[:, None] - errors, LEVEL, axis=0)
        kept = np.flatnonzero(found.gain.max() - found.gain <= beyond)
        return float(found.thresholds[kept[0]]), float(found.thresholds[kept[-1]])


def order_within(found: Judgement) -> float:
    """The part κ of the way from chance to perfect order, if it is the same between thresholds as
    among all records: κ = 2·AUC − 1, where AUC = A + κg with A by chance between thresholds and
    A + g in perfect order there. So κ = (2A − 1)/(1 − 2g), or 1 where one cell tells nothing."""
    known = 1 - 2 * (found.perfect_auc - found.auc)
    return float(np.clip((2 * found.auc - 1) / known, 0.0, 1.0)) if known > 1e-9 else 1.0


def _ends(interval: Interval) -> Ends:
    return float(interval.low[0]), float(interval.high[0])
