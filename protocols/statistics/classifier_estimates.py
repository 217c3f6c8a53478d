"""The rates of a classifier at every threshold, and what follows from them: AUC, average precision,
the best threshold. ROC and precision–recall curves are two pictures of these rates.

A record is taken for positive if its score is above the threshold. The first threshold is −∞:
everything is positive.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.class_curves import ClassDistributions
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics.drawing import QUIET, SEVERAL, TRUTH, Beside
from tallyroom.protocols.statistics.estimates import Cells, Error, Estimate, Heads, Shape, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

YOUDEN = "youden"
COST = "cost="


def cost_of(best: str) -> float | None:
    """The cost of a false positive in units of a false negative; None for Youden's index. Raises
    `LocalError` for any other text."""
    if best == YOUDEN:
        return None
    try:
        cost = float(best.removeprefix(COST)) if best.startswith(COST) else math.nan
    except ValueError:
        cost = math.nan
    if not 0 < cost < 1e9:
        raise LocalError(f"--best is {YOUDEN}, or {COST}R with R above 0, not {best!r}")
    return cost


@dataclass(frozen=True)
class Judgement:
    """One classifier. Rates of classes without records are NaN.

    `thresholds` start at −∞ and grow; both rates fall from 1 to 0. Of the truth more is known than
    the rates at the thresholds: `area` is its AUC, and `whole` the curve at every score.
    """

    thresholds: Column
    false_positive: Column
    true_positive: Column
    negatives: float
    positives: float
    best: str = YOUDEN
    area: float | None = None
    whole: "Judgement | None" = None
    every_score: bool = False
    """Whether all scores are thresholds, so that no record lies between two."""

    @classmethod
    def of(
        cls,
        found: ClassDistributions,
        x: Column,
        best: str,
        area: float | None = None,
        whole: "Judgement | None" = None,
    ) -> "Judgement":
        thresholds = np.concatenate([[-math.inf], x])
        false, true = (1.0 - np.append(0.0, each) for each in (found.negative, found.positive))
        return cls(thresholds, false, true, found.negatives, found.positives, best, area, whole)

    def at(self, thresholds: Column) -> "Judgement":
        """A truth at other thresholds; unchanged if the whole curve is not known."""
        if (whole := self.whole) is None:
            return self
        place = np.searchsorted(whole.thresholds, thresholds, side="right") - 1
        rates = (each[place] for each in (whole.false_positive, whole.true_positive))
        false, true = rates
        return replace(self, thresholds=thresholds, false_positive=false, true_positive=true)

    @cached_property
    def auc(self) -> float:
        """The area by the trapezoidal rule: records between the same two thresholds count as ties,
        ½."""
        if self.area is not None:
            return self.area
        return float(np.trapezoid(self.true_positive[::-1], self.false_positive[::-1]))

    @cached_property
    def precision(self) -> Column:
        """The precision at each threshold. Where no record is taken for positive, it is the
        precision at the nearest threshold where one is, since counts are taken to grow evenly
        between thresholds; 1 if there is no such threshold."""
        right = self.true_positive * self.positives
        taken = right + self.false_positive * self.negatives
        sure = np.abs(taken) > 1e-9
        found: Column = np.divide(right, taken, out=np.ones_like(right), where=sure)
        nearest = np.maximum.accumulate(np.where(sure, np.arange(len(taken)), 0))
        return np.where(np.isnan(taken), np.nan, found[nearest])

    @cached_property
    def perfect_auc(self) -> float:
        """The AUC if the positives between the same two thresholds were all above the negatives."""
        pairs = np.diff(self.true_positive) * np.diff(self.false_positive)
        return self.auc + float(pairs.sum()) / 2

    @cached_property
    def average_precision(self) -> float:
        """The mean precision at the positives. Of the truth it is scikit-learn's, with all scores
        told apart; else records between two thresholds are taken to be spread evenly."""
        if self.whole is not None:
            return self.whole.average_precision
        if self.every_score:
            return float(-np.sum(np.diff(self.true_positive) * self.precision[:-1]))
        return self._mean_precision(mixed=True)

    @cached_property
    def perfect_average_precision(self) -> float:
        """As `perfect_auc`."""
        return self._mean_precision(mixed=False)

    def _mean_precision(self, mixed: bool) -> float:
        """Between two thresholds that have A true of B positive predictions at the upper one, and b
        positives among c records, the precision after a share t of the positives is
        (A + bt + ½)/(B + ct + ½), where half of a record is the positive itself; its integral over
        t is known. (The interpolation is that of Davis and Goadrich, 2006.) If records are not
        `mixed`, positives come before negatives: c is b."""
        right = np.maximum(self.true_positive, 0.0) * self.positives
        taken = right + np.maximum(self.false_positive, 0.0) * self.negatives
        b = np.maximum(-np.diff(right), 0.0)
        c = np.maximum(-np.diff(taken), b) if mixed else b
        some = b > 0
        b, c, start, whole = b[some], c[some], right[1:][some] + 0.5, taken[1:][some] + 0.5
        slope = b / c
        means = slope + (start - slope * whole) / c * np.log1p(c / whole)
        return float((b * np.minimum(means, 1.0)).sum() / b.sum()) if b.sum() else math.nan

    @cached_property
    def gain(self) -> Column:
        """What the best threshold has most of: Youden's index, or what its predictions save."""
        if (cost := cost_of(self.best)) is None:
            return self.true_positive - self.false_positive
        return self.true_positive * self.positives - cost * self.false_positive * self.negatives

    @cached_property
    def best_place(self) -> int:
        """The place of the best threshold, the lowest if several tie."""
        return 0 if np.isnan(self.gain).any() else int(np.argmax(self.gain))

    @property
    def classes(self) -> str:
        """A remark on classes that are as small as an estimate of their sizes can be."""
        small = [
            name
            for name, size in (("positive", self.positives), ("negative", self.negatives))
            if size <= 1
        ]
        return f", hardly any {' or '.join(small)} records" if small else ""

    @property
    def monotone(self) -> bool:
        rates = (self.false_positive, self.true_positive)
        return all(bool((np.diff(each) <= 1e-12).all()) for each in rates)

    def as_json(self) -> dict[str, object]:
        place = self.best_place
        return {
            "auc": self.auc,
            "average_precision": self.average_precision,
            "best": {
                "by": self.best,
                "threshold": float(self.thresholds[place]),
                "false_positive_rate": float(self.false_positive[place]),
                "true_positive_rate": float(self.true_positive[place]),
                "precision": float(self.precision[place]),
            },
            "negatives": self.negatives,
            "positives": self.positives,
            "thresholds": self.thresholds.tolist(),
        }


