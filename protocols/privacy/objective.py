"""Logistic regression by objective perturbation, by a trusted curator.

Chaudhuri, Monteleoni and Sarwate (2011) minimise Σ ℓ(θ; w, y) + λ‖θ‖²/2 + b·θ for a random b. Here
records w have m entries within [−1, 1], the constant 1 among them. The minimiser θ and b determine
each other, b(θ) = −λθ − Σ(π − y)w with π = 1/(1 + e^(−wθ)), so where one record is replaced the
density of θ changes by two factors.

- The noise's: b(θ) moves by 2 at most in each entry. b has density ∝ e^(−ε₁‖b‖_∞/2), the K-norm
  mechanism of the largest entry (Awan and Slavković 2021), which costs ε₁. For records that fill a
  cube it has a third of the variance of Chaudhuri's noise in Euclid's norm, and b is a cube's
  uniform point times a sum of m + 1 exponential variables.
- The Jacobian's, det(λI + Σπ(1 − π)wwᵀ). Both determinants are that of the other records, A, with
  a term of rank one: det A·(1 + v) for v = π(1 − π)wᵀA⁻¹w from 0 to s/4λ, where s is the most that
  ‖w‖² can be: m, or less where of several entries one alone is not 0. So it costs
  ε₂ = ln(1 + s/4λ), where Chaudhuri et al. have twice that: they bound two changes of rank one.

ε = ε₁ + ε₂, for any λ that does not come from the data; δ is 0. Both hold for the exact minimiser
and a real b. What is published is θ rounded to a public grid, and it is that of the ideal θ with
certainty: b is a stream of digits, ‖θ − θ*‖ ≤ ‖gradient at θ‖/λ tells how far the computed θ may be
off, and where this leaves the rounding open, both get more digits. How long that takes depends on
what is drawn.
"""

import decimal
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.privacy.rounded_noise import Laplace, Uniform
from tallyroom.protocols.randomness import Randomness

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
Wide = NDArray[np.longdouble]

STEPS = 1 << 18
"""Steps of the grid of records in 1: records are whole numbers of steps."""
GRID = 1 << 20
"""Steps of the grid of coefficients in 1."""
JACOBIAN_SHARE = Fraction(1, 3)
"""ε₂/ε where nobody asks for a larger λ: about the least sum of squared bias λθ and of the noise's
variance for coefficients of 2, whatever ε and m."""
LEAST_PENALTY = 1e-3
"""The least λ: with it a minimum exists and can be computed."""
MAX_PENALTY = 1e12
MAX_NEWTON_STEPS = 200


class CubeNoise:
    """b, with density ∝ e^(−‖b‖_∞/scale): each entry within bounds that `refine` narrows."""

    def __init__(self, entries: int, scale: Fraction, randomness: Randomness) -> None:
        self._scale = scale
        self._sizes = [Laplace(randomness) for _ in range(entries + 1)]
        self._places = [Uniform(randomness) for _ in range(entries)]

    def refine(self) -> None:
        for size in self._sizes:
            size.refine()
        for place in self._places:
            place.refine()

    def bounds(self) -> list[tuple[Fraction, Fraction]]:
        ends = [sorted(map(abs, each.bounds())) for each in self._sizes]
        least, most = (self._scale * sum(each, Fraction(0)) for each in zip(*ends, strict=True))
        found = []
        for place in self._places:
            low, high = (Fraction(place.digits + up, 1 << place.bits) * 2 - 1 for up in (0, 1))
            corners = [size * at for size in (least, most) for at in (low, high)]
            found.append((min(corners), max(corners)))
        return found


