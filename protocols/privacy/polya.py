"""Noise that parties add in shares: differences of Pólya variables sum to discrete Laplace.

A Pólya (negative binomial) variable with parameters r and p has P(k) = C(k+r-1, k) p^k (1-p)^r for
real r > 0. The difference of two with r = 1/k, summed over k parties, is discrete Laplace of scale
s where p = exp(-1/s).

Unlike `laplace`, this sampler inverts the distribution function in floating point. Its outputs are
integers, so there are no low bits to leak, but its probabilities are those of a 64-bit uniform and
a double: `DELTA_PER_DRAW` is the allowance for it that `parties` noise reports in its δ.
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

DELTA_PER_DRAW = 2.0**-45


def polya_difference(
    uniforms: NDArray[np.uint64], scale: Fraction, shape: float
) -> NDArray[np.int64]:
    """One difference for every pair of uniform 64-bit words: `uniforms` has a last axis of 2."""
    from scipy.stats import nbinom  # heavy, and needed only by parties that add noise themselves

    tail = (uniforms.astype(np.float64) + 0.5) * 2.0**-64
    drawn = nbinom.isf(np.minimum(tail, 1 - 2.0**-53), shape, -math.expm1(-1 / float(scale)))
    halves = drawn.astype(np.int64)
    difference: NDArray[np.int64] = halves[..., 0] - halves[..., 1]
    return difference
