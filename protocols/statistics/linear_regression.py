"""Linear regression from noisy sufficient statistics: one release, by any aggregator of sums.

Every column v is clipped to its public bounds and scaled to z = (v − middle)/half within [−1, 1].
The sums of all z_i, z_i² and z_i·z_j are released under discrete Laplace noise; everything else is
post-processing (Vu and Slavkovic 2009; Wang, "Revisiting differentially private linear regression",
2018, who adds noise to the same sums).

**Sensitivity.** With w = (1, z) of d + 1 entries, the off-diagonal part, the sum over i < j of
|w_i w_j − w'_i w'_j|, is convex in each z_i and each z'_i by itself, so it is largest where all are
±1. There a term is 2 if exactly one of w_i, w_j changes its sign, and k changed signs of d + 1 make
k(d + 1 − k) such terms: 2⌊(d + 1)²/4⌋ at most. The squares add at most 1 each. Together that is
2⌊(d + 1)²/4⌋ + d, where bounding every sum by itself gives d² + 2d.

**Standard errors.** β = A⁻¹b solves the noisy normal equations; noise (E, e) on (A, b) moves it by
A⁻¹(e − Eβ) to first order, whose covariance is known exactly, and the sampling of records by the
usual σ²A⁻¹. Intervals of the noise have the first, of the population both. Directions in which the
columns spread less than noise alone would show are taken to spread that much, which shrinks their
coefficients: the result says so.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Encoding, NoisySum, PlainSum
from tallyroom.protocols.plans.encodings import sum_by_party
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.scaled import ScaledColumn
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import MAX_COLUMNS, Ranged, finite_column
from tallyroom.protocols.statistics.coefficients import Coefficients
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.option import RELATIONS, role
from tallyroom.protocols.statistics.release import ANYWHERE, Answer, Noise, Release

Matrix = NDArray[np.float64]

STEPS = 1 << 18
"""Steps of the grid from the middle of a column's range to either end."""
MAX_RECORDS = 1 << 26
"""Sums of products of two columns, 2^36 a record, stay within the ring, noise included."""
COLLINEAR = 1e-9
"""Without noise, a smaller mean square of columns scaled to [−1, 1] is taken for 0."""


