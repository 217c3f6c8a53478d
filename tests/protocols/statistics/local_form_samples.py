"""Statistics of pairs as they are asked in the local model, over a few records."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from tallyroom.protocols.aggregation.local.aggregator import Local
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.local_pairs import LabelledScores, QuantizedRecords, Randomized
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.of_pairs import Auc
from tallyroom.protocols.statistics.pairwise import Pairs
from tallyroom.protocols.statistics.planned import AskedOf, planned
from tests.samples import NONCE

RECORDS = 400


def holdings() -> Holdings:
    rng = np.random.default_rng(5)
    score = rng.random(RECORDS)
    columns = {
        "value": score,
        "x": score,
        "y": np.clip(score + rng.normal(0, 0.2, RECORDS), 0, 1),
        "score": score,
        "label": (rng.random(RECORDS) < score).astype(float),
    }
    return Holdings(np.arange(8, dtype=np.uint32), np.arange(8) * (RECORDS // 8), columns)


def locally(records: int = RECORDS, epsilon: Fraction | None = Fraction(1)) -> Facts:
    return replace(Facts.of_one_server(records, 50, epsilon), offers=Local.offers)


def form_of(statistic: Pairs) -> AskedOf:
    return planned(statistic, locally())


def quantized(statistic: Pairs, facts: Facts | None = None) -> QuantizedRecords:
    """How its records are reported."""
    plan = statistic.plan(facts or locally())
    assert isinstance(plan, Randomized)
    assert isinstance(plan.encoding, QuantizedRecords)
    return plan.encoding


def labelled(statistic: Auc, facts: Facts | None = None) -> LabelledScores:
    plan = statistic.plan(facts or locally())
    assert isinstance(plan, Randomized)
    assert isinstance(plan.encoding, LabelledScores)
    return plan.encoding


def a_query(statistic: Statistic, **changes: Any) -> Query:
    query = Query(
        nonce=NONCE,
        statistic=statistic,
        aggregator="local",
        parties=8,
        servers=1,
        records=RECORDS,
        epsilon=Fraction(1),
        noise=Placement.CURATOR,
        data="data",
        min_parties=8,
        max_records_per_party=50,
    )
    return replace(query, **changes)
