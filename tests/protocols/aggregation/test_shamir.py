"""Shamir shares among servers: any t open, t − k see nothing, and the others may vanish."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.shamir import Shamir
from tallyroom.protocols.algebra.field import FIELD128
from tallyroom.protocols.algebra.ring import PRECISION_BITS, Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace, Placement
from tallyroom.protocols.query import MAX_RECORDS
from tallyroom.protocols.randomness import Randomness
from tests.goodness import ALPHA, uniform_bytes_p
from tests.protocols.aggregation.rounds import Rounds
from tests.protocols.aggregation.shamir_samples import (
    SHAPES,
    TOP,
    a_shared_query,
    shares_of,
    some_vectors,
)


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
    assert run.rejected == []
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
    monkeypatch.setattr("tallyroom.protocols.aggregation.shamir._ROWS", 10)
    parts = shares_of(Shamir(), vectors, 3)
    assert all(np.array_equal(a, b) for a, b in zip(whole, parts, strict=True))


def test_packing_makes_shares_shorter() -> None:
    assert [Shamir(5, k).width(12, 0) for k in (1, 2, 3, 4)] == [192, 96, 64, 48]
    assert Shamir(5, 4).width(13, 0) == 64


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


def test_defaults() -> None:
    assert [Shamir().needed(m) for m in range(2, 8)] == [2, 2, 3, 3, 4, 4]
    assert [Shamir(pack=2).needed(m) for m in range(3, 8)] == [3, 3, 3, 4, 4]


def test_sums_past_two_to_the_64_are_reduced() -> None:
    vectors = np.full((3, 2), TOP, dtype=np.uint64)
    run = Rounds(Shamir(), a_shared_query(3, 2, 3), vectors).run()
    assert run.total is not None
    assert run.total.vector.tolist() == [3 * TOP % 2**64] * 2


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
