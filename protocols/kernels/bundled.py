"""The bundled kernels.

If a statistic is a ratio whose denominator is private too, its kernel has several outputs. They are
weighted so that the denominator costs no budget: in L1, one record moves all outputs together no
further than the numerator alone.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.circuit_builder import Builder, Word
from tallyroom.protocols.kernels.codes import Code, MixedSignCode, RangeCode, TiedSignCode
from tallyroom.protocols.kernels.contract import (
    MAX_OUTPUT_BITS,
    Grid,
    Integers,
    Kernel,
    Output,
)
from tallyroom.protocols.records import Column

Words = tuple[Word, ...]


class _OfOrder(Kernel):
    """A kernel that depends only on order and equality, so ranks can replace raw records."""

    of_any_bits = True  # whatever the bits are, they are numbers in some order

    def truth(self, columns: Sequence[Column]) -> float:
        ranks = [np.unique(column, return_inverse=True)[1].astype(np.int64) for column in columns]
        return self.decode(self.full_means(np.stack(ranks, axis=1)), exact=True)


class Gini(Kernel):
    """|x − y|. The mean over all pairs is Gini's mean difference (S1, Eq. 4)."""

    name = "gini"
    columns = ("value",)

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("difference", 0, self.grids[0].span),)

    @property
    def sensitivity(self) -> int:
        return self.grids[0].span

    def build(self, builder: Builder, x: Words, y: Words) -> Words:
        return (builder.absolute_difference(x[0], y[0]),)

    @property
    def code(self) -> RangeCode:
        return RangeCode(((0, self.grids[0].span),))

    def coded(self, builder: Builder, x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
        """|x − y| is coded without being computed: its last carry is that of the code's sum."""
        (ours,), (theirs,) = self._records(builder, x, y)
        less, sign = builder.absolute_difference_less_sign(ours, theirs)
        return self.code.encoded_sum(builder, less, sign)

    def reference(self, x: Integers, y: Integers) -> Integers:
        differences: Integers = np.abs(x - y)
        return differences

    def decode(self, means: Column, exact: bool = False) -> float:
        mean = float(means[0]) if exact else float(np.clip(means[0], 0, self.grids[0].span))
        return mean * self.grids[0].step

    def pair_variance(self, means: Column, weights: Column) -> float:
        """|x − y| is ∫(a + b − 2ab)dt of a = I[x ≤ t] and b = I[y ≤ t], so the mean is ∫2F(1−F)
        and ζ2 − 2ζ1 is 4∬Cov(a_s, a_t)² ≤ 4(∫F(1−F))², the squared mean. Records with two values
        reach that; of a normal or exponential column it is a third."""
        return _squared_mean(means[0], self.grids[0].span) * float(weights[0]) ** 2

    def full_means(self, records: Integers) -> Column:
        """By sorting: the k-th smallest of n is added k times and subtracted n − 1 − k times."""
        n = len(records)
        ordered = np.sort(records[:, 0]) - records[:, 0].min()
        times = 2 * np.arange(n) - (n - 1)
        high, low = int(times @ (ordered >> 16)), int(times @ (ordered & 0xFFFF))
        return np.array([((high << 16) + low) / math.comb(n, 2)])

    def truth(self, columns: Sequence[Column]) -> float:
        """The same sum in doubles, minus the middle value so that a large offset cancels first."""
        n = len(columns[0])
        ordered = np.sort(columns[0])
        times = 2.0 * np.arange(n) - (n - 1)
        return float(times @ (ordered - ordered[n // 2])) / math.comb(n, 2)


class Variance(Kernel):
    """(x − y)²/2. The mean over all pairs is the sample variance (S1, Remark 1).

    The output is (x − y)². If it has more than `MAX_OUTPUT_BITS` bits, the lowest are dropped: an
    error of 2^-40 of the largest value.
    """

    name = "variance"
    columns = ("value",)
    of_any_bits = True

    @property
    def dropped(self) -> int:
        return max(0, (self.grids[0].span ** 2).bit_length() - MAX_OUTPUT_BITS)

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("square", 0, self.sensitivity),)

    @property
    def sensitivity(self) -> int:
        return self.grids[0].span ** 2 >> self.dropped

    def build(self, builder: Builder, x: Words, y: Words) -> Words:
        """Confines the distance to the range, because it has half the bits of its square."""
        distance = builder.absolute_difference(x[0], y[0])
        square = builder.square(builder.confined(distance, 0, self.grids[0].span))
        return (Word(square.wires[self.dropped :]),)

    def reference(self, x: Integers, y: Integers) -> Integers:
        distance = np.abs(x - y).astype(np.uint64)  # below 2^32, so the square fits
        squares: Integers = (distance * distance >> np.uint64(self.dropped)).astype(np.int64)
        return squares

    def decode(self, means: Column, exact: bool = False) -> float:
        mean = float(means[0]) if exact else float(np.clip(means[0], 0, self.sensitivity))
        return math.ldexp(mean, self.dropped - 1 - 2 * self.grids[0].fraction_bits)

    def pair_variance(self, means: Column, weights: Column) -> float:
        """(x − y)² less what x and y explain is −2(x − μ)(y − μ), of variance 4σ⁴: exactly the
        squared mean, however heavy the tails are."""
        return _squared_mean(means[0], self.sensitivity) * float(weights[0]) ** 2

    def full_means(self, records: Integers) -> Column:
        """Σ_{i<j} (x_i − x_j)² = n Σ x² − (Σ x)², before bits are dropped."""
        values = records[:, 0].tolist()
        squares = len(values) * sum(v * v for v in values) - sum(values) ** 2
        return np.array([squares / (math.comb(len(values), 2) << self.dropped)])

    def truth(self, columns: Sequence[Column]) -> float:
        return float(np.var(columns[0], ddof=1))


class CollisionEntropy(_OfOrder):
    """I[x = y]. Rényi's entropy of order 2 is −ln of its mean (S1, Eq. 5)."""

    name = "collision-entropy"
    columns = ("value",)

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("collision", 0, 1),)

    @property
    def sensitivity(self) -> int:
        return 1

    def build(self, builder: Builder, x: Words, y: Words) -> Words:
        return (Word((builder.equal(x[0], y[0]),)),)

    def reference(self, x: Integers, y: Integers) -> Integers:
        collisions: Integers = (x == y).astype(np.int64)
        return collisions

    def decode(self, means: Column, exact: bool = False) -> float:
        """k values collide with probability at least 1/k, so a noisy mean below that is raised."""
        values = self.grids[0].span + 1
        mean = float(means[0]) if exact else float(np.clip(means[0], 1 / values, 1))
        return -math.log(mean) + 0.0 if mean > 0 else math.inf  # infinite: no two records collide

    def pair_variance(self, means: Column, weights: Column) -> float:
        """Of values with probabilities p it is U + U² − 2Σp³ with the mean U = Σp². For a given U,
        Σp³ is least where all probabilities are equal but for one smaller one."""
        mean = min(1.0, max(0.0, float(means[0])))
        varies = max(0.0, mean + mean * mean - 2 * _least_third_power(mean))  # a hair less near 1
        return varies * float(weights[0]) ** 2

    def full_means(self, records: Integers) -> Column:
        return np.array([_tied(records) / math.comb(len(records), 2)])


class KendallTau(_OfOrder):
    """sign(x − x') · sign(y − y'), ties counting 0: the mean over all pairs is τ_a (S1, Eq. 6)."""

    name = "kendall-tau"
    columns = ("x", "y")

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("concordance", -1, 1),)

    @property
    def sensitivity(self) -> int:
        return 2

    def build(self, builder: Builder, x: Words, y: Words) -> Words:
        """Takes 4w − 2 ANDs for two columns of w bits."""
        untied, discordant, _ = self._compared(builder, x, y)
        return (Word((untied, discordant), signed=True),)

    @staticmethod
    def _compared(builder: Builder, x: Words, y: Words) -> tuple[int, int, list[int]]:
        """Wires that say: neither column is tied; the pair is discordant; each column is not
        tied."""
        differs = [builder.not_(builder.equal(a, b)) for a, b in zip(x, y, strict=True)]
        above = [builder.greater_unless_equal(a, b) for a, b in zip(x, y, strict=True)]
        untied = builder.and_(*differs)
        return untied, builder.and_(untied, builder.xor(*above)), differs

    def reference(self, x: Integers, y: Integers) -> Integers:
        concordances: Integers = np.sign(x - y).prod(axis=1, keepdims=True)
        return concordances

    def decode(self, means: Column, exact: bool = False) -> float:
        return float(means[0]) if exact else float(np.clip(means[0], -1, 1))

    def full_means(self, records: Integers) -> Column:
        """By counting inversions (Knight 1966), O(n log n)."""
        pairs = math.comb(len(records), 2)
        tied = _tied(records[:, :1]) + _tied(records[:, 1:]) - _tied(records)
        return np.array([(pairs - tied - 2 * _discordant(records)) / pairs])


class KendallTauB(KendallTau):
    """τ_b: the sum of τ_a over the geometric mean of the pairs that are not tied in x and in y.

    Three outputs: the concordance doubled, I[x ≠ x'] and I[y ≠ y']. A replaced record moves them
    by (4, 0, 0) or (2, 1, 1) at most: 4 in L1, as the concordance alone.
    """

    name = "kendall-tau-b"

    @property
    def outputs(self) -> tuple[Output, ...]:
        doubled = Output("concordance doubled", -2, 2)
        return (doubled, Output("x differs", 0, 1), Output("y differs", 0, 1))

    @property
    def sensitivity(self) -> int:
        return 4

    def build(self, builder: Builder, x: Words, y: Words) -> Words:
        untied, discordant, (x_differs, y_differs) = self._compared(builder, x, y)
        concordance = Word((untied, discordant), signed=True)
        return (concordance.shifted(1), Word((x_differs,)), Word((y_differs,)))

    @property
    def code(self) -> Code:
        return TiedSignCode()

    def reference(self, x: Integers, y: Integers) -> Integers:
        signs = np.sign(x - y)
        return np.column_stack([2 * signs.prod(axis=1), np.abs(signs)])

    def decode(self, means: Column, exact: bool = False) -> float:
        """0 if the noisy denominator is not positive, or a column is constant."""
        doubled, x_differs, y_differs = map(float, means)
        if x_differs <= 0 or y_differs <= 0:
            return 0.0
        tau = doubled / 2 / math.sqrt(x_differs * y_differs)
        return tau if exact else min(1.0, max(-1.0, tau))

    def pair_variance(self, means: Column, weights: Column) -> float:
        """ζ2, whose second moments are known but for the share of pairs that differ in both
        columns; they are linear in it, so largest at an end of its range."""
        concordance = min(2.0, max(-2.0, float(means[0])))
        x, y = (min(1.0, max(0.0, float(each))) for each in means[1:])
        a, b, c = map(float, weights)
        least, most = max(x + y - 1, abs(concordance) / 2), min(x, y)
        both = most if 4 * a * a + 2 * b * c >= 0 else min(least, most)
        squares = 4 * a * a * both + b * b * x + c * c * y
        products = a * (b + c) * concordance + b * c * both
        return max(0.0, squares + 2 * products - (a * concordance + b * x + c * y) ** 2)

    def full_means(self, records: Integers) -> Column:
        pairs = math.comb(len(records), 2)
        differs = [1 - _tied(records[:, at : at + 1]) / pairs for at in (0, 1)]
        return np.array([2 * super().full_means(records)[0], *differs])


class Auc(_OfOrder):
    """For a pair with both classes, 1 if the positive record has the larger score, −1 if the
    negative one has; 0 for ties and for pairs of one class.

    A second output is I[y ≠ y']. With D and M the means of both, AUC = ½ + D/2M: ties count ½, and
    M, the fraction of mixed pairs, which S1 (Eq. 7) takes as known to be n⁺n⁻/C(n, 2), is released
    as well. A replaced record moves (D, M) by at most (2, 0) or (1, 1), so M costs nothing, and the
    variance is half of what separate outputs for wins and losses would have. `PublicClassesAuc` is
    for public labels.
    """

    name = "auc"
    columns = ("score", "label")

    def __init__(self, grids: Sequence[Grid]) -> None:
        super().__init__(grids)
        if self.grids[1] != Grid.integers(0, 1):
            raise LocalError(f"{self.name} needs labels that are 0 or 1")

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("wins less losses", -1, 1), Output("mixed", 0, 1))

    @property
    def sensitivity(self) -> int:
        return 2

    def build(self, builder: Builder, x: Words, y: Words) -> Words:
        """Takes 2w ANDs for scores of w bits."""
        positive = x[1].wires[0]
        mixed = builder.xor(positive, y[1].wires[0])
        decided = builder.and_(mixed, builder.not_(builder.equal(x[0], y[0])))
        above = builder.greater_unless_equal(x[0], y[0])
        lost = builder.and_(decided, builder.xor(above, positive))
        return (Word((decided, lost), signed=True), Word((mixed,)))

    @property
    def code(self) -> Code:
        return MixedSignCode()

    def reference(self, x: Integers, y: Integers) -> Integers:
        orientation = x[:, 1] - y[:, 1]
        return np.column_stack([np.sign(x[:, 0] - y[:, 0]) * orientation, np.abs(orientation)])

    def decode(self, means: Column, exact: bool = False) -> float:
        """½ if the noisy denominator is not positive, or there is only one class."""
        difference, mixed = map(float, means)
        if mixed <= 0:
            return 0.5
        auc = 0.5 + difference / (2 * mixed)
        return auc if exact else min(1.0, max(0.0, auc))

    def pair_variance(self, means: Column, weights: Column) -> float:
        """ζ2, as if no mixed pair were tied: the square of either output is then I[y ≠ y'], and
        their product the first."""
        mixed = min(1.0, max(0.0, float(means[1])))
        difference = min(mixed, max(-mixed, float(means[0])))
        a, b = map(float, weights)
        square = (a * a + b * b) * mixed + 2 * a * b * difference
        return max(0.0, square - (a * difference + b * mixed) ** 2)

    def full_means(self, records: Integers) -> Column:
        """By sorting: compares each positive record with the negatives below and above it."""
        pairs = math.comb(len(records), 2)
        positive = records[records[:, 1] == 1, 0]
        negative = np.sort(records[records[:, 1] == 0, 0])
        below = np.searchsorted(negative, positive, side="left").sum()
        above = (len(negative) - np.searchsorted(negative, positive, side="right")).sum()
        return np.array([int(below) - int(above), len(positive) * len(negative)]) / pairs


