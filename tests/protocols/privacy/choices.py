"""Exact probabilities of private choices, and the ε that samples of an attack prove."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tests.goodness import discrete_laplace_pmf

Vector = NDArray[np.float64]

REACH = 60
"""Noise is enumerated up to this many scales: what is left weighs below e^-60."""


def exponential_probabilities(scores: Sequence[int], scale: float) -> Vector:
    weights = np.exp((np.array(scores) - max(scores)) / scale)
    shares: Vector = weights / weights.sum()
    return shares


def above_threshold_probabilities(
    scores: Sequence[int], threshold: int, bar_scale: float, query_scale: float
) -> Vector:
    """Each index to be the first yes, and last that none is: a sum over the noisy threshold."""
    reach = math.ceil(REACH * bar_scale)
    bars = np.arange(threshold - reach, threshold + reach + 1)
    left = discrete_laplace_pmf(bars - threshold, bar_scale)
    chances = []
    p = math.exp(-1 / query_scale)
    for score in scores:
        gap = bars - score
        tail = np.exp(-np.abs(gap) / query_scale) / (1 + p)
        yes = np.where(gap > 0, tail, 1 - tail * p)
        chances.append(float((left * yes).sum()))
        left = left * (1 - yes)
    return np.array([*chances, left.sum()])


def worst_loss(here: Vector, there: Vector) -> float:
    return float(np.abs(np.log(here) - np.log(there)).max())


def proven_epsilon(hits: int, hits_there: int, runs: int, alpha: float) -> float:
    """The ln(p/p') that Clopper and Pearson's bounds prove, each at `alpha`."""
    if not hits:
        return -math.inf
    low = stats.beta.ppf(alpha, hits, runs - hits + 1)
    high = stats.beta.isf(alpha, hits_there + 1, runs - hits_there)
    return float(np.log(low / high))
