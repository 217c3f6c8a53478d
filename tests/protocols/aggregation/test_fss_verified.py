"""Whoever sends a bad key is named and left out, and the counts of the others are exact."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest

from tallyroom.fss.verified import Verified
from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.contract import Bodies
from tallyroom.protocols.aggregation.exchange import Exchange
from tallyroom.protocols.aggregation.fss.submission import compared
from tallyroom.protocols.aggregation.fss.verified_keys import HEADER, verified_keys
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf, Quantile
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.wire.machine import Failed
from tallyroom.protocols.wire.messages import Message, Phase
from tallyroom.simulation import Federation
from tallyroom.simulation.lying_parties import lying_machine
from tests.protocols.aggregation.fss_samples import PLAIN
from tests.protocols.aggregation.fss_verified_runs import (
    FSS,
    INVALID,
    PARTIES,
    REPLAYED,
    Spoil,
    check_caught,
    exact_over,
    exchange_over,
    query_about,
    some_holdings,
    spoiled,
    total_of,
    twice,
    words,
)

# --- honest parties ---


@pytest.mark.parametrize(
    "statistic",
    [
        Ecdf(lower=0.0, upper=1.0, thresholds=1),
        Ecdf(lower=0.0, upper=1.0, thresholds=33),
        Ecdf(lower=0.0, upper=1.0, thresholds=64),
        Ecdf(lower=0.0, upper=1.0, thresholds=100),
        Quantile(lower=0.0, upper=1.0, thresholds=5),
        Histogram(lower=0.0, upper=1.0, bins=7),
    ],
    ids=lambda s: f"{s.name}-{planned(s).plan.length}",
)
def test_counts_are_exact_and_nobody_is_refused(statistic: Statistic) -> None:
    holdings = some_holdings()
    query = query_about(holdings, statistic)
    check_caught(exchange_over(holdings, query), holdings, [], INVALID)


def test_honest_servers_say_a_contribution_and_a_digest_each() -> None:
    holdings = some_holdings(300, 200)
    sent: list[Message] = []
    exchange = exchange_over(holdings, query_about(holdings))
    for server in exchange.servers:
        receive = server.receive

        def heard(message: Message, receive: Callable[..., object] = receive) -> object:
            if message.phase is Phase.TOGETHER:
                sent.append(message)
            return receive(message)

        server.receive = heard  # type: ignore[method-assign,assignment]
    total_of(exchange)
    assert sorted(message.width for message in sent) == [36, 36, 36, 36]


def test_the_same_answer_as_keys_that_are_not_checked() -> None:
    holdings = some_holdings()
    query = query_about(holdings)
    plain = Exchange(PLAIN, replace(query, aggregator="fss?verified=no"), records=holdings.counts)
    plain.enter(holdings.ids, PLAIN.party(plain.query, holdings, plain.randomness))
    checked = total_of(exchange_over(holdings, query))
    assert total_of(plain).vector.tolist() == checked.vector.tolist()


# --- parties that cheat ---


def at_one_server(server: int, body: Bodies) -> Bodies:
    words(body)[6] += np.uint64(server)
    return body


def random_corrections(server: int, body: Bodies) -> Bodies:
    words(body)[2:20] = np.random.default_rng(1).integers(0, 2**64, 18, dtype=np.uint64)
    return body


def proof_of_another_level(server: int, body: Bodies) -> Bodies:
    words(body)[19:22] = words(body)[13:16]
    return body


def another_root(server: int, body: Bodies) -> Bodies:
    words(body)[1] ^= np.uint64(server)
    return body


def counting(more: int) -> Spoil:
    """One more is 2 or 0, two less are −1 or 3: which, only the party knows."""

    def spoil(server: int, body: Bodies) -> Bodies:
        words(body)[6:24:6] += np.uint64(more % 2**64)
        return body

    return spoil


def two_steps(server: int, body: Bodies) -> Bodies:
    """A wrong correction of the last level: both leaves below the path differ."""
    words(body)[16] ^= np.uint64(6)
    return body


def proof_of_another_key(server: int, body: Bodies) -> Bodies:
    words(body)[19:22] = words(body)[22 + 19 : 22 + 22]
    return body


def a_step_at_one_server(server: int, body: Bodies) -> Bodies:
    """Server 1 gets a key of its own, whose other half nobody has."""
    if server == 1:
        other = Verified(4, b"tallyroom fss " + query_about(some_holdings()).run)
        rows = other.gen([3], np.random.default_rng(2).integers(0, 256, (1, 32), dtype=np.uint8))
        words(body)[:22] = rows[1].view("<u8")[0]
    return body


SPOILS = [
    twice,
    *(counting(more) for more in (-1, -2, 1 << 63)),
    two_steps,
    at_one_server,
    a_step_at_one_server,
    random_corrections,
    proof_of_another_level,
    proof_of_another_key,
    another_root,
]


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_bad_key_costs_its_party_and_nobody_else(spoil: Spoil) -> None:
    holdings = some_holdings()
    exchange = exchange_over(holdings, query_about(holdings), spoiled([4], spoil))
    check_caught(exchange, holdings, [4], INVALID)


@pytest.mark.parametrize("cells", [1, 2, 5, 13, 32, 33, 40, 1000])
def test_no_key_counts_nowhere(cells: int) -> None:
    """The last threshold is the last point of the domain: every key counts there."""
    statistic = Ecdf(lower=0.0, upper=1.0, thresholds=cells)
    keys = verified_keys(query_about(some_holdings(), statistic))
    points = compared(query_about(some_holdings(), statistic)).points(keys.bits)
    assert points.tolist() == list(range(2**keys.bits - cells, 2**keys.bits))


def test_none_of_ten_thousand_honest_parties_is_refused() -> None:
    holdings = some_holdings(10_000, 10_000)
    query = query_about(holdings, Ecdf(lower=0.0, upper=1.0, thresholds=100))
    check_caught(exchange_over(holdings, query), holdings, [], INVALID)


@pytest.mark.parametrize("cheaters", [[0], [199], [3, 64, 65, 150], list(range(0, 200, 3))])
def test_cheaters_are_found_among_many(cheaters: list[int]) -> None:
    holdings = some_holdings(300, 200)
    exchange = exchange_over(holdings, query_about(holdings), spoiled(cheaters, twice))
    check_caught(exchange, holdings, cheaters, INVALID)


def test_the_simulated_cheater_counts_a_thousand_times_and_is_caught() -> None:
    holdings = some_holdings()
    query = query_about(holdings)
    exchange = Exchange(FSS, query, records=holdings.counts.astype(np.int64))
    machine = lying_machine(query, holdings, frozenset({3, 5}), exchange.randomness)
    exchange.enter(holdings.ids, machine)
    check_caught(exchange, holdings, [3, 5], INVALID)


def test_keys_for_more_records_than_a_party_holds_are_caught() -> None:
    """Good keys, but three of them for two records."""
    holdings = some_holdings()
    extra = some_holdings(3 * PARTIES)
    assert (holdings.counts[4], extra.counts[4]) == (2, 3)
    query = query_about(holdings)
    claimed = FSS.party(query, extra, Randomness.from_seed(1, "parties"))
    sent = {
        (int(m.senders[0]), int(m.receivers[0])): m.body
        for message in claimed.start().messages  # type: ignore[union-attr]
        for m in message.split()
    }
    exchange = exchange_over(holdings, query, spoiled([4], lambda server, _: sent[4, server]))
    check_caught(exchange, holdings, [4], INVALID)


def test_one_key_sent_twice_is_caught() -> None:
    def repeat(server: int, body: Bodies) -> Bodies:
        half = (body.shape[1] - HEADER.size) // 2
        body[:, HEADER.size + half :] = body[:, HEADER.size : HEADER.size + half]
        return body

    holdings = some_holdings()
    assert holdings.counts[4] == 2
    exchange = exchange_over(holdings, query_about(holdings), spoiled([4], repeat))
    check_caught(exchange, holdings, [4], REPLAYED)


def test_anothers_keys_are_caught() -> None:
    """A party that got hold of both servers' keys of party 3 sends them as its own."""
    holdings = some_holdings()
    kept: dict[int, Bodies] = {}

    def copy(server: int, body: Bodies) -> Bodies:
        return kept[server]

    def way(message: Message) -> Iterable[Message]:
        for one in message.split():
            if int(one.senders[0]) == 3:
                kept[int(one.receivers[0])] = one.body
        return spoiled([4], copy)(message)

    check_caught(exchange_over(holdings, query_about(holdings), way), holdings, [4], REPLAYED)


