"""Answers in the clear: the noise of a question's mechanism, and for pairs a draw of them, without
the protocol that would draw it. An answer takes milliseconds, so that errors and coverage can be
measured many times over; nothing here is private."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.mechanism import AddedNoise
from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.joint.choice import Choice
from tallyroom.protocols.plans.contract import Integers, NoisyChoice, NoisySum, pooled
from tallyroom.protocols.plans.pairs import PairwiseMean
from tallyroom.protocols.privacy.mechanisms import laplace_scale
from tallyroom.protocols.privacy.noise_law import NoiseLaw
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.release import Answer, Intervals, Release
from tallyroom.protocols.studies.contract import Study
from tallyroom.simulation.federation import Federation
from tallyroom.simulation.replay import answering, finding_intervals


def drawable(query: Query) -> bool:
    """Whether the release is an exact sum with whole noises added to it, or a choice among ranks or
    counts, so that it can be drawn here."""
    plan, law = query.plan, query.noise_law
    mechanism = aggregator_named(query.aggregator).mechanism(query)
    if law is None or query.curated is not None or query.points is not None:
        return False
    if isinstance(plan, NoisyChoice):
        return isinstance(plan.rule, Choice) and not plan.rule.tables
    if not isinstance(plan, NoisySum | PairwiseMean) or not isinstance(mechanism, AddedNoise):
        return False
    noise = mechanism.noise(np.zeros(0, np.uint64), query.records, query.parties)
    return noise is not None and noise.noises.is_integer()  # in shares, if not


def exact_sum(query: Query, holdings: Holdings, seed: int = 0) -> tuple[Vector, int]:
    """What noise is added to, and how many records or pairs it is about. Pairs are drawn by the
    `seed`."""
    plan = query.plan
    if isinstance(plan, NoisyChoice):
        total: Vector = plan.encode(pooled(holdings))[0]
        return total, holdings.rows
    if not isinstance(plan, PairwiseMean):
        return plan.without_noise(holdings), holdings.rows
    named = seed.to_bytes(len(plan.sample.seed), "little")
    drawn = replace(plan, sample=replace(plan.sample, seed=named))
    return drawn.without_noise(holdings), plan.sample.count(holdings.rows)


def release_of(query: Query, exact: Vector, records: int, randomness: Randomness) -> Release:
    """The release with fresh noise.

    Precondition: the query is `drawable`, and `exact` and `records` are of `exact_sum`.
    """
    plan, law = query.plan, query.noise_law
    assert law is not None
    mechanism = aggregator_named(query.aggregator).mechanism(query)
    if isinstance(plan, NoisyChoice):
        assert isinstance(plan.rule, Choice)
        chosen = _chosen(plan.rule, signed(plan.measure(exact)), law, randomness)
        return mechanism.release(chosen, records, query.parties, plan)
    noise = mechanism.noise(np.zeros(0, np.uint64), query.records, query.parties)
    assert noise is not None
    noises = int(noise.noises)
    drawn = law.draw(noises * plan.noises, randomness).reshape(noises, -1).sum(axis=0)
    placed = plan.place(drawn.astype(np.int64).view(np.uint64))
    return mechanism.release(plan.measure(exact) + placed, records, query.parties, plan)


def _chosen(rule: Choice, counts: Integers, law: NoiseLaw, source: Randomness) -> Vector:
    """Report noisy max, with one-sided geometric noise as circuits draw it."""
    scale, generator = float(laplace_scale(law)), np.random.default_rng(list(source.bytes(16)))

    def noisy(scores: Integers) -> Integers:
        noise: Integers = generator.geometric(-math.expm1(-1 / scale), len(scores))
        return scores + noise

    if not rule.ranks:
        return np.argsort(-noisy(counts), kind="stable")[: rule.picks].astype(np.uint64)
    before = np.concatenate([[0], counts[:-1]])
    scores = (-np.maximum(0, np.maximum(r - counts, before + 1 - r)) for r in rule.ranks)
    return np.array([int(np.argmax(noisy(each))) for each in scores], dtype=np.uint64)


@dataclass(frozen=True)
class ClearAnswer:
    estimate: Estimate
    intervals: Intervals


@dataclass(frozen=True)
class InTheClear:
    """A question put to a `federation` whose protocol is left out; `how` is as `Federation.query`
    takes it."""

    federation: Federation
    how: Mapping[str, Any]
    _sums: dict[tuple[object, ...], tuple[Query, Vector, int]] = field(default_factory=dict)
    """Of questions that were put before, what noise is added to."""

    def answer(
        self, question: Statistic | Study, epsilon: Fraction, seed: int
    ) -> ClearAnswer | None:
        """None where it cannot be drawn. Raises as a run does."""
        randomness = Randomness.from_seed(seed, "in the clear")
        question = self.federation.understood(question, epsilon, **self.how)
        if not isinstance(question, Study):
            found = self._ask(question, epsilon, seed, randomness)
            return None if found is None else ClearAnswer(found.estimate, found.intervals)
        steps, asked, answers = question.steps(), [], []
        try:
            ask = next(steps)
            while True:
                found = self._ask(
                    ask.statistic, epsilon * ask.share, seed, randomness, ask.aggregator
                )
                if found is None:
                    return None
                asked.append(ask)
                answers.append(found)
                ask = steps.send(found)
        except StopIteration as stop:
            finding = stop.value
        place = answering(finding, asked)
        intervals = finding_intervals(question, finding, answers, place, True)
        return ClearAnswer(finding.estimate, intervals)

    def _ask(
        self,
        statistic: Statistic,
        epsilon: Fraction,
        seed: int,
        randomness: Randomness,
        spec: str | None = None,
    ) -> Answer | None:
        key = repr(statistic), epsilon, spec
        if key in self._sums:
            query, exact, records = self._sums[key]
            return query.statistic.read(release_of(query, exact, records, randomness))
        query = self.federation.query(statistic, epsilon, **self.how, spec=spec)
        if not drawable(query):
            return None
        exact, records = exact_sum(query, self.federation.holdings, seed)
        if not isinstance(query.plan, PairwiseMean):  # whose pairs are drawn anew
            self._sums[key] = query, exact, records
        return query.statistic.read(release_of(query, exact, records, randomness))
