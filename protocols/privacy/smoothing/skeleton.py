"""The tree of S0 Theorem 1 restricted to the points that were asked for.

Only nodes above a point of B can carry a correction ν ≠ 0 in S0 Eq. 3. A chain of nodes that cover
the same points enters the curve only through the sum of its corrections, so it is one edge here,
with the number of nodes on it as its `length`. What remains is a binary tree with |B| leaves and
|B| − 1 forks: the fork of the points i and i+1 is their lowest common ancestor, so forks and gaps
between neighbouring points are in bijection.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Skeleton:
    """Nodes 0..m−1 are the points from left to right, m..2m−2 the forks, 2m−1 the ground.

    Forks stand in postorder, so that a loop over them finds what it last touched still in cache.
    `first`, `last`, `gap`, `left`, `right` have one entry a fork: the block of points under it, the
    last point of its left half, its two children. `above` has one entry a node; the root's is the
    ground. `floors` lists the forks by their level in S0's tree: those of one share no point.
    """

    points: int
    left: Index
    right: Index
    first: Index
    last: Index
    gap: Index
    above: Index
    length: NDArray[np.float64]
    floors: tuple[Index, ...]


def skeleton(indices: Index, levels: int) -> Skeleton:
    """The tree with leaves 1..2^`levels`, restricted to the increasing `indices`."""
    cells = indices - 1
    m = len(cells)
    # The lowest common ancestor of two cells stands at the highest bit in which they differ.
    fork_level = np.frexp((cells[1:] ^ cells[:-1]).astype(np.float64))[1].astype(np.int64)
    by_level = np.argsort(fork_level.astype(np.int8), kind="stable")
    ends = np.cumsum(np.bincount(fork_level, minlength=levels + 1))
    # Forks are known by their gap until the postorder is.
    gap_floors = [by_level[i:j] for i, j in pairwise(ends) if i < j]
    first, last, rank = (np.empty(m - 1, dtype=np.int64) for _ in range(3))
    # Of the blocks built so far: where one begins, by its last point; the converse; how many end
    # at a point.
    begins, finishes, ended = np.arange(m), np.arange(m), np.zeros(m, dtype=np.int64)
    for floor in gap_floors:
        start, finish = begins[floor], finishes[floor + 1]
        first[floor], last[floor], rank[floor] = start, finish, ended[finish]
        begins[finish], finishes[start] = start, finish
        ended[finish] += 1

    # Blocks that end together are nested: the order by last point, then level, is a postorder.
    place = (np.cumsum(ended) - ended)[last] + rank
    gap = np.empty(m - 1, dtype=np.int64)
    gap[place] = np.arange(m - 1)
    left, right = np.empty(m - 1, dtype=np.int64), np.empty(m - 1, dtype=np.int64)
    floors = tuple(place[floor] for floor in gap_floors)
    top = np.arange(m)  # by first point
    for floor in floors:
        left[floor], right[floor] = top[first[gap[floor]]], top[gap[floor] + 1]
        top[first[gap[floor]]] = m + floor

    above = np.full(2 * m - 1, 2 * m - 1, dtype=np.int64)
    above[left] = above[right] = np.arange(m, 2 * m - 1)
    level = np.concatenate([np.zeros(m, dtype=np.int64), fork_level[gap], [levels + 1]])
    return Skeleton(
        points=m,
        left=left,
        right=right,
        first=first[gap],
        last=last[gap],
        gap=gap,
        above=above,
        length=(level[above] - level[:-1]).astype(np.float64),
        floors=floors,
    )
