"""The machines of the shuffle model: who sees what, and what is refused."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tallyroom.protocols.aggregation.collector import CollectorState
from tallyroom.protocols.aggregation.one_round import ServerState
from tallyroom.protocols.aggregation.shuffle import roles as shuffle_roles
from tallyroom.protocols.aggregation.shuffle.reports import (
    ShuffledReports,
    least_reports,
    randomizer_of,
    sealed_reports,
)
from tallyroom.protocols.aggregation.shuffle.roles import ShuffleCollector, context, permutation
from tallyroom.protocols.identity.sealing import PUBLIC_BYTES, Recipient
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import deal
from tallyroom.protocols.statistics.moments import Mean, Sum
from tallyroom.protocols.wire.machine import Continue, Done, Failed, Rejected, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.servers.aggregation_server import AggregationServer
from tallyroom.storage.ledger import Ledger
from tests.goodness import ALPHA, uniform_bytes_p
from tests.protocols.aggregation.shuffle_run import (
    COUNTS,
    PARTIES,
    RECORDS,
    WIDTH,
    a_collector,
    a_query,
    a_shuffler,
    key_of,
    release,
    released,
    reports_in,
    share,
    some_holdings,
    submissions,
    to_collector,
    total_of,
)
from tests.samples import a_message, bitmap

# What the shuffler sees


@pytest.mark.parametrize("epsilon", [Fraction(2), None])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_the_shuffler_sees_uniform_bytes(epsilon: Fraction | None, value: float) -> None:
    """Equal records of 600 parties: each byte over 256 cells at ALPHA, but for the last one of the
    X25519 point, whose high bit is 0 and whose others are uniform."""
    query = a_query(
        parties=600, records=600, min_parties=600, max_records_per_party=1, epsilon=epsilon
    )
    holdings = deal({"value": np.full(600, value)}, 600)
    (message,) = submissions(query, holdings, key_of(a_collector(query)))
    rows = message.rows()
    tops = rows[:, PUBLIC_BYTES - 1]
    assert (tops < 128).all()
    assert uniform_bytes_p(np.delete(rows, PUBLIC_BYTES - 1, axis=1).tobytes()) > ALPHA
    assert stats.chisquare(np.bincount(tops // 8, minlength=16)).pvalue > ALPHA
    assert len(np.unique(rows[:, :PUBLIC_BYTES], axis=0)) == 600


def test_all_reports_have_one_length_whatever_they_say() -> None:
    for statistic in (COUNTS, Sum(lower=0.0, upper=1.0), Mean(lower=-5.0, upper=9.0)):
        query = a_query(statistic)
        messages = submissions(query, some_holdings(), key_of(a_collector(query)))
        sizes = {int(p): m.width for m in messages for p in m.senders}
        counts = some_holdings().counts
        assert sizes == {i: counts[i] * WIDTH for i in range(PARTIES)}


def test_every_report_is_sealed_under_a_key_of_its_own() -> None:
    query = a_query()
    reports = reports_in(submissions(query, some_holdings(), key_of(a_collector(query))))
    assert len({report[:PUBLIC_BYTES] for report in reports}) == RECORDS


def test_a_party_sends_the_same_reports_in_any_block() -> None:
    query, key = a_query(), key_of(a_collector(a_query()))
    together = {
        int(single.senders[0]): single.encode()
        for message in submissions(query, some_holdings(), key)
        for single in message.split()
    }
    for block in some_holdings().blocks(PARTIES):
        mine = key.select(block.ids.astype(np.intp))
        (single,) = submissions(query, block, mine)
        assert together[int(single.senders[0])] == single.encode()


# What the shuffler does


def test_orders_are_uniform() -> None:
    """All 24 orders of four, 24,000 shufflers: chi-square at ALPHA."""
    orders = {order: i for i, order in enumerate(itertools.permutations(range(4)))}
    root = Randomness(bytes(16))
    counts = np.zeros(24)
    for shuffler in range(24_000):
        counts[orders[tuple(permutation(4, root.derive(str(shuffler))).tolist())]] += 1
    assert stats.chisquare(counts).pvalue > ALPHA


def test_where_a_report_ends_up_does_not_depend_on_who_sent_it() -> None:
    """15 reports through 1500 shufflers: a 15 × 15 table of places, chi-square at ALPHA."""
    query = a_query()
    messages = submissions(query, some_holdings(), key_of(a_collector(query)))
    names = {report: i for i, report in enumerate(reports_in(messages))}
    places = np.zeros((RECORDS, RECORDS))
    for seed in range(1500):
        came = reports_in(released(a_shuffler(query, messages, seed)), head=8)
        assert sorted(came) == sorted(names)
        places[[names[report] for report in came], np.arange(RECORDS)] += 1
    statistic = ((places - 100) ** 2 / 100).sum() * (1 - 1 / RECORDS)
    assert stats.chi2.sf(statistic, (RECORDS - 1) ** 2) > ALPHA


def test_the_collector_is_told_no_names_with_the_reports() -> None:
    query = a_query()
    messages = submissions(query, some_holdings(), key_of(a_collector(query)))
    for message in released(a_shuffler(query, messages)):
        assert (message.sender_role, message.senders.tolist()) == (Role.SERVER, [0])
        assert message.receivers.tolist() == [0]
        assert message.links == 1
        assert (message.width - 8) % WIDTH == 0


def test_a_release_is_answered_again_and_in_the_same_order() -> None:
    query = a_query()
    messages = submissions(query, some_holdings(), key_of(a_collector(query)))
    shuffler = a_shuffler(query, messages)
    first = [message.encode() for message in released(shuffler)]
    assert shuffler.state is ServerState.RELEASED
    assert [message.encode() for message in released(shuffler)] == first
    again = a_shuffler(query, reversed(messages))
    assert sorted(reports_in(released(again), 8)) == sorted(reports_in(released(shuffler), 8))
    assert isinstance(shuffler.receive(release(0, 1, 2, 3, 4)), Rejected)


def test_both_keepers_book_epsilon_and_delta() -> None:
    query = a_query(
        epsilon=Fraction(1, 20), records=1500, max_records_per_party=250, min_parties=PARTIES
    )
    assert ShuffledReports(query).amplified
    holdings = some_holdings(1500)
    collector = a_collector(query)
    key = key_of(collector)
    shuffler = a_shuffler(query, submissions(query, holdings, key))
    step = shuffler.receive(release())
    assert isinstance(step, Continue)
    assert [s.loss for s in step.spends] == [PrivacyLoss.of(Fraction(1, 20), 1e-6)]
    opened = to_collector(collector, reports_in(step.messages, 8))
    assert isinstance(opened, Done)
    assert opened.spends == step.spends


def test_fewer_reports_than_privacy_needs_are_not_released() -> None:
    """Parties that hold fewer records than the query says: the shuffler counts."""
    query = a_query()
    assert least_reports(query) == RECORDS - 3  # one may lie, and hold as many as the largest
    messages = submissions(query, some_holdings(), key_of(a_collector(query)))
    short = [replace(m, body=m.body[:, : 2 * WIDTH]) for m in messages]
    step = a_shuffler(query, short).receive(release())
    assert isinstance(step, Rejected)
    assert step.reason == (
        "a release of 12 reports, of which 10 may be honest, where privacy needs 12"
    )


def test_reports_of_one_party_do_not_make_up_for_those_of_others() -> None:
    """All but party 5 send one report instead of their two or three, and party 5 sends three."""
    query = a_query()
    messages = submissions(query, some_holdings(), key_of(a_collector(query)))
    short = [
        single if single.senders[0] == 5 else replace(single, body=single.body[:, :WIDTH])
        for message in messages
        for single in message.split()
    ]
    step = a_shuffler(query, short).receive(release())
    assert isinstance(step, Rejected)
    assert "of which 5 may be honest" in step.reason


@pytest.mark.parametrize("width", [0, 1, WIDTH - 1, WIDTH + 1, 2 * WIDTH - 4, 4 * WIDTH])
def test_a_submission_of_a_wrong_size_is_refused_by_name(width: int) -> None:
    shuffler = a_shuffler(a_query(), [])
    body = np.zeros((1, width), dtype=np.uint8)
    step = shuffler.receive(a_message(Phase.SUBMIT, Role.PARTY, Role.SERVER, (4,), body=body))
    assert isinstance(step, Rejected)
    assert step.sender == "party-4"


# What the collector does


def honest() -> tuple[Query, ShuffleCollector, list[bytes]]:
    query = a_query()
    collector = a_collector(query)
    messages = submissions(query, some_holdings(), key_of(collector))
    return query, collector, reports_in(messages)


def said_by(query: Query) -> NDArray[np.int64]:
    """What the parties' own coins make them say."""
    holdings = some_holdings()
    reports = sealed_reports(query, holdings)
    source = Randomness.from_seed(1, "parties")
    rows = [
        reports.payloads(np.array([i]), int(holdings.counts[i]), source)[0].view("<u4")[:, 0]
        for i in range(PARTIES)
    ]
    return np.concatenate(rows).astype(np.int64)


