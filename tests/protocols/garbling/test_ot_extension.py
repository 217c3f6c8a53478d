"""Correlated OTs: the relation, its counters, and a request that says nothing of the choices."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling import ot_extension
from tallyroom.protocols.garbling.links import Mask
from tallyroom.protocols.garbling.ot_extension import Receiver, Sender, bits_of, check
from tallyroom.protocols.garbling.primitives import keystream
from tests.goodness import ALPHA, uniform_bytes_p
from tests.protocols.pairwise.dealing import chosen_keys, random_bits, random_bytes, random_deltas

CELLS = 7 * 17
"""Bytes of seven columns of 8 choices and their mask."""


def sides(seed: int, links: int) -> tuple[Receiver, Sender]:
    pairs, deltas = random_bytes(seed, links, 128, 2, 16), random_deltas(seed + 1, links)
    return Receiver(pairs), Sender(chosen_keys(pairs, deltas), deltas)


def masks_of(seed: int, links: int) -> Bytes:
    return random_bytes(seed + 77, links, 16)


def points_of(links: int) -> Bytes:
    """Points at which columns are checked; a session takes them from a hash of u."""
    return random_bytes(123, links, 16)


def passed(receiver: Receiver, sender: Sender, choices: Bytes, seed: int = 1) -> Bytes:
    """One honest extension; the labels that the receiver got."""
    links, bits = choices.shape
    u, labels, columns = receiver.extend(choices, masks_of(seed, links))
    zeros, consistent = sender.extend(u, bits, points_of(links), check(columns, points_of(links)))
    assert consistent.all()
    assert np.array_equal(labels, zeros ^ choices[..., None] * sender.deltas[:, None, :])
    return labels


@given(st.integers(0, 2**32), st.integers(1, 3), st.lists(st.integers(0, 300), max_size=4))
def test_the_receiver_holds_the_label_of_its_bit(seed: int, links: int, batches: list[int]) -> None:
    receiver, sender = sides(seed, links)
    for number, bits in enumerate(batches):
        choices = random_bits(seed + number, links, bits)
        labels = passed(receiver, sender, choices, seed)
        assert labels.shape == (links, bits, 16)
        assert receiver.position == sender.position


def test_branches_of_a_link_share_no_keystream() -> None:
    """One pad under two requests would show the XOR of their choices."""
    receiver, sender = sides(3, 2)
    choices = random_bits(4, 2, 40)
    branches = [receiver, receiver.branch(b"one"), receiver.branch(b"other")]
    for one, other in combinations(
        [each.extend(choices, masks_of(1, 2)).u for each in branches], 2
    ):
        assert np.count_nonzero(one == other) < one.size / 32
    passed(receiver.branch(b"one"), sender.branch(b"one"), choices)


def test_a_bit_costs_16_bytes_and_a_check_2096() -> None:
    assert ot_extension.request_bytes(320_000) == 16 * 320_000 + 2096
    assert ot_extension.request_bytes(8) == 16 * 8 + 2096


def test_no_keystream_position_serves_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    used: dict[bytes, list[tuple[int, int]]] = {}

    def recorded(seeds: Bytes, start: int, blocks: int) -> Bytes:
        for seed in seeds:
            used.setdefault(seed.tobytes(), []).append((start, start + blocks))
        return keystream(seeds, start, blocks)

    monkeypatch.setattr(ot_extension, "keystream", recorded)
    receiver, sender = sides(1, 2)
    requests = [
        (receiver.extend(random_bits(9, 2, bits), masks_of(bits, 2)), bits)
        for bits in (1, 127, 128, 129, 1000)
    ]
    assert len(used) == 2 * 256
    theirs, used = used, {}
    for (u, _, columns), bits in requests:
        sender.extend(u, bits, points_of(2), check(columns, points_of(2)))
    assert len(used) == 2 * 128
    for spans in (*theirs.values(), *used.values()):
        assert len(spans) == 5
        for (_, end), (start, after) in pairwise(spans):
            assert end == start < after


def test_the_same_choices_make_another_request_each_time() -> None:
    receiver, _ = sides(2, 1)
    choices = random_bits(1, 1, 256)
    rows = {receiver.extend(choices, masks_of(1, 1)).u.tobytes() for _ in range(20)}
    assert len(rows) == 20


def test_a_request_looks_the_same_whatever_is_chosen() -> None:
    """Seven columns of the first transfer, 128 cells, n = 6,000 links for each choice: two-sample
    chi-square, alpha = 1e-9; and all bytes uniform, n = 1.5 million."""
    tables = []
    for choice in (0, 1):
        receiver = Receiver(random_bytes(100 + choice, 6000, 128, 2, 16))
        choices = np.full((6000, 8), choice, dtype=np.uint8)
        u = receiver.extend(choices, masks_of(choice, 6000)).u[:, :CELLS]
        assert uniform_bytes_p(u.tobytes()) > ALPHA
        cells = (u[:, ::17] & 1) @ (1 << np.arange(7))
        tables.append(np.bincount(cells, minlength=128))
    assert stats.chi2_contingency(np.array(tables)).pvalue > ALPHA
    # The statistic can fail: with the pads taken off it tells the choices apart at once.
    pairs = random_bytes(101, 6000, 128, 2, 16)
    u = Receiver(pairs).extend(np.ones((6000, 8), dtype=np.uint8), masks_of(2, 6000)).u[:, :CELLS]
    pads = keystream(pairs[:, :7].reshape(-1, 16), 0, 1)[:, 0, :1].reshape(6000, 7, 2)
    bare = u[:, ::17] ^ pads[..., 0] ^ pads[..., 1]
    tables[1] = np.bincount((bare & 1) @ (1 << np.arange(7)), minlength=128)
    assert stats.chi2_contingency(np.array(tables)).pvalue < ALPHA


def test_choices_of_the_base_ots_are_the_bits_of_delta() -> None:
    deltas = np.zeros((1, 16), dtype=np.uint8)
    deltas[0, 0], deltas[0, 2] = 1, 128
    assert np.flatnonzero(bits_of(deltas)).tolist() == [0, 23]


def test_some_links_can_go_on_alone() -> None:
    receiver, sender = sides(3, 3)
    passed(receiver, sender, random_bits(1, 3, 9))
    chosen = np.array([True, False, True])
    kept = sender.deltas[chosen]
    receiver.keep(chosen)
    sender.keep(chosen)
    assert np.array_equal(sender.deltas, kept)
    assert len(passed(receiver, sender, random_bits(2, 2, 9))) == 2


def test_keys_of_another_form_are_refused() -> None:
    with pytest.raises(LocalError):
        Receiver(random_bytes(1, 2, 127, 2, 16))
    with pytest.raises(LocalError):
        Sender(random_bytes(1, 2, 128, 16), random_deltas(1, 3))


# --- a receiver that deviates ---


def cheated(links: int, columns: int, seed: int = 5, bits: int = 40) -> tuple[Mask, Mask]:
    """Which links pass where the receiver chooses otherwise in so many columns, and what would be
    the guess that passes: it says of the others' r, and guesses that Δ is 0 in those columns."""
    receiver, sender = sides(seed, links)
    u, _, honest = receiver.extend(random_bits(seed, links, bits), masks_of(seed, links))
    width = bits // 8 + 16
    spoilt = u.reshape(links, 128, width).copy()
    spoilt[:, 1 : 1 + columns, 0] ^= 1  # bit 0 of Δ is public: a bit that is not
    found, consistent = sender.extend(
        spoilt.reshape(links, -1), bits, points_of(links), check(honest, points_of(links))
    )
    assert found.shape == (links, bits, 16)
    guessed: Mask = (bits_of(sender.deltas)[:, 1 : 1 + columns] == 0).all(axis=1)
    return consistent, guessed


