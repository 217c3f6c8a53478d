"""Where a private logistic fit starts: the model of the records if their columns were normal.

For normal columns x of mean μ and covariance S, Stein's identity gives Cov(x, y) = E[π′]Sβ, where
π′ = π(1 − π): logistic coefficients are those of least squares times a number, which follows from
the second moments (Brillinger 1982). Columns are not normal, so this is a start and no more.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray

from tallyroom.protocols.privacy.objective import probability
from tallyroom.protocols.records import Column

Matrix = NDArray[np.float64]

POINTS, _MASSES = hermegauss(41)
MASSES = _MASSES / _MASSES.sum()
"""A standard normal variable on few points."""
NORMAL = NormalDist()
MOST_TOGETHER = 0.9
"""Of φ(Φ⁻¹(p)), the covariance of a normal score with the label at which classes are separable: no
logistic model has more."""
MOST_SPREAD = 4.0
"""The largest deviation of the score that a start has: more is noise, or nearly separable."""
LEAST_CHANCE = 1e-3
LEAST_SPREAD = 1e-9
"""Smaller mean squares of columns scaled to [−1, 1] are rounding."""


@dataclass(frozen=True)
class GaussianStart:
    """`at` are coefficients θ of v = (1, A(z − c)), with c and A as `centre` and `whitening`."""

    centre: Column
    whitening: Matrix
    at: Column

    @classmethod
    def of(cls, products: Matrix, deviation: float) -> "GaussianStart":
        """From the sums of products of (1, z, y), with noise of that deviation in each.

        Directions that spread less than noise alone would show are taken to spread that much: 2s√d
        for a symmetric matrix of d² noises of deviation s. Covariances with the label are shrunk by
        what noise adds to their squares (James and Stein 1961). Means are as likely to be anywhere
        within [−1, 1], with a variance of ⅓, and are shrunk as that tells."""
        records, d = products[0, 0], len(products) - 2
        noise = deviation / records
        believed = 1 / (1 + 3 * noise**2)
        centre = believed * np.clip(products[0, 1:-1] / records, -1.0, 1.0)
        label = float(
            np.clip(products[0, -1] / records, 2 * LEAST_CHANCE - 1, 1 - 2 * LEAST_CHANCE)
        )
        spread = products[1:-1, 1:-1] / records - np.outer(centre, centre)
        squares, directions = np.linalg.eigh(spread)
        squares = np.maximum(squares, max(2 * noise * math.sqrt(d), LEAST_SPREAD))
        whitening = (directions / np.sqrt(squares)) @ directions.T
        together = whitening @ (products[1:-1, -1] / records - centre * label) / 2
        explained = float(together @ together)
        drawn = noise**2 / 4 * (1 + label**2 + centre @ centre / d) * float((1 / squares).sum())
        kept = max(0.0, 1 - drawn / explained) if explained else 0.0
        chance = (1 + label) / 2
        most = MOST_TOGETHER * NORMAL.pdf(NORMAL.inv_cdf(chance))
        together = together * min(kept, most / max(math.sqrt(explained), 1e-300))
        factor, intercept = _scaled(float(np.linalg.norm(together)), chance)
        return cls(centre, whitening, np.append(intercept, factor * together))


def mean_curvature(at: Column) -> float:
    """E[π′] for the score at₀ + at₁u₁ + …, with standard normal u."""
    return _mean_curvature(float(at[0]), float(np.linalg.norm(at[1:])))


def _mean_curvature(intercept: float, spread: float) -> float:
    chance = probability(intercept + spread * POINTS)
    return float(MASSES @ (chance * (1 - chance)))


def _scaled(together: float, chance: float) -> tuple[float, float]:
    """The factor t and the intercept a under which t·E[π′] = 1 and E[π] = `chance`, for the score
    a + t·together·u, or the largest t there may be."""
    low = math.log(4.0)
    high = max(low, math.log(min(400.0, MOST_SPREAD / max(together, 1e-300))))
    for _ in range(24):
        factor = math.exp((low + high) / 2)
        intercept = _intercept(factor * together, chance)
        if factor * _mean_curvature(intercept, factor * together) < 1:
            low = math.log(factor)
        else:
            high = math.log(factor)
    return factor, intercept


def _intercept(spread: float, chance: float) -> float:
    low, high = -64.0, 64.0
    for _ in range(36):
        middle = (low + high) / 2
        if float(MASSES @ probability(middle + spread * POINTS)) < chance:
            low = middle
        else:
            high = middle
    return middle