Ends = tuple[float, float]


class Spread(Protocol):
    """What noise may have done to what is read off the curves: 95 % intervals, by score."""

    def auc(self, name: str) -> Ends: ...

    def average_precision(self, name: str) -> Ends: ...

    def best_threshold(self, name: str) -> Ends: ...


@dataclass(frozen=True)
class Judgements(Shape):
    """Classifiers by the name of their score; a subclass says which curve is drawn of each.

    `spread` is computed when it is told, not before: it takes as long as a hundred answers.
    """

    named: dict[str, Judgement]
    spread: Spread | None = field(default=None, repr=False, compare=False)

    across: ClassVar[str]
    up: ClassVar[str]

    @abstractmethod
    def curve(self, each: Judgement) -> tuple[Column, Column]:
        """The points of the curve, across and up, by growing thresholds."""

    @abstractmethod
    def area(self, each: Judgement) -> tuple[str, float]:
        """The name and the value of the area that sums up the curve."""

    def beside(self, estimate: Estimate) -> Self:
        """Truths at the thresholds of the estimates that they are compared with."""
        if not isinstance(estimate, Judgements):
            return self
        told = ((name, estimate.named.get(name)) for name in self.named)
        at = {name: self.named[name].at(each.thresholds) for name, each in told if each}
        return replace(self, named=self.named | at)

    def values(self) -> Column:
        return np.concatenate([axis for each in self.named.values() for axis in self.curve(each)])

    def as_json(self) -> object:
        x, y = (each.replace(" ", "_") for each in (self.across, self.up))
        found = {}
        for name, each in self.named.items():
            across, up = self.curve(each)
            found[name] = {**each.as_json(), x: across.tolist(), y: up.tolist()}
            if self.spread is not None:
                found[name]["intervals"] = {
                    "auc": list(self.spread.auc(name)),
                    "average_precision": list(self.spread.average_precision(name)),
                    "best_threshold": list(self.spread.best_threshold(name)),
                }
        return plain(found)

    def table(self) -> tuple[Heads, Cells]:
        rows: Cells = []
        for name, each in self.named.items():
            points = zip(each.thresholds, *self.curve(each), strict=True)
            rows += [[name, float(at), float(x), float(y)] for at, x, y in points]
        return ["score", "threshold", self.across, self.up], rows

    def in_rows(self, numbers: Column) -> dict[str, Column]:
        if len(numbers) != len(self.values()):
            return {}
        sizes = [len(self.curve(each)[0]) for each in self.named.values()]
        ends = np.cumsum([size for each in sizes for size in (each, each)])[:-1]
        parts = np.split(numbers, ends)
        return {self.across: np.concatenate(parts[::2]), self.up: np.concatenate(parts[1::2])}

    def error(self, truth: Estimate) -> Error:
        """The error of the rates at the thresholds; the area between the curves, also between
        thresholds, which is the largest of several, or NaN where noise makes a curve cross itself;
        and the error of the area that sums up a curve."""
        if type(truth) is not type(self) or not isinstance(truth, Judgements):
            raise ValueError("the truth has curves of another kind")
        if truth.named.keys() != self.named.keys():
            raise ValueError("the truth has curves of other names")
        areas, sums, apart = [], [], []
        for name, each in self.named.items():
            true = truth.named[name]
            whole = self.curve(true.whole or true)
            areas.append(area_between(self.curve(each), whole) if each.monotone else math.nan)
            sums.append(abs(self.area(each)[1] - self.area(true)[1]))
            apart.append(self._apart(each, true))
        difference = np.concatenate(apart)
        label = self.area(next(iter(self.named.values())))[0]
        return {
            "rmse": float(np.sqrt(np.mean(difference**2))),
            "max": float(np.max(difference)),
            "symmetric_difference": float(np.max(areas)),
            label: float(np.max(sums)),
        }

    def _apart(self, each: Judgement, true: Judgement) -> Column:
        """The distance in both axes at the same thresholds, or vertically where thresholds
        differ."""
        x, y = self.curve(each)
        if np.array_equal(each.thresholds, true.thresholds):
            both: Column = np.abs(np.concatenate([x, y]) - np.concatenate(self.curve(true)))
            return both
        above: Column = np.abs(y - np.interp(x, *_forward(self.curve(true))))
        return above

    def draw(self, axes: "Axes", truth: Estimate | None, beside: Beside) -> None:
        several = len(self.named) > 1
        band = beside.band
        start = 0
        for place, (name, each) in enumerate(self.named.items()):
            colour = SEVERAL[(place + (not several)) % len(SEVERAL)]
            x, y = self.curve(each)
            size = 2 * len(x)
            if band is not None and len(band) >= start + size and band[start : start + size].any():
                wide, high = band[start : start + size].reshape(2, -1)
                self._band(axes, x, y, wide, high, colour)
            start += size
            true = truth.named.get(name) if isinstance(truth, Judgements) else None
            if true is not None:
                axes.plot(
                    *self.curve(true.whole or true),
                    color=colour if several else TRUTH,
                    lw=1.0 if several else 2.2,
                    ls="--" if several else "-",
                    label=self._label(f"{name}, truth" if several else "truth", true),
                )
            told = self._label(name if several else beside.label, each)
            axes.plot(x, y, color=colour, lw=1.4, label=told)
            best = each.best_place
            if np.isnan(each.thresholds[best]):
                continue
            axes.plot(x[best], y[best], "o", ms=5, color=colour)
            axes.annotate(
                f"threshold {each.thresholds[best]:.3g}",
                (float(x[best]), float(y[best])),
                xytext=(14, -14),
                textcoords="offset points",
                fontsize=8,
                color=colour,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            )
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.05)
        axes.set_xlabel(self.across)
        axes.set_ylabel(self.up)

    def _label(self, name: str, each: Judgement) -> str:
        called, value = self.area(each)
        return f"{name}, {called.replace('_', ' ')} {value:.4f}"

    @abstractmethod
    def _band(
        self, axes: "Axes", x: Column, y: Column, wide: Column, high: Column, colour: str
    ) -> None:
        """Shades the effect that noise may have had: up to `wide` across and `high` up."""

    def __str__(self) -> str:
        told = []
        for name, each in self.named.items():
            spread = self.spread
            ends = _ends(None if spread is None else spread.auc(name))
            words = [f"{name}: AUC {each.auc:.6g}{ends}"]
            if not math.isnan(each.average_precision):
                ends = _ends(None if spread is None else spread.average_precision(name))
                words.append(f"average precision {each.average_precision:.6g}{ends}")
            if not math.isnan(best := each.thresholds[each.best_place]):
                ends = _ends(None if spread is None else spread.best_threshold(name))
                words.append(f"best threshold {best:.6g}{ends} ({each.best})")
            told.append(", ".join(words) + each.classes)
        return "; ".join(told)


