"""Exact probabilities of private choices, and the ε that samples of an attack prove."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Vector = NDArray[np.float64]

REACH = 60
"""Noise is enumerated up to this many scales: what is left weighs below e^-60."""


def exponential_probabilities(scores: Sequence[int], scale: float) -> Vector:
    weights = np.exp((np.array(scores) - max(scores)) / scale)
    shares: Vector = weights / weights.sum()
    return shares


def above_threshold_probabilities(scores: Sequence[int], threshold: int, scale: float) -> Vector:
    """Each index to be the first yes, and last that none is: a sum over the noisy threshold."""
    p = math.exp(-1 / scale)
    noise = np.arange(math.ceil(REACH * scale) + 1)
    left = (1 - p) * p**noise
    chances = []
    for score in scores:
        yes = p ** np.maximum(threshold + noise - score, 0)
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
