"""Shamir's sharing: any threshold of holders open, fewer learn nothing."""

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from tallyroom.protocols.algebra.field import FIELD128
from tallyroom.protocols.algebra.sharing import deal, draw_elements, open_secrets
from tallyroom.protocols.randomness import Randomness
from tests.goodness import ALPHA, uniform_bytes_p

IDS = np.array([5, 0, 9], dtype=np.uint32)


def test_elements_are_a_function_of_label_and_id() -> None:
    randomness = Randomness(bytes(16))
    together = draw_elements(randomness, "label", IDS, 4)
    assert together.shape == (3, 4, 2)
    for i in range(3):
        assert np.array_equal(draw_elements(randomness, "label", IDS[i : i + 1], 4)[0], together[i])
    assert not (together == draw_elements(randomness, "other", IDS, 4)).any()


def test_bytes_past_the_modulus_are_drawn_again() -> None:
    class Stub(Randomness):
        def rows(
            self, label: str, ids: NDArray[np.uint32] | NDArray[np.uint64], width: int
        ) -> NDArray[np.uint8]:
            drawn = super().rows(label, ids, width).copy()
            if "again 2" not in label:
                drawn[1, 16:32] = 255
            return drawn

    stub, plain = Stub(bytes(16)), Randomness(bytes(16))
    elements = draw_elements(stub, "label", IDS, 3)
    expected = draw_elements(plain, "label", IDS, 3)
    expected[1, 1] = draw_elements(plain, "label, again 2", IDS, 3)[1, 1]
    assert np.array_equal(elements, expected)


@pytest.mark.parametrize("threshold", [1, 2, 3, 4])
def test_exactly_threshold_holders_open(threshold: int) -> None:
    terms = draw_elements(Randomness(bytes(16)), "terms", IDS, threshold)
    holders = np.array([0, 3, 7, 20])
    shares = deal(terms, holders)
    for chosen in combinations(range(4), threshold):
        here = list(chosen)
        assert np.array_equal(open_secrets(holders[here], shares[:, here]), terms[:, 0])
    for chosen in combinations(range(4), threshold - 1):
        here = list(chosen)
        if here:
            wrong = open_secrets(holders[here], shares[:, here])
            assert not (wrong == terms[:, 0]).all(axis=1).any()


def test_fewer_shares_are_uniform() -> None:
    """Both shares of 2^13 sharings of 0 and of p − 1 with threshold 3: n = 2^18 bytes, ALPHA."""
    ids = np.arange(1 << 13, dtype=np.uint32)
    terms = draw_elements(Randomness(bytes(16)), "terms", ids, 3)
    for secret in (0, -1):
        terms[:, 0] = FIELD128.from_ints([secret])
        shares = deal(terms, np.array([0, 1]))
        assert uniform_bytes_p(FIELD128.encode(shares).tobytes()) > ALPHA
        # Nor is any fixed combination of the two, such as what opening with two would give.
        opened = open_secrets(np.array([0, 1]), shares)
        assert uniform_bytes_p(FIELD128.encode(opened[None]).tobytes()) > ALPHA
