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


def noisy_max_probabilities(scores: Sequence[int], scale: float) -> Vector:
    """Each index to win report noisy max, ties to the lower one: a sum over the winning value."""
    reach = math.ceil(REACH * scale)
    values = np.arange(min(scores) - reach, max(scores) + reach + 1)
    pmf = [discrete_laplace_pmf(values - score, scale) for score in scores]
    below = [np.concatenate([[0.0], np.cumsum(p)[:-1]]) for p in pmf]
    at_most = [np.cumsum(p) for p in pmf]
    chances = []
    for i in range(len(scores)):
        others = [below[j] if j < i else at_most[j] for j in range(len(scores)) if j != i]
        chances.append(float((pmf[i] * np.prod(others, axis=0)).sum()))
    return np.array(chances)


def exponential_probabilities(scores: Sequence[int], scale: float) -> Vector:
    weights = np.exp((np.array(scores) - max(scores)) / scale)
    shares: Vector = weights / weights.sum()
    return shares


def permute_and_flip_probabilities(scores: Sequence[int], scale: float) -> Vector:
    """By all outcomes of all coins."""
    heads = np.exp((np.array(scores) - max(scores)) / scale)
    chances = np.zeros(len(scores))
    for outcome in range(1, 2 ** len(scores)):
        shown = np.array([outcome >> i & 1 for i in range(len(scores))], dtype=bool)
        weight = np.prod(np.where(shown, heads, 1 - heads))
        chances[shown] += weight / shown.sum()
    return chances


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
