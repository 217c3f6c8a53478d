"""Predicted and observed positives in groups of scores, by which calibration is judged.

A record in a group adds its score to the predicted positives and 1 to the observed positives or
negatives; predicted negatives are the rest of the group. A record weighs at most 2 in the 1-norm,
so replacing it moves the counts by at most 4. S0's Algorithm 2 also counts predicted negatives,
with the score of the positives, and moves by 8.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Encoding, NoisySum, PlainSum
from tallyroom.protocols.plans.encodings import clipped
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.measurement import Measurement
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.calibration_test import LEVEL, WANTED_POWER, NoisyTest
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.drawing import PRIVATE, QUIET, TRUTH, Beside
from tallyroom.protocols.statistics.estimates import Cells, Estimate, Heads, Shape, Table, plain
from tallyroom.protocols.statistics.labels import is_positive, positives_of
from tallyroom.protocols.statistics.option import role
from tallyroom.protocols.statistics.release import Answer, Noise, Release

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIXED_POINT = 1 << 16
"""Scores are rounded to so many parts of 1."""
SENSITIVITY = 4 * FIXED_POINT
MAX_GROUPS = 1024
DIFFERENCES = (0.01, 0.02, 0.05, 0.1)
"""Between the share of positives and what is predicted: those whose power is told."""
COLUMNS = ["predicted positives", "observed positives", "observed negatives"]


@dataclass(frozen=True)
class CalibrationCells(Encoding):
    """A record adds its score, and 1 to the positives or negatives, in its group."""

    score: str
    label: str
    positive: float
    at: tuple[float, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.score, self.label)

    @property
    def length(self) -> int:
        return 3 * (len(self.at) + 1)

    @property
    def sensitivity(self) -> Sensitivity:
        """Two sums of the group that a record leaves, and two of the one that it enters."""
        return Sensitivity(SENSITIVITY, 4 * FIXED_POINT**2)

    def encode(self, holdings: Holdings) -> Vector:
        """A score that is not a probability counts as the nearest one; a cell that is not a number
        counts as 0."""
        scores = clipped(holdings.column(self.score), 0.0, 1.0)
        positive = is_positive(holdings.column(self.label), self.positive)
        parties, groups = len(holdings.ids), len(self.at) + 1
        row = np.repeat(np.arange(parties), holdings.counts) * groups
        row += group_of(scores, self.at)
        parts = [np.rint(scores * FIXED_POINT), FIXED_POINT * positive, FIXED_POINT * ~positive]
        # Sums of whole numbers below 2^53 are exact in doubles.
        sums = [np.bincount(row, each, parties * groups) for each in parts]
        return np.stack(sums, axis=1).reshape(parties, -1).astype(np.uint64)

    @property
    def measurement(self) -> Measurement | None:
        return None

    @property
    def grid_step(self) -> float:
        return 1 / FIXED_POINT

    @property
    def grid_words(self) -> str:
        return f"values are rounded to multiples of {self.grid_step:.3g}"


@dataclass(frozen=True)
class CalibrationCounts(Statistic):
    """Predicted and observed positives, and observed negatives, between thresholds of the score.

    Groups hold their upper ends; `at` are the inner ones.
    """

    score: str = role("score", "The column of predicted probabilities.")
    label: str = role("label", "The column of labels, 0 or 1.")
    positive: float | None = None
    at: tuple[float, ...] = ()

    name: ClassVar[str] = "calibration-counts"
    part_of: ClassVar[str] = "hosmer-lemeshow"

    def __post_init__(self) -> None:
        if len(self.at) >= MAX_GROUPS or not all(0 <= each <= 1 for each in self.at):
            raise LocalError(
                f"at most {MAX_GROUPS} groups are counted, between probabilities from 0 to 1"
            )
        if any(one >= two for one, two in pairwise(self.at)):
            raise LocalError("thresholds of groups must rise")

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.score, self.label)

    def plan(self, facts: Facts) -> NoisySum:
        positive = 1.0 if self.positive is None else float(self.positive)
        cells = CalibrationCells(self.score, self.label, positive, tuple(map(float, self.at)))
        return NoisySum(cells, PlainSum.of(cells))

    def read(self, release: Release) -> Answer:
        cells = release.integers / FIXED_POINT
        table = self._table(cells.reshape(-1, 3), release.noise)
        if (noise := release.noise) is None:
            return Answer(table, None, release.records, foretold=True)
        errors = noise.deviations(len(cells)) / FIXED_POINT
        interval = Interval.around(cells, errors, noise.width(), (-math.inf, math.inf))
        return Answer(table, interval, release.records, foretold=noise.law_is_public)

    def reference(self, holdings: Holdings) -> Estimate:
        scores = probabilities(holdings, self.score)
        positive = positives_of(holdings.column(self.label), self.label, self.positive)
        return self._table(grouped(scores, positive, self.at))

    def _table(self, cells: Column, noise: Noise | None = None) -> Estimate:
        ends = [0.0, *self.at, 1.0]
        names = [f"{one:g} to {two:g}" for one, two in pairwise(ends)]
        return GroupCounts(names, COLUMNS, cells.tolist(), noise)


@dataclass(frozen=True)
class GroupCounts(Table):
    """Counts of groups, with the noise in them: a test has to know its law."""

    noise: Noise | None = None


def probabilities(holdings: Holdings, name: str) -> Column:
    """Scores for the truth. Raises `LocalError` for scores that are not probabilities: only those
    can be calibrated."""
    scores = holdings.column(name)
    if not ((scores >= 0) & (scores <= 1)).all():
        raise LocalError(f"column {name!r} has scores that are not probabilities from 0 to 1")
    return scores


def group_of(scores: Column, at: tuple[float, ...]) -> NDArray[np.intp]:
    return np.searchsorted(np.array(at), scores, side="left")


def grouped(scores: Column, positive: NDArray[np.bool], at: tuple[float, ...]) -> Column:
    """One row for each group: predicted positives, observed positives, observed negatives."""
    group, size = group_of(scores, at), len(at) + 1
    sums = [np.bincount(group, each, size) for each in (scores, positive, ~positive)]
    return np.stack(sums, axis=1)


@dataclass(frozen=True)
class Calibration(Shape):
    """The Hosmer–Lemeshow statistic of groups, and their calibration curve.

    `cells` has a row a group, as `grouped`; `floor` is what a predicted count is taken to be at
    the least: the deviation of its noise, so that noise near 0 does not decide the statistic.
    `noise` is that of the cells in fixed point; `fitted` says that the model was fitted to these
    very records.
    """

    upper: list[float]
    cells: Column
    floor: float = 0.0
    noise: Noise | None = None
    fitted: bool = False

    @property
    def predicted(self) -> Column:
        """Positives and negatives of each group."""
        predicted = self.cells[:, 0]
        return np.stack([predicted, self.cells[:, 1:].sum(axis=1) - predicted])

    @property
    def floored(self) -> int:
        """The number of groups in which a predicted count was below the floor."""
        return int((self.predicted < self.floor).any(axis=0).sum())

    @property
    def statistic(self) -> float:
        """Σ (O − E)²/E over both labels; a group that is empty adds nothing."""
        squares = (self.cells[:, 1] - self.cells[:, 0]) ** 2
        least = np.maximum(self.predicted, self.floor)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(squares == 0, 0.0, squares / np.maximum(least, 0.0))
        return float(terms.sum())

    @property
    def held(self) -> NDArray[np.bool]:
        """Marks the groups that are not empty, as far as noise allows to tell."""
        return np.asarray(self.cells[:, 1:].sum(axis=1) > max(self.floor, 0.0))

    @property
    def freedom(self) -> int:
        """Of χ², were there no noise: Q for Q groups that have records, or Q − 2 if the model was
        fitted to these records."""
        return max(int(self.held.sum()) - 2 * self.fitted, 1)

    @cached_property
    def test(self) -> NoisyTest | None:
        """The test that knows of the noise, if there is noise."""
        if self.noise is None:
            return None
        return NoisyTest(self.cells, self.noise, 1 / FIXED_POINT, self.fitted)

    @property
    def p_value(self) -> float:
        """By χ² without noise, and by the null simulated through the noise otherwise."""
        if self.test is not None:
            return self.test.p_value
        from scipy import stats  # parties do not need it

        return float(stats.chi2.sf(self.statistic, self.freedom))

    def noise_part(self) -> float:
        """About how much noise of the floor's size adds to the statistic on average."""
        least = np.maximum(self.predicted, max(self.floor, 1e-9))
        return float((2 * self.floor**2 / least).sum()) if self.floor else 0.0

    def curve(self) -> tuple[Column, Column]:
        """Mean prediction and share of positives of each group, where it is not empty."""
        size, held = self.cells[:, 1:].sum(axis=1), self.held
        shares = (np.clip(self.cells[held, at] / size[held], 0, 1) for at in (0, 1))
        across, up = shares
        return across, up

    def values(self) -> Column:
        return np.array([self.statistic])

    def as_json(self) -> object:
        across, up = self.curve()
        heads, rows = self.table()
        return plain(
            {
                "statistic": self.statistic,
                "degrees_of_freedom": self.freedom,
                "p_value": self.p_value,
                **self._test_as_json(),
                "groups": [dict(zip(heads, row, strict=True)) for row in rows],
                "calibration": {"predicted": across.tolist(), "observed": up.tolist()},
            }
        )

    def _test_as_json(self) -> dict[str, object]:
        if self.test is None:
            return {}
        power = [{"difference": each, "power": self.test.power(each)} for each in DIFFERENCES]
        return {
            "test": {
                "statistic": self.test.statistic,
                "level": LEVEL,
                "power": power,
                "detectable_difference": self.test.detectable,
                "detected_with_power": WANTED_POWER,
            }
        }

    def table(self) -> tuple[Heads, Cells]:
        heads = ["score up to", *COLUMNS, "predicted negatives"]
        rows: Cells = [
            [upper, *(float(cell) for cell in row), float(negatives)]
            for upper, row, negatives in zip(self.upper, self.cells, self.predicted[1], strict=True)
        ]
        return heads, rows

    def draw(self, axes: "Axes", truth: Estimate | None, beside: Beside) -> None:
        axes.plot([0, 1], [0, 1], color=QUIET, lw=0.8, ls=":")
        if isinstance(truth, Calibration):
            axes.plot(*truth.curve(), "s-", color=TRUTH, ms=5, lw=1.2, label="truth")
        told = f"{beside.label}, H = {self.statistic:.4g}, p = {self.p_value:.3g}"
        axes.plot(*self.curve(), "o-", color=PRIVATE, ms=4, lw=1.2, label=told)
        axes.set_xlabel("mean predicted probability of a group")
        axes.set_ylabel("share of positives")

    def __str__(self) -> str:
        return f"{self.statistic:.6g}, p = {self.p_value:.4g}, {int(self.held.sum())} groups"
