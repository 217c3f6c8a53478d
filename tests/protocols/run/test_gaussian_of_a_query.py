"""Gaussian noise in a query: what is granted in ρ, who may say so, and what shares of it cost."""

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.privacy.gaussian import DiscreteGaussian
from tallyroom.protocols.privacy.loss import PrivacyLoss, as_written
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace, Placement
from tallyroom.protocols.query import decode_query, run_name
from tallyroom.protocols.run.machines import check
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tests.samples import a_query

COUNTS = Histogram(lower=0.0, upper=1.0, bins=4)


def in_rho(**changes: Any) -> Any:
    """ρ = 1/50, which an ε of 0.2 has."""
    said = {"epsilon": Fraction(1, 5), "rho": "1/50", "law": "gaussian", **changes}
    return a_query(**said)


def test_what_is_granted_in_rho_is_what_is_charged() -> None:
    query = in_rho()
    check(query)
    assert query.noise_law == DiscreteGaussian(Fraction(50))  # two counts move by one each
    assert query.loss == query.concentrated == PrivacyLoss.concentrated(Fraction(1, 50))
    assert query.spend.loss.text == "rho 1/50"


def test_what_is_granted_in_epsilon_is_charged_so_and_known_in_rho() -> None:
    query = a_query(epsilon=Fraction(1), delta=1e-6, law="gaussian")
    assert query.loss == PrivacyLoss.of(1, 1e-6)
    assert query.concentrated.rho is not None
    assert query.concentrated.at(1e-6) <= query.loss
    assert Fraction(2, 100) < query.concentrated.rho < Fraction(3, 100)


def test_laplace_noise_of_a_curve_costs_less_rho_than_its_epsilon_would() -> None:
    """Six counts move by one each, under noise of scale 6/ε: 6·(ε/6)²/2, not ε²/2."""
    curve = Ecdf(lower=0.0, upper=1.0, thresholds=1024, strategy="hierarchy")
    query = a_query(statistic=curve, epsilon=Fraction(1, 10), parties=100)
    assert query.sensitivity.l1 == query.sensitivity.squared_l2 == 6
    assert query.concentrated == PrivacyLoss.concentrated(Fraction(1, 1200))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"law": "laplace"}, "laplace noise is asked for in epsilon, not in rho"),
        ({"delta": 1e-6}, "rho is granted without delta"),
        ({"rho": "2/100"}, "do not go together"),
        ({"rho": "1/49"}, "do not go together"),
        ({"rho": "-1/50"}, "rho must be a positive number"),
        ({"rho": "inf"}, "rho must be a positive number"),
        ({"rho": "1e99"}, "rho must be a positive number"),
        ({"rho": "x" * 99}, "rho must be a positive number"),
        ({"epsilon": None}, "do not go together"),
        ({"epsilon": Fraction(10**6)}, "do not go together"),
        ({"rho": "", "epsilon": Fraction(1)}, "needs a delta above 0"),
    ],
    ids=str,
)
def test_a_loss_that_is_not_plain_is_refused_in_one_line(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(LocalError, match=words) as refused:
        check(in_rho(**changes))
    assert "\n" not in str(refused.value)


def test_it_crosses_the_wire_and_is_part_of_what_is_asked() -> None:
    query = in_rho()
    assert decode_query(query.run, query.encode(), "a peer") == query
    assert b"rho" not in a_query(epsilon=Fraction(1)).encode()
    granted = Fraction(1, 5)
    question = Question(
        COUNTS, "additive", granted, Placement.EACH_SERVER, law="gaussian", rho="1/50"
    )
    assert Question.decode(question.encode()) == question
    put = question.query(bytes(8), 4, 2, 4, 1)
    assert question.difference(put) is None
    other = replace(put, rho="1/51", epsilon=PrivacyLoss.concentrated(Fraction(1, 51)).as_epsilon)
    assert question.difference(other) in ("epsilon", "rho")


@pytest.mark.parametrize("rho", [0.02, None, True, ["1/50"], "2/100", "0.02", ""])
def test_a_peer_cannot_say_rho_in_another_way(rho: object) -> None:
    query = in_rho()
    said = json.dumps(json.loads(query.encode()) | {"rho": rho}, sort_keys=True)
    data = said.replace(", ", ",").replace(": ", ":").encode()
    with pytest.raises(PeerError, match="malformed query"):
        decode_query(run_name(query.nonce, data), data, "a peer")


@pytest.mark.parametrize(
    ("changes", "shares"),
    [
        ({"noise": Placement.PARTIES, "parties": 60}, 30),
        ({"noise": Placement.SHARED, "servers": 5}, 3),
        ({"noise": Placement.SHARED, "servers": 5, "honest": 2}, 2),
        ({"noise": Placement.EACH_SERVER}, 1),
    ],
    ids=str,
)
def test_shares_are_calibrated_for_how_many_make_up_a_noise(
    changes: dict[str, Any], shares: int
) -> None:
    query = in_rho(**changes)
    assert isinstance(query.noise_law, DiscreteGaussian)
    assert query.noise_law.shares == shares
    assert query.noise_law.loss(query.sensitivity) <= query.granted


def test_joint_noise_is_charged_with_what_its_circuit_is_off_by() -> None:
    """In ε and δ, the law has a little less δ, and the whole is as granted; in ρ there is a δ."""
    query = a_query(epsilon=Fraction(1), delta=1e-6, law="gaussian", noise=Placement.JOINT)
    check(query)
    assert query.loss == PrivacyLoss.of(1, 1e-6)
    assert query.noise_law is not None
    assert query.joint_noise is not None
    off = query.joint_noise.delta(Fraction(1), query.plan.noises)
    assert 0 < off <= 2.0**-40
    of_law = query.noise_law.loss(query.sensitivity)
    assert of_law <= PrivacyLoss(Fraction(1), query.loss.delta - as_written(off))
    assert query.concentrated == of_law.rounded_up() + PrivacyLoss.of(0, off)
    assert query.spend.in_rho == query.concentrated
    granted_in_rho = replace(query, delta=0.0, rho="1/50", epsilon=Fraction(1, 5))
    assert granted_in_rho.loss == granted_in_rho.concentrated
    assert granted_in_rho.loss.rho == Fraction(1, 50)
    assert 0 < granted_in_rho.loss.delta <= 2.0**-40


def test_joint_noise_of_no_law_has_more_than_its_circuit_covers() -> None:
    with pytest.raises(LocalError, match="too large for gaussian noise inside a circuit: 32"):
        check(in_rho(epsilon=Fraction(40), rho="800", noise=Placement.JOINT))


def test_other_laws_are_told_to_draw_as_before() -> None:
    query = a_query(epsilon=Fraction(1), noise=Placement.PARTIES, parties=60)
    assert query.noise_law == DiscreteLaplace(Fraction(2))
