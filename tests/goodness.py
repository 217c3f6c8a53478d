"""Goodness of fit. `ALPHA` is the chance that one test refuses a right program."""

import numpy as np
from numpy.typing import NDArray
from scipy import stats

ALPHA = 1e-9
"""There are some hundred statistical checks: together they err less than once in a million."""

LEAST_EXPECTED = 10.0


def chi_square_p(counts: NDArray[np.int64], expected: NDArray[np.float64]) -> float:
    """P-value of `counts` under the `expected` counts; what is rare is pooled first."""
    order = np.argsort(expected)
    pooled = np.searchsorted(np.cumsum(expected[order]), LEAST_EXPECTED) + 1
    rare, common = order[:pooled], order[pooled:]
    observed = np.append(counts[common], counts[rare].sum())
    wanted = np.append(expected[common], expected[rare].sum())
    return float(stats.chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue)


def fits(samples: NDArray[np.int64], support: NDArray[np.int64], p: NDArray[np.float64]) -> float:
    """P-value of integer samples under the probabilities `p` of a contiguous `support`.

    What falls outside the support is one more cell.
    """
    inside = (samples >= support[0]) & (samples <= support[-1])
    counts = np.bincount(samples[inside] - support[0], minlength=len(support))
    observed = np.append(counts, np.count_nonzero(~inside))
    expected = np.append(p, max(0.0, 1 - float(p.sum()))) * len(samples)
    return chi_square_p(observed, expected)


def uniform_bytes_p(data: bytes) -> float:
    """P-value of bytes being uniform and independent of their place in a word of 8."""
    values = np.frombuffer(data, dtype=np.uint8)
    counts = np.bincount(values, minlength=256)
    return float(stats.chisquare(counts).pvalue)


def discrete_laplace_pmf(support: NDArray[np.int64], scale: float) -> NDArray[np.float64]:
    q = np.exp(-1 / scale)
    pmf: NDArray[np.float64] = (1 - q) / (1 + q) * np.exp(-np.abs(support) / scale)
    return pmf
