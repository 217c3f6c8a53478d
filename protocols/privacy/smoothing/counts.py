"""The non-decreasing curve nearest to a hierarchy's noisy counts, in the metric of their noise.

All nodes carry equal noise, so the metric is Σ_v (x_v − y_v)² over the counts x_v of the blocks,
with every cell ≥ 0 (the curve does not decrease) and all cells together n. Post-processing: it
spends nothing.

Solved exactly, by one sort a level. Let T be the force from above on a block: the sum of x_a − y_a
over the blocks a around it, and the multiplier of n. A cell answers x = max(0, y − T), a block
x_v = Σ x_child(T + x_v − y_v), so each answer is a convex, falling, piecewise linear function of T
with one kink a cell, where the cell becomes positive. A block takes over its children's kinks: in
descending order of T, with X the block's count at a kink and s the slope there, a kink moves to
T − X + y_v and its change of slope d becomes d/((1+s)(1+s−d)), which stays positive. At the root,
the cells whose kinks come before the total reaches n are the positive ones; the estimate is the
best linear unbiased one given that the others are empty.
"""

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.privacy.hierarchy import Hierarchy, checked_nodes
from tallyroom.protocols.privacy.smoothing.problem import Smoothed

Vector = NDArray[np.float64]


def smooth_counts(hierarchy: Hierarchy, noisy: Vector, n: float) -> Smoothed:
    """The fit as prefix counts at thresholds 1..N, from 0 to n exactly; O(hN log N).

    No iterations are counted: the answer is exact but for rounding. Raises ValueError as
    `Hierarchy.cell_counts` does.
    """
    noisy = checked_nodes(hierarchy, noisy, n)
    if n == 0:
        cells = np.zeros(hierarchy.cells)
    else:
        free = positive_cells(hierarchy, noisy, n)
        cells = np.maximum(hierarchy.cell_counts(noisy, n, free), 0.0)
    curve = np.minimum(np.cumsum(cells), n)
    curve[-1] = n
    residuals = hierarchy.node_counts(curve) - noisy
    return Smoothed(curve, float(residuals @ residuals), 0)


def positive_cells(hierarchy: Hierarchy, noisy: Vector, n: float) -> NDArray[np.bool_]:
    """Marks the cells of the fit that are not empty, for n > 0."""
    if not hierarchy.height:
        return np.ones(1, dtype=np.bool_)
    slices, widths = hierarchy.slices(), hierarchy.widths
    # Whole blocks only: cells past N have kinks that change nothing.
    padded = hierarchy.level_sizes[0] * widths[0]
    kinks, changes = np.zeros(padded), np.zeros(padded)
    kinks[: hierarchy.cells] = noisy[slices[-1]]
    changes[: hierarchy.cells] = 1.0
    for level in reversed(range(hierarchy.height - 1)):
        blocks = (hierarchy.level_sizes[level], widths[level])
        inside = blocks[0] * blocks[1]
        t, d = kinks[:inside].reshape(blocks), changes[:inside].reshape(blocks)
        order = np.argsort(-t, axis=1)
        count, slope = _answer(t, d, order)
        ordered = np.take_along_axis(d, order, axis=1)
        np.put_along_axis(
            t, order, np.take_along_axis(t, order, axis=1) - count + noisy[slices[level], None], 1
        )
        np.put_along_axis(d, order, ordered / ((1.0 + slope) * (1.0 + slope - ordered)), 1)
    t, d = kinks[None, :], changes[None, :]
    order = np.argsort(-t, axis=1)
    count, _ = _answer(t, d, order)
    free = np.empty(padded, dtype=np.bool_)
    free[order[0]] = count[0] < n
    return free[: hierarchy.cells]


def _answer(t: Vector, d: Vector, order: NDArray[np.intp]) -> tuple[Vector, Vector]:
    """A block's count at each of its kinks and its slope just below, row by row, in `order`."""
    t, slope = np.take_along_axis(t, order, axis=1), np.cumsum(np.take_along_axis(d, order, 1), 1)
    count = np.zeros_like(t)
    np.cumsum(slope[:, :-1] * (t[:, :-1] - t[:, 1:]), axis=1, out=count[:, 1:])
    return count, slope
