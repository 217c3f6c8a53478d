"""Strategies: which linear functions of a sum are released, and where noise is added to them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.privacy.noise_law import NoiseLaw, Sensitivity


class Strategy(ABC):
    """A linear map of the sum, and how noises add to it. A frozen dataclass."""

    measures: ClassVar[bool] = True
    """Whether `measure` is more than the identity."""

    @property
    @abstractmethod
    def sensitivity(self) -> Sensitivity:
        """How far replacing one record moves the values, in units of the noises: some change of
        the noises that is no larger makes up for it."""

    @property
    def any_law(self) -> bool:
        """Whether noise of any law may be added. Adding it is private in any case; where a public
        number that decides what is told goes by Laplace noise, no other may be asked for."""
        return True

    @property
    @abstractmethod
    def noises(self) -> int:
        """How many independent noises a release takes."""

    @property
    @abstractmethod
    def released(self) -> int:
        """How many values are released."""

    @abstractmethod
    def measure(self, total: Vector) -> Vector:
        """The released values, of the sum of all vectors: linear, so it applies to shares."""

    @abstractmethod
    def place(self, noise: Vector) -> Vector:
        """How the noises add to the measured values."""

    def mean_variance(self, noise_variance: float) -> float:
        """The mean variance of what is told; that of one noise, where values are told as they are
        released."""
        return noise_variance

    @abstractmethod
    def words(self, law: NoiseLaw) -> str:
        """The mechanism by name, given the law of one noise in units of the sum."""


class Summed(Protocol):
    """Vectors that are added up. Every `Encoding` is one."""

    @property
    def length(self) -> int: ...

    @property
    def sensitivity(self) -> Sensitivity: ...


@dataclass(frozen=True)
class PlainSum(Strategy):
    """Every element of the sum is released under a noise of its own."""

    length: int
    moved: int
    """The most that replacing one record moves the sum, in the L1 norm."""
    moved_squared: int = field(repr=False)
    """The square of the most in the L2 norm. Like `moved` it follows from the encoding, which is
    part of a plan's identity."""
    unit: float = 0.0
    """The step of sums of real numbers; 0 where integers are counted."""
    summed: str = ""
    """What the sums are of, where there are several of real numbers."""

    measures: ClassVar[bool] = False

    @classmethod
    def of(cls, vectors: Summed, **said: Any) -> Self:
        """The sum of such vectors; `said` are the other fields."""
        moved = vectors.sensitivity
        return cls(vectors.length, moved.l1, moved.squared_l2, **said)

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(self.moved, self.moved_squared)

    @property
    def noises(self) -> int:
        return self.length

    @property
    def released(self) -> int:
        return self.length

    def measure(self, total: Vector) -> Vector:
        return total

    def place(self, noise: Vector) -> Vector:
        return noise

    def words(self, law: NoiseLaw) -> str:
        if self.summed:
            return f"{law.words(self.unit)} on {self.length} sums of {self.summed}"
        if self.unit:
            return f"{law.words(self.unit)} on the sum, in steps of {self.unit:.2g}"
        return f"{law.words()} on {self.noises} integers"
