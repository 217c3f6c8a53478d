"""Finds the parties whose keys have different prints at two servers, with few and small messages.

Each server digests the prints of all parties together. If the digests differ, both split the range
into `FAN` parts and compare those, until a part is one party. Honest parties cost one digest.
"""

import hashlib
import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FAN = 64
DIGEST_BYTES = 16

Counts = NDArray[np.int64]
Range = tuple[int, int]


@dataclass(frozen=True)
class Prints:
    """The `prints` of all keys, party by party; party i has `counts[i]` keys.

    Digests are keyed with the challenge, so nobody else can tell what was digested.
    """

    prints: NDArray[np.uint64]
    counts: Counts
    key: bytes

    def digests(self, ranges: list[Range]) -> bytes:
        ends = np.concatenate([[0], np.cumsum(self.counts)])
        return b"".join(
            hashlib.blake2s(
                self.counts[first:last].astype("<u8").tobytes()
                + self.prints[ends[first] : ends[last]].astype("<u8").tobytes(),
                key=self.key,
                salt=first.to_bytes(8, "little"),
                digest_size=DIGEST_BYTES,
            ).digest()
            for first, last in ranges
        )


def different(ranges: list[Range], ours: bytes, theirs: bytes) -> list[Range]:
    """The ranges whose digests differ; both servers have one digest per range."""
    size = DIGEST_BYTES
    return [
        part
        for i, part in enumerate(ranges)
        if ours[size * i : size * (i + 1)] != theirs[size * i : size * (i + 1)]
    ]


def parts(ranges: list[Range]) -> list[Range]:
    """Up to `FAN` parts of each range, none of them empty."""
    split = []
    for first, last in ranges:
        count = min(FAN, last - first)
        bounds = [first + (last - first) * i // count for i in range(count + 1)]
        split += list(itertools.pairwise(bounds))
    return split


def single(ranges: list[Range]) -> bool:
    return all(last - first == 1 for first, last in ranges)
