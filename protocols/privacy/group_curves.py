"""The curves of several groups of records within one ε, where the sizes of groups are private.

A record is in one of k·N cells in a row, those of the first group, the second, and so on, or in a
last one that holds all records in no group. What is released is a hierarchy over each group, and
how many records are in no group. n is public; the size of a group follows from its own widest
blocks, and from what n leaves to the others.

What replacing a record moves, in the 1-norm, with hierarchies of h levels: 2h within a group, h in
each of two if it moves between them, and h and 1 if it moves in or out. So k groups cost no more
noise than one curve of records that are all inside. With one cell (h = 0) the sizes themselves are
released: 2.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.curves import STRATEGIES, HierarchyStrategy, Reals, Shares
from tallyroom.protocols.privacy.isotonic import monotone
from tallyroom.protocols.privacy.noise_law import NoiseLaw, Sensitivity
from tallyroom.protocols.privacy.strategies import Strategy


@dataclass(frozen=True)
class GroupCurves(Strategy):
    """Curves over `points` thresholds of each of `groups` groups. Vectors hold the counts of
    records in cells 1..i of the whole row."""

    points: int
    groups: int
    strategy: str = "hierarchy"

    def __post_init__(self) -> None:
        able = [name for name, k in STRATEGIES.items() if issubclass(k, HierarchyStrategy)]
        if self.strategy not in able:
            raise LocalError(
                f"--where and --by have no {self.strategy}: take --strategy {' or '.join(able)}"
            )

    @cached_property
    def curve(self) -> HierarchyStrategy:
        """The strategy for the curve of one group."""
        found = STRATEGIES[self.strategy](self.points)
        assert isinstance(found, HierarchyStrategy)
        return found

    @property
    def width(self) -> int:
        """How many values are released of a group."""
        return max(self.curve.released, 1)

    @property
    def sensitivity(self) -> Sensitivity:
        """See the module's documentation: all that moves are counts, by one."""
        return Sensitivity.of_counts(max(self.curve.sensitivity.l1, 2))

    @property
    def noises(self) -> int:
        return self.released

    @property
    def released(self) -> int:
        return 1 + self.groups * self.width

    def measure(self, total: Shares) -> Shares:
        """How many records are in no group, and each group's curve."""
        ends = np.concatenate([np.zeros(1, dtype=total.dtype), total])
        parts = [ends[-1:] - ends[-2:-1]]
        for group in range(self.groups):
            first, last = group * self.points, (group + 1) * self.points
            inside = ends[first + 1 : last + 1] - ends[first]
            parts.append(self.curve.measure(inside) if self.curve.released else inside)
        return np.concatenate(parts)

    def place(self, noise: Shares) -> Shares:
        return noise

    def part(self, group: int) -> tuple[int, int]:
        """Where the values of a group begin and end."""
        return 1 + group * self.width, 1 + (group + 1) * self.width

    def curve_part(self, group: int) -> tuple[int, int]:
        """The same of its curve: of one point, its size is all that is released."""
        begin, _ = self.part(group)
        return begin, begin + self.curve.released

    def sizes(self, released: Reals, records: int) -> tuple[list[int], float]:
        """Estimates of how many records each group has, at least 1, and the variance of each in
        units of one noise: each group's own, of variance V, moved by its part of what they and the
        records in no group together miss of n."""
        parts = (slice(*self.part(group)) for group in range(self.groups))
        own = np.array([self._size(released[part]) for part in parts])
        spread = self._spread
        missed = records - released[0] - own.sum()
        share = spread / (self.groups * spread + 1)
        found = np.clip(np.rint(own + share * missed), 1, max(records, 1))
        return [int(size) for size in found], spread * (1 - share)

    def counts(self, released: Reals, records: int) -> Reals:
        """How many records each group has in cells 1..i, from a release with noise: non-decreasing,
        up to the estimate of its size, which is at least 1."""
        sizes, _ = self.sizes(released, records)
        return np.stack(
            [
                size * self._shares(released[slice(*self.curve_part(group))], size)
                for group, size in enumerate(sizes)
            ]
        )

    def _shares(self, values: Reals, size: int) -> Reals:
        found = np.append(self.curve.estimate(values, size)[:-1], 1.0)
        return monotone(found)

    def count_variances(self, noise_variance: float) -> Reals:
        """The variances of a group's count at each threshold, given the size of the group."""
        variances: Reals = self.curve.count_variances(noise_variance).copy()
        variances[-1] = 0.0
        return variances

    @property
    def size_shares(self) -> Reals:
        """The part of an error of a group's size that its count at each threshold contains."""
        return self.curve.shape.total_shares

    def size_variance(self, noise_variance: float) -> float:
        """The variance of the estimate of a group's size."""
        spread = self._spread
        return noise_variance * spread * (1 - spread / (self.groups * spread + 1))

    @property
    def _spread(self) -> float:
        """The variance of a group's size by its own values, in units of one noise."""
        return self.curve.shape.total_variance if self.curve.released else 1.0

    def _size(self, values: Reals) -> float:
        return self.curve.shape.total(values) if self.curve.released else float(values[0])

    def words(self, law: NoiseLaw) -> str:
        if not self.curve.released:
            return f"{law.words()} on the sizes of groups"
        words = f"{self.strategy}: {law.words()} on {self.curve.noisy}"
        each = f", for each of {self.groups} groups" if self.groups > 1 else ""
        return f"{words}{each}, and on how many records are outside"
