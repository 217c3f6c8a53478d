"""Survival from counts of events and censorings in intervals of time.

Of r records at risk when an interval begins, d have the event in it and c are censored. The share
that has the event is d/r by the product limit (Kaplan and Meier 1958), which takes the censored to
be at risk all through the interval: right where every time is a threshold of its own, since those
censored at a time count as at risk then. It is d/(r − c/2) by the actuarial estimate, which takes
them to leave evenly: right where many times share an interval.

**Under noise** a share d/r of few at risk may come out as anything. It is drawn towards the share q
that the rate of all intervals together gives, with weight r²/(r² + ω²/q²) on its own value, for
noise of variance ω² in d: the mean given the release, if shares deviate from q by about q. Without
noise nothing is drawn.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tallyroom.protocols.records import Column

ACTUARIAL, PRODUCT_LIMIT = "actuarial", "product-limit"
METHODS = (ACTUARIAL, PRODUCT_LIMIT)
LEAST = 1e-9
"""A share or a time at risk that is as good as none."""


@dataclass(frozen=True)
class LifeTable:
    """`ends` are the thresholds after `start` that end the intervals. `events` and `censored` are
    counted in each, and those that were followed past the last are `beyond`. `noise` is the
    variance of the noise in a count."""

    start: float
    ends: Column
    events: Column
    censored: Column
    beyond: float
    method: str = ACTUARIAL
    noise: float = 0.0

    @cached_property
    def at_risk(self) -> Column:
        """How many are followed up to the beginning of each interval, and past the last."""
        left = (self.events + self.censored)[::-1]
        return self.beyond + np.append(np.cumsum(left)[::-1], 0.0)

    @cached_property
    def exposed(self) -> Column:
        """How many are at risk in each interval."""
        half = 0.5 if self.method == ACTUARIAL else 0.0
        found: Column = np.maximum(self.at_risk[:-1] - half * self.censored, 0.0)
        return found

    @cached_property
    def shares(self) -> Column:
        """The share of those at risk that have the event; 0 where nobody is at risk any more, NaN
        where nobody ever was."""
        exposed = self.exposed
        if not self.noise and self.at_risk[0] <= 0:
            return np.full_like(exposed, np.nan)
        own: Column = np.divide(self.events, exposed, out=np.zeros_like(exposed), where=exposed > 0)
        if not self.noise:
            return np.clip(own, 0.0, 1.0)
        common, weight = self._drawn
        found: Column = np.clip(weight * own + (1 - weight) * common, 0.0, 1.0)
        return found

    @cached_property
    def _drawn(self) -> tuple[Column, Column]:
        """The share that the rate of all intervals together gives each, and the weight of its own
        beside that."""
        exposed, widths = self.exposed, np.diff(self.ends, prepend=self.start)
        rate = float(self.events.sum()) / max(float(exposed @ widths), LEAST)
        common: Column = np.clip(rate * widths, LEAST, 1.0)
        return common, exposed**2 / (exposed**2 + self.noise / common**2)

    @property
    def drawn_off(self) -> Column:
        """How far drawing shares towards q may have moved the cumulative hazard, if a share is
        between 0 and 2q. Those where nobody is at risk any more all err in the same direction, so
        they are added."""
        if not self.noise:
            return np.zeros_like(self.ends)
        common, weight = self._drawn
        found: Column = np.cumsum((1 - weight) * common / np.maximum(1 - self.shares, LEAST))
        return found

    @property
    def survival(self) -> Column:
        """The share that survives each threshold."""
        found: Column = np.cumprod(1 - self.shares, dtype=np.float64)
        return found

    @property
    def hazard(self) -> Column:
        """The cumulative hazard. By Nelson and Aalen it is the sum of the shares; by the actuarial
        estimate, of q/(1 − q/2), since those who have the event leave evenly too."""
        parts = self.shares / (1 - self.shares / 2) if self.method == ACTUARIAL else self.shares
        found: Column = np.cumsum(parts)
        return found

    @property
    def survival_deviations(self) -> Column:
        """Of sampling, by Greenwood: S²·Σ q/(r(1 − q))."""
        left = self.exposed * (1 - self.shares)
        part = np.divide(self.shares, left, out=np.zeros_like(left), where=left > 0)
        found: Column = self.survival * np.sqrt(np.cumsum(part))
        return found

    @property
    def hazard_deviations(self) -> Column:
        """Of sampling, by Aalen: Σ d/r²."""
        parts = np.divide(
            self.shares, self.exposed, out=np.zeros_like(self.shares), where=self.exposed > 0
        )
        found: Column = np.sqrt(np.cumsum(parts))
        return found

    @property
    def order_deviations(self) -> Column:
        """Of the survival, by not knowing who left first within an interval: the share lies
        between d/r and d/(r − c), anywhere."""
        if self.method == PRODUCT_LIMIT:
            return np.zeros_like(self.ends)
        half = self.shares * self.censored / 2
        apart = np.divide(half, self.exposed, out=np.zeros_like(half), where=self.exposed > 0)
        left = np.maximum(1 - self.shares, LEAST)
        parts = np.minimum(apart, left) / left
        found: Column = self.survival * np.sqrt(np.cumsum(parts**2) / 3)
        return found


def falls_to(level: float, start: float, ends: Column, survival: Column, method: str) -> float:
    """When a survival curve falls to a level: at the first threshold where it is there by the
    product limit, and on the line between thresholds by the actuarial estimate; infinity if it
    does not."""
    below = np.flatnonzero(survival <= level)
    if not below.size:
        return float("inf")
    at = int(below[0])
    if method == PRODUCT_LIMIT:
        return float(ends[at])
    before, left = (survival[at - 1], ends[at - 1]) if at else (1.0, start)
    if before <= survival[at]:
        return float(ends[at])
    return float(left + (before - level) / (before - survival[at]) * (ends[at] - left))


def raw_life_table(times: Column, happened: Column) -> LifeTable:
    """The product limit of raw records, with every time a threshold."""
    if not times.size:
        nobody = np.zeros(1)
        return LifeTable(0.0, nobody, nobody, nobody, 0.0, PRODUCT_LIMIT)
    x, which = np.unique(times, return_inverse=True)
    events = np.bincount(which, weights=happened, minlength=len(x)).astype(np.float64)
    held = np.bincount(which, minlength=len(x)).astype(np.float64)
    start = float(min(x[0], 0.0))
    return LifeTable(start, x, events, held - events, 0.0, PRODUCT_LIMIT)
