"""The questions of a residual plot: how far both axes reach, and counts of cells (S2 §4.2).

Coefficients are public; parties compute residuals by themselves, and send counts. A curator, or two
servers together, find bounds by the sparse vector technique; other aggregators release the counts
by bound under noise. Any aggregator releases cells as they are (`laplace`) or in a hierarchy
(`hb`); a curator can release them by DAWA, as in S2.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.joint.above_threshold import FirstAbove
from tallyroom.protocols.plans.contract import (
    Curated,
    CuratorMechanism,
    EncodedRecords,
    Integers,
    NoisyChoice,
    NoisySum,
    Plan,
    Strategy,
)
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.measurement import Measurement
from tallyroom.protocols.plans.tables import CountedCells, Tables
from tallyroom.protocols.privacy import hb
from tallyroom.protocols.privacy.hierarchy import Hierarchy
from tallyroom.protocols.privacy.noise_law import NoiseLaw, Sensitivity
from tallyroom.protocols.privacy.prirp import (
    REACH_UNITS,
    SHAPES,
    SIDES,
    PlotGrid,
    axis_at,
    dawa_counts,
    first_within,
    lowered,
    private_reaches,
    reach_at,
    side_for,
    signed_size_of,
    size_of,
    wanted,
    within,
)
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.statistics.bounded import MAX_COLUMNS
from tallyroom.protocols.statistics.choices import UNSURE
from tallyroom.protocols.statistics.contract import Bounds, Statistic
from tallyroom.protocols.statistics.estimates import Cells, Estimate, Rows
from tallyroom.protocols.statistics.first_above import words_of
from tallyroom.protocols.statistics.release import Answer, Release
from tallyroom.protocols.statistics.residual_estimates import ResidualCounts

METHODS = ("laplace", "hb", "dawa")
MAX_DOUBLINGS = 64
FIXED_POINT = 1 << 16
"""A curator publishes estimated counts in multiples of 1/`FIXED_POINT`."""
ANY: Bounds = (-math.inf, math.inf)


@dataclass(frozen=True)
class LinearModel:
    """Predicts y from the columns x by coefficients, the intercept's first."""

    x: tuple[str, ...]
    y: str
    coefficients: tuple[float, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.x, self.y)

    def points(self, holdings: Holdings) -> tuple[Column, Column]:
        """Fitted values and residuals. A record that overflows, or has a cell that is not a number,
        is infinite or NaN, and lies outside any plot: a party that refused it would reveal, without
        noise, that its values exceed what the coefficients were chosen for."""
        intercept, *slopes = self.coefficients
        fitted = np.full(holdings.rows, intercept)
        with np.errstate(over="ignore", invalid="ignore"):
            for name, slope in zip(self.x, slopes, strict=True):
                fitted = fitted + slope * holdings.column(name)
            return fitted, holdings.column(self.y) - fitted


@dataclass(frozen=True)
class ModelTables(Tables):
    """Tables of fitted values and residuals."""

    model: LinearModel

    @property
    def columns(self) -> tuple[str, ...]:
        return self.model.columns


@dataclass(frozen=True)
class Residuals(Statistic):
    """A question about the residuals of a linear model, whose coefficients are public."""

    x: tuple[str, ...] = ("x",)
    y: str = "y"
    coefficients: tuple[float, ...] = (0.0, 1.0)

    part_of: ClassVar[str] = "residual-plot"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(self.x) < MAX_COLUMNS:
            raise LocalError(f"a model has 1 to {MAX_COLUMNS - 1} columns, not {len(self.x)}")
        if len(self.coefficients) != len(self.x) + 1:
            raise LocalError(
                f"{len(self.x)} columns have {len(self.x) + 1} coefficients, the intercept "
                f"first, not {len(self.coefficients)}"
            )
        if not all(map(math.isfinite, self.coefficients)):
            raise LocalError("coefficients are finite numbers")

    @property
    def columns(self) -> tuple[str, ...]:
        return self.model.columns

    @property
    def model(self) -> LinearModel:
        return LinearModel(self.x, self.y, tuple(map(float, self.coefficients)))


