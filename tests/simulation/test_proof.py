"""The proof of an answer: what the analyst's side refuses."""

import dataclasses
import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.identity.certificates import Authority, Identity
from tallyroom.protocols.identity.signing import SigningIdentity
from tallyroom.protocols.plans.contract import Points
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import run_name
from tallyroom.protocols.records import deal
from tallyroom.protocols.run.evidence import Answered, Evidence
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.run.receipts import RECEIPT_BYTES, decode_receipt
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.on_demand import EcdfPoints
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.wire.messages import Role
from tallyroom.simulation.runtimes.contract import Layout, Opened
from tallyroom.simulation.runtimes.inprocess import InProcess
from tests.registering import register_twofold

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)
QUESTION = Question(
    Histogram(lower=0.0, upper=1.0, bins=3),
    "additive",
    Fraction(1, 3),
    Placement.EACH_SERVER,
    min_parties=2,
    key="k",
)

HOLDINGS = deal({"value": np.linspace(0.05, 0.95, 8)}, 4)


@pytest.fixture(scope="module")
def opened() -> Opened:
    with InProcess(Layout(HOLDINGS, servers=2, hosts=1)) as runtime:
        return runtime.ask(QUESTION, lambda _: None)


def evidence_of(opened: Opened) -> Evidence:
    assert opened.evidence is not None
    return opened.evidence


def test_an_honest_answer_is_proved(opened: Opened) -> None:
    query, proof = opened.prove(QUESTION)
    assert QUESTION.as_put(query) == query
    assert proof.records == 8


OTHERS: dict[str, Any] = {
    "statistic": Histogram(lower=0.0, upper=1.0, bins=4),
    "aggregator": "curator",
    "epsilon": Fraction(1, 4),
    "noise": Placement.CURATOR,
    "data": "other",
    "unit": "party",
    "min_parties": 3,
    "delta": 1e-9,
    "law": "twofold",
    "later": PrivacyLoss.of(Fraction(1, 2), 1e-9),
}
FIELDS = {field.name for field in dataclasses.fields(Question)}
FREE = {"deadline", "fresh"}
"""How long one waits changes nothing about the answer; and one to this very asking is fresh."""


OF_SHARED_NOISE = {"honest"}
OF_GAUSSIAN_NOISE = {"rho"}
OF_JOINT_NOISE = {"security"}


