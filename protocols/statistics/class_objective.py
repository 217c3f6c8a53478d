"""One class against all others by objective perturbation, from attributes of a public schema. S4
compares its projected histograms with this (PLR, PMLR)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Curated, Integers
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.privacy.objective import GRID, STEPS
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.attributes import Attribute, OfSchema, check_bins
from tallyroom.protocols.statistics.by_objective import (
    TwoClasses,
    check_penalty,
    objective_plan,
    released_coefficients,
)
from tallyroom.protocols.statistics.class_model import classes_of, design_of, scaled, terms_of
from tallyroom.protocols.statistics.estimates import Curve, Estimate
from tallyroom.protocols.statistics.release import Answer, Release

MAX_TERMS = 1024
MECHANISM = "objective perturbation of one class against all others"
NO_INTERVAL = "what noise did to it depends on the records, so it is secret"


@dataclass(frozen=True)
class ClassedAttributes(TwoClasses):
    """The attributes of a record, and the class of its target: `of_class`, or another."""

    predictors: tuple[Attribute, ...]
    target: Attribute
    of_class: int
    bins: int

    @property
    def columns(self) -> tuple[str, ...]:
        return (*(each.name for each in self.predictors), self.target.name)

    @property
    def width(self) -> int:
        return len(self.predictors) + 1

    @property
    def grid_step(self) -> float:
        """Of coefficients of columns scaled to [−1, 1]."""
        return 1 / GRID

    @property
    def terms(self) -> int:
        return len(terms_of(self.predictors))

    @property
    def largest_square(self) -> int:
        """Each attribute contributes one entry of at most 1, and so does the constant."""
        return self.width

    def words_of(self, holdings: Holdings) -> Integers:
        words = []
        for each in self.predictors:
            column = scaled(each, holdings)
            words.append(np.rint(column * (STEPS if each.bounds else 1)).astype(np.int64))
        return np.stack([*words, self.target.codes(holdings, self.bins)], axis=1)

    def records_of(self, rows: Integers) -> tuple[Integers, NDArray[np.bool]]:
        """An attribute of names has one entry at most."""
        columns = [
            np.clip(column, -STEPS, STEPS) / STEPS if each.bounds else column.astype(np.float64)
            for each, column in zip(self.predictors, rows.T, strict=False)
        ]
        records = np.rint(design_of(self.predictors, columns) * STEPS).astype(np.int64)
        return records, rows[:, -1] == self.of_class


@dataclass(frozen=True)
class ClassObjective(OfSchema):
    """Coefficients of the schema's terms for one class, number `of_class` of the target's."""

    of_class: int = 0
    bins: int = 2
    penalty: float = 0.0

    name: ClassVar[str] = "class-objective"
    part_of: ClassVar[str] = "multinomial-regression"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_penalty(self.penalty)
        check_bins(self.bins)
        if not 0 <= self.of_class < len(classes_of(self.schema[1], self.bins)):
            raise LocalError(f"{self.target} has no class number {self.of_class}")
        if (terms := self._record.terms) > MAX_TERMS:
            raise LocalError(
                f"{terms} coefficients are too many, {MAX_TERMS} at most: name fewer values"
            )

    @property
    def _record(self) -> ClassedAttributes:
        predictors, target = self.schema
        return ClassedAttributes(tuple(predictors), target, self.of_class, self.bins)

    def plan(self, facts: Facts) -> Curated:
        return self._planned(facts.max_records_per_party)

    def _planned(self, max_records: int) -> Curated:
        return objective_plan(self._record, max_records, self.penalty, MECHANISM)

    def read(self, release: Release) -> Answer:
        found, remarks = released_coefficients(release)
        estimate = Curve([float(at) for at in range(len(found))], found.tolist())
        interval = None if release.exact else Interval.none(len(found), NO_INTERVAL)
        return Answer(estimate, interval, release.records, remarks, foretold=release.exact)

    def reference(self, holdings: Holdings) -> Estimate:
        plan = self._planned(int(holdings.counts.max()))
        return self.read(Release(plan, plan.without_noise(holdings), holdings.rows, None)).estimate