# --- how far the axes reach ---


@dataclass(frozen=True)
class Sizes(ModelTables):
    """Fitted values by signed size and residuals by size, in powers of two of a unit."""

    least_reach: float
    doublings: int

    @property
    def sizes(self) -> tuple[int, ...]:
        return 2 * self.doublings + 1, self.doublings + 1

    def cells_of(self, holdings: Holdings) -> list[Integers]:
        fitted, residuals = self.model.points(holdings)
        unit = self.least_reach, self.doublings
        return [signed_size_of(fitted, *unit), size_of(residuals, *unit)]


def within_bounds(total: Vector, doublings: int) -> list[Vector]:
    """The number of records within each bound of fitted values, and within each bound of
    residuals."""
    return [within(each, doublings) for each in np.split(total, [2 * doublings + 1])]


@dataclass(frozen=True)
class BoundsInTurn(CuratorMechanism):
    """The first bounds that hold so many records, by the sparse vector technique: S2's
    Algorithm 2."""

    doublings: int
    threshold: int

    @property
    def released(self) -> int:
        return 2

    def publish(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector:
        scores = [signed(each) for each in within_bounds(total, self.doublings)]
        found = private_reaches(scores, self.threshold, epsilon, randomness)
        return np.array(found, dtype=np.uint64)

    def words(self, epsilon: Fraction, delta: float) -> str:
        scale = sum(REACH_UNITS) / float(epsilon)
        return (
            "sparse vector technique on counts within growing bounds, geometric noise of scale "
            f"{scale:.6g}: 3/5 of ε for fitted values, 2/5 for residuals"
        )

    def numeric_delta(self, delta: float) -> float:
        return 0.0


@dataclass(frozen=True)
class BoundsAlike:
    """Counts within bounds, as many for both searches. After those of residuals come empty ones,
    which stand for the widest bound, as if none were above."""

    doublings: int

    def measure(self, total: Vector) -> Vector:
        fitted, residuals = within_bounds(total, self.doublings)
        return np.concatenate([fitted, np.pad(residuals, (0, len(fitted) - len(residuals)))])


@dataclass(frozen=True)
class ResidualReach(Residuals):
    """How far fitted values and residuals reach, by powers of two of a unit."""

    least_reach: float = 1.0
    doublings: int = 32

    name: ClassVar[str] = "residual-reach"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.doublings <= MAX_DOUBLINGS:
            raise LocalError(f"--doublings is from 1 to {MAX_DOUBLINGS}, not {self.doublings}")
        if not (self.least_reach > 0 and math.isfinite(self.least_reach * 2.0**self.doublings)):
            raise LocalError(f"--least-reach is a positive number, not {self.least_reach:g}")

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.model, float(self.least_reach), self.doublings)

    def plan(self, facts: Facts) -> Plan:
        """The noise at a bound is that of two counts together, where most of the records lie."""
        sizes = self.sizes
        bar = lowered_bar(facts, math.sqrt(2 * facts.noises) * sizes.sensitivity.l1)
        return NoisySum(sizes, CountedCells.of(sizes, threshold=bar))

    def read(self, release: Release) -> Answer:
        match release.plan:
            case NoisyChoice(rule=rule):
                across, up = release.chosen(rule.candidates + 1).tolist()
                return release.without_errors(self._told(across, up), UNSURE)
            case Curated() if not release.exact:
                across, up = release.integers.tolist()
                return release.without_errors(self._told(across, up))
            case (
                NoisySum(strategy=CountedCells(threshold=bar))
                | Curated(mechanism=BoundsInTurn(threshold=bar))
            ):
                return release.without_errors(
                    self._first(release.values, bar or wanted(release.records))
                )
        raise LocalError(f"{self.name} cannot be read off this plan")

    def reference(self, holdings: Holdings) -> Estimate:
        total = self.sizes.encode(holdings).sum(axis=0, dtype=np.uint64)
        return self._first(total, wanted(holdings.rows))

    def _first(self, total: Vector, threshold: int) -> Estimate:
        scores = within_bounds(total, self.doublings)
        return self._told(*(first_within(signed(each), threshold) for each in scores))

    def _told(self, across: int, up: int) -> Estimate:
        """The axes at these indices; an index beyond all bounds stands for the widest."""
        last = len(SHAPES) * self.doublings - 1, self.doublings - 1
        across, up = (min(max(at, 0), end) for at, end in zip((across, up), last, strict=True))
        fitted, reach = axis_at(across, self.least_reach), reach_at(up, self.least_reach)
        rows: Cells = [["fitted", *fitted], ["residual", -reach, reach]]
        return Rows(["axis", "lower", "upper"], rows)


