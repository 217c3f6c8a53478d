"""What a party agrees to: every rule by itself, and policies that are none."""

import dataclasses
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from tallyroom.protocols.aggregation import aggregator_named, aggregators
from tallyroom.protocols.aggregation.additive import Additive
from tallyroom.protocols.aggregation.contract import Aggregator
from tallyroom.protocols.aggregation.curator import Curator
from tallyroom.protocols.aggregation.local.aggregator import Local
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.privacy.ledger import Filter, parse_cap
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.run import policy as policy_module
from tallyroom.protocols.run.policy import DEPLOYED, MAX_TEXT, Policy, parse_policy
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.classifier_curves import Roc
from tallyroom.protocols.statistics.contract import asked_as
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.grouped import grouped
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.of_pairs import Auc, Gini
from tallyroom.protocols.statistics.pairwise import Pairs
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.running_sum import RunningSum
from tests import samples
from tests.every_statistic import EVERY, put, records
from tests.registering import register_twofold

CURVES = Roc(lower=0.0, upper=1.0, thresholds=4, labels="public")


def a_query(**changes: Any) -> Query:
    """Four parties of at most four records, two servers, ε = 1."""
    return samples.a_query(
        **{"epsilon": Fraction(1), "records": 16, "max_records_per_party": 4} | changes
    )


def test_what_is_usual_is_taken_by_default() -> None:
    assert DEPLOYED.in_federation(2).refusal(a_query(), records=4) is None
    shared = a_query(noise=Placement.PARTIES)
    assert DEPLOYED.in_federation(2).refusal(shared) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"aggregator": "curator", "servers": 1}, "curator lets one server see its data"),
        ({"servers": 1, "aggregator": "masking"}, "it asks for 2 servers or more, not 1"),
        ({"epsilon": None}, "no answer without noise"),
        ({"epsilon": Fraction(11)}, "epsilon 10 per question, not 11"),
        (
            {"noise": Placement.SHARED, "servers": 3, "honest": 3},
            "it takes 2 of 3 servers for honest, and shared noise needs 3",
        ),
        ({"records": 17}, "more records than its parties can hold"),
        ({"max_records_per_party": 2, "records": 8}, "as many records as it joined with"),
    ],
)
def test_what_is_unsafe_is_refused_by_default(changes: dict[str, Any], words: str) -> None:
    refusal = DEPLOYED.in_federation(2).refusal(a_query(**changes), records=3)
    assert refusal is not None
    assert words in refusal


LOCAL = Auc(lower=0.0, upper=1.0, bins="4", labels="public")


@pytest.mark.parametrize(
    ("changes", "column"),
    [
        ({"statistic": CURVES}, "label"),
        ({"statistic": RunningSum(time="age", lower=1.0, upper=2.0, steps=120)}, "age"),
        (
            {
                "statistic": LOCAL,
                "aggregator": "local",
                "servers": 1,
                "noise": Placement.CURATOR,
            },
            "label",
        ),
    ],
)
def test_who_asks_does_not_choose_which_columns_are_public(
    changes: dict[str, Any], column: str
) -> None:
    """What such a question takes for public it tells exactly, at whatever ε: how many records are
    positive, each record's label, or how many records have each value of any column of integers."""
    asked = a_query(**changes)
    assert f"the column {column} is public" in str(DEPLOYED.refusal(asked))
    allowed = dataclasses.replace(DEPLOYED, public_columns=frozenset({column}))
    assert allowed.refusal(asked) is None


def test_no_delta_past_the_default_is_granted() -> None:
    asked = a_query(
        aggregator="shuffle",
        servers=1,
        noise=Placement.CURATOR,
        parties=1000,
        records=1000,
        max_records_per_party=1,
        delta=1e-4,
    )
    assert "delta 1e-05 per question, not 0.0001" in str(DEPLOYED.refusal(asked))
    assert DEPLOYED.refusal(dataclasses.replace(asked, delta=1e-6)) is None


