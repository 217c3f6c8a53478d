"""Where values are compared: thresholds that a person can name, and the fine grid of points asked
on demand.

Bounds are read as the decimals that a person writes: 0.1 is a tenth, not the double next to it. A
threshold is the double nearest to the exact number that the bounds and its place determine. So
integer bounds with as many thresholds as integers give those integers, and 1 to 1000 in three
logarithmic steps are 10, 100 and 1000. Whether x ≤ τ is then decided between two doubles, as numpy
decides it.
"""

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Column

Points = NDArray[np.uint64]

RESOLUTION_BITS = 32
"""The domain of a comparison key between two servers."""

_DIGITS = 60
"""Far more than the product of 2^18 factors can lose before it is rounded to a double."""

_EXACT_POWER = 22
"""10^22 is the largest power of ten that is a double."""


def as_written(value: float) -> Fraction:
    """The shortest decimal that reads as this double."""
    return Fraction(repr(float(value)))


@lru_cache(maxsize=16)
def threshold_values(lower: float, upper: float, count: int, spacing: str) -> Column:
    """τ_1 < … < τ_N, the last of them `upper`: the nearest doubles to lower + i·(upper − lower)/N,
    or to lower·(upper/lower)^(i/N) where spacing is `log`.

    Raises `LocalError` if doubles cannot tell them apart.
    """
    x = (_geometric if spacing == "log" else _equidistant)(lower, upper, count)
    if not (np.diff(x) > 0).all():
        raise LocalError(
            f"{count} thresholds cannot be told apart within [{lower:.17g}, {upper:.17g}]"
        )
    x.flags.writeable = False
    return x


def thresholds_around(
    bounds: tuple[float, float], part: tuple[float, float], inside: int, outside: int
) -> Column:
    """`inside` of them at equal distances within a part of the range, and on either side of it
    `outside`, whose distances from its middle are a geometric row up to the bound; none where the
    part reaches to the bound.

    Raises `LocalError` if doubles cannot tell them apart.
    """
    (lower, upper), (left, right) = bounds, part
    middle = left + (right - left) / 2
    values = [threshold_values(left, right, inside, "linear")]
    if lower < left:
        away = threshold_values(middle - left, middle - lower, outside, "log")[:-1]
        values.insert(0, np.append(middle - away[::-1], left))
    if right < upper:
        away = threshold_values(right - middle, upper - middle, outside, "log")[:-1]
        values.append(np.append(middle + away, upper))
    x = np.concatenate(values)
    if not (np.diff(x) > 0).all() or x[0] <= lower:
        raise LocalError(
            f"{len(x)} thresholds cannot be told apart within [{lower:.17g}, {upper:.17g}]"
        )
    return x


LEAST_IN_PARTS = 16
"""The fewest thresholds of which some lie closer than others."""


@dataclass(frozen=True)
class ThresholdGrid:
    """`count` thresholds from above `lower` to `upper`.

    They lie closer `within` a part of the range, where there is one: an eighth of them are on
    either side of it. Where they are `fanned` out from it, three eighths are, and the farther from
    it the farther apart.
    """

    lower: float
    upper: float
    count: int
    spacing: str = "linear"
    within: tuple[float, ...] = ()
    fanned: bool = False

    @cached_property
    def values(self) -> Column:
        """τ_1 < … < τ_N, as doubles that values are compared with. Raises `LocalError` where
        doubles cannot tell them apart."""
        if not self.within:
            return threshold_values(self.lower, self.upper, self.count, self.spacing)
        left, right = self.within
        if not self.lower <= left < right <= self.upper:
            raise LocalError(
                f"[{left:g}, {right:g}] is no part of [{self.lower:g}, {self.upper:g}]"
            )
        outside = self.count * (3 if self.fanned else 1) // 8
        sides = self.lower < left, right < self.upper
        before, after = (outside if wide else 0 for wide in sides)
        inside = self.count - before - after
        if self.fanned:
            return thresholds_around((self.lower, self.upper), (left, right), inside, outside)
        parts = (self.lower, left, before), (left, right, inside), (right, self.upper, after)
        return np.concatenate([threshold_values(*each, self.spacing) for each in parts if each[2]])

    @property
    def step(self) -> float:
        """The most that two neighbours are apart, or the first is from the lower bound."""
        return float(np.diff(self.values, prepend=self.lower).max())

    @property
    def middles(self) -> Column:
        """Of the cells that the thresholds end."""
        edges = np.concatenate([[self.lower], self.values])
        middles: Column = (edges[:-1] + edges[1:]) / 2
        return middles


def _equidistant(lower: float, upper: float, count: int) -> Column:
    """Division of integers rounds to the nearest double."""
    low, high = as_written(lower), as_written(upper)
    denominator = math.lcm(low.denominator, high.denominator)
    first, last = (int(end * denominator) for end in (low, high))
    whole = denominator * count
    return np.array(
        [(first * count + i * (last - first)) / whole for i in range(1, count + 1)],
        dtype=np.float64,
    )


def _geometric(lower: float, upper: float, count: int) -> Column:
    """In decimal arithmetic, which is the same on every machine: a libm's exp is not."""
    context = Context(prec=_DIGITS)
    low, high = Decimal(repr(float(lower))), Decimal(repr(float(upper)))
    factor = context.exp(context.divide(context.ln(context.divide(high, low)), Decimal(count)))
    values, value = [], low
    for _ in range(count - 1):
        value = context.multiply(value, factor)
        values.append(float(value))
    return np.array([*values, upper], dtype=np.float64)


