"""What statistics have in common whose noise depends on the exact counts: a trusted curator alone
may see those, computes the answer, and publishes it under its noise (`published`)."""

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.offers import Offer
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics.estimates import shape_of
from tallyroom.protocols.statistics.legacy import Legacy


@dataclass(frozen=True)
class ByCurator(Legacy):
    """To be named first among the bases of such a statistic.

    Its `sensitivity` is that of its counts where the noise is on those. A mechanism with a metric
    of its own has 1: above 0, so that there is noise.
    """

    curated: ClassVar[bool] = True
    needs: ClassVar[Offer | None] = Offer.CURATE

    @abstractmethod
    def published(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector: ...

    @abstractmethod
    def published_words(self, epsilon: Fraction, delta: float) -> str: ...

    @property
    def tables(self) -> tuple[int, ...]:
        """The lengths of the parts of a vector in each of which a record counts once."""
        return (self.length,)

    def counts_of(self, vectors: Vector) -> NDArray[np.int64]:
        """How many records are in each cell, from vectors in rows."""
        return signed(vectors)

    def possible(self, vectors: Vector, most: int) -> NDArray[np.bool]:
        counts = self.counts_of(vectors)
        within = ((counts >= 0) & (counts <= most)).all(axis=1)
        starts = np.cumsum((0, *self.tables[:-1]))
        held = np.add.reduceat(counts, starts, axis=1)
        alike = (held == held[:, :1]).all(axis=1)
        found: NDArray[np.bool] = within & alike & (held[:, 0] >= 1) & (held[:, 0] <= most)
        return found

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


@dataclass(frozen=True)
class OfSecretScale(ByCurator):
    """By a mechanism on no metric of counts, whose noise nobody else may know the scale of."""

    no_interval: ClassVar[str] = "the scale of the noise follows the data, so it is secret"

    @property
    def sensitivity(self) -> int:
        """Above 0, so that there is noise."""
        return 1

    def deviations(self, noise_variance: float, records: int) -> Column:
        return np.full(1, np.nan)

    def interval(
        self, released: Vector, records: int, noise_variance: float, width: float
    ) -> Interval:
        size = len(shape_of(self.decode(released, records)).values())
        return Interval.none(size, self.no_interval)
