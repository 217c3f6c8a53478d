"""AUC in the local model by S1's Algorithm 1: randomized response among the values of a score.

With public labels a record says its label and responds with its score, and each class has unbiased
estimates of how many of its records have each value. With private labels it responds with score and
label together, which goes beyond S1 §6, and the AUC is a ratio of two means over pairs: how often
the positive record of a pair has the larger score, ½ for ties, over how often labels differ.

Which of this and the hierarchical histograms of S1 §4 errs less, and over how many values, follows
from public facts alone: how many records there are, ε and the number of values. Both predictions
(`best_values`, `predicted_of_tree`) take classes of equal size and scores that are spread evenly.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local.contract import Integers, OneValue, Reals, Words
from tallyroom.protocols.local.every_level import auc_response
from tallyroom.protocols.local.pairs import FIXED_POINT, mean_over_pairs
from tallyroom.protocols.local.response import RandomizedResponse

TIES = 0.4
"""What cutting scores into k values adds to the error of the AUC, times k². From 0.3 to 0.8 for
normal scores of two classes, and more where scores crowd in a part of their range."""
LOOSE = 6.0
"""How many times Theorem 3's bound exceeds the root mean square error of hierarchical histograms,
typically: 4 to 12 times for 2,000 to 200,000 records, ε from 0.5 to 4 and 16 to 1024 scores."""
VALUES = tuple(1 << bits for bits in range(3, 11))
"""The numbers of values to choose from. With fewer, scores that crowd in a part of their range
would be tied; the estimate takes time that grows with their square."""


@dataclass(frozen=True)
class ScoreResponse(OneValue):
    """Inputs are 2·score + label for a score below `values`. The estimates are the AUC, in units of
    1/`FIXED_POINT`, and the number of positive records."""

    values: int
    private_labels: bool
    response: RandomizedResponse

    @classmethod
    def spending(cls, epsilon: Fraction, values: int, private_labels: bool) -> "ScoreResponse":
        among = 2 * values if private_labels else values
        return cls(values, private_labels, RandomizedResponse.spending(epsilon, among))

    @property
    def name(self) -> str:
        if self.private_labels:
            return f"{self.response.name} of score and label"
        return f"{self.response.name} of the score, beside a public label"

    @property
    def alphabet(self) -> int:
        return 2 * self.values

    @property
    def words(self) -> int:
        return 1

    def randomize(self, inputs: Integers, words: Words) -> Integers:
        if self.private_labels:
            return self.response.randomize(inputs, words)
        return 2 * self.response.randomize(inputs >> 1, words) + (inputs & 1)

    @property
    def gain(self) -> float:
        return self.response.gain

    def largest(self, records: int) -> float:
        return max(float(FIXED_POINT), records * self.gain)

    def estimate(self, counts: Integers) -> Reals:
        found = self._private(counts) if self.private_labels else self._public(counts)
        return np.array([np.clip(found[0], 0.0, 1.0) * FIXED_POINT, found[1]])

    def _public(self, counts: Integers) -> tuple[float, float]:
        classes = counts.reshape(-1, 2).T
        sizes = classes.sum(axis=1)
        if not sizes.all():
            raise LocalError("one class is empty: there is no AUC")
        q, gain = self.response.q, self.response.gain
        negative, positive = (classes - sizes[:, None] * q) * gain / sizes[:, None]
        return float(positive @ (np.cumsum(negative) - negative / 2)), float(sizes[1])

    def _private(self, counts: Integers) -> tuple[float, float]:
        """½, as of scores that tell nothing, if hardly any pair seems to differ in labels."""
        q, gain, records = self.response.q, self.response.gain, int(counts.sum())
        positives = (int(counts[1::2].sum()) - records * q * self.values) * gain
        won, differ = mean_over_pairs(_kernels(self.values), counts, q) * gain**2
        return float(won / differ) if differ > 1 / records else 0.5, float(positives)

    def variances(self, estimates: Reals, reports: int) -> Reals:
        """A bound on the variance of the AUC of the cut scores, at the class sizes that `estimates`
        give; for private labels to the first order in the share of pairs whose labels differ.

        A report's weight on the AUC lies in a range of 1 / (records of its class), so its variance
        is at most a quarter of the square of that; that of a pair of reports likewise. S1 Theorem 1
        has the same terms.
        """
        positives = float(np.clip(estimates[-1], 1, max(reports - 1, 1)))
        negatives = max(reports - positives, 1.0)
        square, n = self.response.gain**2, max(reports, 2)
        if not self.private_labels:
            first = square * (1 / positives + 1 / negatives) / 4
            second = square**2 / (4 * positives * negatives)
        else:
            differ = 2 * positives * negatives / n**2
            first = n * square / (4 * min(positives, negatives) ** 2)
            second = square**2 / (2 * n * (n - 1)) / differ**2
        return np.array([(first + second) * FIXED_POINT**2])

    def predicted(self, records: int) -> float:
        """The root mean square error to expect of classes of equal size whose scores are spread
        evenly."""
        square = self.response.gain**2
        noise = (4 * square / records + 4 * square**2 / records**2) / 12
        return math.sqrt(noise + (TIES / self.values**2) ** 2)


def _kernels(values: int) -> Reals:
    """For each two cells, whether the positive one has the larger score, and whether labels
    differ."""
    score, label = np.divmod(np.arange(2 * values), 2)
    differ = label[:, None] != label
    ahead = np.sign(score[:, None] - score) * np.where(label[:, None] == 1, 1, -1)
    return np.stack([np.where(differ, (1 + ahead) / 2, 0.0), differ.astype(np.float64)])


def best_values(
    epsilon: Fraction, records: int, choices: Iterable[int], private_labels: bool
) -> tuple[int, float]:
    """The number of values, of `choices`, with the least predicted error, and that error; 0 and
    infinity if none can be responded among."""
    best, least = 0, math.inf
    for values in choices:
        try:
            found = ScoreResponse.spending(epsilon, values, private_labels).predicted(records)
        except LocalError:
            continue
        if found < least:
            best, least = values, found
    return best, least


def predicted_of_tree(
    epsilon: Fraction, records: int, domain: int, private_labels: bool, levels: str
) -> float:
    """The same of hierarchical histograms over `domain` scores."""
    depth = (domain - 1).bit_length()
    tree = auc_response(levels, epsilon, Fraction(0), depth, private_labels)
    return math.sqrt(tree.theorem_3(records / 2, records / 2)) / LOOSE
