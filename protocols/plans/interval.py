"""What an answer is off by: standard errors and 95 % intervals, which cost no ε.

They are made of what was released and of the public law of the noise. An interval covers the noise,
for an answer about these records, or the population that the records are a random sample of.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from tallyroom.protocols.privacy.noise_law import NoiseLaw
from tallyroom.protocols.privacy.noise_sums import laplace_width
from tallyroom.protocols.records import Column
from tallyroom.protocols.registry import look_up

LEVEL = 0.95
UPTO = (1 + LEVEL) / 2
"""The level of the quantile that ends such an interval."""
NORMAL = 1.959963984540054
"""Standard deviations to either side that hold 95 % of a normal law."""


NOISE, POPULATION = "noise", "population"
COVERED = {NOISE: "the noise", POPULATION: "noise and sampling"}
"""What an interval may cover, with the words for it: what was drawn to answer about these records;
or that, and the sampling of the records from a population."""
NOT_SAMPLED = (
    "this release does not tell how much the records vary; "
    "the interval of the noise is about these records alone"
)
"""Why an answer has no interval of the population, where nothing else is said."""


def check_covers(covers: str) -> None:
    """Raises `LocalError` for what no interval covers."""
    look_up("interval", covers, COVERED)


WIDEST = laplace_width(UPTO, 1)
"""Standard deviations that hold 95 % of one Laplace noise, and up to 96.6 % of several."""


@dataclass(frozen=True)
class Interval:
    """For each value of an estimate its standard error, and the ends of its 95 % interval."""

    errors: Column
    low: Column
    high: Column
    unknown: str = ""
    """Why there is none, if there is none: then all numbers are NaN."""
    without: str = ""
    """What else varies the answer, if something does."""
    covers: str = NOISE
    """`NOISE` or `POPULATION`."""

    @classmethod
    def none(cls, size: int, why: str, covers: str = NOISE) -> "Interval":
        nothing = np.full(size, np.nan)
        return cls(nothing, nothing, nothing, why, covers=covers)

    @classmethod
    def sampled(
        cls, values: Column, noise: "Interval | None", deviations: Column, span: tuple[float, float]
    ) -> "Interval":
        """An interval of the population: that of the noise, widened by the standard deviations of
        sampling, by which values are as good as normal. Both are independent, so half widths add
        as squares do."""
        if noise is None:
            noise = cls(np.zeros(len(values)), values, values)
        if noise.unknown:
            return replace(noise, covers=POPULATION)
        low = values - np.hypot(values - noise.low, NORMAL * deviations)
        high = values + np.hypot(noise.high - values, NORMAL * deviations)
        return replace(
            noise,
            errors=np.hypot(noise.errors, deviations),
            low=np.clip(low, *span),
            high=np.clip(high, *span),
            covers=POPULATION,
        )

    @classmethod
    def around(
        cls, values: Column, errors: Column, width: float, span: tuple[float, float]
    ) -> "Interval":
        """So many standard errors to either side, within what is possible."""
        errors = np.broadcast_to(errors, values.shape)
        half = width * errors
        return cls(errors, np.clip(values - half, *span), np.clip(values + half, *span))

    @classmethod
    def of_counts(
        cls, counts: Column, errors: Column, width: float, span: tuple[float, float]
    ) -> "Interval":
        """As `around`, where all that is possible is whole numbers: so are its ends."""
        half = np.floor(width * errors + 1e-6)  # the least integer may come out a hair less
        return cls(errors, np.clip(counts - half, *span), np.clip(counts + half, *span))

    @classmethod
    def of_expected_counts(
        cls, counts: Column, noise: "Interval | None", records: int, span: tuple[float, float]
    ) -> "Interval":
        """Of the counts that so many records of the population have on average."""
        return cls.sampled(counts, noise, count_deviations(counts, records), span)

    @classmethod
    def together(cls, parts: "Sequence[Interval | None]") -> "Interval | None":
        """Those of several estimates, one after the other; None where there is none. If one is
        unknown, all are."""
        told = [each for each in parts if each is not None]
        if not told or len(told) < len(parts):
            return None
        if unknown := [each for each in told if each.unknown]:
            size = sum(len(each.errors) for each in told)
            return cls.none(size, unknown[0].unknown, unknown[0].covers)
        errors, low, high = (
            np.concatenate([getattr(each, name) for each in told])
            for name in ("errors", "low", "high")
        )
        return replace(told[0], errors=errors, low=low, high=high)

    def part(self, place: slice) -> "Interval":
        """That of a part of the values."""
        return replace(self, errors=self.errors[place], low=self.low[place], high=self.high[place])

    def holding(self, values: Column) -> "Interval":
        """Widened where it must be to hold these values."""
        low, high = np.minimum(self.low, values), np.maximum(self.high, values)
        return replace(self, low=low, high=high)


def count_deviations(counts: Column, records: int) -> Column:
    """Standard deviations by which sampling moves counts of a share p of the records: √(np(1 − p)),
    with two records more on either side, so that an empty cell is not taken to be empty for sure
    (Agresti and Coull 1998)."""
    share = (np.clip(counts, 0, records) + 2) / (records + 4)
    deviations: Column = np.sqrt(records * share * (1 - share))
    return deviations


MANY = 1000
"""A sum of so many noises, of such a variance, is as good as normal."""


@lru_cache(maxsize=256)
def noise_width(law: NoiseLaw, noises: float) -> float:
    """Standard deviations to either side that hold 95 % of a sum of so many noises; shares of
    noise make parts of one.

    Such a sum is an integer. With little noise a few integers hold nearly all of it, and what holds
    95 % of a continuous law may hold 82 %: so it is the least integer that holds at least 95 %.
    """
    variance = law.variance * noises
    if noises > MANY and variance > MANY:
        return NORMAL
    return law.quantile(UPTO, Fraction(noises)) / math.sqrt(variance)
