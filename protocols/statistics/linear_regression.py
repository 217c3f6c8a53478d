"""Linear regression from noisy sufficient statistics: one release, by any aggregator of sums.

Every column v is clipped to its public bounds and scaled to z = (v − middle)/half within [−1, 1].
The sums of all z_i, z_i² and z_i·z_j are released under discrete Laplace noise; everything else is
post-processing (Vu and Slavkovic 2009; Wang, "Revisiting differentially private linear regression",
2018, who adds noise to the same sums).

**Sensitivity.** With w = (1, z) of d + 1 entries, the off-diagonal part, the sum over i < j of
|w_i w_j − w'_i w'_j|, is convex in each z_i and each z'_i by itself, so it is largest where all are
±1. There a term is 2 if exactly one of w_i, w_j changes its sign, and k changed signs of d + 1 make
k(d + 1 − k) such terms: 2⌊(d + 1)²/4⌋ at most. The squares add at most 1 each. Together that is
2⌊(d + 1)²/4⌋ + d, where bounding every sum by itself gives d² + 2d. Of the marks of a column of
names two change at most, which limits k, and their squares are always 1.

**Standard errors.** β = A⁻¹b solves the noisy normal equations; noise (E, e) on (A, b) moves it by
A⁻¹(e − Eβ) to first order, whose covariance is known exactly, and the sampling of records by the
usual σ²A⁻¹. Intervals of the noise have the first, of the population both. The p-value of a
coefficient is the share of draws of that noise and of sampling that are as large. Directions in
which the columns spread less than noise alone would show are taken to spread that much, which
shrinks coefficients: the result says so, and has no intervals and p-values.
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
from tallyroom.protocols.plans.scaled import (
    ScaledColumn,
    columns_of,
    free_squares,
    sign_changes,
)
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import finite_column
from tallyroom.protocols.statistics.coefficients import Coefficients
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.noise_draws import drawn_noise, generator_of
from tallyroom.protocols.statistics.option import RELATIONS, option, role
from tallyroom.protocols.statistics.release import ANYWHERE, Answer, Noise, Release
from tallyroom.protocols.statistics.terms import FORMULA, INTERCEPT, OfTerms, take_formula

Matrix = NDArray[np.float64]

STEPS = 1 << 18
"""Steps of the grid from the middle of a column's range to either end."""
MAX_RECORDS = 1 << 26
"""Sums of products of two columns, 2^36 a record, stay within the ring, noise included."""
DRAWS = 2000
HIDDEN = (
    "noise hides how far the columns spread: coefficients lie closer to 0 than they should, nobody "
    "knows by how much; use a larger --epsilon or fewer terms"
)
COLLINEAR = 1e-9
"""Without noise, a smaller mean square of columns scaled to [−1, 1] is taken for 0."""


