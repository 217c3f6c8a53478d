"""What may be said of an answer before it is known: its noise, its privacy, its deviation."""

from dataclasses import dataclass

import numpy as np

from protocols.aggregation.contract import Aggregator
from protocols.errors import LocalError
from protocols.messages import Role
from protocols.privacy.mechanisms import (
    DiscreteLaplace,
    Placement,
    noise_variance,
    numeric_delta,
)
from protocols.records import Column
from servers.coordinator import Question
from simulation.result import Caught, Privacy


@dataclass(frozen=True)
class Setting:
    """Who takes part. `most` is the largest party's number of records, which is public."""

    aggregator: Aggregator
    parties: int
    servers: int
    most: int

    def placement(self, noise: str | None) -> Placement:
        if noise is None:
            return Placement.CURATOR if self.servers == 1 else Placement.EACH_SERVER
        try:
            return Placement(noise)
        except ValueError:
            raise LocalError(
                f"no noise placement {noise!r}; there are {', '.join(Placement)}"
            ) from None

    def mechanism(self, question: Question) -> DiscreteLaplace | None:
        group = self.most if question.unit == "party" else 1
        sensitivity = question.statistic.sensitivity * group
        if question.epsilon is None or sensitivity == 0:
            return None
        return DiscreteLaplace.spending(question.epsilon, sensitivity)

    def privacy(self, question: Question, mechanism: DiscreteLaplace | None) -> Privacy:
        adjacency = "one record" if question.unit == "record" else "all records of one party"
        if question.epsilon is None:
            words, statement = "none", "NOT PRIVATE: no noise was added"
        elif mechanism is None:
            words, statement = "none needed", "the answer does not depend on any record"
        else:
            words = question.statistic.mechanism_words(float(mechanism.scale))
            statement = f"{question.noise.statement(self.servers)}; adjacent: {adjacency} replaced"
        return Privacy(
            None if question.epsilon is None else float(question.epsilon),
            numeric_delta(question.noise, self.parties, question.statistic.noises)
            if mechanism
            else 0.0,
            words,
            str(question.noise),
            f"{self.aggregator.threat_model(self.servers)}; {statement}",
        )

    def deviations(
        self, question: Question, mechanism: DiscreteLaplace | None, records: int
    ) -> Column:
        if mechanism is None:
            return np.zeros(1)
        variance = noise_variance(mechanism, question.noise, self.parties, self.servers)
        return question.statistic.deviations(variance, records)

    def notes(self, question: Question, contributors: int, caught: Caught) -> list[str]:
        notes = []
        if question.epsilon is None:
            notes.append("NOT PRIVATE: epsilon is inf, so no noise was added")
        if contributors < self.parties:
            notes.append(f"{contributors} of {self.parties} parties contributed")
        notes += [f"{Role.PARTY.named(party)} was caught: {reason}" for party, reason in caught]
        return notes
