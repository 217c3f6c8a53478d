"""The nearest non-decreasing curve within bounds: post-processing that never hurts.

The non-decreasing curves within [lower, upper] are a closed convex set K. If the true curve lies in
K, the Euclidean projection P onto it satisfies ‖P(y) − f‖² ≤ ‖y − f‖² − ‖y − P(y)‖² for every noisy
y: no single run's squared error grows, whatever the noise was. With weights this holds in the
weighted norm, not in the plain one. It reads released values alone, so it spends no ε and trusts
nobody. It is not unbiased: a curve that touches a bound is pushed inwards.

P is isotonic regression by pooling adjacent violators, then clipping: the pools' means depend on no
bound, and clipping a non-decreasing sequence gives the bounded regression (Barlow, Bartholomew,
Bremner and Brunk 1972). S2 §3.3 repairs its ROC curves with the first half of it.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]

LARGEST = 1e100
"""Values and weights are within this, so that no product of them overflows."""


def monotone(
    curve: ArrayLike,
    weights: ArrayLike | None = None,
    lower: float = 0.0,
    upper: float = 1.0,
) -> Vector:
    """The non-decreasing curve within [lower, upper] of least Σ w·(curve − it)², in O(N).

    Bounds may be infinite. Raises ValueError for values that are NaN or beyond ±1e100, weights
    outside [1e-100, 1e100] or of another shape, and bounds that are NaN or cross.
    """
    values = np.asarray(curve, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"a curve is a vector, not an array of shape {values.shape}")
    if not (np.abs(values) <= LARGEST).all():
        raise ValueError(f"a value of the curve is NaN or beyond ±{LARGEST:g}")
    w = np.ones(len(values)) if weights is None else np.asarray(weights, dtype=np.float64)
    if w.shape != values.shape:
        raise ValueError(f"weights of shape {w.shape} for {len(values)} values")
    if not ((w >= 1 / LARGEST) & (w <= LARGEST)).all():
        raise ValueError(f"weights must be within [{1 / LARGEST:g}, {LARGEST:g}]")
    if not lower <= upper:
        raise ValueError(f"the bounds [{lower}, {upper}] hold no curve")
    clipped: Vector = np.clip(_pool_adjacent_violators(values, w), lower, upper)
    return clipped


def _pool_adjacent_violators(values: Vector, weights: Vector) -> Vector:
    """Each value joins the stack of pools; a pool that does not rise above the last one joins it.

    Every merge removes a pool for good, hence O(N).
    """
    means: list[float] = []
    masses: list[float] = []
    sizes: list[int] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        size = 1
        while means and means[-1] >= value:
            mass = masses.pop()
            value = (means.pop() * mass + value * weight) / (mass + weight)
            weight += mass
            size += sizes.pop()
        means.append(value)
        masses.append(weight)
        sizes.append(size)
    return np.repeat(np.array(means, dtype=np.float64), np.array(sizes, dtype=np.int64))
