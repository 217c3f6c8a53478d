"""Private choices: which candidate scores best, and which query is the first above a threshold.

Scores are integers, and Δ (`sensitivity`) bounds how far replacing one record moves any one of
them; rational scores are brought to a common denominator first, and Δ with them. All noise is
exact, on integers, so every map below is exact too, with δ = 0. Only the index leaves, never a
score. Whoever runs this holds the exact scores and is trusted: a curator, or servers that compare
noisy scores under encryption.

Scores are *monotone* if, between any two adjacent data sets, all of them move in the same direction
(some may stay). Then half the noise suffices. Counts under add/remove adjacency are monotone; under
replacement, which this project assumes, the counts of disjoint cells are not (one gains what
another loses), but the counts below increasing thresholds are.

- Exponential mechanism (McSherry and Talwar 2007): P(i) ∝ exp(score_i/s), s = 2Δ/ε or Δ/ε.
- Above threshold (Dwork and Roth 2014, Algorithm 1), with geometric noise of one scale s on the
  threshold and on every query, and nothing answered after the first yes: 3Δ/s-private, and 2Δ/s for
  monotone queries. The noise is not negative, which has half the variance of Laplace noise at the
  same price; `protocols.joint.above_threshold`, which does the same under encryption, proves it.

How long a choice takes depends on the scores (rejection): hide it where time can be observed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.laplace import (
    Integers,
    geometric,
    representable,
    uniform,
)
from tallyroom.protocols.randomness import Randomness

Flags = NDArray[np.bool]

LARGEST_SCORE = 1 << 60


@dataclass(frozen=True)
class Exponential:
    """P(i) ∝ exp(score_i / scale), exactly: no weight is ever rounded.

    A uniform candidate is kept with probability exp(−gap/scale), where gap is its distance from the
    best: the chance that a geometric variable reaches the gap. About N tries at worst.
    """

    scale: Fraction

    @classmethod
    def spending(cls, epsilon: Fraction, sensitivity: int, monotone: bool = False) -> Self:
        """The sharpest choice whose privacy map stays within `epsilon`.

        Raises LocalError if the scale is too large to sample, ValueError for a sensitivity or ε
        that is not positive.
        """
        return cls(_scale((1 if monotone else 2) * sensitivity, epsilon))

    def privacy_map(self, sensitivity: int, monotone: bool = False) -> Fraction:
        """ε between data sets whose scores differ by at most `sensitivity` each. δ is 0."""
        return (1 if monotone else 2) * sensitivity / self.scale

    def choose(self, scores: ArrayLike, randomness: Randomness) -> int:
        """Raises ValueError for no score, scores that are no integers, or any beyond ±2^60."""
        return int(self.choose_often(1, scores, randomness)[0])

    def choose_often(self, count: int, scores: ArrayLike, randomness: Randomness) -> Integers:
        """`count` independent choices, each of which costs the ε of one; raises as `choose`."""
        gaps = _gaps(scores)
        chosen = np.empty(count, dtype=np.int64)
        pending = np.arange(count)
        while len(pending):
            tried = uniform(len(pending) * len(gaps), len(gaps), randomness)
            coins = geometric(tried.size, self.scale, randomness)
            keep = (coins >= gaps[tried]).reshape(len(pending), len(gaps))
            done = keep.any(axis=1)
            first = np.argmax(keep[done], axis=1)
            rows = tried.reshape(keep.shape)[done]
            chosen[pending[done]] = np.take_along_axis(rows, first[:, None], axis=1)[:, 0]
            pending = pending[~done]
        return chosen


@dataclass(frozen=True)
class Above:
    """The query of this index, from 0, was the first above the threshold."""

    index: int


@dataclass(frozen=True)
class NoneAbove:
    """None of the `asked` queries was above the threshold."""

    asked: int


@dataclass(frozen=True)
class AboveThreshold:
    """The sparse vector technique, for one yes. Queries may depend on the answers before them."""

    scale: Fraction

    @classmethod
    def spending(cls, epsilon: Fraction, sensitivity: int, monotone: bool = False) -> Self:
        """The least noise whose privacy map stays within `epsilon`; raises as Exponential."""
        return cls(_scale((2 if monotone else 3) * sensitivity, epsilon))

    def privacy_map(self, sensitivity: int, monotone: bool = False) -> Fraction:
        """ε of a whole search, however many queries it asked. δ is 0."""
        return (2 if monotone else 3) * sensitivity / self.scale

    def search(self, threshold: int, limit: int, randomness: Randomness) -> "Search":
        """Starts one search of at most `limit` queries, which spends its ε whatever comes.

        The threshold and the limit are public. Raises ValueError for a limit below 1.
        """
        return Search(self, threshold, limit, randomness)

    def first_above(
        self, scores: Iterable[int], threshold: int, limit: int, randomness: Randomness
    ) -> Above | NoneAbove:
        """The first of at most `limit` scores that is above; no score after it is looked at."""
        search = self.search(threshold, limit, randomness)
        for index, score in enumerate(scores):
            if search.ask(score):
                return Above(index)
            if index + 1 == limit:
                break
        return NoneAbove(search.asked)


class Search:
    """One noisy threshold and the queries put to it; the first yes ends it for good."""

    def __init__(
        self, mechanism: AboveThreshold, threshold: int, limit: int, randomness: Randomness
    ) -> None:
        if limit < 1:
            raise ValueError(f"a search takes at least one query, not {limit}")
        self._mechanism = mechanism
        self._limit = limit
        self._randomness = randomness
        noise = geometric(1, mechanism.scale, randomness)
        self._bar = int(checked_scores([threshold])[0]) + int(noise[0])
        self._ended = False
        self.asked = 0

    def ask(self, score: int) -> bool:
        """Whether the noisy score reaches the noisy threshold.

        Raises LocalError after a yes and after `limit` queries: an answer then would cost more ε
        than the search has paid for.
        """
        if self._ended:
            raise LocalError(
                "this search has ended with a yes: another search costs another epsilon"
            )
        if self.asked == self._limit:
            raise LocalError(f"this search has asked all of its {self._limit} queries")
        exact = int(checked_scores([score])[0])
        noise = geometric(1, self._mechanism.scale, self._randomness)
        self.asked += 1
        self._ended = exact + int(noise[0]) >= self._bar
        return self._ended


def checked_scores(scores: ArrayLike) -> Integers:
    array = np.asarray(scores)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"scores must be a vector of at least one, not of shape {array.shape}")
    if array.dtype.kind not in "iu":
        raise ValueError(f"scores must be integers that fit 64 bits, not {array.dtype}")
    if array.min() < -LARGEST_SCORE or array.max() > LARGEST_SCORE:
        raise ValueError("a score is beyond ±2^60")
    return array.astype(np.int64)


def _gaps(scores: ArrayLike) -> Integers:
    """The difference between the best score and each score."""
    exact = checked_scores(scores)
    gaps: Integers = exact.max() - exact
    return gaps


def _scale(numerator: int, epsilon: Fraction) -> Fraction:
    if numerator <= 0 or epsilon <= 0:
        raise ValueError("the sensitivity and epsilon must be positive")
    try:
        return representable(Fraction(numerator) / epsilon)
    except ValueError as error:
        raise LocalError(f"epsilon {float(epsilon):g} is too small: {error}") from None
