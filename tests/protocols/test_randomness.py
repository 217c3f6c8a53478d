"""The keyed stream: reproducible under a seed, independent of blocks, and uniform."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.protocols.randomness import Randomness
from tests.goodness import ALPHA, uniform_bytes_p

ids = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20, unique=True)


@given(ids, st.integers(1, 100), st.data())
def test_rows_do_not_depend_on_the_block(
    numbers: list[int], width: int, data: st.DataObject
) -> None:
    randomness = Randomness.from_seed(1, "parties")
    every = np.array(numbers, dtype=np.uint32)
    some = np.array(data.draw(st.permutations(numbers)), dtype=np.uint32)
    rows = dict(zip(every.tolist(), randomness.rows("seed", every, width).tolist(), strict=True))
    for number, row in zip(
        some.tolist(), randomness.rows("seed", some, width).tolist(), strict=True
    ):
        assert row == rows[number]


def test_rows_of_other_ids_labels_keys_and_blocks_differ() -> None:
    randomness = Randomness.from_seed(1, "parties")
    numbers = np.arange(2000, dtype=np.uint32)
    drawn = [
        source.rows(label, numbers, 48).tobytes()
        for source in (randomness, Randomness.from_seed(2, "parties"), randomness.derive("run"))
        for label in ("noise share", "additive seed 1", "additive seed 2")
    ]
    blocks = [data[i : i + 16] for data in drawn for i in range(0, len(data), 16)]
    assert len(set(blocks)) == len(blocks)


def test_rows_leave_the_stream_as_it_was() -> None:
    left, right = (Randomness.from_seed(1, "x") for _ in range(2))
    left.rows("seed", np.arange(3, dtype=np.uint32), 16)
    left.derive("other")
    assert left.bytes(64) == right.bytes(64)


def test_a_seeded_twin_draws_the_same_and_others_do_not() -> None:
    def draw(seed: int | None, role: str) -> bytes:
        return Randomness.for_role(seed, role).bytes(32)

    assert draw(7, "server-0") == draw(7, "server-0")
    drawn = {draw(7, "server-0"), draw(7, "server-1"), draw(8, "server-0"), draw(None, "server-0")}
    assert len(drawn) == 4
    assert draw(None, "server-0") != draw(None, "server-0")


def test_the_stream_goes_on_in_pieces() -> None:
    left, right = (Randomness.from_seed(3, "x") for _ in range(2))
    assert left.bytes(5) + left.bytes(100) + left.bytes(0) == right.bytes(105)
    assert left.words(4).tobytes() == right.bytes(32)


@pytest.mark.parametrize("kind", ["stream", "rows", "derived"])
def test_bytes_are_uniform(kind: str) -> None:
    """n = 2^20 bytes, 256 cells, alpha = 1e-9: an excess of 3 % in one value is found."""
    randomness = Randomness.from_seed(11, kind)
    drawn = {
        "stream": lambda: randomness.bytes(1 << 20),
        "rows": lambda: randomness.rows("x", np.arange(1 << 15, dtype=np.uint32), 32).tobytes(),
        "derived": lambda: b"".join(randomness.derive(str(i)).bytes(64) for i in range(1 << 14)),
    }[kind]()
    assert len(drawn) == 1 << 20
    assert uniform_bytes_p(drawn) > ALPHA


def test_keys_have_one_length_and_show_nowhere() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        Randomness(bytes(15))
    key = b"0123456789abcdef"
    assert repr(Randomness(key)) == "<Randomness>"