class PublicClassesAuc(Auc):
    """AUC with public labels, from which the fraction of mixed pairs follows.

    Its one output is D. `decode` needs the `mixed` fraction.
    """

    name = "auc-public-classes"

    def __init__(self, grids: Sequence[Grid], mixed_fraction: float | None = None) -> None:
        super().__init__(grids)
        self.mixed_fraction = mixed_fraction

    def __repr__(self) -> str:
        return f"{super().__repr__()} of {self.mixed_fraction}"

    @staticmethod
    def mixed(positives: int, negatives: int) -> float:
        """n⁺n⁻/C(n, 2)."""
        return positives * negatives / math.comb(positives + negatives, 2)

    @property
    def outputs(self) -> tuple[Output, ...]:
        return super().outputs[:1]

    def build(self, builder: Builder, x: Words, y: Words) -> Words:
        return super().build(builder, x, y)[:1]

    @property
    def code(self) -> Code:
        return RangeCode(((-1, 1),))

    def reference(self, x: Integers, y: Integers) -> Integers:
        return super().reference(x, y)[:, :1]

    def decode(self, means: Column, exact: bool = False) -> float:
        if self.mixed_fraction is None:
            raise LocalError(f"{self.name} needs the sizes of both classes")
        return super().decode(np.array([means[0], self.mixed_fraction]), exact)

    def pair_variance(self, means: Column, weights: Column) -> float:
        mixed = 1.0 if self.mixed_fraction is None else self.mixed_fraction
        return super().pair_variance(np.array([means[0], mixed]), np.array([weights[0], 0.0]))

    def full_means(self, records: Integers) -> Column:
        return super().full_means(records)[:1]


