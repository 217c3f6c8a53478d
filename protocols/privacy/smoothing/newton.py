"""The Newton system of S0 Eq. 3's interior point, for p = 1 and p = 2.

With c_v the sum of the corrections ν from the root down to v, a correction is a difference along an
edge of the skeleton, ν = Zc, and the curve is F̃ = F̂ + c at the points. The slacks are the steps of
the curve, s = Gc + h ≥ 0, with F̃ = 0 before the first point and `upper` after the last one if there
is a box. Multipliers λ ≥ 0 belong to s.

p = 2 minimises Σ ν²/length, p = 1 minimises Σ |ν| with ν = u⁺ − u⁻ and multipliers z± = 1 ∓ y,
where y is the flow on the edge. (A chain of `length` nodes shares its correction evenly for p = 2,
in any way for p = 1.) Optimal: Zᵀy = Gᵀλ, and the products sλ, u⁺z⁺, u⁻z⁻ vanish; y = 2ν/length for
p = 2. Eliminating all but c from a Newton step leaves the network with 2/length, or
1/(u⁺/z⁺ + u⁻/z⁻), on the edges, and λ/s on the gaps.
"""

import os
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.privacy.smoothing.network import TreeNetwork
from tallyroom.protocols.privacy.smoothing.skeleton import Skeleton

try:
    from tallyroom.protocols.privacy import _newton
except ImportError:  # no compiler at build time
    HAVE_NATIVE = False
else:
    HAVE_NATIVE = True

Vector = NDArray[np.float64]

# Rows of `State.nodes` and `State.gaps`; `_newton.c` reads the same.
C, DC, EDGE, Y, DY, UP, DUP, UM, DUM, ZP, ZM = range(11)
S, LAM, DS, DLAM, K, H, RP = range(7)
# Rows a power of two apart fall into one set of the cache: p = 1 at N = 2^12 takes half as long
# again.
PAD = 24
# A difference of two numbers near 1 is no better known than this. Slacks and u± fall far below it,
# so a primal residual this small is none: times a conductance it would be an error in the dual.
ROUNDING = 1e-14


class NewtonProgress(NamedTuple):
    """`gap` is the sum of all products that vanish at the optimum."""

    gap: float
    objective: float
    primal_residual: float
    dual_residual: float


class NewtonDirection(NamedTuple):
    """`shrink_*` is the largest relative decrease −dx/x of a variable that must stay positive.

    After steps (a, b) of primal and dual variables the gap is
    gap + a·`primal` + b·`dual` + a·b·`both`.
    """

    shrink_primal: float
    shrink_dual: float
    primal: float
    dual: float
    both: float


@dataclass
class State:
    """Everything an iteration touches. Without a box the two end gaps have λ = 0 and never move."""

    tree: Skeleton
    p: int
    box: bool
    node_rows: Vector
    gap_rows: Vector

    @property
    def nodes(self) -> Vector:
        return self.node_rows[:, : 2 * self.tree.points]

    @property
    def gaps(self) -> Vector:
        return self.gap_rows[:, : self.tree.points + 1]

    @property
    def inside(self) -> slice:
        m = self.tree.points
        return slice(0, m + 1) if self.box else slice(1, m)

    @property
    def products(self) -> int:
        m = self.tree.points
        return (m + 1 if self.box else m - 1) + (2 * (2 * m - 1) if self.p == 1 else 0)


def start(tree: Skeleton, steps: Vector, p: int, box: bool) -> State:
    """c = 0 and equal multipliers, which leaves the dual residual 0; `steps` is h, m+1 long."""
    m = tree.points
    state = State(
        tree, p, box, np.zeros((11 if p == 1 else 3, 2 * m + PAD)), np.zeros((7, m + 1 + PAD))
    )
    inside = state.inside
    size = max(float(np.abs(steps[inside]).mean()), 1e-12)
    gaps, nodes = state.gaps, state.nodes
    gaps[H] = steps
    gaps[S] = 1.0
    gaps[S, inside] = np.maximum(steps[inside], size)
    if p == 2:
        gaps[LAM, inside] = size
        nodes[EDGE, :-1] = 2.0 / tree.length
    else:
        gaps[LAM, inside] = 0.5
        nodes[[UP, UM], :-1] = size
        nodes[[ZP, ZM], :-1] = 1.0
    return state


class Newton(Protocol):
    def advance(self, primal: float, dual: float) -> NewtonProgress:
        """Go these lengths along the last direction, then measure and factor where that led to."""

    def direction(self, target: float | None) -> NewtonDirection:
        """Predictor with None; else the corrector of the last direction, aimed at all products =
        `target`."""


def native() -> bool:
    """Whether the compiled loop serves: it was built, and TALLYROOM_NATIVE is not 0."""
    return HAVE_NATIVE and os.environ.get("TALLYROOM_NATIVE") != "0"


def newton(state: State) -> Newton:
    return NativeNewton(state) if native() else PureNewton(state)


class NativeNewton:
    def __init__(self, state: State) -> None:
        self._state = state
        tree = state.tree
        columns = [
            tree.left,
            tree.right,
            tree.first,
            tree.last,
            tree.gap,
            tree.above[tree.points :],
        ]
        self._plan = np.empty((tree.points - 1, len(columns)), dtype=np.int32)
        for column, entries in enumerate(columns):
            self._plan[:, column] = entries
        self._above = tree.above.astype(np.int32)
        self._factor = np.empty(8 * tree.points)

    def advance(self, primal: float, dual: float) -> NewtonProgress:
        s = self._state
        return NewtonProgress(
            *_newton.advance(
                self._plan,
                self._above,
                s.node_rows,
                s.gap_rows,
                self._factor,
                s.p,
                s.box,
                primal,
                dual,
            )
        )

    def direction(self, target: float | None) -> NewtonDirection:
        s = self._state
        correct = target is not None
        return NewtonDirection(
            *_newton.direction(
                self._plan,
                self._above,
                s.node_rows,
                s.gap_rows,
                self._factor,
                s.p,
                s.box,
                correct,
                target or 0.0,
            )
        )