@pytest.mark.parametrize(
    ("text", "refused", "taken", "words"),
    [
        ("minimum_servers = 3", {}, {"servers": 3}, "3 servers or more"),
        ("minimum_parties = 3", {"min_parties": 2}, {"min_parties": 3}, "3 parties or more"),
        (
            "maximum_records_per_party = 3",
            {},
            {"max_records_per_party": 3, "records": 12},
            "3 records per party",
        ),
        ('aggregators = ["additive"]', {"aggregator": "shamir"}, {}, "the aggregator shamir"),
        (
            "honest_servers = 1",
            {"noise": Placement.SHARED, "servers": 3},
            {"noise": Placement.SHARED, "servers": 3, "honest": 1},
            "it takes 1 of 3 servers for honest, and shared noise needs 2",
        ),
        ('noise = ["parties"]', {}, {"noise": Placement.PARTIES}, "the noise each-server"),
        ('noise_laws = ["laplace"]', {"law": "twofold"}, {}, "the noise law twofold"),
        (
            'statistics = ["ecdf"]',
            {},
            {"statistic": Ecdf(lower=0.0, upper=1.0, thresholds=4)},
            "the statistic histogram",
        ),
        (
            'columns = ["value"]',
            {"statistic": Histogram(value="pay", lower=0.0, upper=1.0, bins=2)},
            {},
            "the column pay",
        ),
        (
            'columns = ["value"]\npublic_columns = ["time"]',
            {"statistic": RunningSum(time="age", lower=1.0, upper=2.0, steps=4)},
            {"statistic": RunningSum(lower=1.0, upper=2.0, steps=4)},
            "the column age",
        ),
        (
            'public_columns = ["time"]',
            {"statistic": CURVES},
            {"statistic": RunningSum(lower=1.0, upper=2.0, steps=4)},
            "does not say that the column label is public",
        ),
        (
            'grouping_columns = ["sex"]',
            {"statistic": grouped(Mean(lower=0.0, upper=1.0), "age > 1")},
            {"statistic": grouped(Mean(lower=0.0, upper=1.0), by=("sex",), groups={"sex": "F"})},
            "does not allow --where or --by of the column age",
        ),
        (
            "grouping_columns = []",
            {"statistic": grouped(Mean(lower=0.0, upper=1.0), "sex = 'F'")},
            {},
            "does not allow --where or --by of the column sex",
        ),
        (
            'columns = ["value"]',
            {"statistic": grouped(Mean(lower=0.0, upper=1.0), "age > 1")},
            {"statistic": grouped(Mean(lower=0.0, upper=1.0), "value > 0.5")},
            "the column age",
        ),
        (
            "weighed_outputs = false",
            {"statistic": Gini(lower=0.0, upper=1.0, outputs="weighed")},
            {"statistic": Gini(lower=0.0, upper=1.0)},
            "no part in pairs whose outputs are weighed",
        ),
        (
            'security = ["covert"]',
            {"noise": Placement.JOINT},
            {"noise": Placement.JOINT, "security": "covert?circuits=4"},
            "the security malicious",
        ),
        (
            'security = ["malicious"]',
            {"statistic": Gini(lower=0.0, upper=1.0, meet="servers"), "noise": Placement.JOINT},
            {},
            "the security semi-honest",
        ),
        ('units = ["party"]', {}, {"records_per_unit": 4}, "it asks for the unit party"),
        ('units = ["record"]', {"records_per_unit": 4}, {}, "it asks for the unit record"),
        ("epsilon_per_question = 0.5", {}, {"epsilon": Fraction(1, 2)}, "not 1"),
        (
            "epsilon_per_question = 0.1",
            {"epsilon": Fraction(1, 10) + Fraction(1, 10**12)},
            {"epsilon": Fraction(1, 10)},
            "epsilon 0.1 per question",
        ),
    ],
)
def test_each_rule_refuses_what_it_says_and_nothing_else(
    text: str,
    refused: dict[str, Any],
    taken: dict[str, Any],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register_twofold(monkeypatch)
    policy = parse_policy(text)
    assert words in str(policy.refusal(a_query(**refused)))
    assert policy.refusal(a_query(**taken)) is None


def test_every_rule_has_a_test_and_a_reader() -> None:
    """So that a rule that is added later is not forgotten in TOML."""
    whole = (
        "minimum_servers = 1\nminimum_parties = 1\nmaximum_records_per_party = 1\n"
        'aggregators = ["additive"]\nnoise = ["parties"]\nstatistics = ["mean"]\n'
        'columns = ["x"]\npublic_columns = ["x"]\nunits = ["record"]\n'
        'noise_laws = ["laplace"]\nweighed_outputs = true\ngrouping_columns = []\n'
        "tells_columns = true\n"
        "epsilon_per_question = 1\nepsilon_in_all = 2.5\n"
        "delta_per_question = 1e-7\ndelta_in_all = 1e-6\nhonest_servers = 1\n"
        'security = ["malicious"]\n'
    )
    policy = parse_policy(whole)
    assert all(getattr(policy, f.name) is not None for f in dataclasses.fields(Policy))
    assert len(whole.splitlines()) == len(dataclasses.fields(Policy)) + 1  # ε and δ of two losses
    assert policy.per_question == PrivacyLoss.of(1, 1e-7)
    assert policy.in_all == PrivacyLoss.of(Fraction(5, 2), 1e-6)


def test_pairs_are_weighed_only_where_the_party_says_so() -> None:
    """Whoever asks chooses `--outputs`; that must not open another's record."""
    asked = a_query(statistic=Gini(lower=0.0, upper=1.0, outputs="weighed"))
    assert "weighed" in str(DEPLOYED.refusal(asked))
    assert parse_policy("weighed_outputs = true").refusal(asked) is None
    with pytest.raises(LocalError, match="weighed_outputs is true or false, not 'yes'"):
        parse_policy("weighed_outputs = 'yes'")


def test_servers_are_semi_honest_only_where_the_party_says_so() -> None:
    """Whoever asks chooses `--security`; that must not leave the noise to one server."""
    asked = a_query(noise=Placement.JOINT, epsilon=Fraction(1), security="semi-honest")
    assert "does not allow semi-honest servers" in str(DEPLOYED.refusal(asked))
    assert parse_policy('security = ["semi-honest"]').refusal(asked) is None
    for level in ("covert", "malicious", ""):
        assert DEPLOYED.refusal(dataclasses.replace(asked, security=level)) is None
    with pytest.raises(LocalError, match="security has no 'perfect'"):
        parse_policy('security = ["perfect"]')


def test_a_listed_name_does_not_let_its_options_weaken_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None of ours can be weakened so; one of another package might."""

    def find(spec: str) -> Aggregator:
        return Curator() if spec.endswith("weak=1") else aggregator_named(spec)

    monkeypatch.setattr(policy_module, "aggregator_named", find)
    listed = parse_policy('aggregators = ["additive", "curator"]')
    assert listed.refusal(a_query()) is None
    assert listed.refusal(a_query(aggregator="curator", servers=1)) is None
    weakened = a_query(aggregator="additive?weak=1")
    assert "lets one server see" in str(listed.refusal(weakened))
    assert parse_policy('aggregators = ["additive?weak=1"]').refusal(weakened) is None


@pytest.mark.parametrize(
    ("spec", "taken"),
    [
        ("shuffle", True),
        ("shuffle?honest=0.9", True),  # as it is
        ("shuffle?honest=1.0", False),
        ("masking", True),
        ("masking?neighbours=2", False),
        ("masking?threshold=4", False),
    ],
)
@pytest.mark.parametrize("listed", [False, True])
def test_who_asks_does_not_choose_how_many_parties_are_honest(
    spec: str, taken: bool, listed: bool
) -> None:
    query = a_query(aggregator=spec, servers=1, noise=Placement.CURATOR, parties=9, records=16)
    name = spec.partition("?")[0]
    chosen = dataclasses.replace(DEPLOYED, aggregators=frozenset({name}) if listed else None)
    expected = None if taken else f"its policy allows {name} as it is, not {spec}"
    assert chosen.refusal(query) == expected
    literal = dataclasses.replace(DEPLOYED, aggregators=frozenset({spec}))
    assert literal.refusal(query) is None


def test_one_server_sees_data_with_the_curator_alone() -> None:
    """Of those that are installed; what masking and shuffle hide, they hide with one server."""
    exposing = {
        name
        for name, aggregator in aggregators().items()
        if aggregator.threat_model(aggregator.servers).exposes
    }
    assert exposing == {"curator"}


@pytest.mark.parametrize("statistic", EVERY, ids=lambda statistic: statistic.name)
def test_a_statistic_is_listed_as_users_ask_for_it_or_as_it_is_put(statistic: Statistic) -> None:
    servers, question = put(statistic)
    query = question.query(bytes(8), 4, servers, 8, 2)
    others = {
        name
        for other in EVERY
        for name in (other.name, asked_as(other))
        if not {other.name, asked_as(other)} & {statistic.name, asked_as(statistic)}
    }
    lists = [[statistic.name], [asked_as(statistic)], [statistic.name, *others], sorted(others)]
    said = [
        parse_policy(
            f"minimum_servers = 1\naggregators = ['{query.aggregator}']\n"
            f"public_columns = ['time']\nstatistics = {listed}"
        ).refusal(query, 2)
        for listed in lists
    ]
    assert said[:3] == [None, None, None]
    assert said[3] == f"its policy does not allow the statistic {statistic.name}"


@pytest.mark.parametrize("statistic", EVERY, ids=lambda statistic: statistic.name)
def test_a_statistic_reads_the_columns_that_its_policy_is_asked_about(statistic: Statistic) -> None:
    """And no other: one that it did not name would be read past the policy's `columns`."""
    held = records(4)
    named = {name: held.columns[name] for name in statistic.columns}
    assert named
    alone = dataclasses.replace(held, columns=named)
    if isinstance(statistic, Pairs):
        for offers in (Additive.offers, Local.offers):
            whole = Facts.of_one_server(alone.rows, epsilon=Fraction(1))
            facts = dataclasses.replace(whole, offers=offers)
            assert len(statistic.plan(facts).measured(alone)) == alone.rows
    else:
        plan = planned(statistic, Facts.of_one_server(alone.rows, 2)).plan
        assert len(plan.encode(alone)) == 4


def test_infinite_epsilon_is_allowed_only_by_that_name() -> None:
    free = parse_policy("epsilon_per_question = inf\nepsilon_in_all = inf")
    assert not free.in_all.bounded
    assert free.refusal(a_query(epsilon=None)) is None
    assert "without noise" in str(
        parse_policy("epsilon_per_question = 1e9\nepsilon_in_all = 1e9").refusal(
            a_query(epsilon=None)
        )
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("epsilon = 1", "no 'epsilon'"),
        ("[epsilon]\nquestion = 1", "no 'epsilon'"),
        ("epsilon_per_question = nan", "above 0"),
        ("epsilon_per_question = -1", "above 0"),
        ("epsilon_per_question = true", "above 0"),
        ('epsilon_per_question = "1"', "above 0"),
        (f"epsilon_in_all = 1{'0' * 400}", "too large"),
        ("epsilon_per_question = 200", "epsilon_in_all, which is 100"),
        ("epsilon_per_question = inf", "epsilon_in_all, which is 100"),
        ("delta_in_all = 1", "below 1"),
        ("delta_in_all = nan", "below 1"),
        ("delta_per_question = -0.1", "below 1"),
        ("minimum_servers = 2.0", "whole number"),
        ("minimum_servers = 0", "whole number"),
        ("minimum_parties = true", "whole number"),
        ("maximum_records_per_party = 0", "whole number"),
        ('aggregators = "additive"', "list of names"),
        ("aggregators = []", "list of names"),
        ("columns = [1]", "list of names"),
        ('aggregators = ["aditive"]', "did you mean additive"),
        ('noise = ["none"]', "there are curator"),
        ('statistics = ["means"]', "there are anova, auc"),
        ('units = ["group"]', "there are record, party"),
        ("epsilon_per_question = ", "no TOML"),
        ("minimum_servers = 1\nminimum_servers = 2", "no TOML"),
        ("\x00", "no TOML"),
        ("a = " + "[" * 5000, "no TOML"),
        ("#" * (MAX_TEXT + 1), "at most"),
    ],
)
def test_what_is_no_policy_is_refused_in_a_line(text: str, words: str) -> None:
    with pytest.raises(LocalError) as caught:
        parse_policy(text)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400