@pytest.mark.parametrize("columns", [1, 2, 3, 8, 127])
def test_inconsistent_choices_pass_exactly_where_the_bits_of_delta_were_guessed(
    columns: int,
) -> None:
    """2,000 links: one column passes with probability 1/2, c of them with 2^-c. The number that
    passes is binomial: two-sided test at alpha = 1e-9."""
    consistent, guessed = cheated(2000, columns)
    assert np.array_equal(consistent, guessed)
    chance = stats.binomtest(int(consistent.sum()), 2000, 2.0**-columns)
    assert chance.pvalue > ALPHA
    if columns == 127:
        assert not consistent.any()


def test_a_choice_hidden_in_the_mask_is_found_too() -> None:
    receiver, sender = sides(6, 400)
    u, _, columns = receiver.extend(random_bits(6, 400, 8), masks_of(6, 400))
    spoilt = u.reshape(400, 128, 17).copy()
    spoilt[:, 5, -1] ^= 128
    _, consistent = sender.extend(
        spoilt.reshape(400, -1), 8, points_of(400), check(columns, points_of(400))
    )
    assert np.array_equal(consistent, bits_of(sender.deltas)[:, 5] == 0)


def test_nothing_is_used_up_by_a_request_that_fails() -> None:
    receiver, sender = sides(7, 3)
    u, _, columns = receiver.extend(random_bits(7, 3, 16), masks_of(7, 3))
    checks = check(columns, points_of(3))
    wrong = checks.copy()
    wrong[1, 20] ^= 1
    _, consistent = sender.extend(u, 16, points_of(3), wrong)
    assert consistent.tolist() == [True, False, True]
    assert sender.position == 0
    _, consistent = sender.extend(u, 16, points_of(3), checks)
    assert consistent.all()
    assert sender.position == receiver.position


@pytest.mark.parametrize("byte", [0, 15, 16, 47])
def test_every_byte_of_a_check_counts(byte: int) -> None:
    receiver, sender = sides(8, 1)
    u, _, columns = receiver.extend(random_bits(8, 1, 16), masks_of(8, 1))
    checks = check(columns, points_of(1))
    checks[0, byte] ^= 4
    assert not sender.extend(u, 16, points_of(1), checks)[1].any()


def test_a_check_at_another_point_does_not_pass() -> None:
    receiver, sender = sides(9, 1)
    u, _, columns = receiver.extend(random_bits(9, 1, 300), masks_of(9, 1))
    checks = check(columns, random_bytes(5, 1, 16))
    assert not sender.extend(u, 300, points_of(1), checks)[1].any()


def test_a_check_looks_the_same_whatever_is_chosen() -> None:
    """x of 4,000 links for choices all 0 and all 1: uniform bytes, alpha = 1e-9 each; without the
    mask it would tell them apart."""
    for choice in (0, 1):
        receiver = Receiver(random_bytes(200 + choice, 4000, 128, 2, 16))
        choices = np.full((4000, 32), choice, dtype=np.uint8)
        _, _, columns = receiver.extend(choices, masks_of(choice, 4000))
        said = check(columns, random_bytes(9, 4000, 16))
        assert uniform_bytes_p(said.tobytes()) > ALPHA
