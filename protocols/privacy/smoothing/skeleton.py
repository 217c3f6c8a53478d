"""The tree of S0 Theorem 1 restricted to the points that were asked for.

Only nodes above a point of B can carry a correction ν ≠ 0 in S0 Eq. 3. A chain of nodes that cover
the same points enters the curve only through the sum of its corrections, so it is one edge here,
with the number of nodes on it as its `length`. What remains is a binary tree with |B| leaves and
|B| − 1 forks: the fork of the points i and i+1 is their lowest common ancestor, so forks and gaps
between neighbouring points are in bijection.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Skeleton:
    """Nodes 0..m−1 are the points from left to right; m..2m−2 the forks, children first.

    `first`, `last`, `gap`, `left`, `right` have one entry a fork: the block of points under it, the
    last point of its left half, its two children. `above` has one entry a node, with 2m−1 (one past
    the end, the ground) for the root. `floors` cuts the forks into runs of one level of S0's tree,
    no two of which share a point.
    """

    points: int
    left: Index
    right: Index
    first: Index
    last: Index
    gap: Index
    above: Index
    length: NDArray[np.float64]
    floors: tuple[slice, ...]

    @property
    def nodes(self) -> int:
        return 2 * self.points - 1


def skeleton(indices: Index, levels: int) -> Skeleton:
    """The tree with leaves 1..2^`levels`, restricted to the increasing `indices`."""
    cells = indices - 1
    m = len(cells)
    # The lowest common ancestor of two cells stands at the highest bit in which they differ.
    fork_level = np.zeros(m - 1, dtype=np.int64)
    difference = cells[1:] ^ cells[:-1]
    while difference.any():
        fork_level += difference > 0
        difference = difference >> 1
    gap = np.argsort(fork_level, kind="stable")
    counts = np.bincount(fork_level, minlength=levels + 1)[1:]
    ends = np.cumsum(counts)
    floors = tuple(
        slice(int(end - count), int(end)) for end, count in zip(ends, counts, strict=True) if count
    )

    level = np.concatenate([np.zeros(m, dtype=np.int64), fork_level[gap]])
    left, right, first, last = (np.empty(m - 1, dtype=np.int64) for _ in range(4))
    # Of the blocks built so far: where one begins, by its last point, and the converse; its top.
    begins, finishes, top = (np.arange(m) for _ in range(3))
    for floor in floors:
        middle = gap[floor]
        first[floor], last[floor] = begins[middle], finishes[middle + 1]
        left[floor], right[floor] = top[first[floor]], top[middle + 1]
        begins[last[floor]], finishes[first[floor]] = first[floor], last[floor]
        top[first[floor]] = np.arange(m + floor.start, m + floor.stop)

    nodes = 2 * m - 1
    above = np.full(nodes, nodes, dtype=np.int64)
    above[left] = above[right] = np.arange(m, nodes)
    level_above = np.append(level, levels + 1)[above]
    return Skeleton(
        m, left, right, first, last, gap, above, (level_above - level).astype(np.float64), floors
    )
