"""A party that is restarted in mid-run: with the same data it repeats itself to the byte, with
other data it shares no mask, coin or key with what it said before."""

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from tallyroom.parties.block import PartyBlock
from tallyroom.protocols.aggregation import aggregator_named, aggregator_names
from tallyroom.protocols.aggregation.exchange import Exchange
from tallyroom.protocols.pairwise.sampling.pair_assignment import meeting_messages
from tallyroom.protocols.pairwise.sampling.schedule import pairs_of
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings, bound_to_data, bound_to_rows, fingerprints
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tests.goodness import ALPHA, uniform_bytes_p
from tests.protocols.pairwise.gathering import a_pairs_query
from tests.samples import a_message, a_query, holdings_of

PARTIES = 12
CHANGED = 5
VALUES = np.linspace(0.02, 0.97, PARTIES)
NOISY: dict[str, object] = {"epsilon": Fraction(1), "noise": Placement.PARTIES}
QUERIES = {
    "additive": a_query(parties=PARTIES),
    "additive, noise of parties": a_query(parties=PARTIES, **NOISY),
    "shamir": a_query(parties=PARTIES, aggregator="shamir", servers=3),
    "masking": a_query(parties=PARTIES, aggregator="masking", servers=1),
    "prio3": a_query(parties=PARTIES, aggregator="prio3"),
    "fss": a_query(
        parties=PARTIES,
        aggregator="fss?verified=yes",
        statistic=Ecdf(lower=0.0, upper=1.0, thresholds=8),
    ),
    "fss, not checked": a_query(
        parties=PARTIES,
        aggregator="fss?verified=no",
        statistic=Ecdf(lower=0.0, upper=1.0, thresholds=8),
    ),
    "fss, three servers": a_query(
        parties=PARTIES,
        aggregator="fss?verified=no",
        servers=3,
        statistic=Ecdf(lower=0.0, upper=1.0, thresholds=8),
    ),
    "shuffle": a_query(
        parties=PARTIES,
        aggregator="shuffle",
        servers=1,
        epsilon=Fraction(1),
        noise=Placement.CURATOR,
        delta=1e-6,
    ),
    "local": a_query(
        parties=PARTIES,
        aggregator="local",
        servers=1,
        # 128 bytes a report, so that two are not alike by chance.
        statistic=Histogram(lower=0.0, upper=1.0, bins=1024, randomizer="unary"),
        epsilon=Fraction(1),
        noise=Placement.CURATOR,
    ),
    "shuffle, exact": a_query(parties=PARTIES, aggregator="shuffle", servers=1),
}
"""Every aggregator that hides anything from its servers."""

Rows = dict[tuple[Phase, int], dict[int, NDArray[np.uint8]]]


def changed() -> NDArray[np.float64]:
    values = VALUES.copy()
    values[CHANGED] = 0.9 - values[CHANGED]
    return values


def said(query: Query, values: NDArray[np.float64]) -> Rows:
    """What each of these parties sends in a whole run, by kind and receiver; they hold one secret,
    as kept by a host that is restarted."""
    holdings = holdings_of(values, PARTIES)
    block = PartyBlock(holdings, Randomness(bytes(16)))
    machine = block.open(a_message(Phase.QUERY, Role.COORDINATOR, Role.PARTY, body=query.encode()))
    exchange = Exchange(aggregator_named(query.aggregator), query)
    exchange.enter(holdings.ids, machine)
    exchange.run()
    assert exchange.total is not None
    found: Rows = {}
    for message in exchange.sent_by_parties:
        kind = found.setdefault((message.phase, int(message.receivers[0])), {})
        kind |= dict(zip(message.senders.tolist(), message.rows(), strict=True))
    return found


