"""A classifier at one threshold: the confusion matrix, and accuracy, precision, recall, specificity
and F1, read off the same release as the ROC curve."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.classifier_curves import ClassifierCurves
from tallyroom.protocols.statistics.classifier_estimates import Judgement
from tallyroom.protocols.statistics.drawing import Beside, draw_table
from tallyroom.protocols.statistics.estimates import Cells, Estimate, Heads, Shape, plain
from tallyroom.protocols.statistics.option import CLASSIFIERS, option
from tallyroom.protocols.statistics.redrawn import Redrawn
from tallyroom.protocols.statistics.release import Answer, Release

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COUNTS = ("true positives", "false positives", "false negatives", "true negatives")
RATES = ("accuracy", "precision", "recall", "specificity", "F1")


def rates_of(each: Judgement, place: int) -> Column:
    """The four counts and the five rates at a threshold by its place. A rate of nothing is NaN."""
    recall, false = float(each.true_positive[place]), float(each.false_positive[place])
    right, wrong = recall * each.positives, false * each.negatives
    missed, passed = each.positives - right, each.negatives - wrong
    whole, taken = each.positives + each.negatives, right + wrong
    found = [
        (right + passed) / whole if whole > 0 else math.nan,
        right / taken if taken > 1e-9 else math.nan,
        recall,
        1.0 - false,
        2 * right / (taken + each.positives) if taken + each.positives > 0 else math.nan,
    ]
    return np.array([right, wrong, missed, passed, *found])


@dataclass(frozen=True)
class ClassifierRates(Shape):
    """What a classifier gets right by the name of its score, at a threshold each."""

    judged: dict[str, Judgement]
    places: dict[str, int]

    @property
    def thresholds(self) -> dict[str, float]:
        places = self.places.items()
        return {name: float(self.judged[name].thresholds[place]) for name, place in places}

    @property
    def _rows(self) -> dict[str, Column]:
        return {name: rates_of(each, self.places[name]) for name, each in self.judged.items()}

    def values(self) -> Column:
        return np.concatenate(list(self._rows.values()))

    def as_json(self) -> object:
        found = {}
        for name, row in self._rows.items():
            told = zip((*COUNTS, *RATES), row.tolist(), strict=True)
            named = {key.replace(" ", "_").lower(): value for key, value in told}
            found[name] = {"threshold": self.thresholds[name], **named}
        return plain(found)

    def table(self) -> tuple[Heads, Cells]:
        rows: Cells = [
            [name, key, value]
            for name, row in self._rows.items()
            for key, value in zip((*COUNTS, *RATES), row.tolist(), strict=True)
        ]
        return ["score", "at its threshold", "value"], rows

    def beside(self, estimate: Estimate) -> Self:
        """A truth at the thresholds of the estimate."""
        if not isinstance(estimate, ClassifierRates):
            return self
        judged = {
            name: each.at(np.array([estimate.thresholds[name]]))
            for name, each in self.judged.items()
        }
        return replace(self, judged=judged, places=dict.fromkeys(judged, 0))

    def draw(self, axes: "Axes", truth: Estimate | None, beside: Beside) -> None:
        heads = ["", *(f"{name} > {at:.4g}" for name, at in self.thresholds.items())]
        rows = list(self._rows.values())
        bars = beside.bars(self.values())
        ends = None if bars is None else bars.reshape(2, len(rows), -1)
        cells = []
        for at, key in enumerate((*COUNTS, *RATES)):
            told = []
            for which, row in enumerate(rows):
                end = ""
                if ends is not None:
                    low, high = row[at] - ends[0, which, at], row[at] + ends[1, which, at]
                    end = f" ({low:.4g} to {high:.4g})"
                told.append(f"{row[at]:.4g}{end}")
            cells.append([key, *told])
        draw_table(axes, heads, cells)

    def __str__(self) -> str:
        told = []
        for name, row in self._rows.items():
            rates = zip(RATES, row[len(COUNTS) :].tolist(), strict=True)
            words = ", ".join(f"{key} {value:.4g}" for key, value in rates)
            told.append(f"{name} > {self.thresholds[name]:.4g}: {words}")
        return "; ".join(told)


@dataclass(frozen=True)
class ClassifierTable(ClassifierCurves):
    """Confusion matrix, accuracy, precision, recall, specificity and F1 at a threshold."""

    threshold: float | None = option(
        None, "Records with a score above it are taken for positive; the best one if left out."
    )

    name: ClassVar[str] = "classifier-table"
    topic: ClassVar[str] = CLASSIFIERS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold is None:
            return
        if not math.isfinite(self.threshold):
            raise LocalError(f"--threshold is a finite number, not {self.threshold}")
        if None not in (self.lower, self.upper) and not (
            self.bounds[0] <= self.threshold <= self.bounds[1]
        ):
            raise LocalError(
                f"--threshold {self.threshold:g} must lie within [{self.lower:g}, {self.upper:g}]"
            )

    def _place(self, each: Judgement) -> int:
        """Of the threshold that is asked about, or the nearest that is known."""
        if self.threshold is None:
            return each.best_place
        return 1 + int(np.argmin(np.abs(each.thresholds[1:] - self.threshold)))

    def _rates(self, judged: dict[str, Judgement]) -> ClassifierRates:
        return ClassifierRates(judged, {name: self._place(each) for name, each in judged.items()})

    def read(self, release: Release) -> Answer:
        estimate = self._rates(self.judgements(release))
        values, records = estimate.values(), release.records
        remarks = self._remarks(estimate)
        if (noise := release.noise) is None:
            return Answer(estimate, None, records, remarks, foretold=True)
        width = self.width(release, noise)
        draws = Redrawn(self.judgements, release, noise, width).draws
        drawn = np.array([ClassifierRates(each, estimate.places).values() for each in draws])
        errors = np.nanstd(drawn, axis=0, ddof=1)
        most = np.tile([math.inf] * len(COUNTS) + [1.0] * len(RATES), len(self.score))
        low = np.clip(values - width * errors, 0.0, most)
        high = np.clip(values + width * errors, 0.0, most)
        return Answer(estimate, Interval(errors, low, high), records, remarks)

    def _remarks(self, estimate: ClassifierRates) -> tuple[str, ...]:
        if self.threshold is None:
            return ()
        far = {at for at in estimate.thresholds.values() if at != self.threshold}
        return tuple(
            f"the curve has no point at --threshold {self.threshold:g}: this is at {at:g}, the "
            f"nearest; --at {self.threshold:g} asks about exactly that one"
            for at in sorted(far)
        )

    def reference(self, holdings: Holdings) -> Estimate:
        judged = self.true_judgements(holdings)
        if self.threshold is not None:
            at = np.array([-math.inf, self.threshold])
            judged = {name: each.at(at) for name, each in judged.items()}
        return self._rates(judged)
