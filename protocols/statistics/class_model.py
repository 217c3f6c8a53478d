"""A model that predicts classes from attributes, as an estimate.

Attributes of numbers are scaled to [−1, 1] by their public bounds. Every name that the schema lists
has an entry of its own, 0 or 1; names that it does not list have no entry.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.categories import OTHER
from tallyroom.protocols.plans.scaled import ScaledColumn
from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.attributes import Attribute
from tallyroom.protocols.statistics.drawing import Beside, draw_table
from tallyroom.protocols.statistics.estimates import Cells, Error, Estimate, Heads, Shape, plain
from tallyroom.protocols.statistics.softmax import softmax

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Matrix = NDArray[np.float64]

MOST_DRAWN = 14


def terms_of(attributes: Sequence[Attribute]) -> list[str]:
    """The terms that have coefficients: the intercept, attributes of numbers by name, and
    NAME=VALUE."""
    terms = ["intercept"]
    for each in attributes:
        terms += [each.name] if each.bounds else [f"{each.name}={name}" for name in each.names]
    return terms


def design_of(attributes: Sequence[Attribute], columns: Sequence[Column]) -> Matrix:
    """One row for each record, from numbers within [−1, 1] and from indices of names."""
    made = [np.ones((len(columns[0]) if columns else 0, 1))]
    for each, column in zip(attributes, columns, strict=True):
        if each.bounds:
            made.append(column[:, None])
        else:
            made.append((column[:, None] == np.arange(len(each.names))).astype(np.float64))
    return np.concatenate(made, axis=1)


def scaled(attribute: Attribute, holdings: Holdings) -> Column:
    """A column of raw records for `design_of`."""
    if attribute.bounds is None:
        return attribute.codes(holdings, 2).astype(np.float64)
    return between(attribute, holdings.column(attribute.name))


def between(attribute: Attribute, values: Column) -> Column:
    """Numbers, clipped to their bounds and scaled to [−1, 1]; other cells count as the lower."""
    assert attribute.bounds is not None
    return ScaledColumn(attribute.name, *attribute.bounds).scale(values)


def classes_of(target: Attribute, bins: int) -> list[str]:
    """The classes that a model tells apart: names, without `other`, or bins by their middles."""
    labels = [each if isinstance(each, str) else f"{each:g}" for each in target.labels(bins)]
    return labels[:-1] if target.bounds is None and labels[-1] == OTHER else labels


@dataclass(frozen=True)
class Judged:
    """Raw records that models are compared on, in a simulation: a column for each attribute."""

    columns: dict[str, Column]
    classes: Integers


@dataclass(frozen=True)
class ClassModel(Shape):
    """`coefficients` has a row for each class. Probabilities are those of a softmax; where each
    class was fitted against all others (`apart`) they are those models' own, normalised, and two
    classes have one row, of the second."""

    target: str
    classes: list[str]
    attributes: list[Attribute]
    coefficients: Matrix
    apart: bool = False
    judged: Judged | None = field(default=None, compare=False, repr=False)

    @property
    def terms(self) -> list[str]:
        return terms_of(self.attributes)

    def predicted(self, design: Matrix) -> Matrix:
        """The probability of each class, one row for each record."""
        scores = design @ self.coefficients.T
        if not self.apart:
            return softmax(scores)
        own = np.maximum((1 + np.tanh(scores / 2)) / 2, 1e-300)
        if len(self.classes) == 2:
            own = np.column_stack([1 - own[:, 0], own[:, 0]])
        found: Matrix = own / own.sum(axis=1, keepdims=True)
        return found

    def predictions(self, records: Judged) -> Matrix:
        columns = [records.columns[each.name] for each in self.attributes]
        if not columns:
            return self.predicted(np.ones((len(records.classes), 1)))
        return self.predicted(design_of(self.attributes, columns))

    def values(self) -> Column:
        return self.coefficients.ravel()

    @property
    def rows(self) -> list[str]:
        return self.classes[1:] if len(self.coefficients) < len(self.classes) else self.classes

    def as_json(self) -> object:
        return plain(
            {
                "target": self.target,
                "classes": self.classes,
                "probabilities": "each class against all others" if self.apart else "softmax",
                "terms": self.terms,
                "coefficients": {
                    name: row.tolist()
                    for name, row in zip(self.rows, self.coefficients, strict=True)
                },
            }
        )

    def table(self) -> tuple[Heads, Cells]:
        rows: Cells = [
            [term, *column.tolist()]
            for term, column in zip(self.terms, self.coefficients.T, strict=True)
        ]
        return ["term", *self.rows], rows

    def error(self, truth: Estimate) -> Error:
        """The error of predicted probabilities on the raw records, and the areas of both models
        there."""
        if not isinstance(truth, ClassModel) or truth.judged is None:
            raise ValueError("the truth is not a model with records to judge it on")
        ours, theirs = (each.predictions(truth.judged) for each in (self, truth))
        off = ours - theirs
        return {
            "rmse": math.sqrt(float((off**2).mean())),
            "max": float(np.abs(off).max()),
            "area": hand_till(truth.judged.classes, ours),
            "area of a fit to raw records": hand_till(truth.judged.classes, theirs),
        }

    def draw(self, axes: "Axes", truth: Estimate | None, beside: Beside) -> None:
        heads, rows = self.table()
        shown = [
            [each if isinstance(each, str) else f"{each:.3g}" for each in row]
            for row in rows[:MOST_DRAWN]
        ]
        draw_table(axes, heads, shown)

    def __str__(self) -> str:
        names = ", ".join(each.name for each in self.attributes) or "nothing"
        return f"{len(self.classes)} classes of {self.target} by {names}"


# --- how well predicted probabilities tell classes apart ---


def area(scores: Column, positive: NDArray[np.bool]) -> float:
    """The part of pairs of a positive and a negative record that scores order rightly, ties for
    half; NaN if a class is empty."""
    positives = int(positive.sum())
    negatives = len(positive) - positives
    if not positives or not negatives:
        return math.nan
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    above = float(ranks[positive].sum()) - positives * (positives + 1) / 2
    return above / (positives * negatives)


def hand_till(classes: Integers, probabilities: Matrix) -> float:
    """The area under the ROC curve, generalised to several classes (Hand and Till 2001): the mean
    over pairs of classes of the areas between them, each class's own probability being the score.
    For two classes it is the area. Classes without a record are left out; NaN if fewer
    than two have any."""
    present = [each for each in range(probabilities.shape[1]) if (classes == each).any()]
    found = []
    for one, other in itertools.combinations(present, 2):
        among = (classes == one) | (classes == other)
        for which in (one, other):
            found.append(area(probabilities[among, which], classes[among] == which))
    return float(np.mean(found)) if found else math.nan
