"""Answers under noise without a federation: the release that one server would make."""

from fractions import Fraction
from typing import Any

import numpy as np

from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.release import Answer, Noise, Release


def answered(asked: Statistic, data: Holdings, epsilon: Fraction, seed: int) -> Answer:
    """Laplace noise of the scale that ε asks for, rounded to integers."""
    plan = asked.plan(Facts.of_one_server(data.rows, epsilon=epsilon))
    law = DiscreteLaplace(Fraction(plan.sensitivity.l1) / epsilon)
    drawn = np.random.default_rng(seed).laplace(scale=float(law.scale), size=plan.noises)
    noise = plan.place(np.rint(drawn).astype(np.int64).view(np.uint64))
    exact = plan.measure(plan.encode(data).sum(axis=0, dtype=np.uint64))
    return asked.read(Release(plan, exact + noise, data.rows, Noise.of(law)))


def covered(answer: Answer, truth: Any, population: bool = False) -> bool:
    """Whether the interval holds the truth, in all values."""
    interval = answer.population if population else answer.interval
    assert interval is not None
    return bool(np.all((interval.low <= truth) & (truth <= interval.high)))
