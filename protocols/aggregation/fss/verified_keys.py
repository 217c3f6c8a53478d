"""Verified keys of one query: their domain, what a party submits of them, and one that cheats."""

import hashlib
import struct

import numpy as np
from numpy.typing import NDArray

from fss.verified import CHALLENGE_BYTES, MIN_BITS, RANDOMNESS_BYTES, Verified
from protocols.aggregation.fss.submission import compared
from protocols.errors import LocalError
from protocols.run.query import Query
from protocols.statistics.thresholds import RESOLUTION_BITS

Rows = NDArray[np.uint8]

VERSION = 3
HEADER = struct.Struct("<BBBBI")
SERVERS = 2
CONTRIBUTION_BYTES = 32
"""What each server gives to the challenge."""


def verified_keys(query: Query) -> Verified:
    """Keys over the thresholds that are asked, or over the fine grid where any may be asked.

    They are good in this run alone, which is named after all of its query.
    """
    cells = compared(query).cells or 1
    bits = RESOLUTION_BITS if query.statistic.on_demand else (cells - 1).bit_length()
    try:
        return Verified(max(MIN_BITS, bits), b"tallyroom fss " + query.run)
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
            words = rows.view("<u8")
            # The words that correct values, from the second level on: see `fss.verified`.
            words[:, 6::6] += (weights - np.uint64(1))[:, None]
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
    "RANDOMNESS_BYTES",
    "SERVERS",
    "challenge",
    "generate",
    "header",
    "verified_keys",
]
