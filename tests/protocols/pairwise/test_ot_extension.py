"""Correlated OTs: the relation, its counters, and a request that says nothing of the choices."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fss.ring import Bytes
from protocols.errors import LocalError
from protocols.pairwise import ot_extension
from protocols.pairwise.blocks import keystream
from protocols.pairwise.ot_extension import Receiver, Sender, bits_of
from tests.goodness import ALPHA, uniform_bytes_p
from tests.protocols.pairwise.dealing import chosen_keys, random_bits, random_bytes, random_deltas


def sides(seed: int, links: int) -> tuple[Receiver, Sender]:
    pairs, deltas = random_bytes(seed, links, 128, 2, 16), random_deltas(seed + 1, links)
    return Receiver(pairs), Sender(chosen_keys(pairs, deltas), deltas)


@given(st.integers(0, 2**32), st.integers(1, 3), st.lists(st.integers(0, 300), max_size=4))
def test_the_receiver_holds_the_label_of_its_bit(seed: int, links: int, batches: list[int]) -> None:
    receiver, sender = sides(seed, links)
    for number, bits in enumerate(batches):
        choices = random_bits(seed + number, links, bits)
        u, labels = receiver.extend(choices)
        assert u.shape == (links, ot_extension.request_bytes(bits))
        zeros = sender.extend(u, bits)
        expected = zeros ^ choices[..., None] * sender.deltas[:, None, :]
        assert labels.shape == (links, bits, 16)
        assert np.array_equal(labels, expected)
        assert receiver.position == sender.position


def test_a_bit_costs_16_bytes() -> None:
    assert ot_extension.request_bytes(320_000) == 16 * 320_000


def test_no_keystream_position_serves_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    used: dict[bytes, list[tuple[int, int]]] = {}

    def recorded(seeds: Bytes, start: int, blocks: int) -> Bytes:
        for seed in seeds:
            used.setdefault(seed.tobytes(), []).append((start, start + blocks))
        return keystream(seeds, start, blocks)

    monkeypatch.setattr(ot_extension, "keystream", recorded)
    receiver, sender = sides(1, 2)
    requests = [
        (receiver.extend(random_bits(9, 2, bits))[0], bits) for bits in (1, 127, 128, 129, 1000)
    ]
    assert len(used) == 2 * 256
    theirs, used = used, {}
    for u, bits in requests:
        sender.extend(u, bits)
    assert len(used) == 2 * 128
    for spans in (*theirs.values(), *used.values()):
        assert len(spans) == 5
        for (_, end), (start, after) in pairwise(spans):
            assert end == start < after


def test_the_same_choices_make_another_request_each_time() -> None:
    receiver, _ = sides(2, 1)
    choices = random_bits(1, 1, 256)
    rows = {receiver.extend(choices)[0].tobytes() for _ in range(20)}
    assert len(rows) == 20


def test_a_request_looks_the_same_whatever_is_chosen() -> None:
    """Seven columns of the first transfer, 128 cells, n = 6,000 links for each choice: two-sample
    chi-square, alpha = 1e-9; and all bytes uniform, n = 1.5 million."""
    tables = []
    for choice in (0, 1):
        receiver = Receiver(random_bytes(100 + choice, 6000, 128, 2, 16))
        u, _ = receiver.extend(np.full((6000, 8), choice, dtype=np.uint8))
        assert uniform_bytes_p(u.tobytes()) > ALPHA
        cells = (u[:, :7] & 1) @ (1 << np.arange(7))
        tables.append(np.bincount(cells, minlength=128))
    assert stats.chi2_contingency(np.array(tables)).pvalue > ALPHA
    # The statistic can fail: with the pads taken off it tells the choices apart at once.
    pairs = random_bytes(101, 6000, 128, 2, 16)
    u, _ = Receiver(pairs).extend(np.ones((6000, 8), dtype=np.uint8))
    pads = keystream(pairs[:, :7].reshape(-1, 16), 0, 1)[:, 0, :1].reshape(6000, 7, 2)
    bare = u[:, :7] ^ pads[..., 0] ^ pads[..., 1]
    tables[1] = np.bincount((bare & 1) @ (1 << np.arange(7)), minlength=128)
    assert stats.chi2_contingency(np.array(tables)).pvalue < ALPHA


def test_choices_of_the_base_ots_are_the_bits_of_delta() -> None:
    deltas = np.zeros((1, 16), dtype=np.uint8)
    deltas[0, 0], deltas[0, 2] = 1, 128
    assert np.flatnonzero(bits_of(deltas)).tolist() == [0, 23]


def test_some_links_can_go_on_alone() -> None:
    receiver, sender = sides(3, 3)
    sender.extend(receiver.extend(random_bits(1, 3, 9))[0], 9)
    chosen = np.array([True, False, True])
    receiver.keep(chosen)
    sender.keep(chosen)
    choices = random_bits(2, 2, 9)
    u, labels = receiver.extend(choices)
    zeros = sender.extend(u, 9)
    assert np.array_equal(labels, zeros ^ choices[..., None] * sender.deltas[:, None, :])


def test_keys_of_another_form_are_refused() -> None:
    with pytest.raises(LocalError):
        Receiver(random_bytes(1, 2, 127, 2, 16))
    with pytest.raises(LocalError):
        Sender(random_bytes(1, 2, 128, 16), random_deltas(1, 3))