@pytest.mark.parametrize(
    "field", sorted(FIELDS - OF_SHARED_NOISE - OF_GAUSSIAN_NOISE - OF_JOINT_NOISE)
)
def test_the_answer_to_another_question_is_refused_by_field(
    opened: Opened, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_twofold(monkeypatch)
    if field in FREE:
        same: dict[str, Any] = {"deadline": 7.0, "fresh": True}
        opened.prove(replace(QUESTION, **{field: same[field]}))
        return
    if field == "key":
        with pytest.raises(RunFailed, match="coordinator: it is the answer to an earlier asking"):
            opened.prove(replace(QUESTION, key="other"))
        return
    named = {"unit": "records_per_unit"}.get(field, field)
    with pytest.raises(RunFailed, match=f"refused: coordinator: .*its {named} is not as asked"):
        opened.prove(replace(QUESTION, **{field: OTHERS[field]}))


def test_so_is_one_whose_shared_noise_takes_other_servers_to_be_honest() -> None:
    asked = replace(QUESTION, noise=Placement.SHARED, honest=2)
    with InProcess(Layout(HOLDINGS, servers=3, hosts=1)) as runtime:
        opened = runtime.ask(asked, lambda _: None)
    opened.prove(asked)
    with pytest.raises(RunFailed, match="its honest is not as asked"):
        opened.prove(replace(asked, honest=1))


def test_so_is_one_whose_servers_are_less_sure_of_their_noise() -> None:
    asked = replace(QUESTION, noise=Placement.JOINT, security="covert", delta=1e-9)
    with InProcess(Layout(HOLDINGS, servers=2, hosts=1)) as runtime:
        opened = runtime.ask(asked, lambda _: None)
    opened.prove(asked)
    with pytest.raises(RunFailed, match="its security is not as asked"):
        opened.prove(replace(asked, security="malicious"))


def test_so_is_one_that_was_granted_other_rho() -> None:
    """The ε that goes with it is the same to six digits."""
    other = Fraction(1, 50) + Fraction(1, 10**9)
    granted = PrivacyLoss.concentrated(Fraction(1, 50)).as_epsilon
    assert PrivacyLoss.concentrated(other).as_epsilon == granted
    asked = replace(QUESTION, epsilon=granted, law="gaussian", rho="1/50")
    with InProcess(Layout(HOLDINGS, servers=2, hosts=1)) as runtime:
        opened = runtime.ask(asked, lambda _: None)
    opened.prove(asked)
    with pytest.raises(RunFailed, match="its rho is not as asked"):
        opened.prove(replace(asked, rho=str(other)))


@pytest.mark.parametrize("parameter", [f.name for f in dataclasses.fields(Histogram)])
def test_so_is_the_answer_to_a_statistic_with_another_parameter(
    opened: Opened, parameter: str
) -> None:
    other: dict[str, dict[str, Any]] = {
        "value": {"value": "x"},
        "lower": {"lower": -1.0},
        "upper": {"upper": 2.0},
        "weights": {"weights": "x", "weight_upper": 1.0},
        "weight_upper": {"weights": "x", "weight_upper": 2.0},
        "bins": {"bins": 2},
        "categories": {"categories": "a,b"},
        "randomizer": {"randomizer": "unary"},
    }
    if parameter == "nonnegative":  # it is how the release is read
        read = Histogram(lower=0.0, upper=1.0, bins=3, nonnegative=True)
        opened.prove(replace(QUESTION, statistic=read))
        return
    statistic = replace(QUESTION.statistic, **other[parameter])
    with pytest.raises(RunFailed, match="its statistic is not as asked"):
        opened.prove(replace(QUESTION, statistic=statistic))


def with_answer(opened: Opened, server: int, change: Callable[[Answered], Answered]) -> Opened:
    evidence = evidence_of(opened)
    (opening,) = evidence.openings
    answers = tuple(change(a) if a.server == server else a for a in opening.answers)
    return replace(
        opened, evidence=replace(evidence, openings=(replace(opening, answers=answers),))
    )


def resigned(opened: Opened, authority: Authority, **claims: Any) -> Callable[[Answered], Answered]:
    """What server-1 would sign with a certificate of this authority."""
    credentials = authority.issue(Identity(Role.SERVER, 1, 1), NOW, DAY)

    def change(answer: Answered) -> Answered:
        receipt = decode_receipt(evidence_of(opened).run, 1, answer.receipt)
        signed = replace(receipt, **claims).signed(SigningIdentity.of(credentials).sign)
        return replace(answer, receipt=signed.encode(), certificate=credentials.certificate)

    return change


def test_a_coordinator_cannot_alter_the_answer(opened: Opened) -> None:
    total = opened.total.copy()
    total[:1] += 1  # modulo 2^64
    lies = {
        "its total is not the sum": replace(opened, total=total),
        "names other contributors": replace(opened, contributors=opened.contributors[:-1]),
        "none of 4 parties": replace(opened, contributors=np.array([4], dtype=np.uint32)),
        "7 records in the sum": replace(opened, records=7),
        "9 records in the sum": replace(opened, records=9),
        "it has no receipts": replace(opened, evidence=None),
        "0 openings": replace(opened, evidence=replace(evidence_of(opened), openings=())),
        "named for another query": replace(
            opened, evidence=replace(evidence_of(opened), query=b"{}")
        ),
        "released over other parties": replace(
            opened,
            evidence=replace(evidence_of(opened), release=b"\xe0"),
            contributors=np.arange(3, dtype=np.uint32),
        ),
    }
    for words, lie in lies.items():
        with pytest.raises(RunFailed, match=f"the answer is refused: .*{words}"):
            lie.prove(QUESTION)


def test_receipts_of_one_run_are_none_of_another(opened: Opened) -> None:
    """The nonce is not in the query: the same question, asked again, has the same bytes."""
    evidence = evidence_of(opened)
    other = run_name(b"run-0002", evidence.query)
    with pytest.raises(RunFailed, match="receipt is not signed with its certificate's key"):
        replace(opened, evidence=replace(evidence, run=other)).prove(QUESTION)


def test_a_receipt_is_of_its_server_its_share_and_its_charge(opened: Opened) -> None:
    (opening,) = evidence_of(opened).openings
    zero, one = opening.answers
    outside = Authority.create("other", NOW, DAY)
    lies: dict[str, Callable[[Answered], Answered]] = {
        "its share is not the one that it signed": lambda a: replace(a, share=zero.share),
        "not signed with its certificate's key": lambda a: replace(a, receipt=zero.receipt),
        "the certificate of somebody else": lambda a: replace(a, certificate=zero.certificate),
        "not signed by the members' authority": resigned(opened, outside),
        "malformed receipt": lambda a: replace(a, receipt=a.receipt[1:]),
        "certificate is not signed": lambda a: replace(a, certificate=b""),
    }
    for words, change in lies.items():
        with pytest.raises(RunFailed, match=f"the answer is refused: server-1: .*{words}"):
            with_answer(opened, 1, change).prove(QUESTION)
    for place in range(RECEIPT_BYTES):
        changed = bytearray(one.receipt)
        changed[place] ^= 1
        forged = replace(one, receipt=bytes(changed))
        with pytest.raises(RunFailed, match="the answer is refused: server-1"):
            with_answer(opened, 1, lambda _, to=forged: to).prove(QUESTION)  # type: ignore[misc]
    missing = replace(
        opened,
        evidence=replace(evidence_of(opened), openings=(replace(opening, answers=(zero,)),)),
    )
    with pytest.raises(RunFailed, match="receipts of 1 servers, where 2 are needed"):
        missing.prove(QUESTION)
    twice = replace(opening, answers=(zero, one, one))
    with pytest.raises(RunFailed, match="not one of each server"):
        replace(opened, evidence=replace(evidence_of(opened), openings=(twice,))).prove(QUESTION)


@pytest.mark.parametrize(
    "claim",
    [
        PrivacyLoss.of(Fraction(1, 4)),
        PrivacyLoss.of(Fraction(1, 2), 1e-9),
        PrivacyLoss.concentrated(Fraction(1, 2)),
        PrivacyLoss.of(None),
    ],
)
def test_a_server_that_charged_something_else_is_named(claim: PrivacyLoss) -> None:
    """It holds a certificate, and signs what its ledger has."""
    authority = Authority.create("members", NOW, DAY)
    with InProcess(Layout(HOLDINGS, servers=2, hosts=1)) as runtime:
        opened = runtime.ask(QUESTION, lambda _: None)
    certified = authority.issue(Identity(Role.SERVER, 0, 0), NOW, DAY)

    def honest(answer: Answered) -> Answered:
        receipt = decode_receipt(evidence_of(opened).run, 0, answer.receipt)
        signed = receipt.signed(SigningIdentity.of(certified).sign)
        return replace(answer, receipt=signed.encode(), certificate=certified.certificate)

    opened = replace(with_answer(opened, 0, honest), authority=authority.pem)
    with_answer(opened, 1, resigned(opened, authority)).prove(QUESTION)
    lying = with_answer(opened, 1, resigned(opened, authority, loss=claim))
    with pytest.raises(RunFailed, match=f"server-1: it charged {claim}, where the query costs"):
        lying.prove(QUESTION)


@pytest.mark.parametrize(
    "statistic",
    [
        Ecdf(value="value", lower=0.0, upper=1.0, thresholds=4),
        EcdfPoints(value="value", lower=0.0, upper=1.0, at=(0.5,)),
    ],
)
def test_an_earlier_release_is_taken_where_that_was_allowed_and_is_said(
    statistic: Statistic,
) -> None:
    first = replace(QUESTION, statistic=statistic, aggregator="fss", min_parties=None)
    with InProcess(Layout(HOLDINGS, servers=2, hosts=1)) as runtime:
        opened = runtime.ask(first, lambda _: None)
    later = replace(first, key="later")
    replace(opened, reused=True).prove(later)
    with pytest.raises(RunFailed, match="it is the answer to an earlier asking"):
        replace(opened, reused=True).prove(replace(later, fresh=True))
    if not isinstance(planned(statistic).plan, Points):
        with pytest.raises(RunFailed, match="it passes an earlier release off as a new one"):
            opened.prove(later)
