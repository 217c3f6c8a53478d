"""Verified keys of one query: their domain, what a party submits of them, and one that cheats."""

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
"""What each server gives to the challenge."""

GRID_BITS = range(6, 21)
"""Domains for which grid keys are no longer than 48 bytes a level, and all of which is visited."""


def verified_keys(query: Query) -> CheckedKeys:
    """Keys over the thresholds that are asked, or over the fine grid where any may be asked.

    They are good in this run alone, which is named after all of its query.
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
    """What a submission begins with: the domain. What was asked is in the run's name."""
    return HEADER.pack(VERSION, verified_keys(query).bits, 64, SERVERS, keys)


def generate(
    query: Query, alphas: NDArray[np.uint64], randomness: Rows, weights: NDArray[np.uint64] | None
) -> list[Rows]:
    """Both servers' keys. With `weights`, those of a cheater, which count so many times, or minus
    so many and two."""
    keys = verified_keys(query)
    pair = list(keys.gen(alphas, randomness))
    if weights is not None:
        for rows in pair:
            rows.view("<u8")[:, keys.value_words] += (weights - np.uint64(1))[:, None]
    return pair


def challenge(query: Query, contributions: tuple[bytes, bytes], batch: int) -> bytes:
    """One server that keeps its contribution to itself until parties have submitted suffices for
    no party to have known this when it made its keys."""
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
