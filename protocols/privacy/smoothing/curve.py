"""S0 Eq. 3: the non-decreasing curve that the least noise explains.

Post-processing: it reads only what was published, and spends nothing. The program is solved by
Mehrotra's predictor–corrector (SIAM J. Optim. 2, 1992) around a Newton system.
"""

import math

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.privacy.smoothing.newton import (
    C,
    Newton,
    NewtonProgress,
    State,
    newton,
    start,
)
from tallyroom.protocols.privacy.smoothing.problem import Smoothed, checked
from tallyroom.protocols.privacy.smoothing.skeleton import skeleton

# By norm. For p = 1 the smaller the gap, the weaker the weakest conductances: at 1e-8 of the
# objective rounding begins to show in the dual.
GAP = {1: 1e-7, 2: 1e-8}
DUAL = {1: 1e-7, 2: 1e-10}
PRIMAL = 1e-11
# When rounding ends the progress, the best answer stands if it is no more than this much looser.
SLACK = 5.0
DUAL_SLACK = 500.0
STALLED = 12
LIMIT = 200


def solve(state: State, system: Newton) -> int:
    """Brings `state` to the optimum, and returns how many Newton steps that took.

    Near the optimum of p = 1 parts of the network hang on the ground by conductances below machine
    precision, and rounding moves them about: no product is aimed below what the gap needs, and the
    best corrections met are kept. Raises ArithmeticError if progress ends before the gap is closed.
    """
    progress = system.advance(0.0, 0.0)
    best, since, kept = SLACK, 0, state.nodes[C].copy()
    for iteration in range(LIMIT):
        if _excess(state.p, progress, 1.0) <= 1.0:
            return iteration
        excess = _excess(state.p, progress, DUAL_SLACK / SLACK)
        since += 1
        if excess < best:
            best, since, kept = excess, 0, state.nodes[C].copy()
        elif best < SLACK and (since > STALLED or not excess < 100.0 * best):
            break
        predictor = system.direction(None)
        a, b = _lengths(state.p, predictor.shrink_primal, predictor.shrink_dual, 1.0)
        affine = progress.gap + a * predictor.primal + b * predictor.dual + a * b * predictor.both
        aim = progress.gap * min(1.0, max(affine, 0.0) / progress.gap) ** 3
        aim = max(aim, 0.1 * GAP[state.p] * _size(progress))
        corrector = system.direction(aim / state.products)
        a, b = _lengths(state.p, corrector.shrink_primal, corrector.shrink_dual, 0.995)
        if not (math.isfinite(a * b * affine) and max(a, b) > 1e-10):
            break
        progress = system.advance(a, b)
    if best < SLACK:
        state.nodes[C] = kept
        return iteration
    raise ArithmeticError(f"smoothing stopped at {progress} after {iteration} Newton steps")


def _size(progress: NewtonProgress) -> float:
    return max(progress.objective, 1e-6)


def _excess(p: int, progress: NewtonProgress, dual_slack: float) -> float:
    """How far the iterate is from being accepted: at 1 it is."""
    return max(
        progress.gap / (GAP[p] * _size(progress)),
        progress.primal_residual / PRIMAL,
        progress.dual_residual / (DUAL[p] * dual_slack),
    )


def _lengths(p: int, primal: float, dual: float, fraction: float) -> tuple[float, float]:
    """Step lengths: `fraction` of the way to where the first variable reaches zero, at most 1.

    The quadratic objective of p = 2 ties primal and dual residuals together, so both steps are
    equally long.
    """
    if p == 2:
        primal = dual = max(primal, dual)
    return fraction / max(primal, fraction), fraction / max(dual, fraction)


def smooth(
    noisy: NDArray[np.float64],
    *,
    p: int,
    indices: NDArray[np.int64] | None = None,
    levels: int | None = None,
    box: bool = True,
    upper: float = 1.0,
) -> Smoothed:
    """The non-decreasing curve nearest to `noisy` in the `p`-norm of node corrections (Eq. 3).

    `noisy` are the published values at `indices` (B, increasing, 1-based; all of 1..N by default)
    of a tree with `levels` = L (by default the smallest that reaches the last index). With `box`
    the curve stays within 0..`upper`: 1 for a distribution function, n for counts. The curve is
    non-decreasing and inside the box exactly, not to a tolerance; the objective is its own.

    Raises ValueError for what `checked` refuses, ArithmeticError if progress ends too early.
    """
    noisy, indices, levels = checked(noisy, p, indices, levels, upper)
    if len(noisy) == 1 and not box:
        return Smoothed(noisy.copy(), 0.0, 0)
    tree = skeleton(indices, levels)
    m = tree.points
    # Eq. 3 scales with its data; tolerances are meant for numbers near 1.
    scale = max(float(np.abs(noisy).max()), upper) if box else float(np.abs(noisy).max()) or 1.0
    steps = np.diff(noisy / scale, prepend=0.0, append=upper / scale)
    state = start(tree, steps, p, box)
    iterations = solve(state, newton(state))

    curve = np.maximum.accumulate(noisy + scale * state.nodes[C, :m])
    if box:
        curve = np.clip(curve, 0.0, upper)
    c = scale * state.nodes[C]
    c[:m] = curve - noisy
    ν = c[:-1] - c[tree.above]
    objective = float(np.abs(ν).sum() if p == 1 else (ν * ν / tree.length).sum())
    return Smoothed(curve, objective, iterations)
