"""How an answer is made private, and what may be said of it: the noise of servers or parties, or
whatever an aggregator brings instead (`Aggregator.mechanism`)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.plans.contract import Plan
from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.mechanisms import (
    Placement,
    enough_shares,
    honest_servers,
    noises_in,
)
from tallyroom.protocols.privacy.noise_law import Ids
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.statistics.release import Noise, Release
from tallyroom.protocols.wire.machine import Spend


@dataclass(frozen=True)
class Mechanism(ABC):
    """The mechanism of one query. Everything here is public."""

    query: Query

    any_law: ClassVar[bool] = False
    """Whether it draws noise of the query's law. One that does not refuses any but the default."""

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

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of the release."""
        return PrivacyLoss.of(self.query.epsilon, self.delta)

    @property
    def concentrated(self) -> PrivacyLoss:
        """The same in ρ, which may be less than what follows from ε."""
        return self.loss.as_concentrated()

    @abstractmethod
    def noise(self, values: Vector, records: int, contributors: int) -> Noise | None:
        """The law of the noise in released values, where so many records of so many parties are in
        the sum; None where there is none."""

    def release(
        self, values: Vector, records: int, contributors: int, plan: Plan | None = None
    ) -> Release:
        """Values that were released, with the law of the noise in them. `plan` is that of whoever
        reads them, if it is not the query's own."""
        noise = self.noise(values, records, contributors)
        return Release(plan or self.query.plan, values, records, noise)

    @property
    def spend(self) -> Spend:
        """What the release costs."""
        return self.query.costing(self.loss, self.concentrated)


def draw_noise(
    query: Query, count: int, randomness: Randomness, ids: Ids | None = None
) -> Integers:
    """All noise that is added to sums: so many noises of one who draws them, one row each.

    Given `ids`, those are the parties of a block, who draw shares. Otherwise it is a server, which
    draws a share of noise that servers share, or the full noise.

    Precondition: the query has a mechanism.
    """
    law = query.noise_law
    assert law is not None
    if ids is not None:
        return law.draw_shares(ids, enough_shares(query.parties), count, randomness)
    if query.noise is Placement.SHARED:
        one, honest = np.zeros(1, dtype=np.uint32), honest_servers(query.servers, query.honest)
        return law.draw_shares(one, honest, count, randomness)
    return law.draw(count, randomness)[None]


class AddedNoise(Mechanism):
    """Noise of the query's law on the sum, drawn where its placement says; or that of a curator,
    which the plan brings along."""

    any_law: ClassVar[bool] = True

    @property
    def exact(self) -> bool:
        return self.query.noise_law is None

    @property
    def words(self) -> str:
        query = self.query
        if query.noise_law is None:
            return "none"
        if query.curated is not None and query.epsilon is not None:
            return query.curated.mechanism.words(query.epsilon, query.delta)
        return query.plan.words(query.noise_law)

    @property
    def placement(self) -> str:
        return str(self.query.noise)

    @property
    def statement(self) -> str:
        return self.query.noise.statement(self.query.servers, self.query.honest)

    @property
    def delta(self) -> float:
        return float(self.query.loss.delta)

    @property
    def loss(self) -> PrivacyLoss:
        return self.query.loss

    @property
    def concentrated(self) -> PrivacyLoss:
        return self.query.concentrated

    def noise(self, values: Vector, records: int, contributors: int) -> Noise | None:
        query = self.query
        if query.noise_law is None:
            return None
        if (inside := query.circuit_noise) is not None:
            return Noise(float(inside.variance), 1.0, query.noise_law)
        who = (query.noise, query.parties, query.servers, contributors, query.honest)
        return Noise.of(query.noise_law, noises_in(*who))
