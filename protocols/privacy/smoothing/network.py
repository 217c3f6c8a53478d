"""One Newton step of S0 Eq. 3 is a resistor network, solved in O(N).

The nodes are those of the skeleton. A conductance stands on every edge of the tree (the root's
leads to the ground), on every gap between neighbouring points, and between the ground and the two
end points. Eliminating a node of a network leaves a network: for neighbours with conductances g_k
and S = Σ g_k, the new conductances are g_j·g_k/S (star–mesh), sums and products of positive numbers
only, so nothing cancels however far the barrier has driven the conductances apart. From the leaves
upward a block of points is known to the rest by three nodes: its first point, its last point and
the fork above. Where two blocks meet, the left one's last point, the right one's first point and
the fork itself are eliminated, each with at most three neighbours.
"""

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.privacy.smoothing.skeleton import Skeleton

Vector = NDArray[np.float64]


class TreeNetwork:
    """One vector operation a level; `_newton.c` does the same fork by fork.

    Vectors by node have 2m entries, the ground last.
    """

    def __init__(self, tree: Skeleton) -> None:
        self._tree = tree
        self._left_is_point = tree.left < tree.points
        self._right_is_point = tree.right < tree.points
        # For each of the three eliminations of a fork: the shares of the neighbours, and 1/S.
        self._weights = np.zeros((12, tree.points - 1))
        self._ends = np.zeros(3)

    def factor(self, edges: Vector, gaps: Vector) -> None:
        """`edges` by node; `gaps` are m+1: ground to first point, the m−1 gaps, last to ground."""
        tree, m = self._tree, self._tree.points
        if m == 1:
            self._ends[0] = 1.0 / (edges[0] + gaps[0] + gaps[1])
            return
        # What is left of the block under a node: first–last, first–above, last–above.
        across, start, end = np.zeros(2 * m), edges.copy(), np.zeros(2 * m)
        for floor in tree.floors:
            left, right = tree.left[floor], tree.right[floor]
            bridge = gaps[tree.gap[floor] + 1]
            w = np.empty((12, len(floor)))

            # The left block's last point, next to the first, the fork, the right block's first.
            # A block of one point keeps it: it is also the first of the joint block.
            stays = self._left_is_point[floor]
            inverse = np.where(stays, 0.0, 1.0 / (across[left] + end[left] + bridge))
            w[0:4] = across[left] * inverse, end[left] * inverse, bridge * inverse, inverse
            first_fork = start[left] + across[left] * w[1]
            right_fork = start[right] + end[left] * w[2]
            first_right = np.where(stays, bridge, across[left] * w[2])

            # The right block's first point, next to the first, the fork, the last.
            stays = self._right_is_point[floor]
            inverse = np.where(stays, 0.0, 1.0 / (first_right + right_fork + across[right]))
            w[4:8] = first_right * inverse, right_fork * inverse, across[right] * inverse, inverse
            first_fork = first_fork + first_right * w[5]
            last_fork = np.where(stays, right_fork, end[right] + right_fork * w[6])
            first_last = np.where(stays, first_right, first_right * w[6])

            # The fork, next to the first, the last, the fork above.
            fork = m + floor
            edge = edges[fork]
            inverse = 1.0 / (first_fork + last_fork + edge)
            w[8:12] = first_fork * inverse, last_fork * inverse, edge * inverse, inverse
            across[fork] = first_last + first_fork * w[9]
            start[fork] = first_fork * w[10]
            end[fork] = last_fork * w[10]
            self._weights[:, floor] = w
        root = 2 * m - 2
        at_first, at_last = start[root] + gaps[0], end[root] + gaps[m]
        inverse_last = 1.0 / (across[root] + at_last)
        share = across[root] * inverse_last
        self._ends[:] = 1.0 / (at_first + at_last * share), share, inverse_last

    def solve(self, currents: Vector) -> Vector:
        """The potentials of all nodes for the currents fed into them, the ground at 0."""
        tree, m = self._tree, self._tree.points
        v = currents.copy()
        v[-1] = 0.0
        if m == 1:
            v[0] *= self._ends[0]
            return v
        upward = np.zeros(2 * m)
        for floor in tree.floors:
            w = self._weights[:, floor]
            first, last, before, fork = (
                tree.first[floor],
                tree.last[floor],
                tree.gap[floor],
                m + floor,
            )
            at_fork = v[fork] + upward[tree.left[floor]] + upward[tree.right[floor]]
            here = v[before]
            v[first] += w[0] * here
            at_fork += w[1] * here
            v[before + 1] += w[2] * here
            here = v[before + 1]
            v[first] += w[4] * here
            at_fork += w[5] * here
            v[last] += w[6] * here
            v[first] += w[8] * at_fork
            v[last] += w[9] * at_fork
            v[fork] = at_fork
            upward[fork] = w[10] * at_fork
        gain, share, inverse = self._ends
        v[0] = (v[0] + share * v[m - 1]) * gain
        v[m - 1] = inverse * v[m - 1] + share * v[0]
        for floor in reversed(tree.floors):
            w = self._weights[:, floor]
            before, fork = tree.gap[floor], m + floor
            at_first, at_last, above = (
                v[tree.first[floor]],
                v[tree.last[floor]],
                v[tree.above[fork]],
            )
            at_fork = w[11] * v[fork] + w[8] * at_first + w[9] * at_last + w[10] * above
            v[fork] = at_fork
            here = w[7] * v[before + 1] + w[4] * at_first + w[5] * at_fork + w[6] * at_last
            after = np.where(self._right_is_point[floor], v[before + 1], here)
            v[before + 1] = after
            here = w[3] * v[before] + w[0] * at_first + w[1] * at_fork + w[2] * after
            v[before] = np.where(self._left_is_point[floor], v[before], here)
        return v