def test_reports_are_opened_and_estimated() -> None:
    query, collector, reports = honest()
    total = total_of(to_collector(collector, reports))
    counts = np.bincount(said_by(query), minlength=3)
    randomizer = randomizer_of(query)
    expected = np.rint(randomizer.estimate(counts)).astype(np.int64)
    assert total.vector.view(np.int64).tolist() == expected.tolist()
    assert (total.records, total.refused, total.caught) == (RECORDS, 0, ())
    assert total.contributors.tolist() == list(range(PARTIES))


def test_replayed_forged_and_stray_reports_are_left_out_and_counted() -> None:
    query, collector, reports = honest()
    key = Recipient(key_of(a_collector(query)).body[0].tobytes())
    flipped = bytearray(reports[1])
    flipped[PUBLIC_BYTES - 1] ^= 0x80  # the same point in another encoding
    changed = bytearray(reports[2])
    changed[-1] ^= 1
    stray = replace(query, nonce=b"another1")
    out_of_range = key.seal((3).to_bytes(4, "little"), context(query), bytes(32))
    bad = [
        reports[0],
        reports[0],
        bytes(flipped),
        bytes(changed),
        bytes(WIDTH),
        key.seal(bytes(4), context(stray), bytes(32)),
        key.seal(bytes(4), context(replace(query, epsilon=Fraction(3))), bytes(32)),
        out_of_range,
    ]
    clean = total_of(to_collector(collector, reports))
    for some in (bad[:3], bad[3:6], bad[6:]):
        total = total_of(to_collector(honest()[1], reports[:10] + some + reports[10:]))
        assert total.refused == len(some)
        assert total.records == RECORDS
        assert total.vector.tolist() == clean.vector.tolist()


