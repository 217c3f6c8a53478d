"""Mehrotra's predictor–corrector (SIAM J. Optim. 2, 1992) around a Newton system."""

import math

from protocols.privacy.smoothing.newton import C, Newton, Progress, State

GAP = 1e-8
PRIMAL = 1e-9
DUAL = 1e-8
# When rounding ends the progress, an answer this much looser still stands.
SLACK = 50.0
LIMIT = 200


def solve(state: State, system: Newton) -> int:
    """Bring `state` to the optimum; how many Newton steps that took.

    Near the optimum the conductances λ/s grow past 1/(machine precision), and for p = 1 steps taken
    there can lose the dual again: the best corrections met are kept, and no product is aimed below
    what the gap needs. Raises ArithmeticError if progress ends before the gap is closed.
    """
    progress = system.advance(0.0, 0.0)
    best, kept = SLACK, state.nodes[C].copy()
    for iteration in range(LIMIT):
        excess = _excess(progress)
        if excess <= 1.0:
            return iteration
        if excess < best:
            best, kept = excess, state.nodes[C].copy()
        elif best < SLACK and not excess < 100.0 * best:
            break
        predictor = system.direction(None)
        a, b = _lengths(state.p, predictor.shrink_primal, predictor.shrink_dual, 1.0)
        affine = progress.gap + a * predictor.primal + b * predictor.dual + a * b * predictor.both
        aim = progress.gap * min(1.0, max(affine, 0.0) / progress.gap) ** 3
        aim = max(aim, 0.1 * GAP * _size(progress))
        corrector = system.direction(aim / state.products)
        a, b = _lengths(state.p, corrector.shrink_primal, corrector.shrink_dual, 0.99)
        if not (math.isfinite(a * b * affine) and max(a, b) > 1e-10):
            break
        progress = system.advance(a, b)
    if best < SLACK:
        state.nodes[C] = kept
        return iteration
    raise ArithmeticError(f"smoothing stopped at {progress} after {iteration} Newton steps")


def _size(progress: Progress) -> float:
    return max(progress.objective, 1e-6)


def _excess(progress: Progress) -> float:
    """How far the iterate is from being accepted, which is at 1."""
    return max(
        progress.gap / (GAP * _size(progress)),
        progress.primal_residual / PRIMAL,
        progress.dual_residual / DUAL,
    )


def _lengths(p: int, primal: float, dual: float, fraction: float) -> tuple[float, float]:
    """Of the way to where the first variable reaches zero, this fraction; never more than 1.

    The quadratic objective of p = 2 ties primal and dual residuals together: there both go as far.
    """
    if p == 2:
        primal = dual = max(primal, dual)
    return fraction / max(primal, fraction), fraction / max(dual, fraction)
