"""Who meets whom follows from a seed that the coordinator chooses. It may try seeds until a victim
meets whom it likes; what is released about the victim stays ε-private."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tallyroom.protocols.kernels.contract import Integers
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.pairs import PairSample, PairwiseMean
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.of_pairs import Auc, CollisionEntropy, Gini, KendallTau
from tallyroom.protocols.statistics.pairwise import Pairs

RECORDS, VICTIM, ACCOMPLICES = 6, 0, {4, 5}
HELD = np.array([1, 3, 2])
"""Records of the victim, of others, and of a party of accomplices."""
SEEN = 100
ASKED: list[tuple[Pairs, list[tuple[float, ...]]]] = [
    (Gini(lower=0, upper=3, bits=2), [(0.0,), (1.0,), (3.0,)]),
    (CollisionEntropy(lower=0, upper=3, bits=2), [(0.0,), (1.0,)]),
    (KendallTau(lower=0, upper=3, bits=2), list(itertools.product((0.0, 3.0), repeat=2))),
    (
        Auc(lower=0, upper=3, bits=2, method="pairs"),
        list(itertools.product((0.0, 3.0), (0.0, 1.0))),
    ),
]
"""Each with values that a record may have."""


def met_by_the_victim(sample: PairSample) -> set[int]:
    pairs = sample.pairs_of_parties(HELD)
    return set(pairs[(pairs == VICTIM).any(axis=1)].ravel().tolist()) - {VICTIM}


def chosen_plan(statistic: Pairs, matchings: int, meetings: str) -> PairwiseMean:
    """The plan by the first seed with which the victim meets accomplices alone."""
    for tried in range(1000):
        known = Facts.of_one_server(RECORDS, epsilon=Fraction(1), seed=tried.to_bytes(32, "little"))
        asked = replace(statistic, pairs_per_party=str(matchings), meetings=meetings)
        plan = asked.plan(known)
        assert isinstance(plan, PairwiseMean)
        if met_by_the_victim(plan.sample) <= ACCOMPLICES:
            return plan
    raise AssertionError("no seed of a thousand isolates a record")


def total(plan: PairwiseMean, rows: list[tuple[float, ...]]) -> Integers:
    columns = dict(zip(plan.columns, np.array(rows, dtype=np.float64).T, strict=True))
    starts = np.cumsum(HELD) - HELD
    held = Holdings(np.arange(len(HELD), dtype=np.uint32), starts, columns)
    return plan.without_noise(held).view(np.int64)


@pytest.mark.parametrize(("statistic", "values"), ASKED, ids=lambda each: getattr(each, "name", ""))
@pytest.mark.parametrize("matchings", [1, 2])
@pytest.mark.parametrize("meetings", ["all", "few"])
def test_a_victim_that_meets_accomplices_alone_keeps_its_epsilon(
    statistic: Pairs, values: list[tuple[float, ...]], matchings: int, meetings: str
) -> None:
    """By enumeration: whatever the victim, its replacement and the accomplices have, and though
    everything else is known, no released total is more than e^ε times as likely with one record as
    with the other."""
    plan = chosen_plan(statistic, matchings, meetings)
    assert bool(plan.sample.runs) is (meetings == "few")
    epsilon = Fraction(1)
    law = DiscreteLaplace.spending(epsilon, plan.sensitivity.l1)
    log_chances = np.array([law.log_chance(value) for value in range(-SEEN, SEEN + 1)])
    worst = 0.0
    for record, other, one, two in itertools.product(values, repeat=4):
        others = [values[0], values[-1], values[0], one, two]
        exact, replaced = (total(plan, [mine, *others]) for mine in (record, other))
        losses = 0.0
        for a, b in zip(exact.tolist(), replaced.tolist(), strict=True):
            released = np.arange(-SEEN // 2, SEEN // 2) + SEEN
            losses += float((log_chances[released - a] - log_chances[released - b]).max())
        worst = max(worst, losses)
    assert worst <= float(epsilon) + 1e-9
    assert worst >= float(epsilon) / 2  # the coordinator does learn that much
