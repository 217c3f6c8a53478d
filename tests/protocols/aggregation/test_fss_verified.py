"""Whoever sends a bad key is named and left out, and the counts of the others are exact."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest

from protocols.aggregation import aggregator_named
from protocols.aggregation.contract import Bodies, Memory, Total
from protocols.aggregation.exchange import Exchange, Way
from protocols.aggregation.fss.aggregator import Fss
from protocols.aggregation.fss.prints import FAN, Prints, different, parts, single
from protocols.aggregation.fss.verified_keys import HEADER, challenge, verified_keys
from protocols.aggregation.fss.verified_server import SERVER_STAGES, STEP, VerifiedServer
from protocols.aggregation.verifying_collector import COLLECTOR_STAGES, CollectorStage
from protocols.aggregation.verifying_server import VerifyingStage
from protocols.errors import LocalError
from protocols.randomness import Randomness
from protocols.records import Holdings, deal
from protocols.run.machine import Continue, Failed, Rejected
from protocols.run.messages import Message, Phase, Role, address, body_of
from protocols.run.query import Query
from protocols.statistics import Statistic
from protocols.statistics.ecdf import Ecdf, Quantile
from protocols.statistics.histogram import Histogram
from protocols.statistics.on_demand import EcdfPoints, QuantileSearch
from simulation import Federation
from simulation.scripted_parties import lying_machine
from tests.samples import a_query

FSS = Fss(verified="yes")
PARTIES = 9
INVALID = "its submission does not verify"
REPLAYED = "its submission came before, from another party or from itself"

Spoil = Callable[[int, Bodies], Bodies]
"""What a cheater makes of its body for a server."""


def some_holdings(records: int = 21, parties: int = PARTIES) -> Holdings:
    return deal({"value": np.random.default_rng(3).random(records)}, parties)


def query_about(holdings: Holdings, statistic: Statistic | None = None) -> Query:
    return a_query(
        statistic=statistic or Ecdf(lower=0.0, upper=1.0, thresholds=13),
        aggregator="fss?verified=yes",
        parties=len(holdings.ids),
        records=holdings.rows,
        max_records_per_party=int(holdings.counts.max()),
        min_parties=1,
    )


def exchange_over(holdings: Holdings, query: Query, way: Way = lambda m: (m,)) -> Exchange:
    """A run whose parties have spoken; `run` lets it go on."""
    exchange = Exchange(FSS, query, way=way, records=holdings.counts.astype(np.int64))
    exchange.enter(holdings.ids, FSS.party(query, holdings, exchange.randomness))
    return exchange


def spoiled(cheaters: Iterable[int], spoil: Spoil) -> Way:
    chosen = set(cheaters)

    def way(message: Message) -> Iterable[Message]:
        for single_one in message.split():
            if int(single_one.senders[0]) in chosen:
                body = spoil(int(message.receivers[0]), single_one.body.copy())
                single_one = replace(single_one, body=body)
            yield single_one

    return way


def total_of(exchange: Exchange) -> Total:
    exchange.run()
    assert exchange.rejected == []
    assert exchange.failed is None
    assert exchange.total is not None
    return exchange.total


def exact_over(holdings: Holdings, query: Query, left_out: Iterable[int]) -> list[int]:
    """The sum of the other parties' vectors, by numpy."""
    kept = ~np.isin(holdings.ids, list(left_out))
    vectors = query.statistic.encode(holdings)
    counts: list[int] = vectors[kept].sum(axis=0, dtype=np.uint64).tolist()
    return counts


def check_caught(exchange: Exchange, holdings: Holdings, cheaters: list[int], why: str) -> None:
    total = total_of(exchange)
    assert total.caught == tuple((party, why) for party in cheaters)
    assert total.vector.tolist() == exact_over(holdings, exchange.query, cheaters)
    assert total.contributors.tolist() == [i for i in holdings.ids if i not in cheaters]


# --- honest parties ---


