"""Whether keys are checked where a question leaves it open: settled once, for all who are asked."""

from dataclasses import replace
from fractions import Fraction

import pytest

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.run.machines import check, party_machine
from tallyroom.protocols.run.policy import Policy, parse_policy
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.choices import Mode
from tallyroom.protocols.statistics.ecdf import Ecdf, Quantile
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.on_demand import EcdfPoints, QuantileSearch
from tallyroom.simulation import Federation
from tests.samples import holdings_of

CURVE = Ecdf(thresholds=8, lower=0.0, upper=1.0)
CHECKED, PLAIN = "fss?verified=yes", "fss?verified=no"


def asked(statistic: Statistic = CURVE, spec: str = "fss", noise: str = "each-server") -> Question:
    return Question(statistic, spec, Fraction(1), Placement(noise), min_parties=1)


def put(question: Question, servers: int = 2, records: int = 4, most: int = 1) -> Query:
    return question.query(b"runrunru", 4, servers, records, most)


@pytest.mark.parametrize(
    "statistic",
    [CURVE, Quantile(thresholds=8, lower=0.0, upper=1.0), Histogram(bins=4, lower=0.0, upper=1.0)],
)
def test_what_two_servers_count_at_once_is_checked(statistic: Statistic) -> None:
    assert put(asked(statistic)).aggregator == CHECKED
    assert put(asked(statistic, noise="joint")).aggregator == CHECKED
    check(put(asked(statistic)))


@pytest.mark.parametrize(
    ("question", "servers"),
    [
        (asked(), 3),
        (asked(noise="shared"), 3),
        (asked(Mode(bins=4, lower=0.0, upper=1.0), noise="joint"), 2),
        (asked(EcdfPoints(at=(0.5,), lower=0.0, upper=1.0)), 2),
        (asked(QuantileSearch(lower=0.0, upper=1.0)), 2),
    ],
)
def test_what_cannot_be_checked_or_could_end_later_is_not(question: Question, servers: int) -> None:
    query = put(question, servers)
    assert query.aggregator == PLAIN
    check(query)
    assert not aggregator_named(query.aggregator).threat_model(servers).catches


def test_what_does_not_fit_a_message_when_checked_is_not() -> None:
    grown = put(asked(), records=10**6, most=10**5)
    assert grown.aggregator == PLAIN
    check(grown)
    with pytest.raises(LocalError, match="too many parties or records to fit a message"):
        check(replace(grown, aggregator=CHECKED))


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ("fss?verified=auto", CHECKED),
        ("fss?", CHECKED),
        ("fss?domain=fine", "fss?domain=fine&verified=yes"),
        ("fss?verified=auto&domain=fine", "fss?domain=fine&verified=yes"),
        (PLAIN, PLAIN),
        ("fss?verified=no&domain=fine", "fss?verified=no&domain=fine"),
        (CHECKED, CHECKED),
    ],
)
def test_other_options_stay_and_what_is_said_is_done(spec: str, found: str) -> None:
    assert put(asked(spec=spec)).aggregator == found


def test_what_is_asked_for_and_cannot_be_checked_is_refused() -> None:
    with pytest.raises(LocalError, match="exactly 2 servers"):
        check(put(asked(spec=CHECKED), servers=3))


def test_nobody_takes_part_in_a_query_that_leaves_it_open() -> None:
    query = put(asked())
    for spec in ("fss", "fss?verified=auto", "fss?domain=asked"):
        open_ended = replace(query, aggregator=spec)
        with pytest.raises(LocalError, match="yes or no"):
            check(open_ended)
        with pytest.raises(LocalError, match="yes or no"):
            party_machine(open_ended, holdings_of([0.5] * 4, 4), Randomness(bytes(16)))


def test_an_analyst_takes_no_answer_over_keys_that_were_not_checked() -> None:
    """A coordinator that settles it otherwise has asked something else."""
    question, query = asked(), put(asked())
    assert question.difference(query) is None
    for spec in (PLAIN, "fss", "fss?verified=auto"):
        assert question.difference(replace(query, aggregator=spec)) == "aggregator"
    points = asked(EcdfPoints(at=(0.5,), lower=0.0, upper=1.0))
    assert points.difference(replace(put(points), aggregator=CHECKED)) == "aggregator"


@pytest.mark.parametrize(
    ("listed", "taken"),
    [
        ('["additive", "fss"]', {CHECKED, PLAIN}),
        ('["fss?verified=yes"]', {CHECKED}),
        ('["fss?verified=no"]', {PLAIN}),
        ('["additive"]', set()),
    ],
)
def test_a_policy_names_both_kinds_or_one(listed: str, taken: set[str]) -> None:
    policy: Policy = parse_policy(f"aggregators = {listed}")
    query = put(asked())
    found = {
        spec for spec in (CHECKED, PLAIN) if policy.refusal(replace(query, aggregator=spec)) is None
    }
    assert found == taken


def test_by_default_a_cheater_is_named_and_results_say_how() -> None:
    with Federation(5, aggregator="fss", seed=7, cheats=["3:out-of-range"]) as federation:
        curve = Ecdf(value="score", thresholds=64)
        result = federation.run(curve, "inf")
        foretold = federation.predicted_links(curve)
    assert [party for party, _ in result.caught] == [3]
    assert result.federation["aggregator"] == CHECKED
    assert "malicious parties, which are caught, and 2" in result.privacy.threat_model
    assert result.error is not None
    assert max(result.error.values()) < 1e-9
    assert set(foretold) == {"party->server"}


@pytest.mark.parametrize("spec", ["fss", PLAIN, "fss?domain=fine"])
def test_what_links_will_carry_is_that_of_the_keys_in_use(spec: str) -> None:
    with Federation(5, aggregator=spec, seed=7, data="synthetic:scores?n=20") as federation:
        curve = Ecdf(value="score", thresholds=64)
        foretold = federation.predicted_links(curve)["party->server"]
        bill = federation.run(curve).bill
    assert foretold == bill.by_link()["party->server"].bytes
