"""Why two of three servers learn nothing: the two families of slots look the same to any pair."""

from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest

from tallyroom.fss import native
from tallyroom.fss.hash import USAGE_COLUMN
from tallyroom.fss.ring import Z32, Z64, Ring
from tallyroom.fss.seed_table import SeedTable
from tallyroom.fss.square_root import (
    HELD,
    OFF_PATH,
    ON_PATH,
    SERVERS,
    SLOTS,
    Slot,
    SquareRoot,
    held,
)
from tests.goodness import ALPHA, chi_square_p

MODULUS = 8  # a small ring Z_2^k: the argument does not depend on k

View = tuple[int | None, ...]


def outcomes(slot: Slot) -> list[View]:
    """Every equally likely vector of coefficients; None where the slot is not held."""
    choices = [range(int(odd), MODULUS, 2) for odd in slot.odd]
    vectors: list[View] = []
    for elements in product(*choices):
        vector: list[int | None] = []
        for weights in slot.weights:
            value = sum(w * e for w, e in zip(weights, elements, strict=True)) % MODULUS
            vector.append(value if any(weights) else None)
        vectors.append(tuple(vector))
    return vectors


def views(slots: tuple[Slot, ...], pair: tuple[int, int]) -> Counter[tuple[tuple[View, int], ...]]:
    """How many slots show a pair of servers each distribution of coefficients."""
    distributions: Counter[tuple[tuple[View, int], ...]] = Counter()
    for slot in slots:
        seen = Counter(tuple(vector[i] for i in pair) for vector in outcomes(slot))
        scale = MODULUS**3 // sum(seen.values())
        ordered = sorted(seen.items(), key=repr)
        distributions[tuple((view, count * scale) for view, count in ordered)] += 1
    return distributions


@pytest.mark.parametrize("pair", list(combinations(range(SERVERS), 2)))
def test_no_pair_of_servers_tells_the_families_apart(pair: tuple[int, int]) -> None:
    assert views(OFF_PATH, pair) == views(ON_PATH, pair)


def test_three_servers_do_tell_them_apart() -> None:
    off = {sum(c or 0 for c in v) % MODULUS for slot in OFF_PATH for v in outcomes(slot)}
    on = {sum(c or 0 for c in v) % 2 for slot in ON_PATH for v in outcomes(slot)}
    assert off == {0}
    assert on == {1}


def test_every_server_holds_ten_and_alone_one_on_the_path() -> None:
    assert len(OFF_PATH) == len(ON_PATH) == SLOTS
    for slots in (OFF_PATH, ON_PATH):
        assert held(slots).sum(axis=0).tolist() == [HELD] * SERVERS
    alone = held(ON_PATH)[held(ON_PATH).sum(axis=1) == 1]
    assert alone.sum(axis=0).tolist() == [1] * SERVERS


def test_the_slots_that_a_server_lacks_do_not_tell_the_path() -> None:
    """400 keys: on α's row and off it each of 12 slots is as often missing (chi-square at ALPHA;
    two differ in a row, which makes the counts more even than it asks)."""
    scheme = SquareRoot(6, Z64)
    randomness = np.random.default_rng(4).integers(0, 256, (400, 16), dtype=np.uint8)
    for server, keys in enumerate(scheme.gen([37] * 400, randomness)):
        slots = np.array([scheme._split(server, key)[1][..., 0] for key in keys])
        for row in range(scheme.rows):
            missing = 400 - np.bincount(slots[:, row].ravel(), minlength=SLOTS)
            p = chi_square_p(missing, np.full(SLOTS, 400 * (SLOTS - HELD) / SLOTS))
            assert p > ALPHA, (server, row)


@pytest.mark.parametrize("ring", [Z32, Z64])
def test_slots_that_do_not_exist_are_refused(ring: Ring) -> None:
    scheme = SquareRoot(6, ring)
    randomness = np.random.default_rng(1).integers(0, 256, (2, 16), dtype=np.uint8)
    keys = scheme.gen([3, 60], randomness)[0]
    first_slot = (
        scheme.key_bytes(0)
        - len(scheme._split(0, keys[0])[2])
        - scheme.rows * (HELD * scheme.entry_bytes)
    )
    for number in (12, 255):
        spoiled = keys.copy()
        spoiled[1, first_slot] = number
        assert scheme.validate(0, spoiled).tolist() == [True, False]
        with pytest.raises(ValueError, match="slots"):
            scheme.evaluate(0, spoiled, [1])
        with pytest.raises(ValueError, match="slots"):
            scheme.evaluate_sum(0, spoiled, [1])


@pytest.mark.parametrize(("bits", "largest"), [(14, 41_088), (16, 82_176), (20, 328_704)])
def test_key_sizes_as_stated(bits: int, largest: int) -> None:
    scheme = SquareRoot(bits, Z64)
    assert max(scheme.key_bytes(server) for server in range(SERVERS)) == largest
    together = sum(scheme.key_bytes(server) for server in range(SERVERS))
    assert together < 8 << bits


@pytest.mark.parametrize("bits", [11, 14, 17])
def test_native_sums_are_the_pure_twins(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At points of few rows and of many; and together the servers count."""
    scheme = SquareRoot(bits, Ring(64))
    draw = np.random.default_rng(bits)
    alphas = draw.integers(0, 1 << bits, 5).astype(np.uint64)
    keys = scheme.gen(alphas, draw.integers(0, 256, (5, 16), dtype=np.uint8))
    points = np.sort(draw.integers(0, 1 << bits, 300)).astype(np.uint64)
    shares = [scheme.evaluate_sum(server, keys[server], points) for server in range(3)]
    counts = np.searchsorted(np.sort(alphas), points, side="right")
    assert np.array_equal(np.sum(shares, axis=0, dtype=np.uint64), counts.astype(np.uint64))
    monkeypatch.setenv("TALLYROOM_NATIVE", "0")
    for server in range(3):
        assert np.array_equal(scheme.evaluate_sum(server, keys[server], points), shares[server])


def test_a_slot_that_does_not_exist_is_no_reason_to_read_elsewhere() -> None:
    scheme = SquareRoot(14, Ring(64))
    keys = scheme.gen(np.zeros(2, dtype=np.uint64), np.zeros((2, 16), dtype=np.uint8))[0]
    table = SeedTable(scheme.row_bits, Ring(64), 3).key_bytes(0)
    keys[1, table + 9 * scheme.entry_bytes] = 255
    assert scheme.validate(0, keys).tolist() == [True, False]
    points = np.arange(10, dtype=np.uint64)
    with pytest.raises(ValueError, match="slots that do not exist"):
        scheme.evaluate_sum(0, keys, points)
    code = native.instruction_set()
    if code is None:
        return
    out = np.zeros((1, scheme.columns), dtype=np.uint64)
    sizes = (table, scheme.rows, scheme.columns)
    call = native.compiled.square_root_sum
    with pytest.raises(ValueError, match="slots that do not exist"):
        call(code, USAGE_COLUMN, keys, *sizes, points[:1], out)
    for wrong in (
        (keys[:, :-1].copy(), *sizes, points[:1], out),
        (keys, table - 1, *sizes[1:], points[:1], out),
        (keys, table, scheme.rows, 24, points[:1], out),
        (keys, *sizes, np.array([scheme.rows], dtype=np.uint64), out),
        (keys, *sizes, points[:2], out),
    ):
        with pytest.raises(ValueError, match=r"fit each other|no such"):
            call(code, USAGE_COLUMN, *wrong)
