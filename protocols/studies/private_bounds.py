"""Bounds that nobody has to know beforehand: found in the data, privately, for a share of ε.

The records are counted by sign and power of two. A bin, or some neighbouring ones together, whose
noisy count is above a threshold that noise alone exceeds anywhere with probability `FAILURE` at
most, has records in it for certain. The bounds are the outer ends of the outermost of those, and go
on to one of the next `REACH` bins for as long as its count is above what noise alone exceeds in any
of them with probability `STRAY`: a tail that thins out, or has a gap, is not cut off where it may
still count. Noise hides more clipped records than a mean errs by, so bounds that end in a thin tail
have one bin more. The records that bounds leave out are estimated from the same counts and told.
If nothing but zeros stands out while others are there, nothing more is asked. The statistic is then
asked with the rest of ε, and these bounds are public. The idea is that of Google's
differential-privacy library (Wilson et al., "Differentially Private SQL with Bounded User
Contribution", 2020), which looks at single bins and has one threshold.

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
from tallyroom.protocols.privacy.loss import as_written
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.statistics.areas import Area
from tallyroom.protocols.statistics.bounded import (
    check_bounds,
    columns_to_bound,
    known_bounds,
    with_bounds,
)
from tallyroom.protocols.statistics.contract import Bounds, Statistic
from tallyroom.protocols.statistics.cumulative import Cumulative
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Curve, Estimate, Rows, shape_of
from tallyroom.protocols.statistics.first_above import MagnitudeBounds
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.magnitudes import BINS, EDGES, LEFT, RIGHT, SIDE, Magnitudes
from tallyroom.protocols.statistics.pairwise import Ordered
from tallyroom.protocols.studies.contract import (
    BOUNDS_METHODS,
    BOUNDS_SHARE,
    Answer,
    Ask,
    Finding,
    Steps,
    Study,
)

FAILURE = 1e-6
"""The probability that an empty bin far from all records is taken for one that has some."""
WIDTHS = (1, 2, 4, 8)
"""How many neighbouring bins are looked at together."""
STRAY = 0.01
"""The probability that bounds go further than there are records, on either side."""
REACH = 3
"""How many bins beyond the bounds are looked at: the most orders of magnitude that a step too far
adds."""
THIN = 100
"""If the outermost bin holds more than so many times what noise may hide in the next one, values
are taken to end there; otherwise the next bin is within the bounds too."""
CLIPPED = "what clipping to the bounds that were found did"
OUTSIDE = (
    "more records are outside the bounds that were found than noise accounts for, and clipping "
    "them moves the answer: use a larger --epsilon or --bounds-share, or give --lower and --upper"
)
MOST_HIDDEN = 0.01
"""The share of records that noise may hide outside the bounds of an answer with an interval."""
HIDDEN = (
    "noise may hide {} of {} records outside the bounds that were found, and nothing limits what "
    "clipping them does to the answer: use a larger --epsilon or --bounds-share, or give --lower "
    "and --upper"
)
BY_SERVERS = (
    "servers chose the bounds, which does not tell how many records are outside: for an interval "
    "give --lower and --upper"
)
OF_RANKS = (Cumulative, Histogram, Ordered, Area)
"""Statistics that records outside move by no more than their number does: clipping changes how far
off a value is, not on which side."""
STAND_IN = (1.0, 2.0**20)
"""For bounds that are not known yet. A grid has a power of two for its step: a range just short of
one takes as many steps as any."""


@dataclass(frozen=True)
class PrivateBounds(Study):
    """A statistic with bounds that are found in the data, for `share` of its ε."""

    statistic: Statistic
    share: float = BOUNDS_SHARE
    method: str = BOUNDS_METHODS[0]

    name: ClassVar[str] = "private-bounds"
    style: ClassVar[Style] = Style()

    def __post_init__(self) -> None:
        statistic = self.statistic
        look_up("bounds-by", self.method, dict.fromkeys(BOUNDS_METHODS))
        if not 0 < self.share < 1:
            raise LocalError(f"--bounds-share is between 0 and 1, not {self.share:g}")
        if not columns_to_bound(statistic):
            raise LocalError(f"{statistic.name} needs no bounds: leave --bounds out")
        given = (getattr(statistic, name, None) for name in ("lower", "upper"))
        if known_bounds(statistic) or any(bound is not None for bound in given):
            raise LocalError("--bounds private finds the bounds: leave --lower and --upper out")
        self._within(dict.fromkeys(columns_to_bound(statistic), (1.0, 2.0)))

    @property
    def title(self) -> str:
        return self.statistic.name

    @property
    def columns(self) -> tuple[str, ...]:
        return self.statistic.columns

    @property
    def _bounded(self) -> tuple[str, ...]:
        return columns_to_bound(self.statistic)

    def shares(self) -> tuple[Fraction, ...]:
        """The bounds of each column, then the statistic."""
        columns = len(self._bounded)
        first = as_written(self.share)
        return (*((first / columns,) * columns), 1 - first)

    def steps(self) -> Steps:
        *each, rest = self.shares()
        found, outside = {}, []
        for column, share in zip(self._bounded, each, strict=True):
            answer = yield Ask(self._finder(column), share)
            found[column] = bounds_of(answer)
            outside.append(left_out(column, answer, found[column]))
        bounded = self._within(found)
        answer = yield Ask(bounded, rest)
        ranges = dict.fromkeys(known_bounds(bounded).values())
        words = " and ".join(f"[{lower:g}, {upper:g}]" for lower, upper in ranges)
        note = f"bounds {words} were found for {self.share:.3g} of ε; values outside are clipped"
        notes = (note, *(each.words for each in outside if each is not None))
        unknown = self._unknown(outside)
        return Finding(answer.estimate, notes, answer.deviations, bounded, CLIPPED, unknown)

    def _unknown(self, outside: list["LeftOut | None"]) -> str:
        """Why there is no interval, if there is none."""
        told = [each for each in outside if each is not None]
        if any(each.certain for each in told):
            return OUTSIDE
        if isinstance(self.statistic, OF_RANKS):
            return ""
        if self.method == "sparse-vector":
            return BY_SERVERS
        if not told:
            return ""
        hiding = max(told, key=lambda each: each.noise)
        if hiding.noise <= MOST_HIDDEN * hiding.records:
            return ""
        return HIDDEN.format(f"{min(hiding.noise, hiding.records):.0f}", hiding.records)

    def _finder(self, column: str) -> Statistic:
        by_sparse_vector = self.method == "sparse-vector"
        return MagnitudeBounds(column) if by_sparse_vector else Magnitudes(column)

    def may_ask(self) -> tuple[Ask, ...]:
        *each, rest = self.shares()
        columns = zip(self._bounded, each, strict=True)
        asked = [Ask(self._finder(column), share) for column, share in columns]
        stand_in = self._within(dict.fromkeys(self._bounded, STAND_IN))
        return *asked, Ask(stand_in, rest)

    def reference(self, holdings: Holdings) -> Estimate:
        """The statistic of the raw values, with the bounds of the data."""
        ranges = {}
        for column in self._bounded:
            values = holdings.column(column)
            lower, upper = float(values.min()), float(values.max())
            ranges[column] = lower, max(upper, math.nextafter(lower, math.inf))
        return self._within(ranges).reference(holdings)

    def _within(self, found: Mapping[str, Bounds]) -> Statistic:
        """The statistic with these bounds; if it has one range for all its columns, that range
        holds all of them."""
        bounded = with_bounds(self.statistic, found)
        if set(columns_to_bound(bounded)) - known_bounds(bounded).keys():
            lowers, uppers = zip(*found.values(), strict=True)
            widest = dict.fromkeys(found, (min(lowers), max(uppers)))
            bounded = with_bounds(self.statistic, widest)
        check_bounds(bounded)
        return bounded


def bounds_of(counted: Answer) -> tuple[float, float]:
    """The bounds found in counts by magnitude, or chosen by servers. Raises `RunFailed` if no
    bounds were found."""
    if isinstance(counted.estimate, Rows):
        return _chosen(counted.estimate)
    if not isinstance(counted.estimate, Curve):
        raise RunFailed("the counts by magnitude came back as another shape than a curve")
    counts = shape_of(counted.estimate).values()
    deviation = float(np.max(counted.deviations))
    likely = noise_threshold(deviation, STRAY / REACH)
    ends: tuple[int, int] | None = None
    for width in WIDTHS:
        ends = _widened(ends, counts, width, _certain(deviation, width), likely)
    if ends is None:
        raise RunFailed(
            "no bounds were found: no order of magnitude has more than "
            f"{_certain(deviation, 1):.0f} records, which noise alone may show; use a larger "
            "--epsilon or --bounds-share, or give --lower and --upper"
        )
    if ends == (SIDE, SIDE) and counted.records - counts[SIDE] > likely:
        raise RunFailed(
            f"no bounds were found: zeros alone stand out from noise, and about "
            f"{counted.records - counts[SIDE]:.0f} of {counted.records} records are something "
            "else; use a larger --epsilon or --bounds-share, or give --lower and --upper"
        )
    if deviation:
        ends = _with_thin_tails(ends, counts, THIN * likely)
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
    """The value that noise alone makes a sum of so many neighbouring bins exceed, anywhere and at
    any width, with probability at most `FAILURE`."""
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
    first -= _further(counts[:first][::-1], likely)
    last += _further(counts[last + 1 :], likely)
    return first, last


def _further(outwards: Column, likely: float) -> int:
    """How many bins the bounds go on into these, which are listed from the bounds outwards."""
    steps = 0
    while len(near := np.flatnonzero(outwards[steps : steps + REACH] > likely)):
        steps += int(near[-1]) + 1
    return steps


def _with_thin_tails(ends: tuple[int, int], counts: Column, many: float) -> tuple[int, int]:
    """The ends with what noise may hide beyond them, at the price of a range twice as wide at each
    end: a bin further from 0 if the last one does not hold `many` records; and up to 0, for values
    of one sign, unless 0 is as far off as the values are apart."""
    first, last = ends
    if last < SIDE and -RIGHT[last] < RIGHT[last] - LEFT[first]:
        last = SIDE
    elif SIDE < last < BINS - 1 and counts[last] < many:
        last += 1
    if first > SIDE and LEFT[first] < RIGHT[ends[1]] - LEFT[first]:
        first = SIDE
    elif 0 < first < SIDE and counts[first] < many:
        first -= 1
    return first, last


@dataclass(frozen=True)
class LeftOut:
    """About how many of `records` lie outside the bounds of a column, and the most that noise
    allows: 95 % of it is less than `noise`."""

    column: str
    records: int
    about: float
    noise: float

    @property
    def certain(self) -> bool:
        """Whether it is more than noise makes of none."""
        return self.about > self.noise

    @property
    def words(self) -> str:
        about, most = (min(max(each, 0.0), self.records) for each in (self.about, self.most))
        return (
            f"of {self.records} records about {about:.0f}, and {most:.0f} at the most (95 %), have "
            f"{self.column} outside these bounds"
        )

    @property
    def most(self) -> float:
        return self.about + self.noise


def left_out(column: str, counted: Answer, bounds: tuple[float, float]) -> LeftOut | None:
    """Who is outside the bounds: all less those inside, as the counts have it. The outermost bins
    have no outer end, so nobody in them is known to be inside. None if it is not known, where
    servers chose the bounds, and where there is no noise."""
    if not isinstance(counted.estimate, Curve) or not (deviation := np.max(counted.deviations)):
        return None
    inside = (bounds[0] <= LEFT) & (bounds[1] >= RIGHT)
    inside[[0, -1]] = False
    bins = int(inside.sum())
    about = counted.records - float(shape_of(counted.estimate).values()[inside].sum())
    noise = noise_threshold(float(deviation) * math.sqrt(bins), 0.05, bins)
    return LeftOut(column, counted.records, about, noise)


@lru_cache(maxsize=64)
def noise_threshold(deviation: float, probability: float, noises: int = 1) -> float:
    """The value that noise of that standard deviation exceeds with at most that probability.

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
