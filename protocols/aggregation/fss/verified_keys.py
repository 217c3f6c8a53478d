"""Verified keys of one query: their domain, a party's submission, and the keys of a cheater."""

import hashlib
import struct

import numpy as np
from numpy.typing import NDArray

from tallyroom.fss.grid import GridKeys
from tallyroom.fss.verified import CHALLENGE_BYTES, MIN_BITS, Verified
from tallyroom.protocols.aggregation.fss.submission import domain_bits
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.query import Query

Rows = NDArray[np.uint8]

CheckedKeys = Verified | GridKeys

VERSION = 4
HEADER = struct.Struct("<BBBBI")
SERVERS = 2
CONTRIBUTION_BYTES = 32
"""Bytes that each server contributes to the challenge."""

GRID_BITS = range(6, 21)
"""Domains for which grid keys take at most 48 bytes per level, and all points are visited."""


def verified_keys(query: Query) -> CheckedKeys:
    """Keys over the thresholds that are asked, or over the fine grid if any may be asked.

    They are valid in this run only, whose name covers the whole query.
    """
    bits = domain_bits(query)
    context = b"tallyroom fss " + query.run
    try:
        if bits in GRID_BITS:
            return GridKeys(bits, context)
        return Verified(max(MIN_BITS, bits), context)
    except ValueError as error:
        raise LocalError(f"fss: {error}") from None


def header(query: Query, keys: int) -> bytes:
    """The head of a submission, with its domain. The run's name binds it to the question."""
    return HEADER.pack(VERSION, verified_keys(query).bits, 64, SERVERS, keys)


def generate(
    query: Query, alphas: NDArray[np.uint64], randomness: Rows, weights: NDArray[np.uint64] | None
) -> list[Rows]:
    """Both servers' keys. With `weights`, the keys of a cheater, which count w times, or 2 − w
    times, depending on which server holds the control bit."""
    keys = verified_keys(query)
    pair = list(keys.gen(alphas, randomness))
    if weights is not None:
        for rows in pair:
            rows.view("<u8")[:, keys.value_words] += (weights - np.uint64(1))[:, None]
    return pair


def challenge(query: Query, contributions: tuple[bytes, bytes], batch: int) -> bytes:
    """The challenge of a batch. If at least one server keeps its contribution secret until parties
    have submitted, no party knew the challenge when it made its keys."""
    digest = hashlib.blake2s(query.run, person=b"prints")
    digest.update(struct.pack("<I", batch))
    for contribution in contributions:
        digest.update(contribution)
    return digest.digest()[:CHALLENGE_BYTES]


__all__ = [
    "CONTRIBUTION_BYTES",
    "HEADER",
    "SERVERS",
    "challenge",
    "generate",
    "header",
    "verified_keys",
]


def key_bytes(bits: int) -> int:
    """The length of a key that can be checked, which has two constructions."""
    return 16 * (bits + 12) if bits in GRID_BITS else 48 * max(MIN_BITS, bits) - 16
