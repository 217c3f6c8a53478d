"""Predicts the class of a record from its attributes: S4's models on private data.

HLR and HMLR are (multinomial) logistic regressions on the synthetic rows of a projected histogram:
any aggregator, and nothing is spent on the fit. PLR and PMLR fit each class against all others by
objective perturbation, with a curator; two classes are one fit.
"""

import dataclasses
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.offers import Offer, Offers
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.statistics.attributes import Attribute, outside_of, parse_schema
from tallyroom.protocols.statistics.class_model import (
    ClassModel,
    Judged,
    between,
    classes_of,
    design_of,
    scaled,
)
from tallyroom.protocols.statistics.class_objective import ClassObjective
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Estimate, shape_of
from tallyroom.protocols.statistics.option import RELATIONS, option, role
from tallyroom.protocols.statistics.softmax import fit_softmax
from tallyroom.protocols.statistics.synthetic_rows import SyntheticRows
from tallyroom.protocols.studies.contract import Ask, Finding, Steps, Study
from tallyroom.protocols.studies.projected_histogram import PICKS_BY, ProjectedHistogram

METHODS = ("histogram", "objective")
MAX_CLASSES = 64


@dataclass(frozen=True)
class MultinomialRegression(Study):
    """A logistic model of a target's classes, from synthetic rows or by objective perturbation."""

    attributes: tuple[str, ...] = option(
        (),
        "A column and its public values, COLUMN=LOWER:UPPER or COLUMN=NAME,NAME; repeat.",
        flag="--attribute",
    )
    target: str = role("target", "The attribute whose classes are predicted.")
    method: str = option(
        "histogram",
        "From the rows of a projected histogram, or a curator's objective perturbation.",
        choices=METHODS,
    )
    k: int = option(0, "How many attributes the histogram keeps; 0 estimates the best number.")
    gamma: float = option(
        0.0, "The share of ε for the histogram's counts; 0 estimates the best share."
    )
    bins: int = option(
        0, "How many bins a numeric attribute has; 0 chooses by the number of records."
    )
    picks_by: str = option(
        "scores",
        "Without a curator: by noisy scores, or max: two servers open an index and nothing else.",
        choices=PICKS_BY,
    )
    penalty: float = option(
        0.0, "Least penalty on squared coefficients, per record; for --method objective."
    )
    records: int = 0
    curated: bool = False

    name: ClassVar[str] = "multinomial-regression"
    topic: ClassVar[str] = RELATIONS
    style: ClassVar[Style] = Style("marks", "coefficient", "")

    def __post_init__(self) -> None:
        look_up("method", self.method, dict.fromkeys(METHODS))
        if self.penalty and self.method != "objective":
            raise LocalError("--penalty applies only to --method objective")
        if (self.k or self.gamma or self.picks_by != "scores") and self.method == "objective":
            raise LocalError("--k, --gamma and --picks-by apply only to --method histogram")
        self._histogram  # noqa: B018  # raises for an invalid schema
        if self._schema[1].bounds is None and len(self.classes) < 2:
            raise LocalError(f"--attribute {self.target} must name two classes or more")
        if len(self._schema[1].names) > MAX_CLASSES:
            raise LocalError(f"a target has at most {MAX_CLASSES} classes")

    @cached_property
    def _schema(self) -> tuple[list[Attribute], Attribute]:
        return parse_schema(self.attributes, self.target)

    @cached_property
    def _histogram(self) -> ProjectedHistogram:
        return ProjectedHistogram(
            self.attributes,
            self.target,
            self.k,
            self.gamma,
            self.bins,
            self.picks_by,
            self.records,
            self.curated,
        )

    @cached_property
    def _bins(self) -> int:
        return self._histogram.chosen_bins if self.records or self.bins else 2

    @property
    def classes(self) -> list[str]:
        return classes_of(self._schema[1], self._bins)

    @property
    def columns(self) -> tuple[str, ...]:
        return self._histogram.columns

    def asked_of(self, offers: Offers) -> "MultinomialRegression":
        return dataclasses.replace(self, curated=Offer.CURATE in offers)

    def of_records(self, records: int) -> Self:
        return dataclasses.replace(self, records=records)

    @property
    def _fitted(self) -> list[int]:
        """The classes that have a model of their own."""
        return [1] if len(self.classes) == 2 else list(range(len(self.classes)))

    def _objective(self, of_class: int) -> ClassObjective:
        return ClassObjective(
            attributes=self.attributes,
            target=self.target,
            of_class=of_class,
            bins=self._bins,
            penalty=self.penalty,
        )

    def shares(self) -> tuple[Fraction, ...]:
        if self.method == "histogram":
            return self._histogram.shares()
        return (Fraction(1, len(self._fitted)),) * len(self._fitted)

    def may_ask(self) -> tuple[Ask, ...]:
        if self.method == "histogram":
            return self._histogram.may_ask()
        return (Ask(self._objective(self._fitted[0]), self.shares()[0]),)

    def clipped(self, holdings: Holdings) -> int:
        predictors, target = self._schema
        return outside_of([*predictors, target], holdings)

    def steps(self) -> Steps:
        predictors, target = self._schema
        if self.method == "histogram":
            finding = yield from self._histogram.steps()
            model, notes = self._of_rows(finding.estimate)
            return Finding(model, (*finding.notes, *notes))
        rows = []
        for of_class, share in zip(self._fitted, self.shares(), strict=True):
            answer = yield Ask(self._objective(of_class), share)
            rows.append(shape_of(answer.estimate).values())
        return Finding(
            ClassModel(target.name, self.classes, predictors, np.stack(rows), apart=True)
        )

    def _of_rows(self, rows: Estimate) -> tuple[ClassModel, list[str]]:
        """A fit to synthetic rows: post-processing."""
        if not isinstance(rows, SyntheticRows):
            raise RunFailed("the projected histogram came back as another shape than rows")
        by_name = {each.name: each for each in self._schema[0]}
        kept = [by_name[name] for name in rows.columns[:-1]]
        classes = rows.codes[:, -1]
        told = classes < len(self.classes)
        if not told.any():
            raise RunFailed("no synthetic row has a listed class: use a larger --epsilon")
        columns = []
        for at, each in enumerate(kept):
            codes = rows.codes[told, at]
            values = np.array(rows.labels[at], dtype=object)[codes]
            numbers = values.astype(np.float64) if each.bounds else None
            columns.append(codes.astype(np.float64) if numbers is None else between(each, numbers))
        counts = rows.counts[told].astype(np.float64)
        coefficients = fit_softmax(
            design_of(kept, columns), classes[told], counts, len(self.classes)
        )
        missing = [name for at, name in enumerate(self.classes) if not (classes[told] == at).any()]
        notes = [f"no synthetic row is of class {', '.join(missing)}"] if missing else []
        return ClassModel(rows.columns[-1], self.classes, kept, coefficients), notes

    def reference(self, holdings: Holdings) -> Estimate:
        """A fit to the raw records with all attributes; models are compared on those."""
        predictors, target = self._schema
        classes = target.codes(holdings, self._bins)
        told = classes < len(self.classes)
        columns = {each.name: scaled(each, holdings)[told] for each in predictors}
        judged = Judged(columns, classes[told])
        design = design_of(predictors, list(columns.values()))
        coefficients = fit_softmax(design, judged.classes, np.ones(len(design)), len(self.classes))
        return ClassModel(target.name, self.classes, predictors, coefficients, judged=judged)