@dataclass(frozen=True)
class Products(Encoding):
    """Products of two entries of w = (1, z), all but 1·1, on a grid of `STEPS`² in 1."""

    scaled: tuple[ScaledColumn, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.scaled)

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The indices of both factors of each product."""
        rows, columns = np.triu_indices(len(self.scaled) + 1)
        return rows[1:], columns[1:]

    @property
    def length(self) -> int:
        return len(self.pairs[0])

    @property
    def sensitivity(self) -> Sensitivity:
        """A product of two entries is furthest from another at the corners of the range, where it
        moves by 2 if one of its entries changes its sign: ⌊(d + 1)²/4⌋ products at most. A square
        moves by 1 at most."""
        d = len(self.scaled)
        crossed = (d + 1) ** 2 // 4
        return Sensitivity((2 * crossed + d) * STEPS**2, (4 * crossed + d) * STEPS**4)

    def encode(self, holdings: Holdings) -> Vector:
        whole = np.full((holdings.rows, len(self.scaled) + 1), STEPS, dtype=np.int64)
        for at, each in enumerate(self.scaled, start=1):
            whole[:, at] = np.rint(each.of(holdings) * STEPS)
        rows, columns = self.pairs
        return sum_by_party((whole[:, rows] * whole[:, columns]).view(np.uint64), holdings)

    @property
    def measurement(self) -> None:
        return None

    @property
    def grid_step(self) -> float:
        return max(each.half for each in self.scaled) / STEPS

    @property
    def grid_words(self) -> str:
        return f"columns are rounded to {STEPS} steps from the middle of their range to its ends"


@dataclass(frozen=True)
class LinearRegression(Ranged):
    """Coefficients of y on the columns x by least squares, with standard errors."""

    x: tuple[str, ...] = role(("x",), "A column that predicts; repeat it for more.", bounded=True)
    y: str = role("y", "The column that is predicted.", bounded=True)

    name: ClassVar[str] = "linear-regression"
    topic: ClassVar[str] = RELATIONS
    style: ClassVar[Style] = Style("marks", "coefficient", "")

    def __post_init__(self) -> None:
        if not self.x or len(set(self.columns)) != len(self.columns):
            raise LocalError("--x names one column or more, each once, and none of them is --y")
        if len(self.columns) > MAX_COLUMNS:
            raise LocalError(f"a regression takes at most {MAX_COLUMNS} columns")
        super().__post_init__()

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.x, self.y)

    @property
    def terms(self) -> list[str]:
        return ["intercept", *self.x]

    def plan(self, facts: Facts) -> NoisySum:
        if facts.records > MAX_RECORDS:
            raise LocalError(f"{self.name} takes up to {MAX_RECORDS} records, not {facts.records}")
        products = Products(self.scaled)
        sums = "columns within [-1, 1] and of their products"
        strategy = PlainSum.of(products, unit=STEPS**-2, summed=sums)
        return NoisySum(products, strategy)

    def read(self, release: Release) -> Answer:
        fit = self._fit(release)
        values, sampling = self._unscale(fit.beta), self._errors(fit.sampling)
        residual = self.scaling[1][-1] * math.sqrt(fit.residual_variance)
        estimate = Coefficients(
            self.y, self.terms, values.tolist(), sampling.tolist(), residual, fit.weak
        )
        if (noise := release.noise) is None:
            population = Interval.sampled(values, None, sampling, ANYWHERE)
            return Answer(estimate, None, release.records, foretold=True, population=population)
        drawn = self._errors(fit.noise(noise.variance / STEPS**4))
        interval = Interval.around(values, drawn, noise.width(), ANYWHERE)
        population = Interval.sampled(values, interval, sampling, ANYWHERE)
        return Answer(estimate, interval, release.records, population=population)

    def _fit(self, release: Release) -> "Fit":
        if release.records <= len(self.terms):
            raise LocalError(
                f"{len(self.terms)} coefficients need more than {release.records} records"
            )
        gram = np.zeros((len(self.columns) + 1,) * 2)
        gram[Products(self.scaled).pairs] = release.integers / STEPS**2
        gram = gram + np.triu(gram, 1).T
        gram[0, 0] = release.records
        if release.noise is None:
            self._check_spread(_centred(gram)[:-1, :-1] / release.records)
            return Fit.of(gram, 0.0)
        return Fit.of(gram, self._least_spread(release.noise))

    def _least_spread(self, noise: Noise) -> float:
        """The sum of squares that noise alone may show in some direction: the norm of a symmetric
        matrix of p² noises of deviation s is about 2s√p."""
        deviation = math.sqrt(noise.variance / noise.noises) / STEPS**2
        return 2 * deviation * math.sqrt(len(self.x))

    def _check_spread(self, spread: Matrix) -> None:
        for name, square in zip(self.x, np.diag(spread), strict=True):
            if square < COLLINEAR:
                low, high = self.column_bounds[name]
                raise LocalError(
                    f"column {name!r} has one value only within [{low:g}, {high:g}]: give it wider "
                    "bounds, or leave it out"
                )
        if np.linalg.eigvalsh(spread)[0] < COLLINEAR:
            raise LocalError(
                f"the columns {', '.join(self.x)} are collinear: leave out one of them"
            )

    @property
    def _map(self) -> Matrix:
        """Maps coefficients of scaled columns to those of unscaled columns, except for a shift."""
        middle, half = self.scaling
        slopes = half[-1] / half[:-1]
        found = np.diag(np.append(half[-1], slopes))
        found[0, 1:] = -slopes * middle[:-1]
        return found

    def _unscale(self, beta: Column) -> Column:
        found: Column = self._map @ beta
        found[0] += self.scaling[0][-1]
        return found

    def _errors(self, covariance: Matrix) -> Column:
        """The standard errors of unscaled coefficients, given the covariance of scaled ones."""
        found: Column = np.sqrt(np.diag(self._map @ covariance @ self._map.T))
        return found

    def reference(self, holdings: Holdings) -> Estimate:
        """The coefficients by numpy's least squares on the raw columns."""
        raw = {name: finite_column(holdings, name) for name in self.columns}
        return least_squares(self.y, raw)


