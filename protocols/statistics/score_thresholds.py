"""Chooses the number and the places of a classifier's thresholds from what is public.

**How many.** Between two thresholds a curve is taken to be straight, which errs as 1/N² where it is
smooth. Noise errs as a power of log N over nε. So N = √(nε) balances them, to a factor that depends
on the data. Measured on Adult, Diabetes, Framingham and made-up skewed scores with nε from 50 to
2,000,000, N = √(nε) rounded down to a power of two has at most twice the least area between curves
that any power of two has, for ROC and for precision–recall, mostly less than 1.5 times; 1024 points
have up to five times that.

**Where.** Without public data, evenly. Where there is some, thresholds follow its ranks: evenly for
the part that `LINEAR` says, and for the rest on a logarithmic scale from the highest score down,
where a precision is a ratio of small counts. A quarter as many are enough then.
"""

import math
from fractions import Fraction

import numpy as np

from tallyroom.protocols.records import Column

EXACT_POINTS = 256
"""The number of points of curves without noise."""
LEAST, MOST = 8, 1024
PILOT_POINTS = 256
LINEAR, KNEE = 0.3, 1 / 45
"""The part of thresholds that are even in ranks; the share of records, from the highest score
down, at which the logarithmic scale of the others begins."""


def points_for(records: int, epsilon: Fraction | None) -> int:
    """N for evenly spaced thresholds."""
    if epsilon is None:
        return EXACT_POINTS
    root = math.isqrt(max(math.floor(records * epsilon), 1))
    return min(max(1 << (root.bit_length() - 1), LEAST), MOST)


def followed_points(points: int) -> int:
    """The number of thresholds that follow the scores and do as well as `points` evenly spaced
    ones."""
    return max(points // 4, LEAST)


def by_rank(scores: Column, lower: float, upper: float) -> tuple[float, ...]:
    """The rising thresholds to choose from, given public scores: at most 255, all within the bounds
    and below the upper one. Empty if all scores lie at one end."""
    falling = np.sort(scores)[::-1]
    above = np.arange(1, len(falling) + 1) / len(falling)
    logarithmic = np.log1p(above / KNEE) / math.log1p(1 / KNEE)
    weight = LINEAR * above + (1 - LINEAR) * logarithmic
    wanted = np.arange(1, PILOT_POINTS) / PILOT_POINTS
    found = np.unique(falling[np.searchsorted(weight, wanted)])
    return tuple(found[(lower <= found) & (found < upper)].tolist())


def every(thresholds: tuple[float, ...], points: int) -> tuple[float, ...]:
    """All thresholds but the last of so many points, taken evenly from those given; all of those if
    there are fewer."""
    if len(thresholds) < points:
        return thresholds
    places = (np.arange(1, points) * (len(thresholds) + 1)) // points - 1
    return tuple(thresholds[place] for place in places.tolist())