@dataclass(frozen=True)
class RocEstimate(Judgements):
    across: ClassVar[str] = "false positive rate"
    up: ClassVar[str] = "true positive rate"

    def curve(self, each: Judgement) -> tuple[Column, Column]:
        return each.false_positive, each.true_positive

    def area(self, each: Judgement) -> tuple[str, float]:
        return "auc", each.auc

    def draw(self, axes: "Axes", truth: Estimate | None, beside: Beside) -> None:
        axes.plot([0, 1], [0, 1], color=QUIET, lw=0.8, ls=":")
        super().draw(axes, truth, beside)

    def _band(
        self, axes: "Axes", x: Column, y: Column, wide: Column, high: Column, colour: str
    ) -> None:
        """Draws the band from where the errors of both rates help the classifier to where both harm
        it."""
        above = np.clip(x - wide, 0, 1), np.clip(y + high, 0, 1)
        below = np.clip(x + wide, 0, 1)[::-1], np.clip(y - high, 0, 1)[::-1]
        axes.fill(
            np.concatenate([above[0], below[0]]),
            np.concatenate([above[1], below[1]]),
            color=colour,
            alpha=0.18,
            lw=0,
        )


@dataclass(frozen=True)
class PrecisionRecallEstimate(Judgements):
    across: ClassVar[str] = "recall"
    up: ClassVar[str] = "precision"

    def curve(self, each: Judgement) -> tuple[Column, Column]:
        return each.true_positive, each.precision

    def area(self, each: Judgement) -> tuple[str, float]:
        return "average_precision", each.average_precision

    def _band(
        self, axes: "Axes", x: Column, y: Column, wide: Column, high: Column, colour: str
    ) -> None:
        low, top = np.clip(y - high, 0, 1), np.clip(y + high, 0, 1)
        axes.fill_between(x, low, top, color=colour, alpha=0.18, lw=0)


