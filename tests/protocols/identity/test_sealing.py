"""Sealed payloads open for their recipient and context alone, and show nothing to anybody else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallyroom.protocols.identity.sealing import OVERHEAD, PUBLIC_BYTES, Recipient, SealingKey
from tests.goodness import ALPHA, uniform_bytes_p

KEY = SealingKey(bytes(range(32)))
OTHER = SealingKey(bytes(range(1, 33)))
TO_KEY = Recipient(KEY.public)
LOW_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    (2**255 - 20).to_bytes(32, "little"),
    (2**255 - 19).to_bytes(32, "little"),
    (2**255 - 18).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
]
"""The points of order 1, 2, 4 and 8 on the curve and its twist (RFC 7748 §6.1)."""


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=100), st.binary(max_size=40), st.binary(min_size=32, max_size=32))
def test_what_is_sealed_opens(payload: bytes, context: bytes, randomness: bytes) -> None:
    sealed = TO_KEY.seal(payload, context, randomness)
    assert len(sealed) == len(payload) + OVERHEAD
    assert KEY.open(sealed, context) == payload
    assert KEY.open(sealed, context + b"x") is None
    assert OTHER.open(sealed, context) is None


def test_any_changed_bit_and_any_other_length_is_refused() -> None:
    """The high bit of the point too, which X25519 itself ignores."""
    sealed = TO_KEY.seal(b"four", b"run", bytes(32))
    for bit in range(8 * len(sealed)):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << bit % 8
        assert KEY.open(bytes(changed), b"run") is None
    for length in range(len(sealed)):
        assert KEY.open(sealed[:length], b"run") is None
    assert KEY.open(sealed + b"\0", b"run") is None


@pytest.mark.parametrize("point", LOW_ORDER, ids=lambda point: point.hex()[:8])
def test_points_of_low_order_are_refused_on_both_sides(point: bytes) -> None:
    with pytest.raises(ValueError, match="low order"):
        Recipient(point)
    assert KEY.open(point + bytes(20), b"run") is None


@pytest.mark.parametrize("length", [0, 31, 33])
def test_keys_and_randomness_have_32_bytes(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Recipient(bytes(length))
    with pytest.raises(ValueError, match="32"):
        SealingKey(bytes(length))
    with pytest.raises(ValueError, match="32 random bytes"):
        TO_KEY.seal(b"", b"", bytes(length))


def test_the_same_randomness_never_keys_two_different_seals() -> None:
    """A sender that starts anew draws the same bytes: with other data, run or recipient, the
    ephemeral key must be another one."""
    seals = [
        Recipient(key.public).seal(payload, context, bytes(32))
        for key in (KEY, OTHER)
        for payload, context in [(b"a", b"x"), (b"b", b"x"), (b"a", b"y"), (b"", b"xa")]
    ]
    assert len({sealed[:PUBLIC_BYTES] for sealed in seals}) == len(seals)
    assert seals[0] == TO_KEY.seal(b"a", b"x", bytes(32))


def test_seals_look_uniform_but_for_the_high_bit_of_the_point() -> None:
    """2000 seals of zeros: 63 bytes each over 256 cells, ALPHA."""
    rng = np.random.default_rng(5)
    seals = b"".join(TO_KEY.seal(bytes(16), b"run", rng.bytes(32)) for _ in range(2000))
    rows = np.frombuffer(seals, dtype=np.uint8).reshape(2000, -1)
    assert (rows[:, PUBLIC_BYTES - 1] < 128).all()
    assert uniform_bytes_p(np.delete(rows, PUBLIC_BYTES - 1, axis=1).tobytes()) > ALPHA


def test_secrets_do_not_show() -> None:
    assert repr(KEY) == "<SealingKey>"
