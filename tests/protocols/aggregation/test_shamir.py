"""Shamir shares among servers: any t open, t − k see nothing, and the others may vanish."""

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from protocols.aggregation import aggregator_named
from protocols.aggregation.contract import Memory
from protocols.aggregation.shamir import Shamir, ShamirCollector
from protocols.algebra.field import FIELD128
from protocols.algebra.ring import PRECISION_BITS, Vector
from protocols.errors import LocalError
from protocols.privacy.mechanisms import DiscreteLaplace, Placement
from protocols.randomness import Randomness
from protocols.run.machine import Continue, Done, Failed, Rejected
from protocols.run.messages import Message, Phase, Role
from protocols.run.query import MAX_LENGTH, MAX_RECORDS, Query
from protocols.statistics.histogram import Histogram
from tests.goodness import ALPHA, uniform_bytes_p
from tests.protocols.aggregation.rounds import Rounds
from tests.samples import a_message, a_query, bitmap

TOP = 2**64 - 1
SHAPES = [
    (servers, threshold, pack)
    for servers in range(2, 6)
    for threshold in range(servers // 2 + 1, servers + 1)
    for pack in range(1, threshold)
]
"""Every (m, t, k) that can be, up to five servers."""


def a_shared_query(parties: int, length: int, servers: int, **changes: object) -> Query:
    return a_query(
        statistic=Histogram(lower=0.0, upper=1.0, bins=length),
        aggregator="shamir",
        parties=parties,
        servers=servers,
        **changes,
    )


def some_vectors(parties: int, length: int) -> Vector:
    vectors = np.random.default_rng(7).integers(0, 2**64, (parties, length), dtype=np.uint64)
    vectors[0] = TOP
    return vectors


def shares_of(
    shamir: Shamir, vectors: Vector, servers: int, seed: int = 1
) -> list[NDArray[np.uint8]]:
    ids = np.arange(len(vectors), dtype=np.uint32)
    return shamir.shard(ids, vectors, servers, Randomness.from_seed(seed, "parties"))


@pytest.mark.parametrize(("servers", "threshold", "pack"), SHAPES)
def test_every_t_servers_open_and_no_fewer(servers: int, threshold: int, pack: int) -> None:
    shamir, length = Shamir(threshold, pack), 7
    vectors = some_vectors(5, length)
    expected = vectors.sum(axis=0, dtype=np.uint64).tolist()
    merged = [
        FIELD128.sum(FIELD128.decode(body), 0) for body in shares_of(shamir, vectors, servers)
    ]
    for size in range(threshold, servers + 1):
        for chosen in combinations(range(servers), size):
            opened = shamir.open({i: merged[i] for i in chosen})
            assert opened[:length].tolist() == expected
            assert not opened[length:].any()
    for chosen in combinations(range(servers), threshold - 1):
        wrong = shamir.open({i: merged[i] for i in chosen})
        assert not (wrong[:length] == expected).any()


@pytest.mark.parametrize(("servers", "threshold", "pack"), SHAPES)
def test_what_t_minus_k_servers_see_is_uniform(servers: int, threshold: int, pack: int) -> None:
    """Shares of 0 and of 2^64 − 1, and the differences of two servers' shares, which are uniform
    as well if they are independent: n > 2^13 bytes each, ALPHA."""
    shamir = Shamir(threshold, pack)
    assert shamir.threat_model(servers).colluding == threshold - pack
    for value in (0, TOP):
        vectors = np.full((64, 8 * pack), value, dtype=np.uint64)
        elements = [FIELD128.decode(body) for body in shares_of(shamir, vectors, servers)]
        for share in elements:
            assert uniform_bytes_p(FIELD128.encode(share).tobytes()) > ALPHA
        if threshold - pack >= 2:
            for one, other in combinations(elements, 2):
                difference = FIELD128.encode(FIELD128.sub(one, other))
                assert uniform_bytes_p(difference.tobytes()) > ALPHA


@pytest.mark.parametrize(("servers", "threshold", "pack"), SHAPES)
def test_any_t_minus_k_shares_can_be_those_of_any_vector(
    servers: int, threshold: int, pack: int
) -> None:
    """Perfect privacy, exactly: the map from the random values to those shares is one to one, for
    it is inverted here. So, whatever the vector, every choice of shares is equally likely."""
    drawn = threshold - pack
    nodes = [*(-j for j in range(pack)), *range(1, drawn + 1)]
    p = FIELD128.modulus

    def weight(i: int, at: int) -> int:
        above = below = 1
        for j, x in enumerate(nodes):
            if j != i:
                above, below = above * (at - x) % p, below * (nodes[i] - x) % p
        return above * pow(below, -1, p) % p

    for seen in combinations(range(servers), drawn):
        matrix = [[weight(pack + r, server + 1) for r in range(drawn)] for server in seen]
        assert determinant(matrix, p) != 0


def determinant(matrix: list[list[int]], p: int) -> int:
    rows, result = [row[:] for row in matrix], 1
    for i in range(len(rows)):
        pivot = next((j for j in range(i, len(rows)) if rows[j][i]), None)
        if pivot is None:
            return 0
        rows[i], rows[pivot] = rows[pivot], rows[i]
        result = result * rows[i][i] % p
        inverse = pow(rows[i][i], -1, p)
        for j in range(i + 1, len(rows)):
            factor = rows[j][i] * inverse % p
            rows[j] = [(a - factor * b) % p for a, b in zip(rows[j], rows[i], strict=True)]
    return result


@given(st.sampled_from(SHAPES), st.integers(1, 6), st.integers(1, 20), st.data())
def test_runs_are_exact_in_any_blocks(
    shape: tuple[int, int, int], parties: int, length: int, data: st.DataObject
) -> None:
    servers, threshold, pack = shape
    blocks = data.draw(st.integers(1, parties))
    vectors = some_vectors(parties, length)
    query = a_shared_query(parties, length, servers)
    run = Rounds(Shamir(threshold, pack), query, vectors, blocks).run()
    assert run.refused == []
    assert run.total is not None
    assert run.total.vector.tolist() == vectors.sum(axis=0, dtype=np.uint64).tolist()


def test_a_block_is_exactly_its_parties_one_by_one() -> None:
    shamir, vectors = Shamir(3, 2), some_vectors(6, 5)
    together = shares_of(shamir, vectors, 4)
    for i in range(6):
        alone = shamir.shard(
            np.array([i], dtype=np.uint32),
            vectors[i : i + 1],
            4,
            Randomness.from_seed(1, "parties"),
        )
        assert all(np.array_equal(a[0], b[i]) for a, b in zip(alone, together, strict=True))


def test_large_blocks_are_worked_on_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = some_vectors(9, 5)
    whole = shares_of(Shamir(), vectors, 3)
    monkeypatch.setattr("protocols.aggregation.shamir._ROWS", 10)
    parts = shares_of(Shamir(), vectors, 3)
    assert all(np.array_equal(a, b) for a, b in zip(whole, parts, strict=True))


def test_packing_makes_shares_shorter() -> None:
    assert [Shamir(5, k).width(12, 0) for k in (1, 2, 3, 4)] == [192, 96, 64, 48]
    assert Shamir(5, 4).width(13, 0) == 64


@pytest.mark.parametrize("when", [Phase.SUBMIT, Phase.ROSTER, Phase.RELEASE, Phase.SHARE])
@pytest.mark.parametrize("gone", [(4,), (0, 2), (0, 1, 2)])
def test_servers_may_vanish_at_any_time_while_t_are_left(
    when: Phase, gone: tuple[int, ...]
) -> None:
    """3 of 5 open: with two gone the run goes on; with three it fails and names them."""
    order = [Phase.SUBMIT, Phase.ROSTER, Phase.RELEASE, Phase.SHARE]

    def vanish(message: Message) -> Iterable[Message]:
        to_server = message.receiver_role is Role.SERVER
        server = int((message.receivers if to_server else message.senders)[0])
        late = order.index(message.phase) >= order.index(when)
        return () if late and server in gone else (message,)

    vectors = some_vectors(4, 6)
    run = Rounds(Shamir(), a_shared_query(4, 6, 5), vectors, intercept=vanish)
    for server in run.servers:
        run.take(server.start())
    run.collector.start()
    for block in run.blocks.values():
        run.take(block.start())
    run.settle()
    assert run.total is None
    assert isinstance(run.collector, ShamirCollector)
    run.take(run.collector.lose_servers(set(gone), "vanished"))
    run.settle()
    if len(gone) == 3:
        assert run.total is None
        assert run.failed is not None
        assert "server-0, server-1, server-2 vanished" in run.failed.reason
    else:
        assert run.total is not None
        assert run.total.vector.tolist() == vectors.sum(axis=0, dtype=np.uint64).tolist()


def test_parties_that_reached_only_some_servers_are_in_nobodys_sum() -> None:
    def lose(message: Message) -> Iterable[Message]:
        if message.phase is Phase.SUBMIT and int(message.receivers[0]) == 1:
            return (message.select(np.array([0, 2])),)
        return (message,)

    vectors = some_vectors(3, 4)
    run = Rounds(Shamir(), a_shared_query(3, 4, 3, min_parties=2), vectors, intercept=lose).run()
    assert run.total is not None
    assert run.total.contributors.tolist() == [0, 2]
    assert run.total.vector.tolist() == vectors[[0, 2]].sum(axis=0, dtype=np.uint64).tolist()


def past_the_modulus(body: NDArray[np.uint8]) -> NDArray[np.uint8]:
    changed = body.copy()
    changed[1, 16:32] = np.frombuffer(FIELD128.modulus.to_bytes(16, "little"), dtype=np.uint8)
    return changed


def test_elements_that_are_not_canonical_are_refused_and_their_sender_named() -> None:
    def tamper(message: Message) -> Iterable[Message]:
        if message.phase is Phase.SUBMIT and int(message.receivers[0]) == 2:
            return (replace(message, body=past_the_modulus(message.body)),)
        return (message,)

    vectors = some_vectors(3, 4)
    run = Rounds(Shamir(), a_shared_query(3, 4, 3, min_parties=2), vectors, intercept=tamper).run()
    assert [(r.sender, r.reason) for r in run.refused] == [
        ("party-1", "a share with an element that is not below the modulus")
    ]
    assert run.total is not None
    assert run.total.contributors.tolist() == [0, 2]
    assert [party for party, _ in run.total.caught] == [1]
    assert run.total.vector.tolist() == vectors[[0, 2]].sum(axis=0, dtype=np.uint64).tolist()


@pytest.mark.parametrize("width", [0, 15, 48, 63, 65, 128])
def test_shares_of_another_width_are_refused(width: int) -> None:
    query = a_shared_query(3, 4, 3)
    server = Shamir().server(query, 0, Randomness(bytes(16)), Memory())
    body = np.zeros((1, width), dtype=np.uint8)
    step = server.receive(a_message(Phase.SUBMIT, Role.PARTY, Role.SERVER, (2,), body=body))
    assert isinstance(step, Rejected)
    assert step.sender == "party-2"
    collector = Shamir().collector(query, np.ones(3, dtype=np.int64), Randomness(bytes(16)))
    collector.start()
    for i in range(3):
        collector.receive(
            a_message(Phase.ROSTER, Role.SERVER, Role.COORDINATOR, (i,), body=bitmap(3, [0, 1, 2]))
        )
    step = collector.receive(a_message(Phase.SHARE, Role.SERVER, Role.COORDINATOR, (1,), body=body))
    assert isinstance(step, Rejected)
    assert step.sender == "server-1"


def test_a_servers_share_that_is_not_of_the_field_is_refused() -> None:
    query = a_shared_query(3, 4, 3)
    collector = Shamir().collector(query, np.ones(3, dtype=np.int64), Randomness(bytes(16)))
    collector.start()
    for i in range(3):
        collector.receive(
            a_message(Phase.ROSTER, Role.SERVER, Role.COORDINATOR, (i,), body=bitmap(3, [0, 1, 2]))
        )
    for body in (b"\xff" * 64, bytes(64)):
        step = collector.receive(
            a_message(Phase.SHARE, Role.SERVER, Role.COORDINATOR, (1,), body=body)
        )
        assert isinstance(step, Rejected if any(body) else Continue)


def test_there_is_one_release_and_the_same_is_answered_again() -> None:
    query, vectors = a_shared_query(3, 4, 3, min_parties=2), some_vectors(3, 4)
    run = Rounds(Shamir(), query, vectors).run()
    for server in run.servers:
        other = a_message(Phase.RELEASE, Role.COORDINATOR, Role.SERVER, body=bitmap(3, [0, 1]))
        assert isinstance(server.receive(other), Rejected)
        same = a_message(Phase.RELEASE, Role.COORDINATOR, Role.SERVER, body=bitmap(3, [0, 1, 2]))
        step = server.receive(same)
        assert isinstance(step, Continue)
        assert step.spends == (query.spend,)


def test_the_parties_noise_is_in_the_sum() -> None:
    """Negative noise wraps at 2^64, not at the modulus."""
    query = a_shared_query(
        4, 300, 3, epsilon=Fraction(1, 2), noise=Placement.PARTIES, min_parties=2
    )
    Shamir().check(query)
    vectors = np.zeros((4, 300), dtype=np.uint64)
    run = Rounds(Shamir(), query, vectors).run()
    assert run.total is not None
    noise = run.total.vector.view(np.int64)
    assert noise.min() < 0 < noise.max()
    assert np.abs(noise).max() < 400
    masked = Rounds(
        aggregator_named("additive"), replace(query, aggregator="additive"), vectors
    ).run()
    assert masked.total is not None
    assert masked.total.vector.tolist() == run.total.vector.tolist()


@pytest.mark.parametrize("noise", [Placement.EACH_SERVER, Placement.CURATOR])
def test_servers_cannot_add_noise(noise: Placement) -> None:
    query = a_shared_query(4, 4, 3, epsilon=Fraction(1), noise=noise)
    with pytest.raises(LocalError, match="noise parties"):
        Shamir().check(query)
    Shamir().check(replace(query, epsilon=None))


@pytest.mark.parametrize(
    ("spec", "servers", "reason"),
    [
        ("shamir", 1, "at least 2 servers"),
        ("shamir?threshold=2", 4, "a threshold of 4 servers is 3 to 4, not 2"),
        ("shamir?threshold=5", 4, "3 to 4, not 5"),
        ("shamir?threshold=3&pack=3", 4, "pack is 1 to 2"),
        ("shamir?pack=0", 4, "pack is 1 to 2"),
        ("shamir?pack=9", 4, "pack is 1 to 3"),
    ],
)
def test_options_that_cannot_be_are_refused(spec: str, servers: int, reason: str) -> None:
    with pytest.raises(LocalError, match=reason):
        aggregator_named(spec).check(a_shared_query(4, 4, servers))


def test_defaults() -> None:
    assert [Shamir().needed(m) for m in range(2, 8)] == [2, 2, 3, 3, 4, 4]
    assert [Shamir(pack=2).needed(m) for m in range(3, 8)] == [3, 3, 3, 4, 4]


def test_sums_past_two_to_the_64_are_reduced() -> None:
    vectors = np.full((3, 2), TOP, dtype=np.uint64)
    run = Rounds(Shamir(), a_shared_query(3, 2, 3), vectors).run()
    assert run.total is not None
    assert run.total.vector.tolist() == [3 * TOP % 2**64] * 2


def test_a_party_is_done_when_it_has_spoken() -> None:
    run = Rounds(Shamir(), a_shared_query(3, 2, 3), some_vectors(3, 2))
    (block,) = run.blocks.values()
    step = block.start()
    assert isinstance(step, Done)
    assert [int(message.receivers[0]) for message in step.messages] == [0, 1, 2]


def test_a_share_fits_a_message() -> None:
    """Sixteen bytes an element are twice those of the ring; packed, half of that."""
    query = a_shared_query(4, MAX_LENGTH, 3)
    with pytest.raises(LocalError, match=f"a vector of {MAX_LENGTH} in {16 * MAX_LENGTH} bytes"):
        Shamir().check(query)
    Shamir(threshold=3, pack=2).check(query)
    Shamir().check(a_shared_query(4, MAX_LENGTH // 2, 3))


def test_servers_that_are_not_needed_can_be_spared_one_by_one() -> None:
    collector = Shamir(threshold=3).collector(
        a_shared_query(4, 4, 5), np.ones(4, dtype=np.int64), Randomness.from_seed(1, "c")
    )
    assert isinstance(collector, ShamirCollector)
    collector.start()
    for server in (4, 0):
        assert collector.can_spare
        assert isinstance(collector.lose_servers({server}, "is gone"), Continue)
    assert not collector.can_spare
    assert isinstance(collector.lose_servers({2}, "is gone"), Failed)


def opened_elements(shamir: Shamir, vectors: Vector, servers: int) -> list[int]:
    """All that whoever opens learns: the field elements, not only their residues modulo 2^64."""
    merged = [
        FIELD128.sum(FIELD128.decode(body), 0) for body in shares_of(shamir, vectors, servers)
    ]
    elements: list[int] = FIELD128.to_ints(shamir.elements(dict(enumerate(merged)))).tolist()
    return elements


@pytest.mark.parametrize(("threshold", "pack"), [(2, 1), (3, 2)])
def test_what_is_opened_is_a_function_of_the_noisy_sum_alone(threshold: int, pack: int) -> None:
    """Every pattern of signs among six parties, each summed to five totals: whoever opens sees the
    total as an integer, whichever and however many of the parties were negative."""
    shamir, parties = Shamir(threshold, pack), 6
    for total in (-(2**62), -1, 0, 5, 2**62):
        for signs in product((-1, 1), repeat=parties - 1):
            magnitudes = np.random.default_rng(3).integers(1, 2**59, parties - 1).tolist()
            values = [sign * size for sign, size in zip(signs, magnitudes, strict=True)]
            values.append(total - sum(values))
            vectors = np.array([[value] for value in values], dtype=np.int64).view(np.uint64)
            opened = opened_elements(shamir, vectors, 3)[0]
            assert opened == total % FIELD128.modulus


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5))
def test_a_sum_past_the_ring_opens_as_the_integer_that_it_is(values: list[int]) -> None:
    """Where a liar makes it so: no residue is taken that would depend on how the sum came about."""
    vectors = np.array([[value] for value in values], dtype=np.int64).view(np.uint64)
    assert opened_elements(Shamir(), vectors, 3) == [sum(values) % FIELD128.modulus]


def test_the_largest_honest_value_and_its_noise_fit_a_signed_word() -> None:
    """What `Query` lets through at most: records of the largest value, and the largest noise."""
    largest = MAX_RECORDS << PRECISION_BITS
    with pytest.raises(LocalError, match="too small"):
        DiscreteLaplace.spending(Fraction(1), 2**54 + 1)
    widest = DiscreteLaplace.spending(Fraction(1), 2**54 - 1).scale
    assert largest + 256 * widest < 2**63
