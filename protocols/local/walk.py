"""The server's walk down a tree of scores (S1 §4, Eq. 10), from reports in memory.

If max(ĥ⁺, √(av⁺)/2)·max(ĥ⁻, √(av⁻)/2) < τ = a√(v⁺v⁻), a node is discarded and counts ½ĥ⁺ĥ⁻, from
its children's estimates; otherwise it counts ĥ⁺(right)·ĥ⁻(left) and its children are visited.
Records in one leaf are tied and count ½, where the paper has 0, because that is what AUC means in
every other protocol here.

Each level takes one pass over the reports, in blocks. A level with few nodes is tallied by rows and
transformed as a whole; at a level with many nodes, only the nodes that are reached are summed up.
Besides the reports, this needs memory for a block, one table of at most 4·`WHOLE` sums and the
nodes that are reached at a level. Those that are kept have ĥ⁺ĥ⁻ ≥ τ: at most about √n/√(aCα),
whatever the size of the domain. S1's O(log d) space would take a pass over the reports for each
such node.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local.contract import Bodies, Integers, Reals
from tallyroom.protocols.local.hadamard import transformed

BLOCK = 1 << 16
WHOLE = 1 << 13
"""A level is transformed as a whole if its nodes have at most this many parents."""
CELLS = 1 << 20
"""How many cells of the matrix of reports by nodes are computed at a time."""
Rows = NDArray[np.uint32]
Classes = tuple[Reals, Reals]
"""Counts of the negative and of the positive records."""


@dataclass(frozen=True)
class WalkAnswers:
    """Reports about one level: the row that was asked about, the bit that was answered, and the
    record's label if labels are public."""

    rows: Rows
    bits: Bodies
    labels: Bodies


class TreeReports(ABC):
    """Reports of `records` about nodes of a binary tree of `depth` levels below its root.

    A report about the nodes of l bits answers the sign of a row of a Hadamard matrix. With public
    labels the matrix has order 2^l; with private ones it has order 2^(l+1), and the class is the
    bit above the prefix. A sum of signs times `gain` is an estimate; `variance` is what a record
    adds to the variance of a node.
    """

    depth: int
    private_labels: bool
    gain: float
    variance: float
    records: int

    @abstractmethod
    def about(self, bits: int) -> Iterator[WalkAnswers]:
        """The reports about prefixes of `bits` bits, in blocks. If labels are private, 0 bits means
        reports about the class alone."""

    @abstractmethod
    def public_positives(self) -> int:
        """The number of positive records, if labels are public."""

    def sizes(self) -> tuple[float, float]:
        """The sizes of the negative and the positive class. Raises `LocalError` if one is empty."""
        n = self.records
        positives = self._private_positives() if self.private_labels else self.public_positives()
        told = min(max(positives, 1.0), n - 1.0) if self.private_labels else positives
        if min(told, n - told) < 1:
            raise LocalError("AUC needs records of both classes, and one class appears to be empty")
        return n - told, told

    def _private_positives(self) -> float:
        """Among reports about l bits, the row that has only the class's bit gives n⁺ - n⁻, and n is
        known. It is one of 2^(l+1) rows, so each level weighs half as much as the one before."""
        told = weights = 0.0
        for bits in range(min(self.depth, 12) + 1):
            row = 1 << bits
            signs = 0
            for answers in self.about(bits):
                said = answers.bits[answers.rows == row]
                signs += len(said) - 2 * int(np.count_nonzero(said))
            told += (self.records / 2 - row * self.gain * signs) / row
            weights += 1 / row
        return told / weights

    def children(self, bits: int, parents: Integers) -> Classes:
        """Both classes' estimated counts of the two children of each parent, shape (parents, 2).
        The children have `bits` bits.

        With r a row, ⟨r, 2p + c⟩ = ⟨r div 2, p⟩ + (r mod 2)·c. So reports fall into four groups, by
        the last bit of their row and by their class (or the row's bit for the class); within a
        group, the answers for both children differ at most in sign.
        """
        whole = 1 << (bits - 1) <= WHOLE
        size = 1 << (bits - 1) if whole else len(parents)
        sums = np.zeros((2, 2, size), dtype=np.int64)
        for answers in self.about(bits):
            above = (answers.rows >> 1) & np.uint32((1 << (bits - 1)) - 1)
            low = answers.rows & 1
            high = answers.rows >> bits if self.private_labels else answers.labels
            if whole:
                places = ((2 * high + low) << (bits - 1)) | above
                _add_signs(sums.reshape(-1), places.astype(np.int64), answers.bits)
                continue
            for y, b in np.ndindex(2, 2):
                chosen = (high == y) & (low == b)
                sums[y, b] += _signs_at(above[chosen], answers.bits[chosen], parents)
        found = sums.astype(np.float64)
        if whole:
            found = np.stack([transformed(each) for each in sums.reshape(4, size)])
            found = found.reshape(2, 2, size)[:, :, parents]
        both = np.stack([found[:, 0] + found[:, 1], found[:, 0] - found[:, 1]], axis=-1)
        if self.private_labels:
            both = np.stack([both[0] + both[1], both[0] - both[1]])
        return both[0] * self.gain, both[1] * self.gain

    def area(self, sizes: tuple[float, float], a: float) -> float:
        """The AUC."""
        n = self.records
        v = [(n if self.private_labels else size) * self.variance for size in sizes]
        least = [math.sqrt(a * each) / 2 for each in v]
        tau = a * math.sqrt(v[0] * v[1])
        nodes = np.zeros(1, dtype=np.int64)
        counts: Classes = (np.array([sizes[0]]), np.array([sizes[1]]))
        total = 0.0
        for bits in range(1, self.depth + 1):
            minus, plus = self.children(bits, nodes)
            kept = np.maximum(counts[0], least[0]) * np.maximum(counts[1], least[1]) >= tau
            total += float((minus.sum(axis=1) * plus.sum(axis=1))[~kept].sum()) / 2
            total += float((plus[:, 1] * minus[:, 0])[kept].sum())
            nodes = (2 * nodes[kept][:, None] + np.arange(2)).ravel()
            counts = (minus[kept].ravel(), plus[kept].ravel())
            if not len(nodes):
                break
        else:
            total += float(counts[0] @ counts[1]) / 2
        return total / (sizes[0] * sizes[1])


def _add_signs(sums: Integers, places: Integers, bits: Bodies) -> None:
    """Adds each answer's sign, 1 for 0 and -1 for 1, to the sum at its place. If there are few
    answers and many places, they are added one by one."""
    if 2 * len(sums) > len(places):
        np.add.at(sums, places, 1 - 2 * bits.astype(np.int64))
        return
    counted = np.bincount(2 * places + bits, minlength=2 * len(sums)).reshape(-1, 2)
    sums += counted[:, 0] - counted[:, 1]


def _signs_at(rows: Rows, bits: Bodies, places: Integers) -> Integers:
    """For each place, the sum over answers of their sign times the sign of their row there."""
    sums = np.zeros(len(places), dtype=np.int64)
    step = max(1, CELLS // max(len(rows), 1))
    wanted = places.astype(np.uint32)
    for start in range(0, len(places), step):
        part = wanted[start : start + step, None]
        odd = (np.bitwise_count(rows & part) ^ bits) & np.uint8(1)
        sums[start : start + step] = len(rows) - 2 * np.count_nonzero(odd, axis=1)
    return sums
