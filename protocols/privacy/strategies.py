"""Strategies: which linear functions of a sum are released, and where noise is added to them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from tallyroom.protocols.algebra.ring import Vector


class Strategy(ABC):
    """A linear map of the sum, and how noises add to it. A frozen dataclass."""

    measures: ClassVar[bool] = True
    """Whether `measure` is more than the identity."""

    @property
    @abstractmethod
    def sensitivity(self) -> int:
        """The L1 norm, in units of the noises, of the change that replacing one record makes."""

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

    @abstractmethod
    def words(self, scale: float) -> str:
        """The mechanism by name, given the scale of one noise in units of the sum."""


@dataclass(frozen=True)
class PlainSum(Strategy):
    """Every element of the sum is released under a noise of its own."""

    length: int
    moved: int
    """The most that replacing one record moves the sum, in L1."""
    unit: float = 0.0
    """The step of sums of real numbers; 0 where integers are counted."""
    summed: str = ""
    """What the sums are of, where there are several of real numbers."""

    measures: ClassVar[bool] = False

    @property
    def sensitivity(self) -> int:
        return self.moved

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

    def words(self, scale: float) -> str:
        if self.summed:
            sums = f"{self.length} sums of {self.summed}"
            return f"discrete Laplace of scale {scale * self.unit:.6g} on {sums}"
        if self.unit:
            step = self.unit
            sized = f"{scale * step:.6g} on the sum, in steps of {step:.2g}"
            return f"discrete Laplace of scale {sized}"
        return f"discrete Laplace of scale {scale:.6g} on {self.noises} integers"
