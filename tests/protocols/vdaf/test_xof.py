"""TurboSHAKE128 against RFC 9861, native against twin, and rejection of candidates."""

import numpy as np
import pytest

from tallyroom.protocols.algebra.field import FIELD64, FIELD128, HAVE_NATIVE, Bytes, Field
from tallyroom.protocols.vdaf import keccak_twin, xof


def pattern(length: int) -> Bytes:
    """The RFC's ptn(n): bytes 00 to FA, repeated."""
    return (np.arange(length) % 0xFB).astype(np.uint8)[None]


@pytest.mark.parametrize(
    ("message", "domain", "length", "ending"),
    [
        (pattern(0), 0x1F, 32, "1e415f1c5983aff2169217277d17bb538cd945a397ddec541f1ce41af2c1b74c"),
        (pattern(1), 0x1F, 32, "55cedd6f60af7bb29a4042ae832ef3f58db7299f893ebb9247247d856958daa9"),
        (pattern(17), 0x1F, 32, "9c97d036a3bac819db70ede0ca554ec6e4c2a1a4ffbfd9ec269ca6a111161233"),
    ],
)
def test_the_rfcs_own_answers(
    implementation: str, message: Bytes, domain: int, length: int, ending: str
) -> None:
    assert xof.turboshake128(message, domain, length).tobytes().hex() == ending


@pytest.mark.skipif(not HAVE_NATIVE, reason="the native loops are not built")
@pytest.mark.parametrize("length", [0, 1, 7, 166, 167, 168, 169, 335, 336, 1000])
@pytest.mark.parametrize("wanted", [1, 32, 168, 169, 500])
def test_the_native_loop_is_the_twin(length: int, wanted: int) -> None:
    messages = np.random.default_rng(length).integers(0, 256, (5, length), dtype=np.uint8)
    twin = keccak_twin.squeeze(messages, 1, wanted)
    assert np.array_equal(xof.turboshake128(messages, 1, wanted), twin)
    for row, message in enumerate(messages):
        alone = xof.turboshake128(message[None], 1, wanted)
        assert np.array_equal(alone[0], twin[row])


class Scripted:
    """Streams that begin with candidates of our choice, which a hash would never give."""

    def __init__(self, field: Field, candidates: list[list[int]]) -> None:
        rows = [b"".join(c.to_bytes(field.width, "little") for c in row) for row in candidates]
        self.rows = [np.frombuffer(row, dtype=np.uint8) for row in rows]

    def squeeze(self, messages: Bytes, domain: int, length: int) -> Bytes:
        chosen = [self.rows[message[-1]][:length] for message in messages]
        return np.stack([np.pad(row, (0, length - len(row))) for row in chosen])


@pytest.mark.parametrize("field", [FIELD64, FIELD128], ids=repr)
def test_candidates_beyond_the_modulus_are_skipped(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = field.modulus
    scripted = Scripted(field, [[1, 2, 3, 4], [5, p, 6, 7], [p, p + 1, p - 1, p, 8, 9]])
    monkeypatch.setenv("TALLYROOM_NATIVE", "0")
    monkeypatch.setattr(keccak_twin, "squeeze", scripted.squeeze)
    binders = np.arange(3, dtype=np.uint8)[:, None]
    seeds = np.zeros((1, 32), dtype=np.uint8)
    found = field.to_ints(xof.expand(field, b"", seeds, binders, 3))
    assert found.tolist() == [[1, 2, 3], [5, 6, 7], [p - 1, 8, 9]]


def test_a_real_stream_with_a_rejected_candidate(implementation: str) -> None:
    """Found by search, as one word in 2^32 is rejected: word 12 of this stream is not below p."""
    seed = np.zeros((1, 32), dtype=np.uint8)
    binder = np.frombuffer((386298792).to_bytes(8, "little"), dtype=np.uint8)[None]
    message = np.concatenate([np.array([[0, 0, 32]], dtype=np.uint8), seed, binder], axis=1)
    words = xof.turboshake128(message, xof.DOMAIN, 30 * 8).view("<u8")[0]
    assert (words >= FIELD64.modulus).nonzero()[0].tolist() == [12]
    found = xof.expand(FIELD64, b"", seed, binder, 29)[0, :, 0]
    assert np.array_equal(found, np.delete(words, 12))


@pytest.mark.parametrize("field", [FIELD64, FIELD128], ids=repr)
def test_native_and_twin_expand_alike(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = np.arange(64, dtype=np.uint8).reshape(2, 32)
    binders = np.zeros((2, 3), dtype=np.uint8)
    monkeypatch.setenv("TALLYROOM_NATIVE", "0")
    pure = xof.expand(field, b"tag", seeds, binders, 300)
    monkeypatch.setenv("TALLYROOM_NATIVE", "1")
    assert np.array_equal(xof.expand(field, b"tag", seeds, binders, 300), pure)


def test_lengths_that_do_not_fit_their_prefix_are_refused() -> None:
    one = np.zeros((1, 1), dtype=np.uint8)
    with pytest.raises(ValueError, match="at most"):
        xof.derive_seeds(bytes(65536), one, one)
    with pytest.raises(ValueError, match="at most"):
        xof.derive_seeds(b"", np.zeros((1, 256), dtype=np.uint8), one)


def test_no_rows_and_no_elements(implementation: str) -> None:
    none = np.zeros((0, 32), dtype=np.uint8)
    assert xof.derive_seeds(b"", none, none).shape == (0, 32)
    assert xof.expand(FIELD128, b"", none, none, 5).shape == (0, 5, 2)
    one = np.zeros((1, 32), dtype=np.uint8)
    assert xof.expand(FIELD64, b"", one, one, 0).shape == (1, 0, 1)