@dataclass(frozen=True)
class ObjectivePerturbation:
    """The mechanism and its privacy map. `noise` is ε₁, `penalty` is λ, of all records together;
    `terms` is m and `square` is s."""

    noise: Fraction
    penalty: float
    terms: int
    square: int

    @classmethod
    def spending(
        cls, epsilon: Fraction, terms: int, penalty: float = 0.0, square: int | None = None
    ) -> "ObjectivePerturbation":
        """The perturbation that spends ε, with a λ of at least `penalty`; s is m unless given.
        Raises `LocalError` for an invalid penalty."""
        if not 0 <= penalty <= MAX_PENALTY:
            raise LocalError(f"a penalty is from 0 to {MAX_PENALTY:g}, not {penalty:g}")
        square = terms if square is None else square
        share = min(float(JACOBIAN_SHARE * epsilon), 700.0)
        least = square / (4 * math.expm1(share)) * (1 + 1e-12)
        penalty = max(least, penalty, LEAST_PENALTY)
        # A unit of the last place more than the logarithm, which may be off by as much.
        spent = Fraction(math.log1p(square / (4 * penalty)) * (1 + 1e-12))
        return cls(epsilon - min(spent, JACOBIAN_SHARE * epsilon), penalty, terms, square)

    def privacy_map(self) -> float:
        """ε when one record is replaced. δ is 0."""
        return float(self.noise) + math.log1p(self.square / (4 * self.penalty))

    def fit(
        self, records: Integers, positive: NDArray[np.bool], randomness: Randomness
    ) -> Integers:
        """Coefficients in multiples of 1/GRID, from records in multiples of 1/STEPS, one a row.

        Raises ValueError for records outside [−1, 1], or longer than s allows.
        """
        design = records / STEPS
        if records.shape[1] != self.terms or (np.abs(records) > STEPS).any():
            raise ValueError(f"a record must have {self.terms} entries within [-1, 1]")
        if len(design) and float((design**2).sum(axis=1).max()) > self.square * (1 + 1e-9):
            raise ValueError(f"the squares of a record's entries must sum to at most {self.square}")
        noise = CubeNoise(self.terms, 2 / self.noise, randomness)
        return certain_minimum(records, positive, self.penalty, noise)


def certain_minimum(
    records: Integers, positive: NDArray[np.bool], penalty: float, noise: CubeNoise
) -> Integers:
    """The minimiser, rounded to the grid: with more digits for as long as they do not decide it."""
    design = records / STEPS
    linear, width = _centres(noise.bounds())
    start = minimum(design, positive, penalty, linear.astype(np.float64))
    inverse: Matrix = np.linalg.inv(_curvature(design, start, penalty)).astype(np.float64)
    found = _in_long_doubles(design, positive, penalty, linear, width, start, inverse)
    digits = 40
    while found is None:
        noise.refine()
        found = _in_decimals(records, positive, penalty, noise, start, inverse, digits)
        digits *= 2
    return found


def minimum(design: Matrix, positive: NDArray[np.bool], penalty: float, linear: Column) -> Column:
    """argmin of Σ ln(1 + e^wθ) − y·wθ + λ‖θ‖²/2 + b·θ, by Newton's method with step halving.

    Precondition: λ > 0, so there is one minimum, for separable classes and collinear columns too.
    """
    theta = np.zeros(design.shape[1])
    value = _objective(design, positive, penalty, linear, theta)
    for _ in range(MAX_NEWTON_STEPS):
        residual = probability(design @ theta) - positive
        gradient = design.T @ residual + penalty * theta + linear
        move = np.linalg.solve(_curvature(design, theta, penalty), gradient)
        decrease = float(gradient @ move)
        length = 1.0
        while True:
            tried = theta - length * move
            reached = _objective(design, positive, penalty, linear, tried)
            if reached <= value - length * decrease / 4 or length < 1e-6:
                break
            length /= 2
        if length < 1e-6 or decrease <= 1e-24 * max(1.0, abs(value)):
            return theta if reached > value else tried
        theta, value = tried, reached
    return theta


def probability(score: NDArray[np.floating]) -> NDArray[np.floating]:
    """1/(1 + e^−score), without overflow."""
    half: NDArray[np.floating] = (1 + np.tanh(score / 2)) / 2
    return half


def _objective(
    design: Matrix, positive: NDArray[np.bool], penalty: float, linear: Column, theta: Column
) -> float:
    scores = design @ theta
    loss = np.logaddexp(0.0, np.where(positive, -scores, scores)).sum()
    return float(loss + penalty * (theta @ theta) / 2 + linear @ theta)


def _curvature(design: Matrix, theta: Column, penalty: float) -> Matrix:
    chance = np.asarray(probability(design @ theta), dtype=np.float64)
    weights = chance * (1 - chance)
    found: Matrix = design.T @ (weights[:, None] * design) + penalty * np.eye(len(theta))
    return found


