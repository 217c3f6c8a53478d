"""All answers of a study on adjacent data: the ε that can be measured stays below the whole.

A record is at the lower bound, or far above the upper one. The event "its bin is as full as before,
none is in the far bin, and the sum is that of the lower bound at most" has probability p under the
one and p' under the other with p = e^ε·p' exactly: e^(ε₁/2) from each of two counts, e^ε₂ from the
sum, which clipping moves by all of its range. `measured` is the ln(p/p') that Clopper-Pearson
bounds prove at confidence 1 - 2·ALPHA, so that a right program fails less than once in a million.
"""

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.magnitudes import Magnitudes
from tallyroom.protocols.statistics.moments import Sum
from tallyroom.protocols.statistics.planned import laplace_noise, planned
from tallyroom.protocols.studies.budget import Budget, Grant
from tallyroom.protocols.studies.contract import Ask
from tallyroom.protocols.studies.private_bounds import PrivateBounds
from tests.samples import holdings_of

ALPHA = 1e-7
TRIALS = 4000
"""On each side. At ε = 1 about 660 and 240 events: what is proven is 0.5 below ln(p/p'), and above
0.1 with 6 standard deviations to spare. At ε = 2, of a study that spends the whole twice, 660 and
90: 0.8 below, and above 1."""
RECORDS = 400
NEAR, FAR = 2.0, 1e9
STUDY = PrivateBounds(Sum(), share=0.5)


def records(first: float) -> Holdings:
    return holdings_of([first] + [3.0] * (RECORDS - 1), 1)


LOWEST = records(NEAR)
BINS = [int(planned(Magnitudes()).plan.measured(records(value))[0]) for value in (NEAR, FAR)]


class Noise:
    """Drawn for all trials at once: so many small draws would take minutes."""

    def __init__(self, seed: int) -> None:
        self._randomness = Randomness.from_seed(seed, "study")
        self._rows: dict[tuple[DiscreteLaplace, int], Iterator[Integers]] = {}

    def row(self, noise: DiscreteLaplace, length: int) -> Integers:
        if (noise, length) not in self._rows:
            drawn = noise.draw(TRIALS * length, self._randomness)
            self._rows[noise, length] = iter(drawn.reshape(TRIALS, length))
        return next(self._rows[noise, length])


def is_event(held: Holdings, drawn: Noise) -> bool:
    """Whether it comes up when the study is carried out once, with the noise of one server; what
    follows an answer that it is not in need not be asked."""
    budget = Budget(STUDY, PrivacyLoss.of(Fraction(1)))
    steps = STUDY.steps()
    try:
        ask: Ask = next(steps)
        while True:
            statistic, grant = ask.statistic, budget.grant(ask)
            asked = planned(statistic)
            assert grant.loss.epsilon is not None
            asked = planned(statistic)
            plan = asked.plan
            noise = DiscreteLaplace.spending(grant.loss.epsilon, plan.sensitivity.l1)
            total = plan.encode(held)[0]
            released = total + drawn.row(noise, plan.length).astype(np.uint64)
            values = released.view(np.int64)
            if isinstance(statistic, Magnitudes):
                near, far = values[BINS]
                seen = near >= RECORDS and far <= 0
            else:
                seen = values[0] <= plan.encode(LOWEST)[0].view(np.int64)[0]
            if not seen:
                return False
            ask = steps.send(asked.read(released, RECORDS, laplace_noise(noise.variance)))
    except StopIteration:
        return True


def measured() -> float:
    found = []
    for seed, first in enumerate((NEAR, FAR)):
        held, drawn = records(first), Noise(seed)
        found.append(sum(is_event(held, drawn) for _ in range(TRIALS)))
    near, far = found
    least = stats.beta.ppf(ALPHA, near, TRIALS - near + 1)
    most = stats.beta.ppf(1 - ALPHA, far + 1, TRIALS - far)
    return math.log(least / most)


def test_no_more_than_the_whole_epsilon_can_be_measured() -> None:
    assert 0.1 < measured() < 1.0


def test_the_estimator_catches_a_study_that_spends_the_whole_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Budget, "grant", lambda self, ask: Grant(PrivacyLoss.of(1)))
    assert measured() > 1.0
