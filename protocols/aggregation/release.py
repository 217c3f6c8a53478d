"""What makes an answer private, and what may be said of it: the noise of servers or parties, or
whatever an aggregator brings instead (`Aggregator.release`)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from protocols.algebra.ring import Vector
from protocols.privacy.mechanisms import noise_variance
from protocols.records import Column
from protocols.run.machine import Spend
from protocols.run.query import Query


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
        return self.query.noise.statement(self.query.servers)

    @property
    def delta(self) -> float:
        return self.query.numeric_delta

    @property
    def spend(self) -> Spend:
        """What the servers of a sum write."""
        return self.query.spend

    def deviations(self, released: Vector, records: int, contributors: int) -> Column:
        query = self.query
        if query.mechanism is None:
            return np.zeros(1)
        variance = noise_variance(
            query.mechanism, query.noise, query.parties, query.servers, contributors
        )
        if (inside := query.circuit_noise) is not None:
            variance = inside.variance
        return query.statistic.deviations_given(released, variance, records)
