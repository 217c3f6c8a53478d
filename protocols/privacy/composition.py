"""The cost of many (ε, δ) releases together: optimal composition of what was charged.

A mechanism of which only (ε, δ) is known is dominated by one pair of distributions (Kairouz, Oh and
Viswanath 2015, Theorem 3.3; Murtagh and Vadhan 2016): with probability δ it tells everything, else
it is randomized response, whose privacy loss is +ε with probability 1/(1 + e^-ε) and -ε otherwise.
Losses of independent releases add up, so the loss of all of them together has the convolution of
their distributions, and for a total ε'

    δ(ε') = 1 - Π (1 - δ_i) · (1 - E[max(0, 1 - e^(ε' - L))]),   L = Σ ±ε_i.

Equal ε are one binomial. Different ones meet on a grid, every loss rounded up, and what is cut off
the tails or lost in arithmetic counts as told entirely: the result is an upper bound.

It holds for releases whose ε and δ were fixed beforehand. Where an analyst chooses the next ε in
view of earlier answers, only the plain sum is proved here (Rogers et al. 2016 discuss filters).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.privacy.loss import NO_LOSS, PrivacyLoss

Floats = NDArray[np.float64]

GRID = 1 << 17
"""Points of the grid on which different ε meet."""
MAX_GROUPS = 512
"""Different ε that are kept apart; beyond that, they are rounded up to as many."""
_TAIL = 1e-18
"""Probability cut off at each end of a binomial; it counts as told entirely."""
_ARITHMETIC = 1e-9
"""Relative error allowed for in a binomial's probabilities."""


@dataclass(frozen=True)
class _Losses:
    """Privacy losses `least`, `least` + `step`, … with their probabilities; the rest is told."""

    least: float
    step: float
    chances: Floats


def composed_epsilon(charges: Mapping[PrivacyLoss, int], delta: float) -> float:
    """The least ε found at which all losses together, each spent so often, are within ε, `delta`.

    Never more than the plain sum where that holds. Infinite if a loss is unbounded, or if their δ
    use up `delta`. Concentrated losses are summed and converted.
    """
    if not 0 <= delta < 1:
        raise ValueError(f"delta is a probability from 0 to below 1, not {delta}")
    if not all(loss.bounded and loss.delta < 1 for loss in charges):
        return math.inf
    if any(loss.rho is not None for loss in charges):
        found = sum((loss * count for loss, count in charges.items()), NO_LOSS).at(delta).epsilon
        return math.inf if found is None else float(found)
    counts = list(charges.values())
    epsilons = np.repeat([float(loss.epsilon or 0) for loss in charges], counts)
    deltas = np.repeat([float(loss.delta) for loss in charges], counts)
    told = -math.expm1(math.fsum(np.log1p(-deltas)))
    if told > delta:
        return math.inf
    plain = math.fsum(epsilons)
    if delta <= told:
        return plain
    losses, lost = _compose(*_groups(epsilons[epsilons > 0]))
    # 1 - (1 - told)(1 - x) <= delta, solved for x; what was lost on the way counts as told.
    room = (delta - told) / (1 - told) - lost
    if room <= 0:
        return plain
    return min(plain, _least_epsilon(losses, room))


def _groups(epsilons: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """The different ε and how often each is there; too many are rounded up to the largest of a
    range, which is pessimistic: what is ε-private is also private at any larger ε."""
    values, counts = np.unique(epsilons, return_counts=True)
    if len(values) <= MAX_GROUPS:
        return values, counts.astype(np.int64)
    edges = np.geomspace(values[0], values[-1], MAX_GROUPS + 1)
    at = np.clip(np.searchsorted(edges, values, side="left"), 1, MAX_GROUPS)
    largest = np.flatnonzero(np.diff(at, append=-1))
    starts = np.append(0, largest[:-1] + 1)
    return values[largest], np.add.reduceat(counts, starts).astype(np.int64)


def _compose(values: Floats, counts: NDArray[np.int64]) -> tuple[_Losses, float]:
    """The loss of all groups together, and the probability that was lost on the way."""
    groups = [_binomial(e, k) for e, k in zip(values.tolist(), counts.tolist(), strict=True)]
    if not groups:
        return _Losses(0.0, 0.0, np.ones(1)), 0.0
    lost = len(groups) * 2 * _TAIL
    if len(groups) == 1:
        return groups[0], lost
    span = math.fsum(group.step * (len(group.chances) - 1) for group in groups)
    step = span / (GRID - len(groups) - 1)  # every group may be rounded up by one step
    spectrum = np.ones(GRID // 2 + 1, dtype=np.complex128)
    for group in groups:
        cells = np.ceil(np.arange(len(group.chances)) * (group.step / step)).astype(np.int64)
        spectrum *= np.fft.rfft(np.bincount(cells, group.chances), GRID)
    chances = np.maximum(np.fft.irfft(spectrum, GRID), 0.0)
    # A transform of GRID N errs by a few u·log2 N in L2, relatively; all inputs have norm at most
    # 1, and an L2 error of e is at most √N·e in any sum of probabilities.
    lost += 3 * math.sqrt(GRID) * (len(groups) + 1) * math.log2(GRID) * 2.0**-53
    return _Losses(math.fsum(group.least for group in groups), step, chances), lost


def _binomial(epsilon: float, count: int) -> _Losses:
    """ε(2B - k) for B ~ Bin(k, 1/(1 + e^-ε)), without its farthest tails (Hoeffding)."""
    from scipy import special, stats  # heavy, and needed where losses are composed alone

    truth = float(special.expit(epsilon))
    reach = math.sqrt(count * math.log(1 / _TAIL) / 2) + 1
    low = max(0, math.floor(count * truth - reach))
    high = min(count, math.ceil(count * truth + reach))
    chances = stats.binom.pmf(np.arange(low, high + 1), count, truth)
    return _Losses(epsilon * (2 * low - count), 2 * epsilon, chances)


def _least_epsilon(losses: _Losses, room: float) -> float:
    """The least ε ≥ 0 with E[max(0, 1 - e^(ε - L))] ≤ `room`, by bisection from above."""
    at = losses.least + losses.step * np.arange(len(losses.chances))
    chances = losses.chances * (1 + _ARITHMETIC)

    def divergence(epsilon: float) -> float:
        above = at > epsilon
        return float(-np.expm1(epsilon - at[above]) @ chances[above])

    low, high = 0.0, max(float(at[-1]), 0.0)
    if divergence(low) <= room:
        return low
    for _ in range(64):
        middle = (low + high) / 2
        low, high = (low, middle) if divergence(middle) <= room else (middle, high)
    return high
