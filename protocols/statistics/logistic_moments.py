"""The second moments of a label and its predictors: where a private logistic fit starts.

Columns are clipped and scaled to z within [−1, 1], and the label is ±1. The sums of all products
of two entries of (1, z, y) are released, except for 1·1 and y·y, which are the number of records.
As in `linear_regression`, a product of two entries is furthest from another at the corners of the
range: 2⌊(d + 2)²/4⌋ at most for all of them, and the d squares add 1 each.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Encoding, NoisySum, PlainSum
from tallyroom.protocols.plans.encodings import sum_by_party
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.scaled import ScaledColumn, columns_of
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.estimates import Estimate, Table
from tallyroom.protocols.statistics.labels import is_positive, positives_of
from tallyroom.protocols.statistics.linear_regression import MAX_RECORDS, STEPS
from tallyroom.protocols.statistics.logistic_step import LogisticColumns
from tallyroom.protocols.statistics.release import Answer, Release


@dataclass(frozen=True)
class LabelledProducts(Encoding):
    """Products of two entries of (1, z, y) that are not public, on a grid of `STEPS`² in 1."""

    scaled: tuple[ScaledColumn, ...]
    label: str
    positive: float

    @property
    def columns(self) -> tuple[str, ...]:
        return (*columns_of(self.scaled), self.label)

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The indices of both factors of each product."""
        rows, columns = np.triu_indices(len(self.scaled) + 2)
        return rows[1:-1], columns[1:-1]

    @property
    def length(self) -> int:
        return len(self.pairs[0])

    @property
    def sensitivity(self) -> Sensitivity:
        d = len(self.scaled)
        crossed = (d + 2) ** 2 // 4
        return Sensitivity((2 * crossed + d) * STEPS**2, (4 * crossed + d) * STEPS**4)

    def entries(self, holdings: Holdings) -> NDArray[np.int64]:
        """(1, z, y) of each record, in steps."""
        columns = [np.rint(each.of(holdings) * STEPS) for each in self.scaled]
        labels = is_positive(holdings.column(self.label), self.positive)
        signs = np.where(labels, STEPS, -STEPS)
        return np.stack([np.full(holdings.rows, STEPS), *columns, signs], axis=1).astype(np.int64)

    def encode(self, holdings: Holdings) -> Vector:
        whole = self.entries(holdings)
        rows, columns = self.pairs
        return sum_by_party((whole[:, rows] * whole[:, columns]).view(np.uint64), holdings)

    @property
    def measurement(self) -> None:
        return None

    @property
    def grid_step(self) -> float:
        return 1 / STEPS

    @property
    def grid_words(self) -> str:
        return f"columns are rounded to {STEPS} steps from the middle of their range to its ends"


@dataclass(frozen=True)
class LogisticMoments(LogisticColumns):
    """Sums of products of scaled columns and of the label as ±1."""

    name: ClassVar[str] = "logistic-moments"

    @property
    def _products(self) -> LabelledProducts:
        return LabelledProducts(self.scaled, self.label, self.positive_label)

    def plan(self, facts: Facts) -> NoisySum:
        if facts.records > MAX_RECORDS:
            raise LocalError(f"{self.name} takes up to {MAX_RECORDS} records, not {facts.records}")
        products = self._products
        summed = "products of columns within [-1, 1] and of the label"
        return NoisySum(products, PlainSum.of(products, unit=STEPS**-2, summed=summed))

    def read(self, release: Release) -> Answer:
        table = self._table(release.integers / STEPS**2, release.records)
        return release.table(table, STEPS**-2)

    def _table(self, sums: Column, records: int) -> Table:
        names = [*self.terms, self.label]
        products = np.zeros((len(names), len(names)))
        products[self._products.pairs] = sums
        products = products + np.triu(products, 1).T
        products[0, 0] = products[-1, -1] = records
        return Table(names, names, products.tolist())

    def reference(self, holdings: Holdings) -> Estimate:
        labels = positives_of(holdings.column(self.label), self.label, self.positive)
        columns = [each.of(holdings) for each in self.scaled]
        entries = np.stack([np.ones(holdings.rows), *columns, np.where(labels, 1.0, -1.0)], axis=1)
        products = entries.T @ entries
        return self._table(products[self._products.pairs], holdings.rows)
