"""The binary tree of noises behind S0's curves (Theorem 1) and running sums (Theorem 3).

The counts at thresholds 1..N get the sum of the noises on the path from their leaf to the root, so
that a record's move, which shifts a whole interval of counts by one, is explained by a shift of
O(L) noises. Index and number work only: who calls draws the noise, once a node, and keeps it.

Node (j, l) of S0, the j-th block of 2^l thresholds, has the heap number 2^(L−l) + j − 1: the root
is 1, the leaf of threshold i is 2^L + i − 1, and the node above v is v >> 1.
"""

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

MAX_LEVELS = 62
# Plain numbers, or shares in a ring (unsigned, wrapping).
Number = TypeVar("Number", np.int64, np.uint64, np.float64)


@dataclass(frozen=True)
class Tree:
    """S0's Z[L] for N = `points` thresholds. Raises ValueError for fewer than one or over 2^62."""

    points: int

    def __post_init__(self) -> None:
        if not 1 <= self.points <= 2**MAX_LEVELS:
            raise ValueError(f"a tree needs 1 to 2^{MAX_LEVELS} thresholds, not {self.points}")

    @property
    def levels(self) -> int:
        """L = ⌈log₂ N⌉; a path holds L + 1 nodes."""
        return (self.points - 1).bit_length()

    def paths(self, indices: NDArray[np.int64]) -> NDArray[np.uint64]:
        """One row for each threshold in 1..N: the L+1 nodes it is under, leaf first (Eq. 2).

        Raises ValueError for an index outside 1..N.
        """
        indices = np.asarray(indices)
        if indices.ndim != 1 or not np.issubdtype(indices.dtype, np.integer):
            raise ValueError("indices must be a vector of integers")
        if len(indices) and not (indices.min() >= 1 and int(indices.max()) <= self.points):
            raise ValueError(f"indices must be within 1..{self.points}")
        leaves = indices.astype(np.uint64) + np.uint64(2**self.levels - 1)
        return leaves[:, None] >> np.arange(self.levels + 1, dtype=np.uint64)

    def touched(self, indices: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The nodes, increasing, whose noise the answers at `indices` need: O(L) a point."""
        return np.unique(self.paths(indices))

    def noise_at(
        self, indices: NDArray[np.int64], nodes: NDArray[np.uint64], noise: NDArray[Number]
    ) -> NDArray[Number]:
        """The noise that Eq. 2 adds to n·F(τ_i): the sums of `noise` along the paths.

        `noise[k]` is the noise of `nodes[k]`, increasing; unsigned noise adds in the ring of its
        type. Raises ValueError if a node that is needed is missing.
        """
        paths = self.paths(indices)
        if len(nodes) != len(noise):
            raise ValueError(f"{len(noise)} noises for {len(nodes)} nodes")
        place = np.searchsorted(nodes, paths)
        if (place >= len(nodes)).any() or (nodes[place] != paths).any():
            raise ValueError("the noise of a node on the path is missing")
        total: NDArray[Number] = np.add.reduce(noise[place], axis=1, dtype=noise.dtype)
        return total

    def whole_noise(self, noise: NDArray[Number]) -> NDArray[Number]:
        """Does `noise_at` for all of 1..N, with `noise[v − 1]` for every node v of the tree;
        O(N)."""
        if len(noise) != 2 ** (self.levels + 1) - 1:
            raise ValueError(f"{len(noise)} noises for {2 ** (self.levels + 1) - 1} nodes")
        total = noise[:1]
        for level in range(1, self.levels + 1):
            total = np.repeat(total, 2) + noise[2**level - 1 : 2 ** (level + 1) - 1]
        return total[: self.points]

    def scale(self, epsilon: float) -> float:
        """Scale of a node's Laplace noise for an ε-DP curve under replace-one (Theorem 1).

        S0's lemma also allows 2⌈L/2⌉/ε, and L/ε is exact for 1 ≤ L ≤ 5 (proved by linear
        programming in the tests); the theorem's constant is kept.
        """
        return (self.levels + 1) / checked_epsilon(epsilon)

    def count_variance(self, node_variance: float) -> float:
        """The variance of every published count, which has L+1 independent noises.

        With Laplace noise of `scale`, 2(L+1)³/ε², that is 2(L+1)³/(n²ε²) for the curve: Theorem 1
        states the variance of the count for that of the curve.
        """
        return (self.levels + 1) * node_variance


def laplace_variance(scale: float) -> float:
    """The variance of the continuous distribution; the discrete one of the same scale varies
    slightly less."""
    return 2.0 * scale * scale


def checked_epsilon(epsilon: float) -> float:
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ValueError(f"ε must be positive and finite, not {epsilon}")
    return epsilon
