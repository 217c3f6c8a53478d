"""What is asked, as bytes: one encoding a query, and nothing but `PeerError` for the rest."""

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.protocols.aggregation.mechanism import AddedNoise
from tallyroom.protocols.algebra.ring import signed
from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.pairwise.sampling.schedule import pairs_of
from tallyroom.protocols.privacy.loss import PrivacyLoss, parse_epsilon
from tallyroom.protocols.privacy.mechanisms import Placement, laplace_scale
from tallyroom.protocols.query import MAX_PARTIES, Query, run_name
from tallyroom.protocols.query import decode_query as decode_named
from tallyroom.protocols.run.machines import check
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean, Sum
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.statistics.planned import planned
from tests.registering import register_twofold
from tests.samples import NONCE, a_query, holdings_of


def decode_query(data: bytes) -> Query:
    """Of a run that is named for it."""
    return decode_named(run_name(NONCE, data), data, "coordinator")


finite = st.floats(-1e6, 1e6)


@st.composite
def statistics(draw: st.DrawFn) -> Statistic:
    lower = draw(finite)
    upper = lower + draw(st.floats(0.5, 1e6))
    value = draw(st.text(max_size=8))
    match draw(st.integers(0, 2)):
        case 0:
            return Sum(value, lower, upper)
        case 1:
            return Mean(value, lower, upper)
        case _:
            return Histogram(value, lower, upper, draw(st.integers(1, 10_000)))


@st.composite
def queries(draw: st.DrawFn) -> Query:
    parties = draw(st.integers(1, 10**6))
    records = parties + draw(st.integers(0, 10**6))
    epsilon = draw(st.none() | st.fractions(Fraction(1, 1000), 1000, max_denominator=10**6))
    return Query(
        NONCE,
        draw(statistics()),
        draw(st.text(max_size=10)),
        parties,
        draw(st.integers(1, 64)),
        records,
        epsilon,
        draw(st.sampled_from([Placement.CURATOR, Placement.EACH_SERVER])),
        draw(st.text(max_size=10)),
        draw(st.integers(1, parties)),
        draw(st.integers(1, min(records, 100))),
        draw(st.integers(1, min(records, 100))),
        draw(st.floats(0.1, 86400)),
    )


@given(queries())
def test_what_is_encoded_is_decoded(query: Query) -> None:
    back = decode_named(query.run, query.encode(), "coordinator")
    assert back == query
    assert back.encode() == query.encode()
    assert back.noise_law == query.noise_law


def wire(**changes: Any) -> bytes:
    fields = json.loads(a_query(epsilon=Fraction(1)).encode()) | changes
    kept = {key: value for key, value in fields.items() if value != "absent"}
    return json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()


def test_the_wire_under_test_is_the_real_one() -> None:
    assert decode_query(wire()) == a_query(epsilon=Fraction(1))


KEYS = sorted(json.loads(wire()))
WRONG: list[Any] = ["absent", None, True, [], {"a": 1}, [[]], "no such thing", -1, 1.5, 10**400]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", WRONG, ids=lambda value: str(value)[:14])
def test_every_key_with_every_wrong_value(key: str, value: Any) -> None:
    free_text = key in ("aggregator", "data") and value == "no such thing"
    real = key == "deadline" and value == 1.5
    if free_text or real:
        decode_query(wire(**{key: value}))
        return
    with pytest.raises(PeerError, match="malformed query"):
        decode_query(wire(**{key: value}))


@given(
    st.fractions("1/1000", 10, max_denominator=1000),
    st.fractions(0, 10, max_denominator=1000),
    st.floats(0, 0.5),
)
def test_what_follows_in_a_study_goes_over_the_wire(
    epsilon: Fraction, later: Fraction, delta: float
) -> None:
    query = a_query(epsilon=epsilon, later=PrivacyLoss.of(later, delta))
    assert decode_query(query.encode()) == query
    alone = a_query(epsilon=epsilon)
    assert (query.encode() == alone.encode()) == (later == 0 and delta == 0)
    assert query.stream == alone.stream
    concentrated = PrivacyLoss.concentrated(later, delta)
    assert decode_query(a_query(epsilon=epsilon, later=concentrated).encode()).later == concentrated
    for rest in (query.later, concentrated):
        question = Question(query.statistic, "additive", epsilon, query.noise, later=rest)
        assert Question.decode(question.encode()) == question