class PureNewton:
    def __init__(self, state: State) -> None:
        self._state = state
        self._network = TreeNetwork(state.tree)

    def _along(self, potentials: Vector) -> Vector:
        """Z"""
        return potentials[:-1] - potentials[self._state.tree.above]

    def _into(self, flows: Vector) -> Vector:
        """Zᵀ, by node and ground."""
        tree = self._state.tree
        out = np.append(flows, 0.0)
        out[tree.points : -1] -= flows[tree.left] + flows[tree.right]
        return out

    def advance(self, primal: float, dual: float) -> NewtonProgress:
        state, nodes, gaps = self._state, self._state.nodes, self._state.gaps
        m, inside = state.tree.points, state.inside
        nodes[C] += primal * nodes[DC]
        gaps[S] += primal * gaps[DS]
        gaps[LAM] += dual * gaps[DLAM]
        gap = float(gaps[S, inside] @ gaps[LAM, inside])
        ν = self._along(nodes[C])
        primal_residual = 0.0
        if state.p == 2:
            y = nodes[EDGE, :-1] * ν
            objective = 0.5 * float(y @ ν)
        else:
            nodes[[UP, UM]] += primal * nodes[[DUP, DUM]]
            nodes[Y] += dual * nodes[DY]
            nodes[ZP] -= dual * nodes[DY]
            nodes[ZM] += dual * nodes[DY]
            up, um, zp, zm = nodes[[UP, UM, ZP, ZM], :-1]
            y = nodes[Y, :-1]
            nodes[EDGE, :-1] = zp * zm / (up * zm + um * zp)
            gap += float(up @ zp + um @ zm)
            objective = float(np.abs(ν).sum())
            primal_residual = float(np.abs(_beyond_rounding(ν - up + um)).max())
        points = np.concatenate([[0.0], nodes[C, :m], [0.0]])
        gaps[RP, inside] = _beyond_rounding(np.diff(points) + gaps[H] - gaps[S])[inside]
        gaps[K] = gaps[LAM] / gaps[S]
        unbalanced = self._into(y)[:-1]
        unbalanced[:m] -= gaps[LAM, :-1] - gaps[LAM, 1:]
        self._network.factor(nodes[EDGE], gaps[K])
        return NewtonProgress(
            gap,
            objective,
            max(primal_residual, float(np.abs(gaps[RP]).max())),
            float(np.abs(unbalanced).max()),
        )

    def direction(self, target: float | None) -> NewtonDirection:
        state, nodes, gaps = self._state, self._state.nodes, self._state.gaps
        m, inside = state.tree.points, state.inside
        s, lam, k, rp = gaps[[S, LAM, K, RP]]
        second = np.zeros(m + 1)
        if target is not None:
            second[inside] = ((gaps[DS] * gaps[DLAM] - target) / s)[inside]
        edge, ν = nodes[EDGE, :-1], self._along(nodes[C])
        if state.p == 2:
            flow = edge * ν
        else:
            up, um, zp, zm = nodes[[UP, UM, ZP, ZM], :-1]
            second_p = second_m = np.zeros(2 * m - 1)
            if target is not None:
                second_p = (-nodes[DUP] * nodes[DY] - target)[:-1]
                second_m = (nodes[DUM] * nodes[DY] - target)[:-1]
            pull = up - um + _beyond_rounding(ν - (up - um))
            pull += (second_p * zm - second_m * zp) / (zp * zm)
            flow = nodes[Y, :-1] + edge * pull
        currents = -self._into(flow)
        push = second + k * rp
        currents[:m] -= push[:-1] - push[1:]
        dc = self._network.solve(currents)
        nodes[DC] = dc

        ds = np.zeros(m + 1)
        ds[inside] = (np.diff(np.concatenate([[0.0], dc[:m], [0.0]])) + rp)[inside]
        dlam = -lam - second - k * ds
        gaps[DS], gaps[DLAM] = ds, dlam
        primal_pairs, dual_pairs = [(s[inside], ds[inside])], [(lam[inside], dlam[inside])]
        if state.p == 1:
            dy = edge * (self._along(dc) + pull)
            dup = (up * (dy - zp) - second_p) / zp
            dum = (um * (-dy - zm) - second_m) / zm
            nodes[[DY, DUP, DUM], :-1] = dy, dup, dum
            primal_pairs += [(up, dup), (um, dum)]
            dual_pairs += [(zp, -dy), (zm, dy)]
        pairs = list(zip(primal_pairs, dual_pairs, strict=True))
        return NewtonDirection(
            _shrink(primal_pairs),
            _shrink(dual_pairs),
            sum(float(dx @ z) for (_, dx), (z, _) in pairs),
            sum(float(x @ dz) for (x, _), (_, dz) in pairs),
            sum(float(dx @ dz) for (_, dx), (_, dz) in pairs),
        )


def _shrink(pairs: list[tuple[Vector, Vector]]) -> float:
    # `np.max` and not `max`, which may drop a NaN.
    return float(np.max([np.max(-dx / x, initial=0.0) for x, dx in pairs]))


def _beyond_rounding(residual: Vector) -> Vector:
    return np.where(np.abs(residual) < ROUNDING, 0.0, residual)