@pytest.mark.parametrize(
    "statistic",
    [
        Ecdf(lower=0.0, upper=1.0, thresholds=1),
        Ecdf(lower=0.0, upper=1.0, thresholds=64),
        Ecdf(lower=0.0, upper=1.0, thresholds=100),
        Quantile(lower=0.0, upper=1.0, thresholds=5),
        Histogram(lower=0.0, upper=1.0, bins=7),
    ],
    ids=lambda s: f"{s.name}-{s.length}",
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
    plain = Exchange(Fss(), replace(query, aggregator="fss"), records=holdings.counts)
    plain.enter(holdings.ids, Fss().party(plain.query, holdings, plain.randomness))
    checked = total_of(exchange_over(holdings, query))
    assert total_of(plain).vector.tolist() == checked.vector.tolist()


# --- parties that cheat ---


def words(body: Bodies) -> np.typing.NDArray[np.uint64]:
    """The words of the keys in a submission of one party; writing to them writes to it."""
    return body[0, HEADER.size :].view("<u8")


def twice(server: int, body: Bodies) -> Bodies:
    words(body)[6:24:6] += np.uint64(1)
    return body


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


SPOILS = [twice, at_one_server, random_corrections, proof_of_another_level, another_root]


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_bad_key_costs_its_party_and_nobody_else(spoil: Spoil) -> None:
    holdings = some_holdings()
    exchange = exchange_over(holdings, query_about(holdings), spoiled([4], spoil))
    check_caught(exchange, holdings, [4], INVALID)


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


# --- the coordinator, and whoever else speaks to a server ---


def closed_servers(
    holdings: Holdings, query: Query, spoil: Spoil | None = None
) -> tuple[list[VerifiedServer], list[Message]]:
    """Both servers with all keys, and what they say to each other then."""
    way = spoiled([4], spoil) if spoil else lambda m: (m,)
    party = FSS.party(query, holdings, Randomness.from_seed(1, "parties")).start()
    servers, between = [], []
    for index in (0, 1):
        server = FSS.server(query, index, Randomness.from_seed(1, f"server-{index}"), Memory())
        assert isinstance(server, VerifiedServer)
        for message in party.messages:  # type: ignore[union-attr]
            for one in way(message):
                if int(one.receivers[0]) == index:
                    step = server.receive(one)
                    assert isinstance(step, Continue)
                    between += [m for m in step.messages if m.between_servers]
        servers.append(server)
    return servers, between


def from_coordinator(query: Query, phase: Phase, members: Iterable[int]) -> Message:
    chosen = np.isin(np.arange(query.parties), list(members))
    body = body_of(np.packbits(chosen).tobytes())
    return Message(query.run, phase, Role.COORDINATOR, Role.SERVER, address(0), address(0), body)


def test_servers_told_to_check_different_parties_end_the_run() -> None:
    holdings = some_holdings()
    query = query_about(holdings)
    servers, contributions = closed_servers(holdings, query)
    digests: list[Message] = []
    for index, server in enumerate(servers):
        assert isinstance(server.receive(contributions[1 - index]), Continue)
        members = range(PARTIES - index)
        step = server.receive(from_coordinator(query, Phase.VERIFY, members))
        assert isinstance(step, Continue)
        digests += step.messages
    for index, server in enumerate(servers):
        step = server.receive(digests[1 - index])
        assert isinstance(step, Failed)
        assert "different parties" in step.reason


def test_a_coordinator_cannot_release_what_was_not_checked_or_not_good() -> None:
    holdings = some_holdings()
    query = query_about(holdings)
    servers, contributions = closed_servers(holdings, query, twice)
    everyone = from_coordinator(query, Phase.RELEASE, range(PARTIES))
    assert isinstance(servers[0].receive(everyone), Rejected)
    queue = [*contributions]
    for server in servers:
        step = server.receive(from_coordinator(query, Phase.VERIFY, range(PARTIES)))
        assert isinstance(step, Continue)
        queue += step.messages
        assert isinstance(server.receive(everyone), Rejected)
        other = from_coordinator(query, Phase.VERIFY, range(3))
        assert server.receive(other) == Rejected("coordinator", "a second check, of other parties")
    while queue:
        message = queue.pop(0)
        if message.between_servers:
            step = servers[int(message.receivers[0])].receive(message)
            assert isinstance(step, Continue)
            queue += step.messages
    for server in servers:
        assert server.stage is VerifyingStage.CHECKED
        refusal = server.receive(everyone)
        assert isinstance(refusal, Rejected)
        assert "do not verify" in refusal.reason
        good = from_coordinator(query, Phase.RELEASE, set(range(PARTIES)) - {4})
        assert isinstance(server.receive(good), Continue)


def test_only_the_other_server_is_heard_in_its_turn() -> None:
    holdings = some_holdings()
    query = query_about(holdings)
    (server, _), contributions = closed_servers(holdings, query)
    right = contributions[1]
    for wrong in (
        replace(right, sender_role=Role.COORDINATOR),
        replace(right, sender_role=Role.PARTY),
        replace(right, senders=address(0)),
        replace(right, senders=address(2)),
        replace(right, body=right.body[:, :3]),
        replace(right, body=right.body[:, :-1]),
        replace(right, body=body_of(STEP.pack(1) + bytes(32))),
        replace(right, body=body_of(STEP.pack(2**32 - 1) + bytes(32))),
    ):
        assert isinstance(server.receive(wrong), Rejected)
    assert server.receive(right) == Continue()
    assert server.receive(right) == Continue()
    changed = right.body.copy()
    changed[0, -1] ^= 1
    assert isinstance(server.receive(replace(right, body=changed)), Rejected)


def test_every_stage_takes_what_the_table_says_and_nothing_else() -> None:
    holdings = some_holdings()
    query = query_about(holdings)
    for stage in VerifyingStage:
        for phase in Phase:
            for role in Role:
                if SERVER_STAGES.get((stage, phase)) is role:
                    continue
                server = at_stage(stage, holdings, query)
                message = Message(
                    query.run, phase, role, Role.SERVER, address(1), address(0), body_of(b"\0\0")
                )
                assert isinstance(server.receive(message), Rejected), (stage, phase, role)
                assert server.stage is stage


STAGED: dict[VerifyingStage, VerifiedServer] = {}


def at_stage(stage: VerifyingStage, holdings: Holdings, query: Query) -> VerifiedServer:
    """Rejections change nothing, so one server a stage will do."""
    if stage in STAGED:
        return STAGED[stage]
    if stage is VerifyingStage.COLLECTING:
        server = FSS.server(query, 0, Randomness(bytes(16)), Memory())
        assert isinstance(server, VerifiedServer)
    else:
        servers, contributions = closed_servers(holdings, query)
        server = servers[0]
        check = from_coordinator(query, Phase.VERIFY, range(PARTIES))
        if stage is not VerifyingStage.CLOSED:
            server.receive(contributions[1])
            server.receive(check)
        if stage in (VerifyingStage.CHECKED, VerifyingStage.RELEASED):
            servers[1].receive(contributions[0])
            step = servers[1].receive(check)
            assert isinstance(step, Continue)
            server.receive(step.messages[0])
        if stage is VerifyingStage.RELEASED:
            server.receive(from_coordinator(query, Phase.RELEASE, range(PARTIES)))
    assert server.stage is stage
    return STAGED.setdefault(stage, server)


def test_the_collector_takes_what_its_table_says() -> None:
    holdings = some_holdings()
    query = query_about(holdings)
    collector = FSS.collector(query, holdings.counts.astype(np.int64), Randomness(bytes(16)))
    collector.start()
    for phase in Phase:
        for role in Role:
            if COLLECTOR_STAGES.get((CollectorStage.ROSTERS, phase)) is role:
                continue
            message = Message(
                query.run, phase, role, Role.COORDINATOR, address(0), address(0), body_of(b"\0")
            )
            assert isinstance(collector.receive(message), Rejected)


def test_the_challenge_needs_both_contributions_and_the_run() -> None:
    query = query_about(some_holdings())
    other = replace(query, nonce=b"yesterda")
    found = {
        challenge(about, pair, batch)
        for about in (query, other)
        for pair in ((b"a" * 32, b"b" * 32), (b"b" * 32, b"a" * 32), (b"a" * 32, b"c" * 32))
        for batch in (0, 1)
    }
    assert len(found) == 12


# --- finding them ---


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 129, 5000])
def test_bisection_finds_exactly_those_that_differ(count: int) -> None:
    generator = np.random.default_rng(count)
    counts = generator.integers(1, 4, count)
    prints = generator.integers(0, 2**64, (int(counts.sum()), 3), dtype=np.uint64)
    bad = np.unique(generator.integers(0, count, 1 + count // 40))
    other = prints.copy()
    other[(np.cumsum(counts) - 1)[bad], 2] ^= np.uint64(1)
    ours, theirs = (Prints(these, counts, bytes(16)) for these in (prints, other))
    ranges, rounds = [(0, count)], 0
    while True:
        ranges = different(ranges, ours.digests(ranges), theirs.digests(ranges))
        rounds += 1
        if single(ranges):
            break
        ranges = parts(ranges)
    assert [first for first, _ in ranges] == bad.tolist()
    assert rounds <= 1 + np.ceil(np.log(max(count, 2)) / np.log(FAN)) + 1


# --- what it is asked for ---


def test_it_says_what_it_cannot_do() -> None:
    holdings = some_holdings()
    query = query_about(holdings)
    with pytest.raises(LocalError, match="exactly 2 servers"):
        FSS.check(replace(query, servers=3))
    with pytest.raises(LocalError, match="verified is yes or no"):
        aggregator_named("fss?verified=maybe")
    with pytest.raises(LocalError, match="do not fit a message"):
        FSS.check(replace(query, max_records_per_party=10**5, records=10**6))
    assert FSS.threat_model(2).catches
    assert not Fss().threat_model(2).catches


def test_keys_are_as_deep_as_there_are_thresholds() -> None:
    holdings = some_holdings()
    sizes = {}
    for thresholds in (1, 4, 5, 1024, 1025):
        statistic = Ecdf(lower=0.0, upper=1.0, thresholds=thresholds)
        sizes[thresholds] = verified_keys(query_about(holdings, statistic)).key_bytes
    assert sizes == {1: 80, 4: 80, 5: 128, 1024: 464, 1025: 512}


# --- points on demand ---

ON_DEMAND: list[Statistic] = [
    EcdfPoints(lower=0.0, upper=1.0, at=(0.25, 0.5)),
    QuantileSearch(lower=0.0, upper=1.0, quantile=(0.5,)),
]


@pytest.mark.parametrize("statistic", ON_DEMAND, ids=lambda s: s.name)
def test_questions_on_demand_get_the_same_answers_as_without_the_check(
    statistic: Statistic,
) -> None:
    holdings = some_holdings()
    query = query_about(holdings, statistic)
    plain = Exchange(Fss(), replace(query, aggregator="fss"), records=holdings.counts)
    plain.enter(holdings.ids, Fss().party(plain.query, holdings, plain.randomness))
    checked = total_of(exchange_over(holdings, query))
    assert checked.vector.tolist() == total_of(plain).vector.tolist()
    assert checked.caught == ()


def wrong_weights(server: int, body: Bodies) -> Bodies:
    words(body)[6:190:6] += np.uint64(1)
    return body


def wrong_below(server: int, body: Bodies) -> Bodies:
    """From the third level on, the second being right."""
    words(body)[12:190:6] += np.uint64(1)
    return body


def test_on_demand_a_wrong_weight_is_found_before_the_first_question() -> None:
    holdings = some_holdings()
    query = query_about(holdings, ON_DEMAND[0])
    exchange = exchange_over(holdings, query, spoiled([4], wrong_weights))
    total = total_of(exchange)
    assert total.caught == ((4, INVALID),)
    values = np.delete(holdings.column("value"), np.s_[9:11])
    assert holdings.starts[4:6].tolist() == [9, 11]
    assert total.vector.tolist() == [int((values <= 0.25).sum()), int((values <= 0.5).sum())]


@pytest.mark.parametrize("statistic", ON_DEMAND, ids=lambda s: s.name)
def test_on_demand_a_question_that_meets_a_bad_key_ends_the_run_and_names_it(
    statistic: Statistic,
) -> None:
    if isinstance(statistic, EcdfPoints):
        statistic = EcdfPoints(lower=0.0, upper=1.0, at=(0.3,))
    holdings = some_holdings()
    exchange = exchange_over(holdings, query_about(holdings, statistic), spoiled([4], wrong_below))
    exchange.run()
    assert exchange.total is None
    assert exchange.failed is not None
    assert "keys of party-4 do not verify at the points" in exchange.failed.reason


def test_on_demand_servers_that_are_asked_different_points_end_the_run() -> None:
    holdings = some_holdings()
    exchange = exchange_over(holdings, query_about(holdings, ON_DEMAND[0]))
    server = exchange.servers[1]
    receive = server.receive

    def misled(message: Message) -> object:
        if message.phase is Phase.ASK:
            body = message.body.copy()
            body[0, 0] ^= 1
            message = replace(message, body=body)
        return receive(message)

    server.receive = misled  # type: ignore[method-assign,assignment]
    exchange.run()
    assert exchange.total is None
    assert exchange.failed == Failed(
        "the two servers were told to check different parties or points"
    )


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
