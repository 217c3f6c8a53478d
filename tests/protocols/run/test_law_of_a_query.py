"""The noise law of a query: who cannot draw it refuses it, and what it says it costs is charged."""

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest

from tallyroom.protocols.aggregation.mechanism import AddedNoise
from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace, Placement
from tallyroom.protocols.privacy.noise_law import NoiseLaw, Sensitivity
from tallyroom.protocols.query import decode_query, run_name
from tallyroom.protocols.registry import NOISE_LAWS
from tallyroom.protocols.run.machines import check
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.choices import TopK
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.of_pairs import Auc, Gini
from tallyroom.protocols.statistics.projected import ProjectedCells
from tests.example_aggregator.twofold import Twofold
from tests.registering import register, register_twofold
from tests.samples import a_query

COUNTS = Histogram(lower=0.0, upper=1.0, bins=4)
PAIRS = Gini(lower=0.0, upper=1.0, bits=4, pairs_per_party="1")


class Alone(DiscreteLaplace):
    """A law that is drawn by one alone."""

    name: ClassVar[str] = "alone"
    has_shares: ClassVar[bool] = False


class Dear(Twofold):
    """A law that costs twice what it should."""

    name: ClassVar[str] = "dear"

    def loss(self, sensitivity: Sensitivity) -> PrivacyLoss:
        return 2 * super().loss(sensitivity)


@pytest.fixture(autouse=True)
def laws(monkeypatch: pytest.MonkeyPatch) -> None:
    register_twofold(monkeypatch)
    for kind in (Alone, Dear):
        register(monkeypatch, NOISE_LAWS, kind.name, f"{__name__}:{kind.__name__}")


def asked(**changes: Any) -> Any:
    return a_query(**{"epsilon": Fraction(7, 10), "law": "twofold", **changes})


def test_its_noise_is_drawn_and_what_it_says_it_costs_is_charged() -> None:
    """Its scale, 2/0.7, is rounded up to 3: two counts that move by one cost 2/3."""
    query = asked()
    assert query.noise_law == Twofold(DiscreteLaplace(Fraction(3)))
    assert query.loss == PrivacyLoss.of(Fraction(2, 3))
    assert query.spend.loss == PrivacyLoss.of(Fraction(2, 3))
    assert replace(query, law="laplace").spend.loss == PrivacyLoss.of(Fraction(7, 10))
    check(query)


def test_intervals_and_words_are_those_of_the_law() -> None:
    query = asked()
    mechanism = AddedNoise(query)
    assert mechanism.words == "two of discrete Laplace of scale 3 on 4 integers"
    noise = mechanism.noise(np.zeros(4, dtype=np.uint64), 4, 4)
    assert noise is not None
    assert noise.variance == pytest.approx(2 * 2 * DiscreteLaplace(Fraction(3)).variance)
    law = DiscreteLaplace(Fraction(3))
    half = noise.width(whole=True) * np.sqrt(noise.variance)
    assert half == pytest.approx(law.quantile(0.975, 4))  # two servers draw two noises each


def test_it_crosses_the_wire_and_is_part_of_what_is_asked() -> None:
    query = asked()
    assert decode_query(query.run, query.encode(), "a peer").law == "twofold"
    assert b"law" not in replace(query, law="laplace").encode()
    question = Question(COUNTS, "additive", Fraction(7, 10), Placement.EACH_SERVER, law="twofold")
    assert Question.decode(question.encode()) == question
    put = question.query(bytes(8), 4, 2, 4, 1)
    assert question.difference(put) is None
    assert question.difference(replace(put, law="laplace")) == "law"


@pytest.mark.parametrize("law", ["twofol", "", "Laplace"])
def test_a_law_that_is_not_there_is_refused(law: str) -> None:
    with pytest.raises(LocalError, match="no noise law"):
        asked(law=law)


@pytest.mark.parametrize("law", ["laplace", "other", 3, None, True, ["twofold"]])
def test_a_peer_cannot_say_another_thing_for_a_law(law: object) -> None:
    """Nor the default, which is left unsaid: one query has one encoding."""
    query = asked()
    said = json.dumps(json.loads(query.encode()) | {"law": law}, sort_keys=True)
    data = said.replace(", ", ",").replace(": ", ":").encode()
    with pytest.raises(PeerError, match="malformed query"):
        decode_query(run_name(query.nonce, data), data, "a peer")


@pytest.mark.parametrize(
    ("statistic", "changes", "words"),
    [
        (COUNTS, {"noise": Placement.JOINT}, "joint noise is drawn inside a circuit.*each-server"),
        (PAIRS, {"noise": Placement.PER_PAIR}, "gini like this takes no noise law but laplace"),
        (PAIRS, {"noise": Placement.JOINT}, "joint noise is drawn inside a circuit"),
        (TopK(lower=0.0, upper=1.0, bins=4), {"noise": Placement.JOINT}, "top-k like this takes"),
        (
            Auc(lower=0.0, upper=1.0, method="smooth"),
            {"noise": Placement.CURATOR, "servers": 1, "aggregator": "curator"},
            "auc like this takes no noise law but laplace",
        ),
        (
            ProjectedCells(("x=0:1", "label=0,1"), "label", ("x",), 3),
            {},
            "takes no noise law but laplace, not twofold: leave --noise-law out",
        ),
        (
            COUNTS,
            {"aggregator": "local", "servers": 1, "noise": Placement.CURATOR},
            "local draws noise of its own, not of the law twofold",
        ),
    ],
    ids=str,
)
def test_who_cannot_draw_a_law_refuses_it_in_one_line(
    statistic: Statistic, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(LocalError, match=words) as refused:
        check(asked(statistic=statistic, **changes))
    assert "\n" not in str(refused.value)
    check(asked(statistic=statistic, law="laplace", **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"noise": Placement.PARTIES},
        {"noise": Placement.SHARED, "servers": 3},
        {"aggregator": "shamir", "noise": Placement.PARTIES, "servers": 3},
    ],
    ids=str,
)
def test_a_law_without_shares_is_not_drawn_in_shares(changes: dict[str, Any]) -> None:
    check(asked(**changes))
    with pytest.raises(LocalError, match=r"alone is not drawn in shares.*each-server or curator"):
        asked(law="alone", **changes)


def test_a_law_that_costs_more_than_is_granted_is_refused() -> None:
    with pytest.raises(LocalError, match=r"law dear costs more than ε 0\.7"):
        check(asked(law="dear"))


@pytest.mark.parametrize(
    "statistic",
    [Mean(lower=0.0, upper=1.0), COUNTS, Ecdf(lower=0.0, upper=1.0, thresholds=8), PAIRS],
    ids=lambda each: each.name,
)
def test_sums_of_any_kind_take_any_law(statistic: Statistic) -> None:
    for law in ("twofold", "alone"):
        query = asked(statistic=statistic, law=law, max_records_per_party=1)
        check(query)
        assert isinstance(query.noise_law, NoiseLaw)
        assert query.noise_law.name == law
