"""Bounds that nobody has to know beforehand: found in the data, privately, for a share of ε.

The records are counted by sign and power of two. A bin, or some neighbouring ones together, whose
noisy count is above a threshold that noise alone exceeds anywhere with probability `FAILURE` at
most, has records in it for certain. The bounds are the outer ends of the outermost of those, and go
on to the next bin for as long as its count is above what noise alone exceeds with probability
`STRAY`: a tail that thins out is not cut off where it may still count, and a step too far makes the
range twice as wide and no more. The statistic is then asked with the rest of ε, and these bounds
are public. The idea is that of Google's differential-privacy library (Wilson et al.,
"Differentially Private SQL with Bounded User Contribution", 2020), which looks at single bins and
has one threshold.

Where two servers compute together, they can find the bounds by the sparse vector technique
instead (`protocols.statistics.first_above`): nothing of the counts is released, and less ε is
enough to find any bounds at all.

Clipping to bounds that too few records reach is what makes it private: outliers in bins below the
threshold are clipped, by design.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.names import look_up
from tallyroom.protocols.privacy.loss import as_written
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.contract import Bounds, Statistic
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Curve, Estimate, Rows, shape_of
from tallyroom.protocols.statistics.first_above import MagnitudeBounds
from tallyroom.protocols.statistics.magnitudes import BINS, EDGES, LEFT, RIGHT, Magnitudes
from tallyroom.protocols.studies.contract import Answer, Ask, Finding, Steps, Study

FAILURE = 1e-6
"""The probability that an empty bin far from all records is taken for one that has some."""
WIDTHS = (1, 2, 4, 8)
"""How many neighbouring bins are looked at together."""
STRAY = 0.01
"""The probability that bounds go one bin further than there are records, on either side."""
DEFAULT_SHARE = 0.2
"""Of ε: the counts need be told from noise only, the statistic is what is wanted."""
STAND_IN = (1.0, 2.0**20)
"""For bounds that are not known yet. A grid has a power of two for its step: a range just short of
one takes as many steps as any."""
METHODS = ("histogram", "sparse-vector")
"""How bounds are found: in counts that are released, or as indices that two servers choose."""


@dataclass(frozen=True)
class PrivateBounds(Study):
    """A statistic with bounds that are found in the data, for `share` of its ε."""

    statistic: Statistic
    share: float = DEFAULT_SHARE
    method: str = METHODS[0]

    name: ClassVar[str] = "private-bounds"
    style: ClassVar[Style] = Style()

    def __post_init__(self) -> None:
        statistic = self.statistic
        look_up("bounds-by", self.method, dict.fromkeys(METHODS))
        if not 0 < self.share < 1:
            raise LocalError(f"--bounds-share is between 0 and 1, not {self.share:g}")
        if not statistic.bounded:
            raise LocalError(f"{statistic.name} needs no bounds: leave --bounds out")
        given = (getattr(statistic, name, None) for name in ("lower", "upper"))
        if statistic.column_bounds or any(bound is not None for bound in given):
            raise LocalError("--bounds private finds the bounds: leave --lower and --upper out")
        self._within(dict.fromkeys(statistic.bounded, (1.0, 2.0)))

    @property
    def title(self) -> str:
        return self.statistic.name

    @property
    def columns(self) -> tuple[str, ...]:
        return self.statistic.columns

    def shares(self) -> tuple[Fraction, ...]:
        """The bounds of each column, then the statistic."""
        columns = len(self.statistic.bounded)
        first = as_written(self.share)
        return (*((first / columns,) * columns), 1 - first)

    def steps(self) -> Steps:
        *each, rest = self.shares()
        found = {}
        for column, share in zip(self.statistic.bounded, each, strict=True):
            answer = yield Ask(self._finder(column), share)
            found[column] = bounds_of(answer)
        bounded = self._within(found)
        answer = yield Ask(bounded, rest)
        ranges = dict.fromkeys(bounded.column_bounds.values())
        words = " and ".join(f"[{lower:g}, {upper:g}]" for lower, upper in ranges)
        note = f"bounds {words} were found for {self.share:.3g} of ε; values outside are clipped"
        return Finding(answer.estimate, (note,), answer.deviations, bounded)

    def _finder(self, column: str) -> Statistic:
        by_sparse_vector = self.method == "sparse-vector"
        return MagnitudeBounds(column) if by_sparse_vector else Magnitudes(column)

    def may_ask(self) -> tuple[Ask, ...]:
        *each, rest = self.shares()
        columns = zip(self.statistic.bounded, each, strict=True)
        asked = [Ask(self._finder(column), share) for column, share in columns]
        stand_in = self._within(dict.fromkeys(self.statistic.bounded, STAND_IN))
        return *asked, Ask(stand_in, rest)

    def reference(self, holdings: Holdings) -> Estimate:
        """Of the raw values: as if the bounds were those of the data."""
        ranges = {}
        for column in self.statistic.bounded:
            values = holdings.column(column)
            lower, upper = float(values.min()), float(values.max())
            ranges[column] = lower, max(upper, math.nextafter(lower, math.inf))
        return self._within(ranges).reference(holdings)

    def _within(self, found: Mapping[str, Bounds]) -> Statistic:
        """Where it has one range for all its columns, they are all in it."""
        bounded = self.statistic.with_bounds(found)
        if set(bounded.bounded) - bounded.column_bounds.keys():
            lowers, uppers = zip(*found.values(), strict=True)
            widest = dict.fromkeys(found, (min(lowers), max(uppers)))
            bounded = self.statistic.with_bounds(widest)
        bounded.check_bounds()
        return bounded


def bounds_of(counted: Answer) -> tuple[float, float]:
    """The bounds in counts by magnitude, or as they were chosen. Raises `RunFailed` where there are
    none."""
    if isinstance(counted.estimate, Rows):
        return _chosen(counted.estimate)
    if not isinstance(counted.estimate, Curve):
        raise RunFailed("counts by magnitude are a curve")
    counts = shape_of(counted.estimate).values()
    deviation = float(np.max(counted.deviations))
    likely = noise_threshold(deviation, STRAY)
    ends: tuple[int, int] | None = None
    for width in WIDTHS:
        ends = _widened(ends, counts, width, _certain(deviation, width), likely)
    if ends is None:
        raise RunFailed(
            "no bounds were found: no order of magnitude has more than "
            f"{_certain(deviation, 1):.0f} records, which noise alone may show; use a larger "
            "--epsilon or --bounds-share, or give --lower and --upper"
        )
    lower, upper = float(LEFT[ends[0]]), float(RIGHT[ends[1]])
    return lower, max(upper, float(EDGES[0]))  # where all values are 0, any interval will do


def _chosen(found: Rows) -> tuple[float, float]:
    lower, upper = found.values().tolist()
    upper = max(upper, float(EDGES[0])) if lower == 0 else upper
    if not (math.isfinite(upper - lower) and lower < upper):
        raise RunFailed(
            "no bounds were found: noise hides all but too few records; use a larger --epsilon or "
            "--bounds-share, or give --lower and --upper"
        )
    return lower, upper


def _certain(deviation: float, width: int) -> float:
    """What noise makes the sum of so many neighbouring bins exceed anywhere, at any width, with
    probability `FAILURE` at most."""
    probability = FAILURE / (BINS * len(WIDTHS))
    return noise_threshold(deviation * math.sqrt(width), probability, width)


def _widened(
    ends: tuple[int, int] | None, counts: Column, width: int, certain: float, likely: float
) -> tuple[int, int] | None:
    """The first and the last bin, after a look at all windows that are beyond them."""
    sums = np.convolve(counts, np.ones(width), "valid")
    starts = np.arange(len(sums))
    beyond = (starts + width <= ends[0]) | (starts > ends[1]) if ends else np.ones(len(sums), bool)
    found = np.flatnonzero((sums > certain) & beyond)
    if len(found) == 0:
        return ends
    first, last = int(found[0]), int(found[-1]) + width - 1
    inner = counts[first : last + 1] > likely  # where a window ends in noise, it is cut short
    if inner.any():
        first, last = first + int(np.argmax(inner)), last - int(np.argmax(inner[::-1]))
    if ends is not None:
        first, last = min(first, ends[0]), max(last, ends[1])
    while first > 0 and counts[first - 1] > likely:
        first -= 1
    while last < BINS - 1 and counts[last + 1] > likely:
        last += 1
    return first, last


@lru_cache(maxsize=64)
def noise_threshold(deviation: float, probability: float, noises: int = 1) -> float:
    """What noise of that standard deviation exceeds with at most that probability.

    Chernoff's bound P(X ≥ t) ≤ E[exp(sX)] exp(-st), at the best of many s. A sum of m discrete
    Laplace noises that has variance v has E[exp(sX)] = (1 - v(cosh s - 1)/m)^-m, which falls in m:
    where several servers add noise to each count there are more than `noises`, and it holds too.
    """
    if deviation == 0:
        return 0.0
    part = deviation**2 / noises
    s = 2 * math.asinh(math.sqrt(0.5 / part)) * np.linspace(0, 1, 1002)[1:-1]
    logs = -noises * np.log1p(-np.minimum(2 * part * np.sinh(s / 2) ** 2, 1 - 1e-12))
    return float(np.min((logs - math.log(probability)) / s))
