"""S4's projections: which k attributes tell records of different classes apart (S4 §2.2, §2.3).

A set S of attributes *discerns* two records if they differ in one of them. PrivateKD picks k
attributes one by one, each by the exponential mechanism on C(S ∪ {a}), the number of unordered
pairs of records of different classes that S ∪ {a} discerns. Replacing one record changes only pairs
with it: C moves by at most n − 1, so each pick spends ε/k, and all of them ε (δ = 0; n is public).
S4's F counts ordered pairs over n, F = 2C/n, with Δ(F) ≤ 2 and ε' = ε/4k: the same weights, up to n
for n − 1. The scores read exact records: a trusted curator. Federated, parties' counts do not add
up to C; release noisy contingency tables, or compare noisy scores between servers.

The histogram of the chosen attributes is `thresholded`'s. `estimated_k` and `estimated_gamma` are
§2.3's, from public numbers and simulated data alone, so they spend nothing.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.privacy.selection import Exponential
from tallyroom.protocols.randomness import Randomness

Table = NDArray[np.int64]

MAX_RECORDS = 1 << 29


def private_projection(
    table: ArrayLike,
    classes: ArrayLike,
    k: int,
    epsilon: Fraction | None,
    randomness: Randomness,
) -> list[int]:
    """The columns chosen, in order: Algorithm 1 (PRIVATEKD), in k·d passes over the n rows.

    Values and classes are integers, equal or not being all that counts. ε None chooses greedily:
    NONPRIVATEKD, within 1 − 1/e of the best. If all columns are asked for, nothing is spent. Raises
    LocalError for a k outside 1..d, ValueError for rows that do not fit.
    """
    attributes, labels = checked_table(table, classes)
    n, d = attributes.shape
    if not 1 <= k <= d:
        raise LocalError(f"cannot project {d} attributes onto {k}")
    if k == d:
        return list(range(d))
    chooser = None
    if epsilon is not None:
        chooser = Exponential.spending(epsilon / k, max(1, n - 1))
    parts = np.zeros(n, dtype=np.int64)
    chosen: list[int] = []
    for _ in range(k):
        left = [column for column in range(d) if column not in chosen]
        # Pairs left together are all pairs less the discerned ones: the same weights.
        scores = [-together(refined(parts, attributes[:, column]), labels) for column in left]
        best = chooser.choose(scores, randomness) if chooser else int(np.argmax(scores))
        chosen.append(left[best])
        parts = refined(parts, attributes[:, chosen[-1]])
    return chosen


def refined(parts: Integers, values: Integers) -> Integers:
    """The parts that agree in `values` too, numbered from 0. Both are numbered from 0."""
    return _numbered(parts * (int(values.max(initial=0)) + 1) + values)


def together(parts: Integers, labels: Integers) -> int:
    """Unordered pairs in one part, but of different classes."""
    return (_squares(parts) - _squares(refined(parts, labels))) // 2


def _squares(numbered: Integers) -> int:
    return int((np.bincount(numbered) ** 2).sum())


def _numbered(values: Integers) -> Integers:
    """Equal values get one number, numbers start at 0: by counting if they are small."""
    top = int(values.max(initial=0)) + 1
    if top > 8 * len(values):
        numbers: Integers = np.unique(values, return_inverse=True)[1]
        return numbers
    seen = np.zeros(top, dtype=np.int64)
    seen[values] = 1
    return (np.cumsum(seen) - 1)[values]


def checked_table(table: ArrayLike, classes: ArrayLike) -> tuple[Table, Integers]:
    """Columns and classes, renumbered from 0. Raises ValueError unless integers that fit."""
    rows, labels = np.asarray(table), np.asarray(classes)
    if rows.ndim != 2 or labels.shape != rows.shape[:1] or not rows.size:
        raise ValueError(f"a table of shape {rows.shape} with classes of shape {labels.shape}")
    if rows.dtype.kind not in "iu" or labels.dtype.kind not in "iu":
        raise ValueError("attributes and classes must be integers")
    if len(rows) > MAX_RECORDS:
        raise ValueError(f"more than {MAX_RECORDS} rows")
    columns = [np.unique(column, return_inverse=True)[1] for column in rows.T]
    return np.stack(columns, axis=1), np.unique(labels, return_inverse=True)[1]


# --- §2.3, from public numbers ---

SIGMA = 0.1  # of discernible pairs that a projection may leave together
LOST = 0.05  # l: of pairs that privacy may cost
A, B = 0.5, 0.5  # S4's tuning parameters, of the threshold and of the projection
KEPT = 0.9  # p: chance that a cell with records passes the threshold; S4 names no value


@dataclass(frozen=True)
class PublicShape:
    """The public shape of the data: n records, d − 1 attributes to choose from, q classes.

    Raises LocalError for fewer than two records or classes, or no attribute.
    """

    records: int
    attributes: int
    classes: int

    def __post_init__(self) -> None:
        if self.records < 2 or self.attributes < 1 or self.classes < 2:
            raise LocalError("a projection needs two records, two classes and one attribute")

    @property
    def bins(self) -> int:
        """The number of bins of a numeric attribute in [0, 1]: ⌈1/bw − ½⌉ with Lei's
        bw = (ln n/n)^(1/d).

        Two at least, as S4 §2 has of every attribute: for 36 of 6000 records the formula gives
        one, and one bin tells nothing.
        """
        bandwidth = math.pow(math.log(self.records) / self.records, 1 / (self.attributes + 1))
        return max(2, math.ceil(1 / bandwidth - 0.5))


def simulated_bins(shape: PublicShape, columns: int, public: np.random.Generator) -> Table:
    """Columns of normal variables, scaled into [0, 1] and binned: what §2.3 takes for data."""
    drawn = public.standard_normal((shape.records, columns))
    low, high = drawn.min(axis=0), drawn.max(axis=0)
    binned = ((drawn - low) / (high - low) * shape.bins).astype(np.int64)
    table: Table = np.minimum(binned, shape.bins - 1)
    return table


def estimated_k(shape: PublicShape, public: np.random.Generator, sigma: float = SIGMA) -> int:
    """|MDA|: how many greedy picks on simulated data discern 1 − σ of what all attributes do."""
    table = simulated_bins(shape, shape.attributes, public)
    labels = public.integers(0, shape.classes, shape.records)
    parts = np.zeros(shape.records, dtype=np.int64)
    every = parts
    for column in table.T:
        every = refined(every, column)
    pairs = together(parts, labels)
    wanted = (1 - sigma) * (pairs - together(every, labels))
    left = list(range(shape.attributes))
    for k in range(1, shape.attributes + 1):
        remaining = [together(refined(parts, table[:, column]), labels) for column in left]
        best = left.pop(int(np.argmin(remaining)))
        parts = refined(parts, table[:, best])
        if pairs - together(parts, labels) >= wanted:
            return k
    return shape.attributes


def estimated_gamma(
    shape: PublicShape, k: int, public: np.random.Generator, kept: float = KEPT, lost: float = LOST
) -> float:
    """γ = ε_h/(ε_h + ε_p): the histogram's part of ε, Eq. 11. 1 if there is one attribute only."""
    if not 1 <= k <= shape.attributes:
        raise LocalError(f"cannot project {shape.attributes} attributes onto {k}")
    n, q = shape.records, shape.classes
    pairs = n * n * (q - 1) / (2 * q)
    projection = n * B * k * k * math.log(shape.attributes) / (lost * pairs)
    masses = np.bincount(simulated_bins(shape, 1, public)[:, 0]) / n
    cell = float((masses**2).sum()) ** k * n / q
    least = max(-2 * math.log(1 / (2 * kept)), -2 * math.log(2 - 2 * kept))
    histogram = max(0.0, A * math.log(n) + least) / cell
    return histogram / (histogram + projection) if histogram else 1.0
