"""S0's synthetic data X_pois(λ) (§6.2) and its tree's noise, drawn as the servers draw it."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.privacy.tree import Tree
from tallyroom.protocols.randomness import Randomness

Counts = NDArray[np.int64]
Points = NDArray[np.float64]
SEED = 20211


@dataclass(frozen=True)
class PoissonRelease:
    """One run: the true curve F at the N thresholds, and the private curve of `records` records."""

    truth: Points
    noisy: Points
    records: int


def poisson_counts(points: int, rate: float, run: int) -> Counts:
    """Counts at the thresholds if each of `points` values is held by Pois(`rate`) records.

    The data is synthetic, so its generator need not be secret. There is at least one record.
    """
    rng = np.random.default_rng([SEED, run, points, round(1000 * rate)])
    cells = rng.poisson(rate, points)
    cells[0] += not cells.any()
    return np.cumsum(cells)


def tree_releases(
    points: int, rate: float, epsilon: Fraction, runs: int
) -> Iterator[PoissonRelease]:
    """Draws fresh data and fresh exact discrete noise in every run; F̂ as in S0 Eq. 2."""
    tree = Tree(points)
    # Theorem 1: moving a record affects L + 1 noises.
    mechanism = DiscreteLaplace.spending(epsilon, tree.levels + 1)
    randomness = Randomness.from_seed(SEED, f"tree {points} {rate} {epsilon}")
    for run in range(runs):
        counts = poisson_counts(points, rate, run)
        noise = mechanism.draw(2 ** (tree.levels + 1) - 1, randomness)
        n = int(counts[-1])
        yield PoissonRelease(counts / n, (counts + tree.whole_noise(noise)) / n, n)
