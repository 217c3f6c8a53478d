"""Statistics that no sum of vectors tells: a trusted curator is given every record, and no other.

A party's vector is how many records it holds and the words of each, padded to those of the largest
party, whose number is public. The curator has the vectors one after another. What a party sends is
its own affair, so words are taken for what a record may be: numbers are clipped by whoever reads
them, and counts here. One record then is a row of words, whoever sent it, which is what a mechanism
on rows is private for.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.by_curator import OfSecretScale
from tallyroom.protocols.statistics.estimates import Estimate


@dataclass(frozen=True)
class Gathered(OfSecretScale):
    """`max_records` is how many the largest party holds; the coordinator fills it in."""

    max_records: int = 1

    gathered: ClassVar[bool] = True
    no_interval: ClassVar[str] = "what noise did to it depends on the records, so it is secret"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.max_records < 1 << 32:
            raise LocalError(f"a party holds 1 record or more, not {self.max_records}")

    @property
    @abstractmethod
    def width(self) -> int:
        """Words of a record."""

    @abstractmethod
    def words_of(self, holdings: Holdings) -> Integers:
        """Each record as a row of words."""

    @property
    def length(self) -> int:
        return 1 + self.max_records * self.width

    def prepared(self, known: Facts) -> Self:
        return replace(self, max_records=known.max_records_per_party)

    def encode(self, holdings: Holdings) -> Vector:
        if int(holdings.counts.max()) > self.max_records:
            raise LocalError(f"a party here has more than {self.max_records} records")
        words = self.words_of(holdings).astype(np.int64).view(np.uint64)
        found = np.zeros((len(holdings.ids), self.length), dtype=np.uint64)
        found[:, 0] = holdings.counts
        for row, begin, count in zip(found, holdings.starts, holdings.counts, strict=True):
            row[1 : 1 + count * self.width] = words[begin : begin + count].ravel()
        return found

    def rows_of(self, total: Vector) -> Integers:
        """The records of all parties; of one that claims more than it can hold, so many."""
        vectors = total.reshape(-1, self.length)
        counts = np.minimum(vectors[:, 0], np.uint64(self.max_records)).astype(np.int64)
        rows = vectors[:, 1:].reshape(len(vectors), self.max_records, self.width)
        kept = np.arange(self.max_records) < counts[:, None]
        return rows.view(np.int64)[kept]

    def possible(self, vectors: Vector, most: int) -> NDArray[np.bool]:
        """All: `rows_of` makes records of any words."""
        return np.ones(len(vectors), dtype=bool)

    def noiseless(self, holdings: Holdings) -> Estimate:
        pooled = Holdings(holdings.ids[:1], np.zeros(1, dtype=np.intp), holdings.columns)
        whole = replace(self, max_records=holdings.rows)
        total = whole.published_exactly(whole.encode(pooled)[0])
        return whole.decode(total, holdings.rows, exact=True)