def lowered_bar(facts: Facts, noise: float) -> int:
    """The number of records that an axis must hold if the noise at a bound is `noise`/ε; 0 without
    noise."""
    if facts.record_epsilon is None:
        return 0
    return lowered(facts.records, noise / float(facts.record_epsilon))


@dataclass(frozen=True)
class CuratedReach(ResidualReach):
    """The reach, found by a curator with the sparse vector technique: S2's Algorithm 2."""

    name: ClassVar[str] = "residual-reach-curated"

    def plan(self, facts: Facts) -> Plan:
        bar = lowered_bar(facts, sum(REACH_UNITS))
        return Curated(self.sizes, BoundsInTurn(self.doublings, bar))


@dataclass(frozen=True)
class JointReach(ResidualReach):
    """The reach that a curator would find, found by two servers."""

    name: ClassVar[str] = "residual-reach-joint"

    def plan(self, facts: Facts) -> Plan:
        """Counts of fitted values move either way, as for a curator."""
        units = sum(REACH_UNITS)
        bar = lowered_bar(facts, units) or wanted(facts.records)
        rule = FirstAbove(len(SHAPES) * self.doublings, facts.records, (bar, bar))
        return NoisyChoice(self.sizes, rule, units, BoundsAlike(self.doublings), words_of(2))


# --- cells ---


@dataclass(frozen=True)
class PlotCells(ModelTables):
    """The cell of a plot that a record is in. Where they are released in `blocks`, a record is no
    single cell to proofs and local randomizers."""

    grid: PlotGrid
    blocks: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.grid.cells,)

    def cells_of(self, holdings: Holdings) -> list[Integers]:
        return [self.grid.cell_of(*self.model.points(holdings))]

    @property
    def measurement(self) -> Measurement | None:
        return None if self.blocks else super().measurement


@dataclass(frozen=True)
class Blocks(Strategy):
    """Counts of blocks of cells along Hilbert's curve, in a hierarchy (HB)."""

    cells: int

    @cached_property
    def hierarchy(self) -> Hierarchy:
        return hb.line(self.cells)

    @property
    def sensitivity(self) -> Sensitivity:
        return self.hierarchy.sensitivity

    @property
    def noises(self) -> int:
        return self.hierarchy.nodes

    @property
    def released(self) -> int:
        return self.hierarchy.nodes

    def measure(self, total: Vector) -> Vector:
        return self.hierarchy.node_counts(np.cumsum(total, dtype=np.uint64))

    def place(self, noise: Vector) -> Vector:
        return noise

    def words(self, law: NoiseLaw) -> str:
        return f"{law.words()} on {self.noises} counts of blocks of cells along Hilbert's curve"