def test_a_shuffler_cannot_fill_the_memory() -> None:
    """Six parties make at most three reports each."""
    _, collector, reports = honest()
    assert len(reports) == 15
    parts = [share(reports[:9], 0, 3), share(reports[:10], 1, 3), share(reports[9:], 1, 3)]
    steps = to_collector_parts(collector, [*parts, share(reports[:4], 2, 3), share([], 2, 3)])
    assert [type(step) for step in steps] == [Continue, Rejected, Continue, Rejected, Rejected]
    assert total_of(collector.receive(share(reports[:3], 2, 3))).refused == 3
    many = share(reports, 0, 19)
    assert isinstance(to_collector_parts(honest()[1], [many])[0], Rejected)


def test_a_run_without_one_good_report_fails() -> None:
    query, collector, _ = honest()
    step = to_collector(collector, [bytes(WIDTH), bytes(WIDTH)])
    assert isinstance(step, Failed)
    assert step.reason == "none of 2 reports could be opened"
    key = Recipient(key_of(a_collector(query)).body[0].tobytes())
    wild = key.seal(b"\xff" * 4, context(query), bytes(32))
    step = to_collector(honest()[1], [wild])
    assert isinstance(step, Failed)
    assert step.reason == "none of 1 reports is valid"


def test_a_wild_count_of_records_in_a_plain_report_is_refused() -> None:
    query = a_query(epsilon=None)
    collector = a_collector(query)
    key = Recipient(key_of(collector).body[0].tobytes())
    rows = [np.array([n, 1, 2, 3], dtype="<u8").tobytes() for n in (0, 3, 4, 2**64 - 1)]
    reports = [key.seal(row, context(query), bytes(32)) for row in rows]
    total = total_of(to_collector(collector, reports))
    assert (total.vector.tolist(), total.records, total.refused) == ([1, 2, 3], 3, 3)


