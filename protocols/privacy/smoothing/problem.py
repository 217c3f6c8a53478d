"""The parts of a smoothing problem, and the checks of its input."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.privacy.tree import MAX_LEVELS


@dataclass(frozen=True)
class Smoothed:
    """A non-decreasing curve, the value of its objective, and how many Newton steps it took."""

    curve: NDArray[np.float64]
    objective: float
    iterations: int


def checked(
    noisy: NDArray[np.float64],
    p: int,
    indices: NDArray[np.int64] | None,
    levels: int | None,
    upper: float,
) -> tuple[NDArray[np.float64], NDArray[np.int64], int]:
    """The curve as floats, B (all points by default) and L (the smallest tree over B by default).

    Raises ValueError for a norm other than 1 and 2, an empty or unordered B, an index that is no
    integer or outside the tree, a curve that does not fit B, or values that are not finite.
    """
    if p not in (1, 2):
        raise ValueError(f"p must be 1 or 2, not {p}")
    noisy = np.asarray(noisy, dtype=np.float64)
    if noisy.ndim != 1 or not len(noisy):
        raise ValueError("the curve needs at least one point")
    if indices is None:
        indices = np.arange(1, len(noisy) + 1)
    if not np.issubdtype(np.asarray(indices).dtype, np.integer):
        raise ValueError("indices must be integers")
    indices = np.asarray(indices, dtype=np.int64)
    if indices.shape != noisy.shape:
        raise ValueError(f"{len(noisy)} values for indices of shape {indices.shape}")
    if levels is None:
        levels = (int(indices[-1]) - 1).bit_length()
    if not 0 <= levels <= MAX_LEVELS:
        raise ValueError(f"a tree has 0 to {MAX_LEVELS} levels, not {levels}")
    if indices[0] < 1 or int(indices[-1]) > 2**levels or (np.diff(indices) <= 0).any():
        raise ValueError(f"indices must increase within 1..2^{levels}")
    if not np.isfinite(noisy).all():
        raise ValueError("the curve holds a value that is NaN or infinite")
    if not (np.isfinite(upper) and upper > 0):
        raise ValueError(f"the upper end of the box must be positive and finite, not {upper}")
    return noisy, indices, levels
