"""What statistics have in common whose noise depends on the exact counts: a trusted curator alone
may see those, computes the answer, and publishes it under its noise (`published`)."""

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from protocols.algebra.ring import Vector
from protocols.errors import LocalError
from protocols.randomness import Randomness
from protocols.statistics.contract import Statistic


@dataclass(frozen=True)
class ByCurator(Statistic):
    """To be named first among the bases of such a statistic.

    Its `sensitivity` is that of its counts where the noise is on those. A mechanism with a metric
    of its own has 1: above 0, so that there is noise.
    """

    curated: ClassVar[bool] = True

    @abstractmethod
    def published(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector: ...

    @abstractmethod
    def published_words(self, epsilon: Fraction, delta: float) -> str: ...

    @property
    def noises(self) -> int:
        return 1

    @property
    def measures(self) -> bool:
        return True

    @property
    def measurement(self) -> None:
        return None

    def measure(self, total: Vector) -> Vector:
        raise LocalError(f"{self.asked_as} is no linear function of counts: --aggregator curator")
