"""Statistics of pairs in the local model without ε are those of all pairs, as numpy and scipy have
them."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.offers import Offer
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.local_pairs import ExactPairs
from tallyroom.protocols.records import deal
from tallyroom.protocols.statistics.of_pairs import Gini, KendallTau, Variance
from tallyroom.protocols.statistics.planned import planned
from tallyroom.simulation import Federation

GENERATOR = np.random.default_rng(8)
X = np.round(GENERATOR.normal(size=60) * 1e6, 1)
COLUMNS = {"x": X, "y": np.round(X / 1e9 + GENERATOR.normal(size=60) / 1e4, 4)}
RANGES = ("x=-1e7:1e7", "y=-1:1")
LOCAL = frozenset({Offer.SUM, Offer.RANDOMIZE})


@pytest.mark.parametrize("aggregator", ["local", "shuffle"])
@pytest.mark.parametrize("parties", [1, 7, 60])
def test_a_run_is_exact(aggregator: str, parties: int) -> None:
    with Federation(parties=parties, aggregator=aggregator, data=COLUMNS) as federation:
        tau = federation.run(KendallTau(x="x", y="y", ranges=RANGES, tau="b"), "inf")
        variance = federation.run(Variance(value="x", lower=-1e7, upper=1e7), "inf")
    assert tau.estimate == pytest.approx(scipy.stats.kendalltau(X, COLUMNS["y"]).statistic)
    assert variance.estimate == pytest.approx(np.var(X, ddof=1), rel=1e-12)
    assert tau.noise_error == {"rmse": 0.0, "max": 0.0}


def test_parties_that_are_not_there_are_left_out() -> None:
    with Federation(
        parties=10, aggregator="local", data=COLUMNS, dropout=0.3, seed=1
    ) as federation:
        found = federation.run(KendallTau(x="x", y="y", ranges=RANGES), "inf", deadline=0.5)
    assert found.estimate == found.truth
    assert any("7 of 10 parties" in note for note in found.notes)


def facts(epsilon: Fraction | None, records: int = 60, parties: int = 7) -> Facts:
    small = Facts.of_one_server(records, -(-records // parties), epsilon)
    return replace(small, parties=parties, offers=LOCAL)


def test_it_is_planned_for_no_epsilon_alone() -> None:
    asked = Gini(value="x", lower=-1e7, upper=1e7)
    assert isinstance(planned(asked, facts(None)).plan, ExactPairs)
    for where in (facts(Fraction(10**6)), facts(None, records=10**5)):
        assert not isinstance(planned(asked, where).plan, ExactPairs)
    assert not isinstance(planned(replace(asked, bins="4"), facts(None)).plan, ExactPairs)


def test_it_clips_to_bounds_and_keeps_odd_numbers() -> None:
    values = np.array([-5.0, -0.0, 5e-324, 0.1, 7.0])
    asked = planned(Gini(value="x", lower=-1.0, upper=1.0), facts(None, records=5, parties=2))
    holdings = deal({"x": values}, 2)
    clipped = np.clip(values, -1, 1)
    expected = np.abs(clipped[:, None] - clipped[None]).sum() / 20
    assert asked.decode(asked.total(holdings), 5, exact=True) == pytest.approx(expected)
    assert (asked.plan.without_noise(holdings) == asked.total(holdings)).all()


def test_other_parties_than_were_said_have_no_place() -> None:
    asked = planned(Gini(value="x", lower=0.0, upper=1.0), facts(None, records=4, parties=2))
    for parties, rows in ((3, 3), (1, 3)):
        with pytest.raises(LocalError, match="parties are not those"):
            asked.plan.encode(deal({"x": np.zeros(rows)}, parties))
