"""Interval containment on comparison keys: how many values lie in [l, r], for public l and r.

A private value α lies in [l, r] exactly if α ≤ r and not α ≤ l − 1. So any comparison key answers
any interval, by one subtraction after `evaluate`. (For private intervals and a public, masked x see
BCG+21, eprint 2020/1392; that is another function and needs other keys.)
"""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from tallyroom.fss.ring import Points, Words, as_points
from tallyroom.fss.storage import Keys


class Comparator(Protocol):
    """The methods of a comparison that intervals need, as in `fss.comparison.Comparison`."""

    @property
    def bits(self) -> int: ...

    def evaluate(self, server: int, keys: Keys, thresholds: npt.ArrayLike) -> Words: ...

    def evaluate_sum(self, server: int, keys: Keys, thresholds: npt.ArrayLike) -> Words: ...


def evaluate(
    comparison: Comparator,
    server: int,
    keys: Keys,
    lefts: npt.ArrayLike,
    rights: npt.ArrayLike,
) -> Words:
    """(K, T) shares of l ≤ α ≤ r. Raises ValueError unless every l ≤ r."""
    left, right = _intervals(comparison.bits, lefts, rights)
    below = comparison.evaluate(server, keys, _before(left))
    below[:, left == 0] = 0
    return np.subtract(comparison.evaluate(server, keys, right), below)


def evaluate_sum(
    comparison: Comparator,
    server: int,
    keys: Keys,
    lefts: npt.ArrayLike,
    rights: npt.ArrayLike,
) -> Words:
    """(T,) shares of the number of keys with l ≤ α ≤ r. Raises ValueError unless every l ≤ r."""
    left, right = _intervals(comparison.bits, lefts, rights)
    # One evaluation, because neighbouring ends share most of their paths.
    both = comparison.evaluate_sum(server, keys, np.concatenate([right, _before(left)]))
    below = both[len(right) :]
    below[left == 0] = 0
    return np.subtract(both[: len(right)], below)


def _intervals(bits: int, lefts: npt.ArrayLike, rights: npt.ArrayLike) -> tuple[Points, Points]:
    left, right = as_points(lefts, bits, "lefts"), as_points(rights, bits, "rights")
    if left.shape != right.shape:
        raise ValueError(f"{len(left)} left ends do not match {len(right)} right ends")
    if np.any(left > right):
        raise ValueError("an interval's left end must not exceed its right end")
    return left, right


def _before(left: Points) -> Points:
    """l − 1, or 0 for l = 0, where the caller sets the count below to zero."""
    return np.where(left == 0, left, left - np.uint64(1))
