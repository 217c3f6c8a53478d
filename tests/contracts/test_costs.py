"""What aggregators say that they cost is what the meter shows, for all that are installed."""

import numpy as np
import pytest

from tallyroom.parties.data import Dataset
from tallyroom.protocols.aggregation import aggregator_named, aggregators
from tallyroom.protocols.aggregation.fss.aggregator import CHECKED_BYTES, PLAIN_BYTES
from tallyroom.protocols.aggregation.fss.verified_keys import key_bytes
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.wire.messages import Phase, Role
from tallyroom.protocols.wire.meter import Bill
from tallyroom.simulation import Federation
from tallyroom.simulation.prediction import NotAFormula, evaluate
from tests.samples import a_message

RECORDS = 3
INSTALLED = sorted(aggregators())
HEADER = a_message(Phase.SUBMIT, Role.PARTY, Role.SERVER).charge


def bill_of(aggregator: str, parties: int, length: int, servers: int | None = None) -> Bill:
    values = np.random.default_rng(1).uniform(0, 1, RECORDS * parties)
    data = Dataset("values", {"value": values}, {"value": (0.0, 1.0)})
    sums = "sum" in aggregator_named(aggregator).offers
    statistic: Statistic = Histogram(bins=length) if sums else Ecdf(thresholds=length)
    with Federation(parties, servers, aggregator, data=data, seed=2) as federation:
        return federation.run(statistic, 1, delta=1e-6).bill


def sent_by_a_party(bill: Bill, party: int = 1) -> int:
    """Bytes of bodies: what is left without the header of each message."""
    accounts = [account for link, account in bill.accounts.items() if link.sender is Role.PARTY]
    sizes = sum(int(account.bytes[party]) for account in accounts)
    return sizes - HEADER * sum(int(account.messages[party]) for account in accounts)


@pytest.mark.parametrize("aggregator", INSTALLED)
def test_rounds_are_those_of_a_run(aggregator: str) -> None:
    assert bill_of(aggregator, 12, 8).rounds == aggregator_named(aggregator).rounds


def test_a_check_of_keys_takes_three_rounds() -> None:
    plain = "fss?verified=no"
    assert bill_of(plain, 12, 8).rounds == aggregator_named(plain).rounds - 3


@pytest.mark.parametrize("length", [1, 2, 8, 32, 33, 1024])
@pytest.mark.parametrize("formula", [CHECKED_BYTES, PLAIN_BYTES])
def test_keys_have_the_bytes_of_their_formula(formula: str, length: int) -> None:
    keys = "fss?verified=yes" if formula == CHECKED_BYTES else "fss?verified=no"
    key = key_bytes(max(1, (length - 1).bit_length()))
    stated = evaluate(formula, {"L": length, "m": 2, "k": RECORDS, "c": key})
    assert sent_by_a_party(bill_of(keys, 3, length)) == stated


@pytest.mark.parametrize("aggregator", INSTALLED)
@pytest.mark.parametrize(("parties", "length"), [(12, 8), (17, 64)])
def test_a_party_sends_what_the_formula_says(aggregator: str, parties: int, length: int) -> None:
    """To the byte where parties speak once; else no more than that."""
    kind = aggregator_named(aggregator)
    values = {"L": length, "n": parties, "m": kind.servers, "k": RECORDS}
    values["c"] = key_bytes((length - 1).bit_length())
    try:
        stated = evaluate(kind.party_bytes, values)
    except NotAFormula as reason:
        pytest.skip(f"{aggregator} states it in words: {reason}")
    sent = sent_by_a_party(bill_of(aggregator, parties, length))
    assert 0 < sent <= stated
    assert sent == stated or kind.stages > 1


def test_additive_shares_among_more_servers() -> None:
    for servers in (2, 3, 5):
        stated = evaluate(aggregator_named("additive").party_bytes, {"L": 8, "m": servers})
        assert sent_by_a_party(bill_of("additive", 4, 8, servers)) == stated


@pytest.mark.parametrize(
    ("aggregator", "sent"),
    [("additive", 8 * 5 + 16), ("curator", 8 * 5), ("fss", 2 * (8 + (48 * 3 - 16) * 3))],
)
def test_our_own_formulas_can_be_read(aggregator: str, sent: int) -> None:
    values = {"L": 5, "n": 7, "m": 2, "k": 3, "c": key_bytes(3)}
    assert evaluate(aggregator_named(aggregator).party_bytes, values) == sent


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8L", 80),
        ("8L + 16(m − 1)", 80 + 32),
        ("m(16 + 768k); and words", 3 * (16 + 768 * 2)),
        ("2 · L·m - n", 60 - 7),
        ("((k))", 2),
        ("10 − 3 − 2", 5),
        ("L(n + 1)(m + 1)", 10 * 8 * 4),
    ],
)
def test_formulas(text: str, value: int) -> None:
    assert evaluate(text, {"L": 10, "n": 7, "m": 3, "k": 2}) == value


@pytest.mark.parametrize(
    "text", ["", "not stated", "8L +", "(8L", "8L)", "8x", "L ** 2", "1 a record"]
)
def test_words_are_no_formulas(text: str) -> None:
    with pytest.raises(NotAFormula):
        evaluate(text, {"L": 10, "n": 7, "m": 3, "k": 2})
