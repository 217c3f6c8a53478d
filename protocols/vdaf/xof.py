"""XofTurboShake128 of draft-irtf-cfrg-vdaf, batched: one row of output for each row of seeds.

The XOF of (seed, tag, binder) is TurboSHAKE128 with domain byte 1 (RFC 9861) of
len(tag) in two bytes ‖ tag ‖ len(seed) in one byte ‖ seed ‖ binder.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.field import Field, Vector, native
from tallyroom.protocols.vdaf import keccak_twin as twin

try:
    from tallyroom.protocols.vdaf import _keccak
except ImportError:  # no compiler at build time
    HAVE_NATIVE = False
else:
    HAVE_NATIVE = True

Bytes = NDArray[np.uint8]

SEED_BYTES: Final = 32
DOMAIN: Final = 1


def turboshake128(messages: Bytes, domain: int, length: int) -> Bytes:
    """`length` bytes for each row of (rows, n) messages."""
    messages = np.ascontiguousarray(messages)
    if not len(messages) or not length:
        return np.empty((len(messages), length), dtype=np.uint8)
    if not (HAVE_NATIVE and native()):
        return twin.squeeze(messages, domain, length)
    out = np.empty((len(messages), length), dtype=np.uint8)
    _keccak.squeeze(messages, len(messages), domain, out)
    return out


def derive_seeds(tag: bytes, seeds: Bytes, binders: Bytes) -> Bytes:
    """A new seed for each row. Seeds and binders are (rows, n), or a single row for all."""
    return turboshake128(_messages(tag, seeds, binders), DOMAIN, SEED_BYTES)


def expand(field: Field, tag: bytes, seeds: Bytes, binders: Bytes, count: int) -> Vector:
    """`count` uniform field elements for each row, shape (rows, count, limbs).

    Candidates that are not below p are skipped, so a row may read more than `count` of them.
    """
    messages = _messages(tag, seeds, binders)
    if not (HAVE_NATIVE and native()):
        return _expand_in_numpy(field, messages, count)
    out = field.zeros(len(messages), count)
    if out.size:
        _keccak.squeeze_field(field.limbs, messages, len(messages), DOMAIN, out)
    return out


def _expand_in_numpy(field: Field, messages: Bytes, count: int) -> Vector:
    out = field.zeros(len(messages), count)
    if not out.size:
        return out
    drawn = field.unchecked(twin.squeeze(messages, DOMAIN, count * field.width))
    fits = field.canonical(drawn).all(axis=1)
    out[fits] = drawn[fits]
    for row in np.flatnonzero(~fits):
        read, kept = count, field.zeros(0)
        while len(kept) < count:
            read += count
            stream = twin.squeeze(messages[row : row + 1], DOMAIN, read * field.width)
            kept = field.draw(stream.tobytes())
        out[row] = kept[:count]
    return out


def _messages(tag: bytes, seeds: Bytes, binders: Bytes) -> Bytes:
    """Raises `ValueError` if a length does not fit its prefix."""
    if len(tag) > 0xFFFF or seeds.shape[1] > 0xFF:
        raise ValueError("a tag has at most 65535 bytes and a seed at most 255")
    head = len(tag).to_bytes(2, "little") + tag + bytes([seeds.shape[1]])
    (rows,) = np.broadcast_shapes(seeds.shape[:1], binders.shape[:1])
    first, second = len(head), len(head) + seeds.shape[1]
    messages = np.empty((rows, second + binders.shape[1]), dtype=np.uint8)
    messages[:, :first] = np.frombuffer(head, dtype=np.uint8)
    messages[:, first:second] = seeds
    messages[:, second:] = binders
    return messages