def test_parts_come_in_any_order_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle_roles, "PART_BYTES", 4 * WIDTH + 5)
    query, collector, reports = honest()
    messages = submissions(query, some_holdings(), key_of(a_collector(query)))
    parts = released(a_shuffler(query, messages))
    assert [part.width for part in parts] == [8 + 4 * WIDTH] * 3 + [8 + 3 * WIDTH]
    order = [parts[2], parts[0], parts[2], parts[3]]
    assert to_collector_parts(collector, order) == [Continue()] * 4
    total = total_of(collector.receive(parts[1]))
    assert total.vector.tolist() == total_of(to_collector(honest()[1], reports)).vector.tolist()


def to_collector_parts(collector: ShuffleCollector, parts: list[Message]) -> list[Step]:
    everyone = bitmap(PARTIES, list(range(PARTIES)))
    collector.receive(a_message(Phase.ROSTER, Role.SERVER, Role.COORDINATOR, body=everyone))
    return [collector.receive(part) for part in parts]


def test_parts_that_contradict_are_refused_and_change_nothing() -> None:
    _, collector, reports = honest()
    first = share(reports[:8], 0, 2)
    steps = to_collector_parts(
        collector,
        [
            share([], 0, 2),
            share([reports[0][:-1]], 0, 2),
            share(reports[:8], 2, 2),
            share(reports[:8], 0, 0),
            share(reports[:8], 0, 2**32 - 1),
            a_message(Phase.SHARE, Role.SERVER, Role.COORDINATOR, body=b"\0\0\0\0\1"),
            a_message(Phase.SHARE, Role.PARTY, Role.COORDINATOR, body=first.body[0].tobytes()),
            first,
            share(reports[1:9], 0, 2),
            share(reports[8:], 1, 3),
        ],
    )
    assert [type(step) for step in steps] == [Rejected] * 7 + [Continue] + [Rejected] * 2
    total = total_of(collector.receive(share(reports[8:], 1, 2)))
    assert (total.records, total.refused) == (RECORDS, 0)
    assert collector._state is CollectorState.OVER
    assert isinstance(collector.receive(first), Rejected)


def test_a_coordinator_that_comes_back_is_told_all_parts_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shuffle_roles, "PART_BYTES", 4 * WIDTH)
    query = a_query()
    ledger = Ledger(None)
    server = AggregationServer(0, ledger, Randomness.from_seed(1, "server-0"))
    asked = a_message(Phase.QUERY, Role.COORDINATOR, Role.SERVER, body=query.encode())
    server.handle(asked)
    for message in submissions(query, some_holdings(), key_of(a_collector(query))):
        assert server.handle(replace(message, round=2)).refused == []
    parts = server.handle(replace(release(), run=query.run)).messages
    assert len(parts) == 4
    told = server.handle(asked).messages
    assert [m.phase for m in told] == [Phase.ROSTER] + [Phase.SHARE] * 4
    assert [m.encode() for m in told[1:]] == [m.encode() for m in parts]
    ledger.close()
