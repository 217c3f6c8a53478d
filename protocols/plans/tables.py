"""Counts of the cells of tables, which add up over parties, and what is read off them."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.plans.contract import Encoding, Integers, PlainSum
from tallyroom.protocols.plans.encodings import possible_counts
from tallyroom.protocols.plans.measurement import Measurement, OneHot
from tallyroom.protocols.privacy.noise_law import NoiseLaw, Sensitivity
from tallyroom.protocols.records import Holdings


@dataclass(frozen=True)
class Tables(Encoding):
    """A record is in one cell of every table."""

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """How many cells each table has."""

    @abstractmethod
    def cells_of(self, holdings: Holdings) -> list[Integers]:
        """For each table the cell of every record."""

    @property
    def length(self) -> int:
        return sum(self.sizes)

    @property
    def sensitivity(self) -> Sensitivity:
        """In each table a replaced record leaves one cell and enters another."""
        return Sensitivity.of_counts(2 * len(self.sizes))

    def encode(self, holdings: Holdings) -> Vector:
        tables = zip(self.cells_of(holdings), self.sizes, strict=True)
        return np.concatenate([holdings.count_by_party(*each) for each in tables], axis=1)

    @property
    def measurement(self) -> Measurement | None:
        return OneHot(self.length) if len(self.sizes) == 1 else None

    def measured(self, holdings: Holdings) -> Integers:
        return self.cells_of(holdings)[0] if len(self.sizes) == 1 else super().measured(holdings)

    def possible(self, vectors: Vector, most: int) -> NDArray[np.bool]:
        return possible_counts(signed(vectors), self.sizes, most)

    @property
    def grid_step(self) -> float:
        return 0.0

    @property
    def grid_words(self) -> str:
        return "values count exactly"


@dataclass(frozen=True)
class CountedCells(PlainSum):
    """Every count is released under a noise of its own, and compared with a public threshold when
    it is read: that spends nothing, whatever the threshold is."""

    threshold: int = 0
    counted: str = "integers"
    """What is counted, for people."""

    @property
    def any_law(self) -> bool:
        """The threshold is chosen for Laplace noise."""
        return not self.threshold

    def words(self, law: NoiseLaw) -> str:
        return f"{law.words()} on {self.noises} {self.counted}"
