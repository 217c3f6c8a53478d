"""The curves of both classes of a classifier's scores, within one ε.

A record is in one of 2N cells in a row: those of the negatives' scores, then those of the
positives'. What is measured of a score's two curves depends on the strategy of the curves
(`curves.STRATEGIES`) and on whether labels are private.

**Private labels.** Adjacency replaces a record, its label included, so the sizes of the classes are
noisy too; n is public. What replacing a record moves, in the 1-norm:
- a hierarchy of h levels over each class: 2h within a class, and h in each if the label flips. So
  both classes cost no more noise than one. The number of positives is not counted besides, which
  would take 2h + 1: each class's widest blocks tell it, and n, which is exact, tells the rest;
- S0's tree of L levels over each class: a score that moves within a class shifts an interval of one
  curve, which L + 1 noises explain (Theorem 1). A flipped label shifts a suffix of each curve. A
  suffix of m leaves is made of popcount(m) blocks, or of the root less popcount(2^L − m) blocks;
  the smaller is at most ⌊(L + 2)/2⌋, so twice that many noises explain both: L + 2, or L + 1 if L
  is odd. That is exact for L ≤ 5 (by linear programming). S0 §5.1 spends ε a curve.

**Public labels**, as S0 and S1 assume. Only the score of a record is protected: the sizes of the
classes are exact, and one curve moves at a time, by what one curve moves.

Several scores of the same records add up.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tallyroom.protocols.privacy.curves import (
    STRATEGIES,
    CurveStrategy,
    HierarchyStrategy,
    Reals,
    Shares,
    TreeStrategy,
)
from tallyroom.protocols.privacy.isotonic import monotone
from tallyroom.protocols.privacy.noise_law import NoiseLaw, Sensitivity
from tallyroom.protocols.privacy.strategies import Strategy

SMOOTHINGS = ("isotonic", "none", "1", "2")


@dataclass(frozen=True)
class Smoothing:
    """The way curves are made non-decreasing again: not at all, by projection (`isotonic`), or by
    S0 Eq. 3 in a norm, within [0, 1] if `box`."""

    kind: str = "isotonic"
    box: bool = True
    solver: str = "interior-point"


@dataclass(frozen=True)
class ClassDistributions:
    """The share of each class that is at most each threshold, for one score, and the classes'
    sizes."""

    negatives: float
    positives: float
    negative: Reals
    positive: Reals


@dataclass(frozen=True)
class ClassCurves(Strategy):
    """Curves over `points` thresholds of each of `scores` scores. Vectors hold, for each score, the
    counts of records in cells 1..i of its row of 2N."""

    points: int
    strategy: str = "hierarchy"
    public: bool = False
    scores: int = 1

    @cached_property
    def curve(self) -> CurveStrategy:
        """The strategy for the curve of one class of one score."""
        return STRATEGIES[self.strategy](self.points)

    @property
    def length(self) -> int:
        return 2 * self.points * self.scores

    @property
    def _counts_positives(self) -> bool:
        """Whether the number of positives is released as a value of its own: so it is where labels
        are public, and where curves have a single point, which tells nothing."""
        return self.public or not self.curve.noises

    @property
    def sensitivity(self) -> Sensitivity:
        """See the module's documentation: all that moves are counts, or noises of nodes, by one."""
        if isinstance(self.curve, TreeStrategy) and not self.public:
            return Sensitivity.of_counts(self.scores * 2 * ((self.curve.shape.levels + 2) // 2))
        positives = self._counts_positives and not self.public
        return Sensitivity.of_counts(self.scores * self.curve.sensitivity.l1 + positives)

    @property
    def noises(self) -> int:
        own = self._counts_positives and not self.public
        return own + 2 * self.scores * self.curve.noises

    @property
    def released(self) -> int:
        return self._counts_positives + 2 * self.scores * self.curve.released

    def measure(self, total: Shares) -> Shares:
        """The number of positives, where it is counted, and each class's curve of each score."""
        rows = total.reshape(self.scores, 2, self.points)
        positives = rows[:1, 1, -1] - rows[:1, 0, -1]
        parts = [positives] if self._counts_positives else []
        for row in rows:
            parts += [self.curve.measure(row[0]), self.curve.measure(row[1] - row[0, -1])]
        return np.concatenate(parts)

    def place(self, noise: Shares) -> Shares:
        parts = []
        if self.public:
            parts.append(np.zeros(1, dtype=noise.dtype))
        elif self._counts_positives:
            parts, noise = [noise[:1]], noise[1:]
        parts += [self.curve.place(each) for each in noise.reshape(2 * self.scores, -1)]
        return np.concatenate(parts)

    def exact(self, counts: Reals) -> list[ClassDistributions]:
        """The distributions from exact counts; NaN for a class without records."""
        found = []
        for below in counts.reshape(self.scores, 2, self.points):
            negative, positive = below[0], below[1] - below[0, -1]
            with np.errstate(invalid="ignore"):
                shares = negative / negative[-1], positive / positive[-1]
            found.append(ClassDistributions(float(negative[-1]), float(positive[-1]), *shares))
        return found

    def estimates(
        self, released: Reals, records: int, smoothing: Smoothing
    ) -> list[ClassDistributions]:
        """The distributions from what was released. Each class is assumed to hold at least one
        record."""
        values = released[1:] if self._counts_positives else released
        curves = values.reshape(self.scores, 2, -1)
        negatives, positives = self.class_sizes(released, records)
        return [
            ClassDistributions(
                negatives,
                positives,
                self._distribution(negative, negatives, smoothing),
                self._distribution(positive, positives, smoothing),
            )
            for negative, positive in curves
        ]

    def class_sizes(self, released: Reals, records: int) -> tuple[int, int]:
        """Estimates of the numbers of negatives and positives: whole numbers, at least 1."""
        if self.public:
            positives = float(released[0])
        else:
            values = released[1:] if self._counts_positives else released
            positives = self._positives(released[0], values.reshape(self.scores, 2, -1), records)
        sure = min(max(round(positives), 1), max(records - 1, 1))
        return max(records - sure, 1), sure

    def _positives(self, counted: float, curves: Reals, records: int) -> float:
        """The mean of two estimates that err alike: from the positives' curves, and n less the
        estimate from the negatives' curves."""
        if self._counts_positives:
            return counted
        if not isinstance(self.curve, HierarchyStrategy):
            return float(np.mean((curves[:, 1, -1] + records - curves[:, 0, -1]) / 2))
        totals = np.array([[self.curve.shape.total(each) for each in pair] for pair in curves])
        return float(np.mean((totals[:, 1] + records - totals[:, 0]) / 2))

    def _distribution(self, values: Reals, size: int, smoothing: Smoothing) -> Reals:
        if smoothing.kind in ("1", "2"):
            norm = int(smoothing.kind)
            found = self.curve.smoothed(values, size, norm, smoothing.box, smoothing.solver)
        else:
            found = self.curve.estimate(values, size)
        found = np.append(found[:-1], 1.0)
        return monotone(found) if smoothing.kind == "isotonic" else found

    def count_variances(self, noise_variance: float) -> Reals:
        """The variances of a class's count at each threshold, given the size of the class."""
        variances: Reals = self.curve.count_variances(noise_variance).copy()
        variances[-1] = 0.0
        return variances

    def size_variance(self, noise_variance: float) -> float:
        """The variance of the size of either class. It is 0 for trees, whose counts contain it."""
        if self._counts_positives or not isinstance(self.curve, HierarchyStrategy):
            return 0.0
        return noise_variance * self.curve.shape.total_variance / (2 * self.scores)

    @property
    def size_shares(self) -> Reals:
        """The part of an error of a class's size that its count at each threshold contains."""
        if isinstance(self.curve, HierarchyStrategy):
            return self.curve.shape.total_shares
        return np.ones(self.points)

    def words(self, law: NoiseLaw) -> str:
        return f"{self.strategy}: {law.words()} on {self.noisy}"

    @property
    def noisy(self) -> str:
        """The values that noise is added to."""
        curves = f"{self.curve.noisy}, for each class"
        if self.scores > 1:
            curves += f" and each of {self.scores} scores"
        if self.public:
            return f"{curves}; labels are taken to be public and are not protected"
        return "the number of positives" if self._counts_positives else curves