@dataclass(frozen=True)
class Products(Encoding):
    """Products of two entries of w = (1, z), all but 1·1, on a grid of `STEPS`² in 1."""

    scaled: tuple[ScaledColumn, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return columns_of(self.scaled)

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
        moves by 2 if one of its entries changes its sign. A square moves by 1 at most, and that of
        a mark, which is at a corner, not at all."""
        entries, squares = len(self.scaled) + 1, free_squares(self.scaled)
        crossed = max(k * (entries - k) for k in range(sign_changes(self.scaled) + 1))
        return Sensitivity((2 * crossed + squares) * STEPS**2, (4 * crossed + squares) * STEPS**4)

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
class LinearRegression(OfTerms):
    """Coefficients of y on the columns x by least squares, with errors, p-values and R²."""

    x: tuple[str, ...] = role(
        ("x",), "A column that predicts, C(COLUMN) for names; repeat it for more.", bounded=True
    )
    y: str = role("y", "The column that is predicted.", bounded=True)
    formula: str = option("", FORMULA)

    name: ClassVar[str] = "linear-regression"
    topic: ClassVar[str] = RELATIONS
    style: ClassVar[Style] = Style("marks", "coefficient", "")

    def __post_init__(self) -> None:
        take_formula(self, "y")
        super().__post_init__()
        self.check_terms()

    @property
    def target(self) -> str:
        return self.y

    @property
    def bounded(self) -> tuple[str, ...]:
        return (*self.numbers, self.y)

    @property
    def scaled(self) -> tuple[ScaledColumn, ...]:
        return (*self.design, ScaledColumn(self.y, *self.column_bounds[self.y]))

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
            self.y,
            self.terms,
            values.tolist(),
            sampling.tolist(),
            residual,
            fit.weak,
            [] if fit.weak else self._p_values(release, fit, values, sampling).tolist(),
            fit.explained,
        )
        if (noise := release.noise) is None:
            population = Interval.sampled(values, None, sampling, ANYWHERE)
            return Answer(estimate, None, release.records, foretold=True, population=population)
        if fit.weak:
            return release.without_errors(estimate, HIDDEN)
        drawn = self._errors(fit.noise(noise.variance / STEPS**4))
        interval = Interval.around(values, drawn, noise.width(), ANYWHERE)
        population = Interval.sampled(values, interval, sampling, ANYWHERE)
        return Answer(estimate, interval, release.records, population=population)

    def _fit(self, release: Release) -> "Fit":
        if release.records <= len(self.terms):
            raise LocalError(
                f"{len(self.terms)} coefficients need more than {release.records} records"
            )
        gram = np.zeros((len(self.scaled) + 1,) * 2)
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
        return 2 * deviation * math.sqrt(len(self.design))

    def _check_spread(self, spread: Matrix) -> None:
        for each, square in zip(self.design, np.diag(spread), strict=True):
            if square < COLLINEAR:
                raise LocalError(
                    f"column {each.name!r} has one value only within [{each.lower:g}, "
                    f"{each.upper:g}]: give it wider bounds, or leave it out"
                )
        if np.linalg.eigvalsh(spread)[0] < COLLINEAR:
            names = ", ".join(self.terms[1:])
            raise LocalError(f"the columns {names} are collinear: leave out one of them")

    def _p_values(self, release: Release, fit: "Fit", values: Column, sampling: Column) -> Column:
        """Of each coefficient being 0: Student's without noise; with it, the share of draws of what
        sampling and noise add that are as far from 0."""
        if release.noise is None:
            return student_p_values(values, sampling, release.records - len(values))
        generator = generator_of(release.values)
        drawn = drawn_noise(release.noise, (DRAWS, len(release.values)), generator) / STEPS**2
        moved = drawn @ (self._map @ fit.inverse @ fit.moved_by(Products(self.scaled).pairs)).T
        moved += generator.normal(size=moved.shape) * sampling
        found: Column = (1 + (np.abs(moved) >= np.abs(values)).sum(axis=0)) / (1 + DRAWS)
        return found

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
        return least_squares(
            self.y, {**self.raw(holdings), self.y: finite_column(holdings, self.y)}
        )


@dataclass(frozen=True)
class Fit:
    """The normal equations of scaled columns: `inverse` is that of A, of (1, x)."""

    beta: Column
    inverse: Matrix
    residual_variance: float
    explained: float
    """R², the share of the variance of y that the fit explains."""
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
        left = max(float(squares), 0.0)
        explained = max(1 - left / centred[p, p], 0.0) if centred[p, p] > 0 else math.nan
        return cls(beta, np.linalg.inv(whole), left / (records - p - 1), explained, weak)

    @property
    def sampling(self) -> Matrix:
        return self.residual_variance * self.inverse

    def moved_by(self, pairs: tuple[NDArray[np.intp], NDArray[np.intp]]) -> Matrix:
        """What a noise of 1 in each product of the pairs adds to e − Eβ."""
        rows, columns = pairs
        places, last = np.arange(len(rows)), len(self.beta)
        found = np.zeros((last + 1, len(rows)))
        slope = np.append(self.beta, -1.0)
        found[rows, places] -= slope[columns]
        apart = rows != columns
        found[columns[apart], places[apart]] -= slope[rows[apart]]
        return found[:last]

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
    values, apart = beta / scale, target - target.mean()
    return Coefficients(
        y,
        [INTERCEPT, *names],
        values.tolist(),
        errors.tolist(),
        math.sqrt(variance),
        p_values=student_p_values(values, errors, freedom).tolist(),
        explained=1 - float(residuals @ residuals) / float(apart @ apart),
    )


def student_p_values(values: Column, errors: Column, freedom: int) -> Column:
    """The p-value of each coefficient being 0, by Student's law."""
    from scipy.stats import t as student  # slow to load

    with np.errstate(divide="ignore", invalid="ignore"):
        found: Column = 2 * student.sf(np.abs(values / errors), freedom)
    return found