def alike(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
    return float((one == other).mean())


def test_every_aggregator_is_here() -> None:
    known = {name for name in aggregator_names() if name != "curator"}
    assert known <= {query.aggregator.partition("?")[0] for query in QUERIES.values()}


@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_the_same_data_are_said_in_the_same_bytes(query: Query) -> None:
    first, again = said(query, VALUES), said(query, VALUES)
    assert first.keys() == again.keys()
    for kind, rows in first.items():
        assert {k: v.tobytes() for k, v in rows.items()} == {
            k: v.tobytes() for k, v in again[kind].items()
        }


@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_changed_data_meet_no_old_mask(query: Query) -> None:
    """What the changed party says has no more bytes in common with what it said before than two
    parties have with each other, in any message to anybody; others say what they said."""
    before, after = said(query, VALUES), said(query, changed())
    opening = next(iter(before))
    for kind, rows in before.items():
        if kind[0] not in (Phase.KEYS, Phase.SUBMIT):
            continue  # what masking parties deal and confirm follows from their keys
        strangers = alike(rows[CHANGED], rows[CHANGED + 1])
        assert alike(rows[CHANGED], after[kind][CHANGED]) < strangers + 0.2
        if kind[0] is opening[0]:
            for party in set(range(PARTIES)) - {CHANGED}:
                assert rows[party].tobytes() == after[kind][party].tobytes()


def test_server_0_does_not_see_the_difference_of_two_vectors() -> None:
    """64 parties, all of them changed, 32 bins: 16 KB of differences, alpha = 1e-9."""
    query = a_query(parties=64, statistic=Histogram(lower=0.0, upper=1.0, bins=32))
    asked = a_message(
        Phase.QUERY,
        Role.COORDINATOR,
        Role.PARTY,
        receivers=tuple(range(64)),
        body=query.encode(),
    )
    masked = []
    for shift in (0.0, 0.5):
        values = np.linspace(0.0, 0.49, 64) + shift
        block = PartyBlock(holdings_of(values, 64), Randomness(bytes(16)))
        masked.append(block.handle(asked).messages[0].rows().view("<u8"))
    assert uniform_bytes_p((masked[1] - masked[0]).tobytes()) > ALPHA


def openings(values: list[float]) -> list[Message]:
    holdings = holdings_of(values, 2)
    query = a_pairs_query(Gini(lower=0.0, upper=1.0, bits=4), holdings)
    block = PartyBlock(holdings, Randomness(bytes(16)))
    block.handle(
        a_message(Phase.QUERY, Role.COORDINATOR, Role.PARTY, receivers=(0, 1), body=query.encode())
    )
    (meet,) = meeting_messages(query, pairs_of(query).sample, holdings.counts.astype("i8"))
    waiting, sent = [meet], []
    while waiting:
        answers = block.handle(waiting.pop(0)).messages
        sent += answers
        waiting += [message for message in answers if message.between_parties]
    return sent


def test_pairs_are_opened_anew_and_masked_anew_for_other_data() -> None:
    """To one reply of a garbler, two requests from the same coins would show where bits differ."""
    first, again, other = openings([0.1, 0.9]), openings([0.1, 0.9]), openings([0.6, 0.4])
    assert [m.encode() for m in first] == [m.encode() for m in again]
    for before, after in zip(first, other, strict=True):
        if before.phase in (Phase.PAIR, Phase.SUBMIT):
            payload = slice(1 if before.phase is Phase.PAIR else 0, None)
            assert alike(before.rows()[:, payload], after.rows()[:, payload]) < 0.2


def block_of(columns: dict[str, list[float]], starts: list[int]) -> Holdings:
    return Holdings(
        np.arange(len(starts), dtype=np.uint32),
        np.array(starts, dtype=np.intp),
        {name: np.array(column) for name, column in columns.items()},
    )


def test_a_fingerprint_is_of_all_that_a_party_holds_and_of_nothing_else() -> None:
    """Order, place, number, column and party all count; the others of a block do not."""
    secret = Randomness.from_seed(1, "parties")
    base = {"x": [0.1, 0.2, 0.3], "y": [1.0, 2.0, 3.0]}

    def first(columns: dict[str, list[float]], starts: list[int]) -> bytes:
        found: bytes = fingerprints(secret, block_of(columns, starts))[0].tobytes()
        return found

    reference = first(base, [0, 2])
    assert first({"x": [0.1, 0.2, 9.9], "y": [1.0, 2.0, 9.9]}, [0, 2]) == reference
    different = [
        first({"x": [0.2, 0.1, 0.3], "y": [1.0, 2.0, 3.0]}, [0, 2]),
        first({"x": [0.1, 0.2, 0.3], "y": [2.0, 1.0, 3.0]}, [0, 2]),
        first({"x": [1.0, 0.2, 0.3], "y": [0.1, 2.0, 3.0]}, [0, 2]),
        first({"z": base["x"], "y": base["y"]}, [0, 2]),
        first({"x": base["x"]}, [0, 2]),
        first(base, [0, 1]),
        first(base, [0]),
        fingerprints(secret, block_of(base, [0, 2]))[1].tobytes(),
        fingerprints(Randomness.from_seed(2, "parties"), block_of(base, [0, 2]))[0].tobytes(),
    ]
    assert len({reference, *different}) == 1 + len(different)
    twice = {"x": [0.1, 0.1], "y": [1.0, 1.0]}
    a, b = fingerprints(secret, block_of(twice, [0, 1]))
    assert a.tobytes() != b.tobytes()  # the same record at two parties


def test_bound_randomness_knows_its_own_parties_only() -> None:
    bound = bound_to_data(Randomness(bytes(16)), holdings_of([0.1, 0.2, 0.3], 3))
    drawn = bound.rows("x", np.array([2, 0], dtype=np.uint32), 40)
    assert drawn[1].tolist() == bound.rows("x", np.array([0], dtype=np.uint32), 40)[0].tolist()
    with pytest.raises(ValueError, match="not bound to the data of one of these parties"):
        bound.rows("x", np.array([3], dtype=np.uint32), 16)


def test_randomness_for_one_vector_is_not_that_for_another() -> None:
    bound = bound_to_data(Randomness(bytes(16)), holdings_of([0.1, 0.2], 2))
    ids = np.arange(2, dtype=np.uint32)
    vectors = np.array([[1, 2], [3, 4]], dtype=np.uint64)
    swapped = vectors[:, ::-1]
    drawn = [
        source.rows("x", ids, 32).tobytes()
        for source in (
            bound,
            bound_to_rows(bound, ids, vectors),
            bound_to_rows(bound, ids, swapped),
            bound_to_rows(bound, ids, vectors + np.uint64(1)),
        )
    ]
    assert len(set(drawn)) == len(drawn)
    assert bound_to_rows(bound, ids, vectors).rows("x", ids, 32).tobytes() == drawn[1]
