"""Reports of the local model that are (ε, δ)-private: who is told of the δ, and who refuses it."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.aggregation.local.aggregator import Local
from tallyroom.protocols.aggregation.local.reports import randomizer_of
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.local.auc import AucResponse
from tallyroom.protocols.local.every_level import EveryLevel
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.query import Query, decode_query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.run.machines import check
from tallyroom.protocols.run.policy import Policy
from tallyroom.protocols.statistics.of_pairs import Auc
from tallyroom.protocols.wire.machine import Continue, Done
from tallyroom.protocols.wire.messages import Phase, Role
from tallyroom.simulation.federation import Federation
from tests.protocols.statistics.local_form_samples import RECORDS, a_query, holdings
from tests.samples import a_message, bitmap

DELTA = 1e-4


def asked(levels: str = "all", **changes: Any) -> Query:
    statistic = Auc(lower=0.0, upper=1.0, bins="4096", levels=levels)
    return a_query(statistic, **{"epsilon": Fraction(16), "delta": DELTA, **changes})


def test_the_delta_that_is_granted_is_what_the_release_costs() -> None:
    query = asked()
    check(query)
    found = Local().mechanism(query)
    assert found.delta == DELTA
    assert found.spend.loss == PrivacyLoss.of(16, DELTA)
    assert "and δ 0.0001 a report" in found.words
    assert "says 13 bits, sent in 2 bytes" in found.words
    assert decode_query(query.run, query.encode(), "coordinator") == query


@pytest.mark.parametrize(
    ("query", "kind"),
    [(asked("one"), AucResponse), (asked(delta=0.0), EveryLevel), (asked("auto"), EveryLevel)],
    ids=["one", "no delta", "auto"],
)
def test_what_needs_no_delta_is_charged_none(query: Query, kind: type) -> None:
    """Over 13 levels at ε = 16, a δ does not gain a twentieth."""
    randomizer = randomizer_of(query)
    assert type(randomizer) is kind
    assert randomizer.delta == 0
    assert Local().mechanism(query).delta == 0
    assert "δ" not in Local().mechanism(query).words


def test_a_whole_party_shares_its_delta_among_its_records() -> None:
    randomizer = randomizer_of(asked(records_per_unit=4))
    assert randomizer == EveryLevel.spending(Fraction(4), Fraction(DELTA) / 4, 12, True)


def test_parties_policies_and_sizes_bound_it() -> None:
    strict = Policy(per_question=PrivacyLoss.of(None, DELTA / 2))
    assert "allows delta 5e-05 per question, not 0.0001" in str(strict.refusal(asked()))
    assert strict.refusal(asked("one")) is None
    assert replace(strict, per_question=PrivacyLoss.of(None, DELTA)).refusal(asked()) is None
    with pytest.raises(LocalError, match="not below one in"):
        asked(delta=1 / RECORDS)


def test_the_server_s_ledger_has_it() -> None:
    query, data = asked(), holdings()
    step = Local().party(query, data, Randomness.from_seed(1, "parties")).start()
    assert isinstance(step, Done)
    server = Local().server(query, 0, Randomness.from_seed(1, "server-0"), Memory())
    server.start()
    for message in step.messages:
        assert message.width == 2 * RECORDS // 8
        assert isinstance(server.receive(message), Continue)
    members = bitmap(8, list(range(8)))
    released = server.receive(
        a_message(Phase.RELEASE, Role.COORDINATOR, Role.SERVER, body=members, run=query.run)
    )
    assert isinstance(released, Continue)
    assert [spend.loss for spend in released.spends] == [PrivacyLoss.of(16, DELTA)]


def test_a_run_says_it_and_a_cap_stops_it() -> None:
    """The second run would spend more δ than servers may."""
    data = "synthetic:scores?n=2000"
    statistic = Auc(bins="4096", levels="all")
    with Federation(100, aggregator="local", data=data, seed=3, cap=100, cap_delta=1.5e-4) as room:
        result = room.run(statistic, 16, delta=DELTA)
        assert result.privacy.delta == DELTA
        assert "a bit about each of 13 levels" in result.privacy.mechanism
        assert np.isfinite(result.deviations).all()
        with pytest.raises(RunFailed, match="delta"):
            room.run(replace(statistic, bins="2048"), 16, delta=DELTA)
