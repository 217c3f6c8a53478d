"""Counts in equal bins over a public range."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.algebra.ring import Vector, signed
from protocols.errors import LocalError
from protocols.local import AUTO, RANDOMIZERS
from protocols.names import look_up
from protocols.records import Column, Holdings
from protocols.statistics.bounded import BoundedColumn
from protocols.statistics.estimates import Curve, Estimate
from protocols.statistics.measurement import Measurement, OneHot
from protocols.statistics.option import option

MAX_BINS = 1 << 20


@dataclass(frozen=True)
class Histogram(BoundedColumn):
    """Bins are half-open but for the last, as numpy's are; values outside fall in the end bins."""

    bins: int = option(10, "How many bins of equal width.")
    randomizer: str = option(
        AUTO,
        "What randomizes reports in the local model.",
        choices=(AUTO, *RANDOMIZERS),
    )

    name: ClassVar[str] = "histogram"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.bins <= MAX_BINS:
            raise LocalError(f"--bins must be between 1 and {MAX_BINS}, not {self.bins}")
        look_up("randomizer", self.randomizer, dict.fromkeys((AUTO, *RANDOMIZERS)))

    @property
    def edges(self) -> NDArray[np.float64]:
        return np.linspace(*self.bounds, self.bins + 1)

    @property
    def length(self) -> int:
        return self.bins

    @property
    def sensitivity(self) -> int:
        """A replaced record leaves one bin and enters another."""
        return 2 if self.bins > 1 else 0

    @property
    def measurement(self) -> Measurement:
        return OneHot(self.bins, self.randomizer)

    def measured(self, holdings: Holdings) -> NDArray[np.int64]:
        """The bin of every record."""
        values = self.clip(holdings.column(self.value))
        bins = np.searchsorted(self.edges, values, side="right").astype(np.int64) - 1
        return np.minimum(bins, self.bins - 1)

    def encode(self, holdings: Holdings) -> Vector:
        bins = self.measured(holdings)
        party = np.repeat(np.arange(len(holdings.ids)), holdings.counts)
        counts = np.bincount(party * self.bins + bins, minlength=len(holdings.ids) * self.bins)
        return counts.astype(np.uint64).reshape(len(holdings.ids), self.bins)

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        return Curve(self.edges[:-1].tolist(), signed(released).astype(float).tolist())

    def deviations(self, noise_variance: float, records: int) -> Column:
        return np.full(self.bins, math.sqrt(noise_variance))

    def reference(self, holdings: Holdings) -> Estimate:
        """Of the raw records: those outside the range are in no bin."""
        counts, _ = np.histogram(self.raw(holdings), bins=self.edges)
        return Curve(self.edges[:-1].tolist(), counts.astype(float).tolist())