def _ends(interval: Ends | None) -> str:
    return "" if interval is None else " (95 %: {:.4g} to {:.4g})".format(*interval)


Polyline = tuple[Column, Column]


def area_between(one: Polyline, two: Polyline) -> float:
    """∫|y₁ − y₂| dx over [0, 1] for two lines whose x goes one way; exact, steps included."""
    lines = [_forward(line) for line in (one, two)]
    ends = np.unique(np.clip(np.concatenate([[0.0, 1.0], *(x for x, _ in lines)]), 0.0, 1.0))
    if not np.isfinite(ends).all() or len(ends) < 2:
        return math.nan
    width = np.diff(ends)
    # Both are straight between neighbouring ends: two inner points determine the values there.
    quarter, middle = (
        np.interp(ends[:-1] + share * width, *lines[0])
        - np.interp(ends[:-1] + share * width, *lines[1])
        for share in (0.25, 0.5)
    )
    left, right = 2 * quarter - middle, 3 * middle - 2 * quarter
    crosses = left * right < 0
    total = np.abs(left) + np.abs(right)
    apart = np.divide(left**2 + right**2, total, out=np.zeros_like(total), where=crosses)
    return float((width * np.where(crosses, apart, total) / 2).sum())


def _forward(line: Polyline) -> Polyline:
    x, y = line
    return (x[::-1], y[::-1]) if x[0] > x[-1] else (x, y)
