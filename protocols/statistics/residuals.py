"""What a residual plot is made of: how far both axes reach, and counts of cells (S2 §4.2).

Coefficients are public, and parties compute residuals by themselves: what they send are counts. A
curator finds bounds by the sparse vector technique; other aggregators release the counts by bound
under noise. Cells are released as they are (`laplace`) or in a hierarchy (`hb`), by any aggregator,
or by DAWA, as S2 has it, by a curator.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.names import look_up
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.measurement import Measurement, OneHot
from tallyroom.protocols.privacy import hb
from tallyroom.protocols.privacy.hierarchy import Hierarchy
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
from tallyroom.protocols.statistics.by_curator import ByCurator
from tallyroom.protocols.statistics.estimates import Cells, Estimate, Rows
from tallyroom.protocols.statistics.legacy import Legacy
from tallyroom.protocols.statistics.ranged import MAX_COLUMNS
from tallyroom.protocols.statistics.residual_estimates import ResidualCounts

METHODS = ("laplace", "hb", "dawa")
MAX_DOUBLINGS = 64
MAX_THRESHOLD = 1 << 32
FIXED_POINT = 1 << 16
"""A curator publishes estimated counts in such parts of 1."""


@dataclass(frozen=True)
class Residuals(Legacy):
    """About y and what coefficients, the intercept first, make of the columns x."""

    x: tuple[str, ...] = ("x",)
    y: str = "y"
    coefficients: tuple[float, ...] = (0.0, 1.0)

    way_of: ClassVar[str] = "residual-plot"

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
        return (*self.x, self.y)

    def points(self, holdings: Holdings) -> tuple[Column, Column]:
        """Fitted values and residuals."""
        return fitted_and_residuals(holdings, self.x, self.y, self.coefficients)


@dataclass(frozen=True)
class ResidualReach(Residuals):
    """How far fitted values and residuals reach, by powers of two of a unit.

    `threshold` is how many records an axis is to hold, for the coordinator to fill in by ε
    (`prirp.lowered`).
    """

    least_reach: float = 1.0
    doublings: int = 32
    threshold: int = 0

    name: ClassVar[str] = "residual-reach"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.doublings <= MAX_DOUBLINGS:
            raise LocalError(f"--doublings is from 1 to {MAX_DOUBLINGS}, not {self.doublings}")
        if not (self.least_reach > 0 and math.isfinite(self.least_reach * 2.0**self.doublings)):
            raise LocalError(f"--least-reach is a positive number, not {self.least_reach:g}")
        if not 0 <= self.threshold <= MAX_THRESHOLD:
            raise LocalError("an axis holds 0 records or more")

    def prepared(self, known: Facts) -> Self:
        if known.record_epsilon is None or self.threshold:
            return self
        scale = self._noise_at_a_bound(known.noises) / float(known.record_epsilon)
        return replace(self, threshold=lowered(known.records, scale))

    def _noise_at_a_bound(self, noises: Fraction) -> float:
        """In parts of 1/ε: that of two counts together, where most of the records lie, each with so
        many noises."""
        return math.sqrt(2 * noises) * self.sensitivity

    @property
    def sizes(self) -> tuple[int, int]:
        """How many counts there are by signed size of fitted values, and by size of residuals."""
        return 2 * self.doublings + 1, self.doublings + 1

    @property
    def length(self) -> int:
        return sum(self.sizes)

    @property
    def sensitivity(self) -> int:
        """On each axis a replaced record leaves one count and enters another."""
        return 4

    def encode(self, holdings: Holdings) -> Vector:
        fitted, residuals = self.points(holdings)
        ways = (
            signed_size_of(fitted, self.least_reach, self.doublings),
            size_of(residuals, self.least_reach, self.doublings),
        )
        counts = zip(ways, self.sizes, strict=True)
        return np.concatenate([holdings.count_by_party(*each) for each in counts], axis=1)

    def within(self, total: Vector) -> list[Vector]:
        """How many records lie within each bound: of fitted values, and of residuals."""
        axes = np.split(total, [self.sizes[0]])
        return [within(each, self.doublings) for each in axes]

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        return self._first(released, self.threshold or wanted(records))

    def _first(self, total: Vector, threshold: int) -> Estimate:
        return self._told(*(first_within(signed(each), threshold) for each in self.within(total)))

    def reference(self, holdings: Holdings) -> Estimate:
        total = self.encode(holdings).sum(axis=0, dtype=np.uint64)
        return self._first(total, wanted(holdings.rows))

    def _told(self, across: int, up: int) -> Estimate:
        """Where an index is beyond all bounds, the widest is taken."""
        last = len(SHAPES) * self.doublings - 1, self.doublings - 1
        across, up = (min(max(at, 0), end) for at, end in zip((across, up), last, strict=True))
        fitted, reach = axis_at(across, self.least_reach), reach_at(up, self.least_reach)
        rows: Cells = [["fitted", *fitted], ["residual", -reach, reach]]
        return Rows(["axis", "lower", "upper"], rows)

    def deviations(self, noise_variance: float, records: int) -> Column:
        return np.full(4, np.nan)


@dataclass(frozen=True)
class CuratedReach(ByCurator, ResidualReach):
    """The same by a curator, with the sparse vector technique: S2's Algorithm 2."""

    name: ClassVar[str] = "residual-reach-curated"

    def _noise_at_a_bound(self, noises: Fraction) -> float:
        return sum(REACH_UNITS)

    @property
    def tables(self) -> tuple[int, ...]:
        return self.sizes

    @property
    def released(self) -> int:
        return 2

    def published(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector:
        threshold = self.threshold or wanted(int(total[: self.sizes[0]].sum()))
        scores = [signed(each) for each in self.within(total)]
        found = private_reaches(scores, threshold, epsilon, randomness)
        return np.array(found, dtype=np.uint64)

    def published_words(self, epsilon: Fraction, delta: float) -> str:
        scale = sum(REACH_UNITS) / float(epsilon)
        return (
            "sparse vector technique on counts within growing bounds, geometric noise of scale "
            f"{scale:.6g}: 3/5 of ε for fitted values, 2/5 for residuals"
        )

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        if exact:
            return super().decode(released, records, exact)
        across, up = signed(released).tolist()
        return self._told(across, up)


@dataclass(frozen=True)
class ResidualCells(Residuals):
    """Counts of cells by fitted value and residual.

    `side` is for the coordinator to fill in where nobody chose it, by the number of records and by
    the study's ε, of which this question has a `part`.
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
        look_up("method", self.method, dict.fromkeys(METHODS))
        if self.method == "dawa" and not self.curated:
            raise LocalError("DAWA needs exact counts: --aggregator curator")
        if not (self.residual_reach > 0 and math.isfinite(2 * self.residual_reach)):
            raise LocalError(
                f"an axis reaches a positive finite number, not {self.residual_reach:g}"
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

    @cached_property
    def grid(self) -> PlotGrid:
        fitted = self.fitted_lower, self.fitted_upper
        return PlotGrid(fitted, self.residual_reach, self.side or SIDES[0])

    def prepared(self, known: Facts) -> Self:
        if self.side:
            return self
        whole = None if known.epsilon is None else float(known.epsilon) / self.part
        return replace(self, side=side_for(known.records, whole))

    @cached_property
    def hierarchy(self) -> Hierarchy | None:
        """Over the cells; None where they are released as they are."""
        return hb.line(self.grid.cells) if self.method == "hb" else None

    @property
    def length(self) -> int:
        return self.grid.cells

    @property
    def sensitivity(self) -> int:
        return 2 if self.hierarchy is None else self.hierarchy.sensitivity

    @property
    def released(self) -> int:
        return self.length if self.hierarchy is None else self.hierarchy.nodes

    @property
    def noises(self) -> int:
        return self.released

    @property
    def measures(self) -> bool:
        return self.hierarchy is not None

    def measure(self, total: Vector) -> Vector:
        if self.hierarchy is None:
            return total
        return self.hierarchy.node_counts(np.cumsum(total, dtype=np.uint64))

    @property
    def measurement(self) -> Measurement | None:
        return OneHot(self.length) if self.hierarchy is None else None

    def measured(self, holdings: Holdings) -> NDArray[np.int64]:
        return self.grid.cell_of(*self.points(holdings))

    def encode(self, holdings: Holdings) -> Vector:
        return holdings.count_by_party(self.measured(holdings), self.length)

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        found = signed(released).astype(np.float64)
        if self.hierarchy is not None and not exact:
            found = self.hierarchy.cell_counts(found, records)
        return ResidualCounts.of(self.grid, found, records)

    def reference(self, holdings: Holdings) -> Estimate:
        counts = self.grid.counts(*self.points(holdings))
        return ResidualCounts.of(self.grid, counts.astype(np.float64), holdings.rows)

    def deviations(self, noise_variance: float, records: int) -> Column:
        """Of cells that are released one by one; not known of those by a hierarchy."""
        known = math.sqrt(noise_variance) if self.hierarchy is None else math.nan
        return np.full(self.grid.side**2, known)

    def mechanism_words(self, scale: float) -> str:
        what = "cells" if self.hierarchy is None else "blocks of cells along Hilbert's curve"
        return f"discrete Laplace of scale {scale:.6g} on {self.noises} counts of {what}"


@dataclass(frozen=True)
class CuratedCells(ByCurator, ResidualCells):
    """The same by a curator, with both stages of DAWA: S2's own cells."""

    method: str = "dawa"

    name: ClassVar[str] = "residual-cells-curated"

    @property
    def released(self) -> int:
        return self.length

    @property
    def sensitivity(self) -> int:
        """In no metric: DAWA has its own. Above 0, so that there is noise."""
        return 1

    def published(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector:
        cells = dawa_counts(signed(total), epsilon, randomness)
        return np.rint(cells * FIXED_POINT).astype(np.int64).view(np.uint64)

    def published_words(self, epsilon: Fraction, delta: float) -> str:
        return "DAWA on cells along Hilbert's curve, a quarter of ε for its partition"

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        cells = signed(released).astype(np.float64)
        return ResidualCounts.of(self.grid, cells if exact else cells / FIXED_POINT, records)

    def deviations(self, noise_variance: float, records: int) -> Column:
        return np.full(self.grid.side**2, np.nan)


def fitted_and_residuals(
    holdings: Holdings, x: tuple[str, ...], y: str, coefficients: tuple[float, ...]
) -> tuple[Column, Column]:
    """What overflows, or is no number to begin with, is infinite or NaN, and outside of any plot: a
    party that refused it would tell, without noise, which of its values exceed what coefficients
    are chosen for.
    """
    fitted = np.full(holdings.rows, coefficients[0])
    with np.errstate(over="ignore", invalid="ignore"):
        for name, slope in zip(x, coefficients[1:], strict=True):
            fitted = fitted + slope * holdings.column(name)
        return fitted, holdings.column(y) - fitted
