"""What makes an answer private, and what may be said of it: the noise of servers or parties, or
whatever an aggregator brings instead (`Aggregator.release`)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.privacy.mechanisms import noise_variance, noises_in
from tallyroom.protocols.query import Query
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.estimates import shape_of
from tallyroom.protocols.statistics.interval import NORMAL, Interval, laplace_width, noise_width
from tallyroom.protocols.wire.machine import Spend


@dataclass(frozen=True)
class Release(ABC):
    """The mechanism of one query. Everything here is public."""

    query: Query

    @property
    @abstractmethod
    def exact(self) -> bool:
        """Whether the sum itself is released: nothing was asked to be hidden, or nothing is."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The mechanism by name, if the answer is not exact."""

    @property
    @abstractmethod
    def placement(self) -> str:
        """Who draws the noise, in a word."""

    @property
    @abstractmethod
    def statement(self) -> str:
        """Who draws the noise, and whom one has to trust with it."""

    @property
    @abstractmethod
    def delta(self) -> float:
        """The δ that the release costs."""

    @abstractmethod
    def deviations(self, released: Vector, records: int, contributors: int) -> Column:
        """Standard deviation of the noise in each value of the estimate, where so many records of
        so many parties are in the sum."""

    def foretold(
        self, statistic: Statistic, errors: Column, records: int, contributors: int
    ) -> bool:
        """Whether these standard errors would be the same whatever had been released."""
        return False

    def interval(
        self, statistic: Statistic, released: Vector, records: int, contributors: int
    ) -> Interval | None:
        """What the noise may have done to the answer that `statistic` makes of the release; None
        where there is no noise."""
        if self.exact:
            return None
        values = shape_of(statistic.decode(released, records)).values()
        deviations = self.deviations(released, records, contributors)
        # Of many independent reports, not of a few noises: their sum is as good as normal.
        return Interval.around(values, deviations, NORMAL, statistic.span)

    @property
    def spend(self) -> Spend:
        """What the release costs. Its receipt is the run's: releasing it again costs nothing."""
        query = self.query
        return Spend(query.data, query.run.hex(), query.epsilon, self.delta)


class NoisySum(Release):
    """Discrete Laplace noise on the sum, drawn where the query's placement says."""

    @property
    def exact(self) -> bool:
        return self.query.mechanism is None

    @property
    def words(self) -> str:
        query = self.query
        if query.mechanism is None:
            return "none"
        if query.statistic.curated and query.epsilon is not None:
            return query.statistic.published_words(query.epsilon, query.delta)
        return query.statistic.mechanism_words(float(query.mechanism.scale))

    @property
    def placement(self) -> str:
        return str(self.query.noise)

    @property
    def statement(self) -> str:
        return self.query.noise.statement(self.query.servers, self.query.honest)

    @property
    def delta(self) -> float:
        return self.query.numeric_delta

    @property
    def spend(self) -> Spend:
        """What the servers of a sum write."""
        return self.query.spend

    def deviations(self, released: Vector, records: int, contributors: int) -> Column:
        if self.exact:
            return np.zeros(1)
        variance = self._variance(contributors)
        return self.query.statistic.deviations_given(released, variance, records)

    def foretold(
        self, statistic: Statistic, errors: Column, records: int, contributors: int
    ) -> bool:
        if self.exact:
            return True
        deviations = statistic.deviations(self._variance(contributors), records)
        return len(deviations) in {1, len(errors)} and bool(np.all(errors == deviations))

    def interval(
        self, statistic: Statistic, released: Vector, records: int, contributors: int
    ) -> Interval | None:
        if self.exact:
            return None
        variance = self._variance(contributors)
        width = self._width(statistic, records, contributors)
        return statistic.interval(released, records, variance, width)

    def _width(self, statistic: Statistic, records: int, contributors: int) -> float:
        """Standard deviations that hold 95 % of the noise, by its law."""
        query, in_value = self.query, statistic.noises_in_value(records)
        drawn = noises_in(query.noise, query.parties, query.servers, contributors, query.honest)
        variance = self._variance(contributors)
        if statistic.whole_noises and variance > 0:  # 0 where ε is so large that none is drawn
            return noise_width(float(drawn) * in_value, variance * in_value)
        return laplace_width(float(drawn) * in_value)

    def _variance(self, contributors: int) -> float:
        query = self.query
        if query.mechanism is None:
            return 0.0
        if (inside := query.circuit_noise) is not None:
            return float(inside.variance)
        return noise_variance(
            query.mechanism,
            query.noise,
            query.parties,
            query.servers,
            contributors,
            query.honest,
        )