# --- caps and losses in ρ ---


@pytest.mark.parametrize(
    ("text", "filter"),
    [
        ("cap = 3", Filter.of(Fraction(3), 1e-5)),
        ("cap = 3\ndelta_in_all = 1e-7", Filter.of(Fraction(3), 1e-7)),
        ('cap = "3, delta = 1e-6"', Filter.of(PrivacyLoss.of(3, 1e-6))),
        ('cap = "rho 0.1"', Filter.of(PrivacyLoss.concentrated(Fraction(1, 10)), 1e-5)),
        ('cap = "rho 0.1"\nepsilon_per_question = 900', Filter.of(parse_cap("rho 0.1"), 1e-5)),
    ],
)
def test_a_cap_is_written_as_servers_write_it(text: str, filter: Filter) -> None:
    assert parse_policy(text).filter == filter


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cap = true", "cap is written 3"),
        ("cap = [3]", "cap is written 3"),
        ('cap = "rho x"', "rho must be a positive number"),
        ("cap = 3\nepsilon_in_all = 3", "say the same: leave one of them out"),
        ('cap = "3, delta = 1e-6"\ndelta_in_all = 1e-6', "leave delta_in_all out"),
        ("rho_per_question = 0.1\nepsilon_per_question = 1", "say the same"),
        ("rho_per_question = true", "rho_per_question is a number above 0"),
        ("rho_per_question = 0", "rho must be a positive number"),
    ],
)
def test_a_cap_that_is_none_is_one_clear_line(text: str, words: str) -> None:
    with pytest.raises(LocalError, match=words) as refused:
        parse_policy(text)
    assert "\n" not in str(refused.value)


def test_a_policy_in_rho_refuses_what_exceeds_it() -> None:
    """A curve's noises cost less ρ than its ε would: 0.0075 and not 0.045."""
    policy = parse_policy("rho_per_question = 0.01")
    curve = Ecdf(lower=0.0, upper=1.0, thresholds=1024)
    asked = a_query(statistic=curve, epsilon=Fraction(3, 10))
    assert policy.refusal(asked) is None
    more = replace(asked, epsilon=Fraction(2, 5))
    assert policy.refusal(more) == "it allows rho 0.01 per question, not 0.0133333"
    gaussian = {"law": "gaussian", "rho": "1/50", "epsilon": Fraction(1, 5)}
    assert policy.refusal(a_query(**gaussian)) == "it allows rho 0.01 per question, not 0.02"
    assert policy.refusal(a_query(epsilon=None)) == "it takes part in no answer without noise"