@pytest.mark.parametrize(
    "later",
    [
        {"later_epsilon": "0", "later_delta": 0.0},  # it has no other name for nothing
        {"later_epsilon": "1"},
        {"later_delta": 1e-6},
        {"later_epsilon": "2/2", "later_delta": 0.0},
        {"later_epsilon": "-1", "later_delta": 0.0},
        {"later_epsilon": "inf", "later_delta": 0.0},
        {"later_epsilon": "1e9999999", "later_delta": 0.0},
        {"later_epsilon": "1/0", "later_delta": 0.0},
        {"later_epsilon": "9" * 65, "later_delta": 0.0},
        {"later_epsilon": 1, "later_delta": 0.0},
        {"later_epsilon": None, "later_delta": 0.0},
        {"later_epsilon": "1", "later_delta": 1.0},
        {"later_epsilon": "1", "later_delta": -1e-9},
        {"later_epsilon": "1", "later_delta": True},
        {"later_epsilon": "1", "later_delta": "0"},
        {"later_epsilon": "1", "later_delta": 0.0, "epsilon": "inf"},
        {"later_rho": "1"},
        {"later_rho": "0", "later_delta": 0.0},
        {"later_rho": "inf", "later_delta": 0.0},
        {"later_rho": "2/4", "later_delta": 0.0},
        {"later_rho": "1", "later_epsilon": "1", "later_delta": 0.0},
        {"later_rho": "1", "later_epsilon": "0", "later_delta": 0.0},
        {"later_epsilon": "rho 1", "later_delta": 0.0},
        {"later_epsilon": "1", "later_delta": 0.0, "later": "1"},
        {"later": {"epsilon": "1", "delta": 0.0}},
    ],
)
def test_what_cannot_follow_in_a_study_is_refused(later: dict[str, Any]) -> None:
    decode_query(wire(later_epsilon="1/3", later_delta=0.0))
    decode_query(wire(later_rho="1/3", later_delta=0.0))
    with pytest.raises(PeerError, match="malformed query"):
        decode_query(wire(**later))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"7",
        b'"x"',
        b"{",
        b"\xff\xfe",
        b"{}" + b"x",
        b"[" * 100_000,
        b'{"parties":' + b"9" * 10_000 + b"}",
        wire(surprise=1),
        wire(run="other"),
        wire(parties=MAX_PARTIES + 1),
        wire(parties=0),
        wire(servers=0),
        wire(servers=65),
        wire(min_parties=5),
        wire(records_per_unit=5),
        wire(records=3),
        wire(deadline=0),
        wire(deadline=1e9),
        wire(deadline=float("nan")),
        wire(parameters={"lower": 1.0, "upper": 0.0}),
        wire(parameters={"lower": float("inf"), "upper": 0.0}),
        wire(parameters={"lower": 0, "upper": 10**400}),
        wire(parameters={"value": 3}),
        wire(parameters={"bins": 10**9}),
        wire(parameters={"bins": True}),
        wire(parameters={"name": "sum"}),
        wire(parameters={"__class__": "x"}),
    ],
    ids=lambda data: data[:12].decode(errors="replace") + str(len(data)),
)
def test_malformed_queries(data: bytes) -> None:
    with pytest.raises(PeerError, match="malformed query"):
        decode_query(data)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=6,
    ),
    st.sampled_from(KEYS),
)
def test_any_json_value_anywhere_raises_nothing_but_a_peer_error(value: Any, key: str) -> None:
    try:
        query = decode_query(wire(**{key: value}))
    except PeerError:
        return
    assert decode_query(query.encode()) == query  # what is taken is told the same way again