def _squared_mean(mean: float, span: int) -> float:
    """Of a distance up to `span`, or of its square: no mean over pairs is above half of that."""
    return min(span / 2, max(0.0, float(mean))) ** 2


def _least_third_power(square: float) -> float:
    """The least Σp³ of probabilities with this Σp²: k of them are p = a, one is 1 − ka ≤ a."""
    if square < 1e-12:
        return square * square  # what equal probabilities have
    k = max(1, math.ceil(1 / square) - 1)
    a = (1 + math.sqrt(max(0.0, ((k + 1) * square - 1) / k))) / (k + 1)
    return float(k * a**3 + (1 - k * a) ** 3)


def _tied(records: Integers) -> int:
    """The number of pairs of equal rows."""
    _, counts = np.unique(records, axis=0, return_counts=True)
    return int((counts * (counts - 1) // 2).sum())


def _discordant(records: Integers) -> int:
    """The number of pairs in opposite order in the two columns: the inversions of the second column
    after sorting by the first."""
    order = np.lexsort((records[:, 1], records[:, 0]))
    _, ranks = np.unique(records[order, 1], return_inverse=True)
    return inversions(ranks)


def inversions(ranks: NDArray[np.intp]) -> int:
    """The number of pairs i < j with ranks[i] > ranks[j] ≥ 0.

    Two different ranks first differ at one bit. Among the ranks that agree above that bit, an
    inversion is a 1 before a 0; so for every 0 we count the 1s before it.
    """
    count = 0
    for place in range(int(ranks.max(initial=0)).bit_length()):
        group = ranks >> (place + 1)
        order = np.argsort(group, kind="stable")
        ones = (ranks[order] >> place & 1).astype(np.int64)
        before = np.cumsum(ones) - ones
        starts = np.searchsorted(group[order], group[order])
        count += int((before - before[starts])[ones == 0].sum())
    return count
