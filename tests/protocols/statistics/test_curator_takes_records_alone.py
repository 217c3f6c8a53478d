"""A curator adds up vectors of records and no others.

Mechanisms of a curator take the sum for counts of records. A party that sent counts below 0 could
make the curator fail just where another's count is below some number, which is no private answer;
or tell the exponential mechanism of one record where there are many, whose noise is then too small.
"""

from fractions import Fraction

import numpy as np
import pytest

from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.plans.contract import Curated, Encoding, Integers
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.tables import Tables
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings, deal
from tallyroom.protocols.run.machines import server_machine
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.areas import AveragePrecision
from tallyroom.protocols.statistics.classifier_curves import Roc
from tallyroom.protocols.statistics.of_pairs import Auc
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.projected import CuratedNextAttribute, CuratedProjectedCells
from tallyroom.protocols.statistics.residuals import CuratedCells, CuratedReach
from tallyroom.protocols.wire.machine import Continue, Rejected
from tallyroom.protocols.wire.messages import Phase, Role
from tests.every_statistic import EVERY
from tests.samples import a_message, a_query

SCHEMA = ("x=0:1", "y=0:1", "label=0,1")
ASKED: list[Statistic] = [
    Auc(lower=0.0, upper=1.0, method="smooth"),
    AveragePrecision(lower=0.0, upper=1.0, method="smooth"),
    Roc(lower=0.0, upper=1.0, method="binormal"),
    Roc(lower=0.0, upper=1.0, method="priroc"),
    Roc(lower=0.0, upper=1.0, method="priroc-fix"),
    CuratedReach(("x",), "y", (0.0, 1.0), 0.1, 4),
    CuratedCells(("x",), "y", (0.0, 1.0), side=2),
    CuratedNextAttribute(SCHEMA, "label", (), 2),
    CuratedProjectedCells(SCHEMA, "label", ("x",), 2),
]


def three_each() -> Holdings:
    generator = np.random.default_rng(1)
    columns = {name: generator.random(12) for name in ("x", "y", "score")}
    return deal(columns | {"label": np.arange(12.0) % 2}, 4)


def plan_of(statistic: Statistic) -> Curated:
    plan = planned(statistic, Facts.of_one_server(12, 3, Fraction(1))).plan
    assert isinstance(plan, Curated)
    return plan


def counts(encoding: Encoding, honest: Vector) -> tuple[Integers, tuple[int, ...]]:
    """How many records are in each cell, and how many cells each table has."""
    if isinstance(encoding, Tables):
        return signed(honest), encoding.sizes
    return np.diff(signed(honest), prepend=0), (encoding.length,)


def forged(statistic: Statistic, honest: Vector) -> list[Vector]:
    """A record less than none in one cell and one more in another, none at all, too many, and one
    that is missing from the last table alone."""
    cells, tables = counts(plan_of(statistic).encoding, honest)
    moved, less = cells.copy(), cells.copy()
    moved[0] -= 4
    moved[1] += 4
    less[-1 - int(np.argmax(cells[::-1] > 0))] -= 1
    wrong = [moved, 0 * cells, 5 * cells] + [less] * (len(tables) > 1)
    cumulative = not np.array_equal(cells, honest.view(np.int64))
    return [(np.cumsum(each) if cumulative else each).astype(np.uint64) for each in wrong]


@pytest.mark.parametrize("statistic", ASKED, ids=lambda each: each.name)
def test_vectors_of_records_are_taken_and_no_others(statistic: Statistic) -> None:
    encoding = plan_of(statistic).encoding
    vectors = encoding.encode(three_each())
    assert encoding.possible(vectors, 3).all()
    assert not encoding.possible(vectors, 2).any()
    assert not encoding.possible(np.stack(forged(statistic, vectors[0])), 3).any()


def test_every_statistic_of_a_curators_sum_is_tried_here() -> None:
    plans = [(each.name, planned(each).plan) for each in EVERY]
    summed = {
        (name, type(plan.mechanism))
        for name, plan in plans
        if isinstance(plan, Curated) and not plan.gathered
    }
    assert summed == {(each.name, type(plan_of(each).mechanism)) for each in ASKED}


@pytest.mark.parametrize("statistic", ASKED, ids=lambda each: each.name)
def test_a_curator_refuses_the_party_and_goes_on_without_it(statistic: Statistic) -> None:
    query = a_query(
        statistic=statistic,
        aggregator="curator",
        servers=1,
        records=12,
        max_records_per_party=3,
        min_parties=3,
        epsilon=Fraction(1),
        noise=Placement.CURATOR,
    )
    server = server_machine(query, 0, Randomness.from_seed(1, "server-0"), Memory())
    server.start()
    vectors = query.plan.encode(three_each())
    for wrong in forged(statistic, vectors[0]):
        body = wrong.astype("<u8").view(np.uint8)[None]
        sent = a_message(Phase.SUBMIT, Role.PARTY, Role.SERVER, body=body, run=query.run)
        assert isinstance(step := server.receive(sent), Rejected)
        assert "not a vector of 1 to 3 records" in step.reason
    rest = vectors[1:].astype("<u8").view(np.uint8)
    others = a_message(Phase.SUBMIT, Role.PARTY, Role.SERVER, (1, 2, 3), body=rest, run=query.run)
    assert isinstance(server.receive(others), Continue)
