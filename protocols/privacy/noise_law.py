"""The contract of a noise law: how noise on integers is distributed, and what that costs.

A law is a frozen dataclass of exact numbers, calibrated to a loss and to a sensitivity. Everything
that depends on how noise is distributed is asked of it: draws, shares, variance, intervals, words
and the privacy loss. Who draws the noise is the placement's affair
(`protocols.privacy.mechanisms.Placement`).

Laws are found by name through the entry-point group `tallyroom.noise_laws`, and a query says by
name which one it wants. Every law passes `NoiseLawContract` (`protocols.privacy.conformance`).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols import registry
from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.randomness import Randomness

Ids = NDArray[np.uint32]


@dataclass(frozen=True)
class Sensitivity:
    """The most that replacing one record, or one unit of privacy, moves the integers that noise
    is added to: in the L1 norm, and in the square of the L2 norm. Both are exact bounds."""

    l1: int
    squared_l2: int

    def __post_init__(self) -> None:
        if not 0 <= self.l1 <= self.squared_l2 <= self.l1**2:
            raise ValueError(f"integers cannot move as {self!r} says")

    @classmethod
    def of_number(cls, most: int) -> Self:
        """One integer moves, by at most `most`."""
        return cls(most, most**2)

    @classmethod
    def of_counts(cls, many: int) -> Self:
        """So many integers move by one each."""
        return cls(many, many)

    def of_group(self, size: int) -> Self:
        """Of a unit of so many records, where this is that of one."""
        return type(self)(self.l1 * size, self.squared_l2 * size**2)


class NoiseLaw(ABC):
    """Noise of this law is added to each integer of a vector, independently.

    Adjacency: one unit is replaced; the number of records is public. Noise is symmetric, and
    exceeds 2^62 with negligible probability: sums with their noise have to fit the ring.
    """

    name: ClassVar[str]
    of_l2: ClassVar[bool] = False
    """Whether noise is calibrated to the L2 norm; to the L1 norm, if not."""
    has_shares: ClassVar[bool]
    """Whether several can draw it in shares (`draw_shares`)."""
    in_circuits: ClassVar[bool] = False
    """Whether two servers can draw it inside a circuit (`joint.noise_circuit.in_circuit`)."""

    @classmethod
    @abstractmethod
    def calibrated(cls, loss: PrivacyLoss, sensitivity: Sensitivity, shares: int = 1) -> Self:
        """The least noise under which a release costs no more than `loss`. Raises `LocalError`
        where no noise of this law does that. `shares` is of how many shares it will be the sum
        (`draw_shares`), 1 where one draws it whole.

        Preconditions: the loss is bounded, and the sensitivity above 0.
        """

    @abstractmethod
    def loss(self, sensitivity: Sensitivity) -> PrivacyLoss:
        """The cost of a release: the law's privacy map."""

    def concentrated(self, sensitivity: Sensitivity) -> PrivacyLoss:
        """The cost of a release in ρ. A law that knows it from its own probabilities says less
        than what follows from ε."""
        return self.loss(sensitivity).as_concentrated()

    @abstractmethod
    def words(self, step: float = 1.0) -> str:
        """The law and the size of its noise, for people, where an integer stands for `step`."""

    @property
    @abstractmethod
    def variance(self) -> float: ...

    @abstractmethod
    def log_chance(self, value: int) -> float:
        """The logarithm of the probability of a value, up to a constant."""

    @abstractmethod
    def quantile(self, level: float, noises: Fraction | int = 1) -> int:
        """The least integer x such that a sum of so many noises is x or less with probability
        `level`, from ½ to below 1; shares make parts of a noise."""

    @abstractmethod
    def width(self, level: float, noises: float) -> float:
        """The quantile of that level of a sum of so many noises, in standard deviations of the
        sum, where noise is so large that the sum is as good as continuous. Values that have about
        so many noises of equal weight in them are told by it."""

    @abstractmethod
    def draw(self, count: int, randomness: Randomness) -> Integers:
        """So many independent noises."""

    @abstractmethod
    def draw_shares(self, ids: Ids, enough: int, count: int, randomness: Randomness) -> Integers:
        """What each of several drawers adds, shape (len(ids), count): the shares of any `enough`
        of them sum to noises of this law. Not called where the law has no shares. `enough` is the
        number of shares that the law was calibrated for.

        A drawer's share depends on its id and the randomness, not on who else is in the block.
        """


def noise_law_named(name: str) -> type[NoiseLaw]:
    """Raises `LocalError` if there is none of that name, or if it cannot be loaded."""
    kind: type[NoiseLaw] = registry.kind_named(registry.NOISE_LAWS, name, NoiseLaw)
    return kind


def noise_laws() -> dict[str, type[NoiseLaw]]:
    """All laws that can be loaded, by name."""
    return registry.loadable(registry.NOISE_LAWS)
