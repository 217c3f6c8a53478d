"""Counts of records by sign and order of magnitude: they need no bounds, and bounds are found in
them."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.cells import numbers
from tallyroom.protocols.plans.contract import Encoding, Integers, NoisySum, PlainSum, Plan
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.measurement import Measurement, OneHot
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import OneColumn
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Curve, Estimate
from tallyroom.protocols.statistics.option import DISTRIBUTIONS
from tallyroom.protocols.statistics.release import Answer, Release

LEAST, MOST = -32, 48
"""Exponents of the smallest and of the largest magnitude that are told apart."""
SIDE = MOST - LEAST
BINS = 2 * SIDE + 1
EDGES = np.ldexp(1.0, np.arange(LEAST, MOST + 1))
"""The edges of the bins of positive values."""
LEFT: Column = np.concatenate([-EDGES[:0:-1], [0.0], EDGES[:-1]])
RIGHT: Column = np.concatenate([-EDGES[-2::-1], [0.0], EDGES[1:]])
"""The ends of each bin."""


@dataclass(frozen=True)
class MagnitudeBins(Encoding):
    """One bin for each sign and power of two, from the most negative values up."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def length(self) -> int:
        return BINS

    @property
    def sensitivity(self) -> Sensitivity:
        """A replaced record leaves one bin and enters another."""
        return Sensitivity.of_counts(2)

    @property
    def measurement(self) -> Measurement:
        return OneHot(BINS)

    def measured(self, holdings: Holdings) -> Integers:
        """A cell that is not a number counts as 0."""
        values = numbers(holdings.column(self.column), 0.0)
        steps = np.searchsorted(EDGES, np.abs(values), side="right").astype(np.int64)
        return SIDE + np.sign(values).astype(np.int64) * np.minimum(steps, SIDE)

    def encode(self, holdings: Holdings) -> Vector:
        return holdings.count_by_party(self.measured(holdings), BINS)

    @property
    def grid_step(self) -> float:
        return 0.0

    @property
    def grid_words(self) -> str:
        return "values count exactly"


@dataclass(frozen=True)
class Magnitudes(OneColumn):
    """Counts of records by sign and power of two, over all numbers; needs no bounds.

    A bin of positive values is [2^k, 2^(k+1)) for k from -32 to 47, the bins of negative values are
    its mirror images, and between the two is a bin for what is closer to 0 than 2^-32. Values of
    2^48 and above are in the outermost bins.
    """

    name: ClassVar[str] = "magnitudes"
    topic: ClassVar[str] = DISTRIBUTIONS
    style: ClassVar[Style] = Style("marks", "value", "records")

    def plan(self, facts: Facts) -> Plan:
        bins = MagnitudeBins(self.value)
        return NoisySum(bins, PlainSum.of(bins))

    def read(self, release: Release) -> Answer:
        return release.counts(_curve(release.integers.astype(np.float64)))

    def reference(self, holdings: Holdings) -> Estimate:
        """The counts by numpy, of magnitudes for each sign: numpy's bins are half-open on one side
        only."""
        values = holdings.column(self.value)
        edges = np.concatenate([[0.0], EDGES[:-1], [np.inf]])
        negative, _ = np.histogram(-values[values < 0], edges)
        positive, _ = np.histogram(values[values >= 0], edges)
        middle = [negative[0] + positive[0]]
        return _curve(np.concatenate([negative[:0:-1], middle, positive[1:]]).astype(float))


def _curve(counts: Column) -> Curve:
    """The counts as a curve over the end of each bin that is closer to 0."""
    inner = np.concatenate([-EDGES[-2::-1], [0.0], EDGES[:-1]])
    return Curve(inner.tolist(), counts.tolist())