def test_keys_of_another_run_are_caught() -> None:
    holdings = some_holdings()
    query = query_about(holdings)
    other = replace(query, nonce=b"yesterda")
    old = FSS.party(other, holdings, Randomness.from_seed(1, "parties")).start()
    sent = {
        (int(m.senders[0]), int(m.receivers[0])): m.body
        for message in old.messages  # type: ignore[union-attr]
        for m in message.split()
    }
    exchange = exchange_over(holdings, query, spoiled([4], lambda server, _: sent[4, server]))
    check_caught(exchange, holdings, [4], INVALID)


def test_where_too_few_are_left_the_run_fails_and_names_them() -> None:
    holdings = some_holdings()
    query = replace(query_about(holdings), min_parties=PARTIES)
    exchange = exchange_over(holdings, query, spoiled([4], twice))
    exchange.run()
    assert exchange.failed == Failed(
        "only 8 of 9 parties sent keys that verify and 9 are needed; caught: party-4"
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda _, body: body[:, :-1],
        lambda _, body: np.hstack([body, body[:, :1]]),
        lambda _, body: body[:, : HEADER.size],
        lambda _, body: body[:, :0],
        lambda _, body: body ^ np.eye(1, body.shape[1], 0, dtype=np.uint8),
        lambda _, body: body ^ np.eye(1, body.shape[1], 1, dtype=np.uint8),
        lambda _, body: body ^ np.eye(1, body.shape[1], HEADER.size, dtype=np.uint8),
        lambda _, body: np.hstack([body, np.tile(body[:, HEADER.size :], 2)]),
    ],
)
def test_what_is_no_submission_is_refused_at_once(change: Spoil) -> None:
    holdings = some_holdings()
    exchange = exchange_over(holdings, query_about(holdings), spoiled([4], change))
    exchange.expire()
    assert {refusal.sender for refusal in exchange.rejected} == {"party-4"}
    assert exchange.total is not None
    assert exchange.total.caught == ((4, "its submission is malformed"),)
    assert exchange.total.vector.tolist() == exact_over(holdings, exchange.query, [4])


