"""S0 Eq. 3: the non-decreasing curve that the least noise explains.

Post-processing: it reads only what was published, and spends nothing.
"""

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.privacy.smoothing.interior import solve
from tallyroom.protocols.privacy.smoothing.newton import C, newton, start
from tallyroom.protocols.privacy.smoothing.problem import Smoothed, checked
from tallyroom.protocols.privacy.smoothing.skeleton import skeleton


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
