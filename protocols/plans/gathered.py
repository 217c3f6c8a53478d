"""Vectors that a trusted curator sees one after another, for answers that no sum tells.

A party's vector is how many records it holds and the words of each, padded to those of the largest
party, whose number is public. What a party sends is its own affair, so words are taken for what a
record may be: counts are bounded here, and numbers by whoever reads them. One record then is a row
of words, whoever sent it, and a mechanism on rows protects it.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Encoding, Integers
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.records import Holdings


class RecordWords(ABC):
    """A record as a row of words. A frozen dataclass, whose fields are all that they depend on."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns of the data that are read."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many words a record has."""

    @property
    @abstractmethod
    def grid_step(self) -> float:
        """As `Encoding.grid_step`."""

    @abstractmethod
    def words_of(self, holdings: Holdings) -> Integers:
        """One row for each record."""


@dataclass(frozen=True)
class GatheredRows(Encoding):
    """The words of all records of a party, of which no party has more than `max_records`. For
    plans that are `Curated(…, gathered=True)`."""

    record: RecordWords
    max_records: int

    @property
    def columns(self) -> tuple[str, ...]:
        return self.record.columns

    @property
    def length(self) -> int:
        return 1 + self.max_records * self.record.width

    @property
    def sensitivity(self) -> Sensitivity:
        raise LocalError("vectors that are gathered are not added up")

    def encode(self, holdings: Holdings) -> Vector:
        if int(holdings.counts.max()) > self.max_records:
            raise LocalError(f"a party here has more than {self.max_records} records")
        words = self.record.words_of(holdings).astype(np.int64).view(np.uint64)
        found = np.zeros((len(holdings.ids), self.length), dtype=np.uint64)
        found[:, 0] = holdings.counts
        for row, begin, count in zip(found, holdings.starts, holdings.counts, strict=True):
            row[1 : 1 + count * self.record.width] = words[begin : begin + count].ravel()
        return found

    def rows_of(self, total: Vector) -> Integers:
        """The records of all parties. A party that claims more than `max_records` has so many."""
        vectors = total.reshape(-1, self.length)
        counts = np.minimum(vectors[:, 0], np.uint64(self.max_records)).astype(np.int64)
        rows = vectors[:, 1:].reshape(len(vectors), self.max_records, self.record.width)
        kept = np.arange(self.max_records) < counts[:, None]
        return rows.view(np.int64)[kept]

    def possible(self, vectors: Vector, most: int) -> NDArray[np.bool]:
        """All: `rows_of` makes records of any words."""
        return np.ones(len(vectors), dtype=bool)

    @property
    def measurement(self) -> None:
        return None

    @property
    def grid_step(self) -> float:
        return self.record.grid_step

    @property
    def grid_words(self) -> str:
        step = self.grid_step
        return f"values are rounded to multiples of {step:.3g}" if step else "values count exactly"
