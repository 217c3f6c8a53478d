"""Mehrotra's predictor–corrector (SIAM J. Optim. 2, 1992) around a Newton system."""

import math

from protocols.privacy.smoothing.newton import Newton, Progress

GAP = 1e-9
RESIDUAL = 1e-9
# A gap or residual this much looser is still an answer when rounding ends the progress.
SLACK = 1e3
LIMIT = 200


def solve(system: Newton, products: int, joint_steps: bool) -> int:
    """Run until the gap is below GAP of the objective; how many Newton steps that took.

    A quadratic objective ties primal and dual residuals together: `joint_steps` keeps their lengths
    equal. Raises ArithmeticError if progress ends before the gap is closed.
    """
    progress = system.advance(0.0, 0.0)
    for iteration in range(LIMIT):
        if _closed(progress, 1.0):
            return iteration
        predictor = system.direction(None)
        a, b = _lengths(predictor.shrink_primal, predictor.shrink_dual, 1.0, joint_steps)
        affine = progress.gap + a * predictor.primal + b * predictor.dual + a * b * predictor.both
        centring = min(1.0, max(affine, 0.0) / progress.gap) ** 3
        corrector = system.direction(centring * progress.gap / products)
        a, b = _lengths(corrector.shrink_primal, corrector.shrink_dual, 0.99, joint_steps)
        if not (math.isfinite(a * b) and max(a, b) > 1e-10):
            break
        progress = system.advance(a, b)
    if _closed(progress, SLACK):
        return iteration
    raise ArithmeticError(f"smoothing stopped at {progress} after {iteration} Newton steps")


def _closed(progress: Progress, slack: float) -> bool:
    return (
        progress.gap <= slack * GAP * max(progress.objective, 1e-6)
        and progress.primal_residual <= slack * RESIDUAL
        and progress.dual_residual <= slack * RESIDUAL
    )


def _lengths(primal: float, dual: float, fraction: float, joint: bool) -> tuple[float, float]:
    """Of the way to where the first variable reaches zero, this fraction; never more than 1."""
    if joint:
        primal = dual = max(primal, dual)
    return fraction / max(primal, fraction), fraction / max(dual, fraction)