# --- what it is asked for ---


def test_it_says_what_it_cannot_do() -> None:
    holdings = some_holdings()
    query = query_about(holdings)
    with pytest.raises(LocalError, match="exactly 2 servers"):
        FSS.check(replace(query, servers=3))
    with pytest.raises(LocalError, match="verified is auto, yes or no"):
        aggregator_named("fss?verified=maybe")
    with pytest.raises(LocalError, match="too many parties or records to fit a message"):
        FSS.check(replace(query, max_records_per_party=10**5, records=10**6))
    assert FSS.threat_model(2).catches
    assert not PLAIN.threat_model(2).catches


def test_keys_are_as_deep_as_there_are_thresholds() -> None:
    holdings = some_holdings()
    sizes = {}
    for thresholds in (1, 4, 5, 32, 33, 1024, 1025):
        statistic = Ecdf(lower=0.0, upper=1.0, thresholds=thresholds)
        sizes[thresholds] = verified_keys(query_about(holdings, statistic)).key_bytes
    assert sizes == {1: 80, 4: 80, 5: 128, 32: 224, 33: 288, 1024: 352, 1025: 368}
    for thresholds, size in sizes.items():
        assert size <= 48 * max(2, (thresholds - 1).bit_length())


# --- over processes ---


def test_over_real_processes_the_cheater_is_named() -> None:
    with Federation(
        parties=5,
        hosts=1,
        aggregator="fss?verified=yes",
        seed=7,
        runtime="processes",
        cheats=["3:out-of-range"],
    ) as federation:
        result = federation.run(Ecdf(value="score", thresholds=16), "inf")
    assert [party for party, _ in result.caught] == [3]
    assert result.error is not None
    assert max(result.error.values()) < 1e-9