HOSTILE_EPSILON = [
    "1e999999999",
    "1e-999999999",
    "1/0",
    "0/0",
    "0/1",
    "0",
    "-0",
    "-1",
    "-1/-1/-1",
    "nan",
    "-inf",
    "Infinity",
    "+inf",
    "1e5/3",
    "1/1e-400",
    "1e999999999/1e999999999",
    "0x10",
    "",
    " ",
    "one",
    "1" * 65,
    "1e10",
    "1e-10",
    "1,0",
    "½",
]


@pytest.mark.parametrize("text", HOSTILE_EPSILON, ids=lambda text: text[:16])
def test_hostile_epsilons_are_refused_in_both_places(text: str) -> None:
    with pytest.raises(LocalError, match="epsilon"):
        parse_epsilon(text)
    with pytest.raises(PeerError):
        decode_query(wire(epsilon=text))


@given(st.text(alphabet="0123456789.e+-/ _infaN", max_size=70))
def test_any_text_is_an_epsilon_in_range_or_a_local_error(text: str) -> None:
    try:
        epsilon = parse_epsilon(text)
    except LocalError:
        return
    assert epsilon is None or Fraction(1, 2 * 10**9) <= epsilon <= 2 * 10**9


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("inf", None),
        ("1", Fraction(1)),
        ("0.1", Fraction(1, 10)),
        ("7/3", Fraction(7, 3)),
        ("1e-3", Fraction(1, 1000)),
    ],
)
def test_epsilon_is_exactly_the_number_that_was_written(text: str, value: Fraction | None) -> None:
    assert parse_epsilon(text) == value


def test_a_release_must_have_noise_of_enough_parties() -> None:
    """Shares of noise add up to the mechanism's once half of the parties contribute, not before."""
    for parties in range(1, 12):
        for min_parties in range(1, parties + 1):
            changes = {"parties": parties, "min_parties": min_parties, "noise": Placement.PARTIES}
            if 2 * min_parties >= parties:
                a_query(epsilon=Fraction(1), **changes)
            else:
                with pytest.raises(LocalError, match="parties"):
                    a_query(epsilon=Fraction(1), **changes)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b'"deadline":30.0', b'"deadline":30'),
        lambda data: data.replace(b'"lower":0.0', b'"lower":0'),
        lambda data: data.replace(b'"lower":0.0', b'"lower":0.00'),
        lambda data: data.replace(b'"epsilon":"1"', b'"epsilon":"1.0"'),
        lambda data: data.replace(b'"epsilon":"1"', b'"epsilon":"2/2"'),
        lambda data: data.replace(b'"deadline":', b'"deadline":1.0,"deadline":'),
        lambda data: data.replace(b'"data":"data"', b'"data":"d\\u0061ta"'),
        lambda data: data + b" ",
        lambda data: data.replace(b",", b", ", 1),
        lambda data: b"{" + b",".join(sorted(data[1:-1].split(b",", 1), reverse=True)) + b"}",
    ],
)
def test_a_query_has_one_encoding(change: Callable[[bytes], bytes]) -> None:
    data = a_query(epsilon=Fraction(1)).encode()
    assert change(data) != data
    with pytest.raises(PeerError, match="malformed query"):
        decode_query(change(data))


def test_a_number_is_one_number_however_it_was_written() -> None:
    written = a_query(statistic=Histogram(lower=0, upper=1, bins=4), deadline=30, delta=0)
    assert written.encode() == a_query().encode()


@given(queries(), st.integers(0, 27), st.integers(1, 255))
def test_a_run_is_named_for_its_query(query: Query, place: int, flip: int) -> None:
    name = bytearray(query.run)
    name[place] ^= flip
    with pytest.raises(PeerError, match="coordinator: the run is named for another query"):
        decode_named(bytes(name), query.encode(), "coordinator")
    with pytest.raises(PeerError, match="named for another query"):
        decode_named(query.run[:-1], query.encode(), "coordinator")