@dataclass(frozen=True)
class Fit:
    """The normal equations of scaled columns: `inverse` is that of A, of (1, x)."""

    beta: Column
    inverse: Matrix
    residual_variance: float
    weak: int

    @classmethod
    def of(cls, gram: Matrix, least_spread: float) -> "Fit":
        """The fit from the products of (1, x, y). Directions of x that spread less are taken to
        spread `least_spread`."""
        records, p = gram[0, 0], len(gram) - 2
        centred = _centred(gram)
        values, directions = np.linalg.eigh(centred[:p, :p])
        weak = int(np.count_nonzero(values < least_spread))
        spread = (directions * np.maximum(values, least_spread)) @ directions.T
        slopes = np.linalg.solve(spread, centred[:p, p])
        middle = gram[0, 1:] / records
        beta = np.append(middle[p] - middle[:p] @ slopes, slopes)
        squares = centred[p, p] - 2 * slopes @ centred[:p, p] + slopes @ spread @ slopes
        normal = spread + records * np.outer(middle[:p], middle[:p])
        whole = np.block([[gram[:1, :1], gram[:1, 1 : p + 1]], [gram[1 : p + 1, :1], normal]])
        variance = max(float(squares), 0.0) / (records - p - 1)
        return cls(beta, np.linalg.inv(whole), variance, weak)

    @property
    def sampling(self) -> Matrix:
        return self.residual_variance * self.inverse

    def noise(self, variance: float) -> Matrix:
        """The covariance of A⁻¹(e − Eβ), where each product has noise of that variance.

        Entry i of e − Eβ is e_i − Σ_j E_ij β_j. E is symmetric, so entries i and j share E_ij; the
        number of records, E_00, has no noise.
        """
        shared = np.outer(self.beta, self.beta)
        np.fill_diagonal(shared, 1.0 + float(self.beta @ self.beta))
        shared[0, 0] -= self.beta[0] ** 2
        found: Matrix = variance * self.inverse @ shared @ self.inverse
        return found


def _centred(gram: Matrix) -> Matrix:
    """Sums of products of x and y about their means."""
    found: Matrix = gram[1:, 1:] - np.outer(gram[0, 1:], gram[0, 1:]) / gram[0, 0]
    return found


def least_squares(y: str, raw: dict[str, Column]) -> Coefficients:
    """Regresses the last column on the others, with the usual standard errors. Raises `LocalError`
    for too few records or collinear columns."""
    *names, _ = raw
    target = raw[y]
    design = np.column_stack([np.ones(len(target)), *(raw[name] for name in names)])
    freedom = len(target) - design.shape[1]
    if freedom < 1:
        raise LocalError(f"{design.shape[1]} coefficients need more than {len(target)} records")
    for name in names:
        if np.ptp(raw[name]) == 0:
            raise LocalError(f"column {name!r} has one value only: leave it out")
    scale = np.abs(design).max(axis=0)
    beta, _, rank, _ = np.linalg.lstsq(design / scale, target, rcond=None)
    if rank < design.shape[1]:
        raise LocalError(f"the columns {', '.join(names)} are collinear: leave out one of them")
    residuals = target - design / scale @ beta
    variance = float(residuals @ residuals) / freedom
    inverse = np.linalg.pinv(design / scale)
    errors = np.sqrt(variance * (inverse**2).sum(axis=1)) / scale
    return Coefficients(
        y, ["intercept", *names], (beta / scale).tolist(), errors.tolist(), math.sqrt(variance)
    )
