"""One class against all others by objective perturbation, from attributes of a public schema: what
S4 compares its projected histograms with (PLR, PMLR)."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.privacy.objective import STEPS
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.by_objective import ByObjective
from tallyroom.protocols.statistics.class_model import classes_of, design_of, scaled, terms_of
from tallyroom.protocols.statistics.estimates import Curve, Estimate
from tallyroom.protocols.statistics.of_schema import OfSchema, check_bins

MAX_TERMS = 1024


@dataclass(frozen=True)
class ClassObjective(ByObjective, OfSchema):
    """Coefficients of the schema's terms for one class, number `of_class` of the target's."""

    of_class: int = 0
    bins: int = 2

    name: ClassVar[str] = "class-objective"
    way_of: ClassVar[str] = "multinomial-regression"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bins(self.bins)
        if not 0 <= self.of_class < len(classes_of(self.schema[1], self.bins)):
            raise LocalError(f"{self.target} has no class number {self.of_class}")
        if self.released > MAX_TERMS:
            raise LocalError(
                f"{self.released} coefficients are too many, {MAX_TERMS} at most: name fewer values"
            )

    @property
    def released(self) -> int:
        return len(terms_of(self.schema[0]))

    @property
    def width(self) -> int:
        """The attributes, and the class."""
        return len(self.schema[0]) + 1

    def words_of(self, holdings: Holdings) -> Integers:
        predictors, target = self.schema
        words = []
        for each in predictors:
            column = scaled(each, holdings)
            words.append(np.rint(column * (STEPS if each.bounds else 1)).astype(np.int64))
        return np.stack([*words, target.codes(holdings, self.bins)], axis=1)

    def records_of(self, total: Vector) -> tuple[Integers, NDArray[np.bool]]:
        """Whatever parties sent: numbers within [−1, 1], and one entry of each attribute of names
        at most."""
        predictors, _ = self.schema
        rows = self.rows_of(total)
        columns = [
            np.clip(column, -STEPS, STEPS) / STEPS if each.bounds else column.astype(np.float64)
            for each, column in zip(predictors, rows.T, strict=False)
        ]
        records = np.rint(design_of(predictors, columns) * STEPS).astype(np.int64)
        return records, rows[:, -1] == self.of_class

    @property
    def largest_square(self) -> int:
        """Each attribute has one entry of at most 1, and there is the constant."""
        return self.width

    def published_words(self, epsilon: Fraction, delta: float) -> str:
        return "objective perturbation of one class against all others"

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        found = self.coefficients(released, exact)
        return Curve([float(at) for at in range(len(found))], found.tolist())

    def reference(self, holdings: Holdings) -> Estimate:
        return self.noiseless(holdings)