def test_pairs_that_no_message_could_account_for_are_refused() -> None:
    """A server would keep a bit for each of them: 2^24 parties with 2^15 slots are 64 GB."""
    pairs = Gini(lower=0.0, upper=1.0, pairs_per_party=str(1 << 15))
    few = a_query(statistic=pairs, parties=1000, records=1 << 16, noise=Placement.TOTAL)
    assert pairs_of(few).slots == 1 << 15
    with pytest.raises(LocalError, match="too many to account for"):
        a_query(statistic=pairs, parties=1 << 24, noise=Placement.TOTAL)


def test_an_epsilon_that_cannot_be_read_back_is_refused() -> None:
    with pytest.raises(LocalError, match="too many digits"):
        a_query(epsilon=parse_epsilon("0." + 61 * "3"))


@pytest.mark.parametrize(
    "change",
    [
        {"nonce": b"run-0002"},
        {"statistic": Histogram(lower=0.0, upper=2.0, bins=4)},
        {"statistic": Sum(lower=0.0, upper=1.0)},
        {"aggregator": "fss"},
        {"servers": 3},
        {"records": 5},
        {"epsilon": Fraction(1)},
        {"noise": Placement.CURATOR},
        {"data": "other"},
        {"min_parties": 3},
        {"records": 5, "max_records_per_party": 2},
        {"records": 5, "records_per_unit": 2},
        {"delta": 1e-6},
        {"law": "twofold"},
        {"law": "gaussian", "epsilon": Fraction(1, 5), "rho": "1/50"},
    ],
    ids=str,
)
def test_no_two_questions_draw_from_one_stream(
    change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Masks or noise of one would be taken off by those of the other."""
    register_twofold(monkeypatch)
    assert a_query(**change).stream != a_query().stream
    assert a_query(deadline=1.0).stream == a_query().stream  # which changes nothing that is sent


@pytest.mark.parametrize(
    "statistic",
    [
        Sum(lower=0.0, upper=1.0),
        Histogram(lower=0.0, upper=1.0, bins=4),
        Ecdf(lower=0.0, upper=1.0, thresholds=16, strategy="hierarchy"),
    ],
    ids=lambda each: each.name,
)
@pytest.mark.parametrize("unit", [1, 5])
def test_noise_covers_all_records_of_a_unit(statistic: Statistic, unit: int) -> None:
    """One unit goes from one end of the range to the other, which is as far as it can: that costs
    the ε of the question, no more and no less."""
    plan = planned(statistic).plan
    low, high = (
        plan.measure(plan.encode(holdings_of([value] * unit, 1))[0]) for value in (0.0, 1.0)
    )
    moved = int(np.abs(signed(high - low)).sum())
    query = a_query(
        statistic=statistic,
        records=20,
        epsilon=Fraction(1, 2),
        records_per_unit=unit,
        max_records_per_party=5,
    )
    assert query.noise_law is not None
    assert moved / laplace_scale(query.noise_law) == query.epsilon


@pytest.mark.parametrize(
    ("changes", "delta"),
    [
        ({"parties": 4, "records": 1000, "max_records_per_party": 250}, 1e-3),
        (
            {"parties": 4, "records": 1000, "max_records_per_party": 250, "records_per_unit": 250},
            0.25,
        ),
    ],
    ids=["record", "party"],
)
def test_a_delta_of_one_in_n_is_refused_and_anything_below_is_not(
    changes: dict[str, int], delta: float
) -> None:
    """n counts what is protected. A mechanism that publishes one of n at random has δ = 1/n."""
    with pytest.raises(LocalError, match="not below one in"):
        a_query(**changes, delta=delta)
    assert a_query(**changes, delta=delta * 0.999).delta > 0


def test_the_delta_of_a_mechanism_itself_must_be_below_one_in_n(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(AddedNoise, "delta", 0.25)
    with pytest.raises(LocalError, match="not below one in 4"):
        check(a_query(epsilon=Fraction(1)))