@dataclass(frozen=True)
class FineGrid:
    """Lines over a public range on which points may be asked that nobody knew at the upload.

    It depends on the range alone. A value stands on the first line that it is at most; so does a
    point that is asked. Hence every value up to the point counts, and of those above it at most
    such as lie within the same cell: less than `step` above. A point on a line is exact.

    `linear` lines are the multiples of a round step, 1, 2 or 5 times a power of ten, and the upper
    bound: the finest that 2^32 lines and doubles have room for. `log` lines divide the range into
    2^32 equal ratios.
    """

    lower: float
    upper: float
    spacing: str = "linear"

    def __post_init__(self) -> None:
        if not 1e-280 < self.upper - self.lower < 1e290:
            raise LocalError(
                f"bounds [{self.lower:g}, {self.upper:g}] are out of the range of points on demand"
            )

    @cached_property
    def _decimal(self) -> tuple[int, int]:
        """The step of `linear` lines as (digit, power of ten)."""
        low, high = as_written(self.lower), as_written(self.upper)
        # At most 2^50 steps from zero: doubles tell all lines apart, and hold their numbers.
        least = max((high - low) / ((1 << RESOLUTION_BITS) - 2), max(-low, high) / (1 << 50))
        power = math.floor(math.log10(least)) - 1
        while True:
            for digit in (1, 2, 5):
                if digit * Fraction(10) ** power >= least:
                    return digit, power
            power += 1

    @cached_property
    def _first(self) -> int:
        """The number of the first `linear` line, counted in steps from zero."""
        digit, power = self._decimal
        return math.ceil(as_written(self.lower) / (digit * Fraction(10) ** power))

    @cached_property
    def last(self) -> int:
        """The point of the upper bound, past which there are none."""
        if self.spacing == "log":
            return (1 << RESOLUTION_BITS) - 1
        digit, power = self._decimal
        return math.ceil(as_written(self.upper) / (digit * Fraction(10) ** power)) - self._first

    @property
    def step(self) -> float:
        """The most that two neighbouring lines are apart."""
        if self.spacing == "log":
            return self.upper * math.log(self.upper / self.lower) * 2.0**-RESOLUTION_BITS
        digit, power = self._decimal
        return digit * 10.0**power

    @property
    def resolution(self) -> str:
        """How far above a point a value may lie and still count, in words."""
        if self.spacing == "log":
            ratio = math.log(self.upper / self.lower) * 2.0**-RESOLUTION_BITS
            return f"a factor of 1 + {ratio:.2g}"
        digit, power = self._decimal
        return f"{digit}e{power}"

    def lines(self, points: Points) -> Column:
        """The doubles that the points of the domain stand for."""
        if self.spacing == "log":
            share = (points + np.uint64(1)).astype(np.float64) * 2.0**-RESOLUTION_BITS
            lines: Column = self.lower * np.exp(share * math.log(self.upper / self.lower))
        else:
            digit, power = self._decimal
            numbers = (points.astype(np.int64) + self._first) * digit
            exact = 0 <= -power <= _EXACT_POWER  # of two exact doubles, the quotient is the nearest
            lines = np.asarray(numbers / 10.0**-power if exact else numbers * 10.0**power)
        return np.where(points >= np.uint64(self.last), self.upper, np.minimum(lines, self.upper))

    def points(self, values: Column) -> Points:
        """For each value within the range the first line that it is at most, by binary search."""
        guess = self._guess(values)
        right = values <= self.lines(guess)
        right &= (guess == 0) | (values > self.lines(guess - np.minimum(guess, np.uint64(1))))
        guess[~right] = self._search(values[~right])
        return guess

    def _guess(self, values: Column) -> Points:
        if self.spacing == "log":
            share = np.log(values / self.lower) / math.log(self.upper / self.lower)
            place = np.ceil(share * 2.0**RESOLUTION_BITS) - 1
        else:
            digit, power = self._decimal
            steps = values * 10.0**-power if power <= 0 else values / 10.0**power
            place = np.ceil(steps / digit) - self._first
        guess: Points = np.clip(place, 0, self.last).astype(np.uint64)
        return guess

    def _search(self, values: Column) -> Points:
        low = np.zeros(len(values), dtype=np.uint64)
        high = np.full(len(values), self.last, dtype=np.uint64)
        for _ in range(RESOLUTION_BITS):
            middle = (low + high) // np.uint64(2)
            above = values > self.lines(middle)
            low = np.where(above, np.minimum(middle + np.uint64(1), high), low)
            high = np.where(above, high, middle)
        return low


LEAST_QUANTILE = math.ulp(0.0)
"""What quantile 0 is taken for: the least value is the first that any record is at most."""


def quantiles(values: Column, wanted: tuple[float, ...]) -> list[float]:
    """For each quantile the least of the raw `values` that so many of them are at most.

    That is numpy's `inverted_cdf`, with q·n taken as it is written and not as doubles multiply; NaN
    if there are no values.
    """
    if not len(values):
        return [math.nan] * len(wanted)
    ordered = np.sort(values)
    ranks = (math.ceil(as_written(quantile) * len(values)) for quantile in wanted)
    return [float(ordered[max(rank, 1) - 1]) for rank in ranks]