def _in_long_doubles(
    design: Matrix,
    positive: NDArray[np.bool],
    penalty: float,
    linear: Wide,
    width: float,
    start: Column,
    inverse: Matrix,
) -> Integers | None:
    """The rounded minimiser if that is certain, else None. Entries of b are within `width` of
    `linear`."""
    wide = np.asfortranarray(design.astype(np.longdouble))
    theta = start.astype(np.longdouble)
    for _ in range(3):
        gradient = _gradient(wide, positive, penalty, linear, theta)
        theta = theta - inverse.astype(np.longdouble) @ gradient
    gradient = _gradient(wide, positive, penalty, linear, theta)
    # Of scores m + 2 roundings a term, through a function of slope ¼; of probability and product
    # 10; of numpy's pairwise sums 128 + log₂ n; each is half of eps of at most 1 a record.
    eps = float(np.finfo(np.longdouble).eps)
    size, terms = design.shape
    roundings = (terms + 2) * float(np.abs(theta).sum()) / 4 + 10 + 128 + 64
    others = (penalty * float(np.abs(theta).max()) + float(np.abs(linear).max())) * 8
    slack = math.sqrt(terms) * (eps * (size * roundings + others) + width)
    off = (math.sqrt(float(gradient @ gradient)) * (1 + 1e-9) + slack) / penalty
    low, high = (np.floor((theta + sign * off) * GRID + 0.5) for sign in (-1, 1))
    if not math.isfinite(off) or (low != high).any():
        return None
    whole: Integers = low.astype(np.int64)
    return whole


def _gradient(
    design: Wide, positive: NDArray[np.bool], penalty: float, linear: Wide, theta: Wide
) -> Wide:
    residual = probability(design @ theta) - positive
    sums = [np.sum(residual * column) for column in design.T]
    return np.array(sums, dtype=np.longdouble) + np.longdouble(penalty) * theta + linear


def _centres(bounds: list[tuple[Fraction, Fraction]]) -> tuple[Wide, float]:
    """The middles in long doubles, and how far the entries may lie from them at most."""
    centres, width = [], 0.0
    for low, high in bounds:
        middle = (low + high) / 2
        head = float(middle)
        centres.append(np.longdouble(head) + np.longdouble(float(middle - Fraction(head))))
        width = max(width, float(high - low) + 2.0**-100 * abs(head))
    return np.array(centres, dtype=np.longdouble), width


def _in_decimals(
    records: Integers,
    positive: NDArray[np.bool],
    penalty: float,
    noise: CubeNoise,
    start: Column,
    inverse: Matrix,
    digits: int,
) -> Integers | None:
    """The same sums with so many digits, one record at a time: slow, and seldom needed."""
    with decimal.localcontext(prec=digits + 20, Emin=-(10**9), Emax=10**9):
        bounds = [tuple(map(_decimal, each)) for each in noise.bounds()]
        linear = [(low + high) / 2 for low, high in bounds]
        width = max(high - low for low, high in bounds)
        rows = [[Decimal(int(each)) / STEPS for each in row] for row in records]
        step = [[Decimal(float(each)) for each in row] for row in inverse]
        theta = [Decimal(float(each)) for each in start]
        weight = Decimal(penalty)
        # A correction by an inverse in doubles leaves 10^-8 or less of what is off.
        for _ in range(2 + digits // 8):
            gradient = _decimal_gradient(rows, positive, weight, linear, theta)
            moves = [sum(map(Decimal.__mul__, row, gradient), Decimal(0)) for row in step]
            theta = [each - move for each, move in zip(theta, moves, strict=True)]
        gradient = _decimal_gradient(rows, positive, weight, linear, theta)
        size = sum((each * each for each in gradient), Decimal(0)).sqrt()
        reach = 1 + sum(map(abs, theta), Decimal(0)) + sum(map(abs, linear), Decimal(0))
        slack = len(theta) * (Decimal(10) ** -digits * len(rows) * reach * (1 + weight) + width)
        off = (size + slack) / weight
        half = Decimal("0.5")
        ends = [
            [math.floor((each + sign * off) * GRID + half) for each in theta] for sign in (-1, 1)
        ]
        return np.array(ends[0], dtype=np.int64) if ends[0] == ends[1] else None


def _decimal_gradient(
    rows: list[list[Decimal]],
    positive: NDArray[np.bool],
    weight: Decimal,
    linear: list[Decimal],
    theta: list[Decimal],
) -> list[Decimal]:
    sums = [weight * each + shift for each, shift in zip(theta, linear, strict=True)]
    for row, label in zip(rows, positive.tolist(), strict=True):
        score = sum(map(Decimal.__mul__, row, theta), Decimal(0))
        apart = 1 / (1 + (-score).exp()) - label
        sums = [total + apart * each for total, each in zip(sums, row, strict=True)]
    return sums


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)
