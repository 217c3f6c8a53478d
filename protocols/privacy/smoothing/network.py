"""One Newton step of S0 Eq. 3 is a resistor network, solved in O(N).

The nodes are those of the skeleton. A conductance stands on every edge of the tree (the root's leads
to the ground), on every gap between neighbouring points, and between the ground and the two end
points. Eliminating a node of a network leaves a network: for neighbours with conductances g_k and
S = Σ g_k, the new conductances are g_j·g_k/S (star–mesh), sums and products of positive numbers
only, so nothing cancels however far the barrier has driven the conductances apart. From the leaves
upward a block of points is known to the rest by three nodes: its first point, its last point and the
fork above. Where two blocks meet, the left one's last point, the right one's first point and the
fork itself are eliminated, each with at most three neighbours.
"""

import os
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from protocols.privacy.smoothing.skeleton import Skeleton

try:
    from protocols.privacy import _newton
except ImportError:  # no compiler at build time
    HAVE_NATIVE = False
else:
    HAVE_NATIVE = True

Vector = NDArray[np.float64]


class Network(Protocol):
    """Factor once, solve for as many currents as the step needs."""

    def factor(self, edges: Vector, gaps: Vector) -> None:
        """`edges` by node; `gaps` are m+1: ground to first point, the m−1 gaps, last to ground."""

    def solve(self, currents: Vector) -> Vector:
        """The potentials of all nodes, the ground at 0."""


def native() -> bool:
    """Whether the compiled elimination serves: it was built, and TALLYROOM_NATIVE is not 0."""
    return HAVE_NATIVE and os.environ.get("TALLYROOM_NATIVE") != "0"


def network(tree: Skeleton) -> Network:
    return NativeNetwork(tree) if native() else PureNetwork(tree)


class NativeNetwork:
    def __init__(self, tree: Skeleton) -> None:
        # Columns of the plan and of the factor as `_newton.c` reads them.
        self._plan = np.ascontiguousarray(
            np.stack(
                [tree.left, tree.right, tree.first, tree.last, tree.gap, tree.above[tree.points :]],
                axis=1,
            ).astype(np.int32)
        )
        self._factor = np.empty((tree.points, 16))

    def factor(self, edges: Vector, gaps: Vector) -> None:
        _newton.factor(self._plan, edges, gaps, self._factor)

    def solve(self, currents: Vector) -> Vector:
        potentials = currents.copy()
        _newton.solve(self._plan, self._factor, potentials)
        return potentials


class PureNetwork:
    """The same elimination, one vector operation a level."""

    def __init__(self, tree: Skeleton) -> None:
        self._tree = tree
        m = tree.points
        self._left_leaf = tree.left < m
        self._right_leaf = tree.right < m
        self._weights = np.zeros((12, m - 1))
        self._ends = np.zeros(3)

    def factor(self, edges: Vector, gaps: Vector) -> None:
        tree, m = self._tree, self._tree.points
        # What is left of the block under a node: first–last, first–above, last–above.
        across, start, end = np.zeros(tree.nodes), edges.copy(), np.zeros(tree.nodes)
        for floor in tree.floors:
            left, right = tree.left[floor], tree.right[floor]
            bridge = gaps[tree.gap[floor] + 1]
            w = self._weights[:, floor]

            # The left block's last point: first, fork, right block's first. A leaf stays: it is
            # also the first point of the block.
            stays = self._left_leaf[floor]
            inverse = np.where(stays, 0.0, 1.0 / (across[left] + end[left] + bridge))
            w[0:4] = across[left] * inverse, end[left] * inverse, bridge * inverse, inverse
            first_fork = start[left] + across[left] * w[1]
            right_fork = start[right] + end[left] * w[2]
            first_right = np.where(stays, bridge, across[left] * w[2])

            # The right block's first point: first, fork, last.
            stays = self._right_leaf[floor]
            inverse = np.where(stays, 0.0, 1.0 / (first_right + right_fork + across[right]))
            w[4:8] = first_right * inverse, right_fork * inverse, across[right] * inverse, inverse
            first_fork = first_fork + first_right * w[5]
            last_fork = np.where(stays, right_fork, end[right] + right_fork * w[6])
            first_last = np.where(stays, first_right, first_right * w[6])

            # The fork: first, last, the fork above.
            node = slice(m + floor.start, m + floor.stop)
            inverse = 1.0 / (first_fork + last_fork + edges[node])
            w[8:12] = first_fork * inverse, last_fork * inverse, edges[node] * inverse, inverse
            across[node] = first_last + first_fork * w[9]
            start[node] = first_fork * w[10]
            end[node] = last_fork * w[10]
        if m == 1:
            self._ends[0] = 1.0 / (edges[0] + gaps[0] + gaps[1])
            return
        at_first, at_last = start[-1] + gaps[0], end[-1] + gaps[-1]
        inverse = 1.0 / (across[-1] + at_last)
        share = across[-1] * inverse
        self._ends[:] = 1.0 / (at_first + at_last * share), share, inverse

    def solve(self, currents: Vector) -> Vector:
        tree, m = self._tree, self._tree.points
        v = np.append(currents, 0.0)  # the ground
        upward = np.zeros(tree.nodes)
        for floor in tree.floors:
            w = self._weights[:, floor]
            first, last, before = tree.first[floor], tree.last[floor], tree.gap[floor]
            fork = slice(m + floor.start, m + floor.stop)
            v[fork] += upward[tree.left[floor]] + upward[tree.right[floor]]
            here = v[before]
            v[first] += w[0] * here
            v[fork] += w[1] * here
            v[before + 1] += w[2] * here
            here = v[before + 1]
            v[first] += w[4] * here
            v[fork] += w[5] * here
            v[last] += w[6] * here
            here = v[fork]
            v[first] += w[8] * here
            v[last] += w[9] * here
            upward[fork] = w[10] * here
        if m == 1:
            v[0] *= self._ends[0]
            return v[:-1]
        gain, share, inverse = self._ends
        v[0] = (v[0] + share * v[m - 1]) * gain
        v[m - 1] = inverse * v[m - 1] + share * v[0]
        for floor in reversed(tree.floors):
            w = self._weights[:, floor]
            at_first, at_last = v[tree.first[floor]], v[tree.last[floor]]
            before = tree.gap[floor]
            fork = slice(m + floor.start, m + floor.stop)
            at_fork = w[11] * v[fork] + w[8] * at_first + w[9] * at_last + w[10] * v[tree.above[fork]]
            v[fork] = at_fork
            stays = self._right_leaf[floor]
            at_after = np.where(
                stays,
                v[before + 1],
                w[7] * v[before + 1] + w[4] * at_first + w[5] * at_fork + w[6] * at_last,
            )
            v[before + 1] = at_after
            stays = self._left_leaf[floor]
            v[before] = np.where(
                stays, v[before], w[3] * v[before] + w[0] * at_first + w[1] * at_fork + w[2] * at_after
            )
        return v[:-1]
