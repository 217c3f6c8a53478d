"""The estimate of a regression: coefficients by name, with their standard errors."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tallyroom.protocols.plans.interval import NORMAL
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics.drawing import PRIVATE, QUIET, TRUTH, Beside
from tallyroom.protocols.statistics.estimates import Cells, Estimate, Heads, Shape, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_DRAWN = 12


@dataclass(frozen=True)
class Coefficients(Shape):
    """`errors` are those of sampling, as without privacy. `residual` is the standard deviation of
    residuals, NaN where a model has none. `weak` tells in how many directions noise hides how far
    the columns spread: coefficients are shrunk there. `p_values` are of each coefficient being 0,
    and `explained` is R²; both are left out where nobody knows them."""

    target: str
    terms: list[str]
    coefficients: list[float]
    errors: list[float]
    residual: float = float("nan")
    weak: int = 0
    p_values: list[float] = field(default_factory=list)
    explained: float = float("nan")

    def values(self) -> Column:
        return np.array(self.coefficients)

    def as_json(self) -> object:
        return plain(
            {
                "target": self.target,
                "terms": self.terms,
                "coefficients": self.coefficients,
                "sampling_errors": self.errors,
                "p_values": self.p_values,
                "residual_deviation": self.residual,
                "r_squared": self.explained,
                "weak_directions": self.weak,
            }
        )

    def table(self) -> tuple[Heads, Cells]:
        """Unknown errors are left out."""
        heads = ["term", "coefficient"]
        columns: list[list[str] | list[float]] = [self.terms, self.coefficients]
        for head, told in (("sampling error", self.errors), ("p", self.p_values)):
            if not np.isnan(told).all():
                heads.append(head)
                columns.append(told)
        return heads, [list(row) for row in zip(*columns, strict=True)]

    def draw(self, axes: "Axes", truth: Estimate | None, beside: Beside) -> None:
        """One line for each coefficient, each on a scale of its own."""
        axes.set_axis_off()
        bars, what = self._bars(beside)
        axes.plot([], [], "o", color=PRIVATE, label=f"{beside.label}{what}")
        true = truth if isinstance(truth, Coefficients) and truth.terms == self.terms else None
        if true is not None:
            axes.plot([], [], "|", color=TRUTH, ms=10, mew=2, label="fit to the raw records")
        shown = self.terms[:MOST_DRAWN]
        room = 0.8 / len(shown)  # the legend has the rest
        for at, term in enumerate(shown):
            line = axes.inset_axes((0.2, 0.8 - (at + 0.9) * room, 0.78, 0.45 * room))
            line.spines[["top", "right", "left"]].set_visible(False)
            line.set_yticks([0], [term if len(term) <= 20 else f"{term[:19]}…"])
            line.tick_params(axis="y", length=0)
            line.tick_params(axis="x", labelsize=8)
            line.axvline(0.0, color=QUIET, lw=0.8, ls=":")
            across = None if bars is None else bars[:, [at]]
            line.errorbar(
                [self.coefficients[at]], [0], xerr=across, fmt="o", color=PRIVATE, capsize=4
            )
            if true is not None:
                line.plot([true.coefficients[at]], [0], "|", color=TRUTH, ms=14, mew=2)

    def _bars(self, beside: Beside) -> tuple[Column | None, str]:
        """The length of the error bars, and the error that they show: without noise, that of
        sampling."""
        found = beside.bars(self.values())
        if found is not None:
            return found, f", {beside.bar_words}"
        if beside.noisy or np.isnan(self.errors).any():
            return None, ""
        # The error of sampling alone; coefficients of many records are as good as normal.
        return np.tile(NORMAL * np.array(self.errors), (2, 1)), ", 95 % interval of sampling"

    def __str__(self) -> str:
        parts = [f"{self.coefficients[0]:.6g}"]
        parts += [
            f"{value:+.6g}·{term}"
            for term, value in zip(self.terms[1:], self.coefficients[1:], strict=True)
        ]
        hidden = "1 direction" if self.weak == 1 else f"{self.weak} directions"
        shrunk = f" ({hidden} hidden by noise)" if self.weak else ""
        explained = "" if math.isnan(self.explained) else f"; R² = {self.explained:.3g}"
        return f"{self.target} = {' '.join(parts)}{shrunk}{explained}"


def normal_p_values(values: Column, errors: Column) -> list[float]:
    """The p-value of each coefficient being 0, where it is as good as normal."""
    from scipy.stats import norm  # slow to load

    with np.errstate(divide="ignore", invalid="ignore"):
        found: list[float] = (2 * norm.sf(np.abs(values / errors))).tolist()
    return found