@dataclass(frozen=True)
class DawaCells(CuratorMechanism):
    """S2's own cells, by both stages of DAWA, in parts of 1/`FIXED_POINT`."""

    cells: int

    @property
    def released(self) -> int:
        return self.cells

    def publish(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector:
        cells = dawa_counts(signed(total), epsilon, randomness)
        return np.rint(cells * FIXED_POINT).astype(np.int64).view(np.uint64)

    def words(self, epsilon: Fraction, delta: float) -> str:
        return "DAWA on cells along Hilbert's curve, a quarter of ε for its partition"

    def numeric_delta(self, delta: float) -> float:
        return 0.0


@dataclass(frozen=True)
class ResidualCells(Residuals):
    """Counts of cells by fitted value and residual.

    Where no `side` is given it follows from the number of records and from the study's ε, of which
    this question has a `part`.
    """

    fitted_lower: float = -1.0
    fitted_upper: float = 1.0
    residual_reach: float = 1.0
    method: str = "laplace"
    side: int = 0
    part: float = 1.0

    name: ClassVar[str] = "residual-cells"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_method()
        if not (self.residual_reach > 0 and math.isfinite(2 * self.residual_reach)):
            raise LocalError(
                f"the reach of residuals must be positive and finite, not {self.residual_reach:g}"
            )
        width = self.fitted_upper - self.fitted_lower
        if not (width > 0 and math.isfinite(width)):
            raise LocalError(
                "fitted values have an axis of positive finite length, not from "
                f"{self.fitted_lower:g} to {self.fitted_upper:g}"
            )
        if self.side and not SIDES[0] <= self.side <= SIDES[1]:
            raise LocalError(f"--side is from {SIDES[0]} to {SIDES[1]}, not {self.side}")
        if not 0 < self.part <= 1:
            raise LocalError("a question's part of ε is above 0 and at most 1")

    def _check_method(self) -> None:
        look_up("method", self.method, dict.fromkeys(METHODS))
        if self.method == "dawa":
            raise LocalError("DAWA needs exact counts: --aggregator curator")

    def grid(self, records: int, epsilon: Fraction | None) -> PlotGrid:
        whole = None if epsilon is None else float(epsilon) / self.part
        fitted = float(self.fitted_lower), float(self.fitted_upper)
        return PlotGrid(fitted, float(self.residual_reach), self.side or side_for(records, whole))

    def plan(self, facts: Facts) -> Plan:
        grid, blocks = self.grid(facts.records, facts.epsilon), self.method == "hb"
        cells = PlotCells(self.model, grid, blocks)
        one_by_one = CountedCells.of(cells, counted="counts of cells")
        return NoisySum(cells, Blocks(cells.length) if blocks else one_by_one)

    def read(self, release: Release) -> Answer:
        """Errors are known only for cells that are released one by one."""
        plan, noise, found = release.plan, release.noise, release.integers.astype(np.float64)
        if not (isinstance(plan, EncodedRecords) and isinstance(plan.encoding, PlotCells)):
            raise LocalError(f"{self.name} cannot be read off this plan")
        grid = plan.encoding.grid
        match plan:
            case NoisySum(strategy=Blocks(hierarchy=hierarchy)) if noise is not None:
                found = hierarchy.cell_counts(found, release.records)
            case Curated() if noise is not None:
                found = found / FIXED_POINT
            case NoisySum() if noise is not None:
                told = ResidualCounts.of(grid, found, release.records)
                deviations = noise.deviations(grid.side**2)
                interval = Interval.around(told.values(), deviations, noise.width(), ANY)
                foretold = noise.law_is_public and noise.variances is None
                return Answer(told, interval, release.records, foretold=foretold)
        return release.without_errors(ResidualCounts.of(grid, found, release.records))

    def reference(self, holdings: Holdings) -> Estimate:
        grid = self.grid(holdings.rows, None)
        counts = grid.counts(*self.model.points(holdings))
        return ResidualCounts.of(grid, counts.astype(np.float64), holdings.rows)


@dataclass(frozen=True)
class CuratedCells(ResidualCells):
    """S2's own cells, released by a curator with both stages of DAWA."""

    method: str = "dawa"

    name: ClassVar[str] = "residual-cells-curated"

    def _check_method(self) -> None:
        if self.method != "dawa":
            raise LocalError(f"a curator counts cells by DAWA, not by {self.method}")

    def plan(self, facts: Facts) -> Plan:
        cells = PlotCells(self.model, self.grid(facts.records, facts.epsilon))
        return Curated(cells, DawaCells(cells.length))
