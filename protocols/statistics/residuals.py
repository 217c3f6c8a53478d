"""What a residual plot is made of: how far both axes reach, and counts of cells (S2 §4.2).

Coefficients are public, and parties compute residuals by themselves: what they send are counts. A
curator finds bounds by the sparse vector technique and cells by DAWA; other aggregators release the
counts by bound under noise, and cells by a linear measurement: as they are (`laplace`), in a
hierarchy (`hb`), or in buckets that follow an earlier release (`dawa`).
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from protocols.algebra.ring import Vector, signed
from protocols.errors import LocalError
from protocols.names import look_up
from protocols.privacy.dawa import Buckets
from protocols.privacy.prirp import (
    SIDES,
    PlotGrid,
    bound_of,
    dawa_counts,
    first_bound,
    private_bound,
    side_for,
)
from protocols.randomness import Randomness
from protocols.records import Column, Holdings
from protocols.statistics.by_curator import ByCurator
from protocols.statistics.contract import Circumstances, Statistic
from protocols.statistics.estimates import Estimate, Rows
from protocols.statistics.measurement import Measurement, OneHot
from protocols.statistics.ranged import MAX_COLUMNS
from protocols.statistics.residual_estimates import ResidualCounts

METHODS = ("dawa", "hb", "laplace")
MAX_DOUBLINGS = 64
FIXED_POINT = 1 << 16
"""A curator publishes estimated counts in such parts of 1."""


@dataclass(frozen=True)
class Residuals(Statistic):
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

    def deviations(self, noise_variance: float, records: int) -> Column:
        return np.full(2, np.nan)


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
    def length(self) -> int:
        return 2 * (self.doublings + 1)

    @property
    def sensitivity(self) -> int:
        """On each axis a replaced record leaves one count and enters another."""
        return 4

    def encode(self, holdings: Holdings) -> Vector:
        width = self.doublings + 1
        axes = [holdings.count_by_party(each, width) for each in self._bounds(holdings)]
        return np.concatenate(axes, axis=1)

    def _bounds(self, holdings: Holdings) -> list[NDArray[np.int64]]:
        """Of each record, for fitted values and for residuals."""
        points = self.points(holdings)
        return [bound_of(each, self.least_reach, self.doublings) for each in points]

    def _axes(self, total: Vector) -> NDArray[np.int64]:
        return signed(total).reshape(2, -1)

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        return self._told([first_bound(each, records) for each in self._axes(released)])

    def reference(self, holdings: Holdings) -> Estimate:
        found = self._bounds(holdings)
        counted = (np.bincount(each, minlength=self.doublings + 1) for each in found)
        return self._told([first_bound(each, holdings.rows) for each in counted])

    def _told(self, bounds: list[int]) -> Estimate:
        reaches = [
            math.ldexp(self.least_reach, min(max(at, 0), self.doublings - 1)) for at in bounds
        ]
        return Rows(["axis", "reach"], [["fitted", reaches[0]], ["residual", reaches[1]]])


@dataclass(frozen=True)
class CuratedReach(ByCurator, ResidualReach):
    """The same by a curator, with the sparse vector technique: S2's Algorithm 2."""

    name: ClassVar[str] = "residual-reach-curated"

    @property
    def tables(self) -> tuple[int, ...]:
        return (self.doublings + 1,) * 2

    @property
    def released(self) -> int:
        return 2

    def published(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector:
        bounds = [private_bound(each, epsilon / 2, randomness) for each in self._axes(total)]
        return np.array(bounds, dtype=np.uint64)

    def published_words(self, epsilon: Fraction, delta: float) -> str:
        return "sparse vector technique on counts within growing bounds, ε/2 on each axis"

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        if exact:
            return super().decode(released, records, exact)
        return self._told([int(each) for each in signed(released)])


@dataclass(frozen=True)
class ResidualCells(Residuals):
    """Counts of cells by fitted value and residual.

    `side` is for the coordinator to fill in where nobody chose it, by the number of records and by
    the study's ε, of which this question has a `part`. `lengths` are those of DAWA's buckets.
    """

    fitted_reach: float = 1.0
    residual_reach: float = 1.0
    method: str = "laplace"
    side: int = 0
    part: float = 1.0
    lengths: tuple[float, ...] = ()

    name: ClassVar[str] = "residual-cells"

    def __post_init__(self) -> None:
        super().__post_init__()
        look_up("method", self.method, dict.fromkeys(METHODS))
        for reach in (self.fitted_reach, self.residual_reach):
            if not (reach > 0 and math.isfinite(2 * reach)):
                raise LocalError(f"an axis reaches a positive finite number, not {reach:g}")
        if self.side and not SIDES[0] <= self.side <= SIDES[1]:
            raise LocalError(f"--side is from {SIDES[0]} to {SIDES[1]}, not {self.side}")
        if not 0 < self.part <= 1:
            raise LocalError("a question's part of ε is above 0 and at most 1")
        self._check_buckets()

    def _check_buckets(self) -> None:
        """One bucket would hold all records, whose number is public: nothing is left to measure."""
        if not self.lengths:
            return
        whole = all(each >= 1 and each == int(each) for each in self.lengths)
        if self.method != "dawa" or not self.side or not whole or len(self.lengths) < 2:
            raise LocalError("buckets are of DAWA, two or more of whole lengths, with a side")
        if sum(self.lengths) != self.grid.cells:
            raise LocalError(f"buckets hold {self.grid.cells} cells")

    @cached_property
    def grid(self) -> PlotGrid:
        return PlotGrid(self.fitted_reach, self.residual_reach, self.side or SIDES[0])

    def prepared(self, known: Circumstances) -> Self:
        if self.side:
            return self
        whole = None if known.epsilon is None else float(known.epsilon) / self.part
        return replace(self, side=side_for(known.records, whole))

    @cached_property
    def buckets(self) -> Buckets | None:
        """What is measured; None for the cells as they are."""
        if self.method == "laplace":
            return None
        lengths = self.lengths or (1,) * self.grid.cells
        return Buckets(np.array(lengths, dtype=np.int64))

    @property
    def length(self) -> int:
        return self.grid.cells

    @property
    def sensitivity(self) -> int:
        return 2 if self.buckets is None else self.buckets.sensitivity

    @property
    def released(self) -> int:
        return self.length if self.buckets is None else self.buckets.hierarchy.nodes

    @property
    def noises(self) -> int:
        return self.released

    @property
    def measures(self) -> bool:
        return self.buckets is not None

    def measure(self, total: Vector) -> Vector:
        return total if self.buckets is None else self.buckets.measure(total)

    @property
    def measurement(self) -> Measurement | None:
        return OneHot(self.length) if self.buckets is None else None

    def measured(self, holdings: Holdings) -> NDArray[np.int64]:
        return self.grid.cell_of(*self.points(holdings))

    def encode(self, holdings: Holdings) -> Vector:
        return holdings.count_by_party(self.measured(holdings), self.length)

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        found = signed(released).astype(np.float64)
        if self.buckets is not None and not exact:
            found = self.buckets.estimate(found, records)
        return self._told(found)

    def _told(self, cells: Column) -> ResidualCounts:
        return ResidualCounts(self.grid, self.grid.grid(cells), cells)

    def reference(self, holdings: Holdings) -> Estimate:
        return self._told(self.grid.counts(*self.points(holdings)).astype(np.float64))

    def deviations(self, noise_variance: float, records: int) -> Column:
        """Of cells that are released one by one; not known of buckets, which are spread evenly."""
        known = math.sqrt(noise_variance) if self.buckets is None else math.nan
        return np.full(self.grid.side**2, known)

    def mechanism_words(self, scale: float) -> str:
        kinds = {"laplace": "cells", "hb": "blocks of cells", "dawa": "buckets of cells"}
        return (
            f"discrete Laplace of scale {scale:.6g} on {self.noises} counts of "
            f"{kinds[self.method]} along Hilbert's curve"
        )


@dataclass(frozen=True)
class CuratedCells(ByCurator, ResidualCells):
    """The same by a curator, with both stages of DAWA."""

    name: ClassVar[str] = "residual-cells-curated"

    @property
    def buckets(self) -> None:
        return None

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
        return self._told(cells if exact else cells / FIXED_POINT)

    def deviations(self, noise_variance: float, records: int) -> Column:
        return np.full(self.grid.side**2, np.nan)


def fitted_and_residuals(
    holdings: Holdings, x: tuple[str, ...], y: str, coefficients: tuple[float, ...]
) -> tuple[Column, Column]:
    """Raises `LocalError` for values that are no finite numbers.

    What overflows is infinite or NaN, and outside of any plot: a party that refused it would tell,
    without noise, which of its values exceed what coefficients are chosen for.
    """
    if not all(np.isfinite(holdings.column(name)).all() for name in (*x, y)):
        raise LocalError(f"columns {', '.join((*x, y))} have values that are not finite numbers")
    fitted = np.full(holdings.rows, coefficients[0])
    with np.errstate(over="ignore", invalid="ignore"):
        for name, slope in zip(x, coefficients[1:], strict=True):
            fitted = fitted + slope * holdings.column(name)
        return fitted, holdings.column(y) - fitted
