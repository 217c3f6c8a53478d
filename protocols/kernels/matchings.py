"""Matchings of records, which decide the pairs; they are drawn from a public seed.

A matching pairs every record once. With an odd number of records it leaves one out, each with the
same probability, so that means over pairs stay unbiased. Pairs are ordered, and both orders are
equally likely; that matters only to kernels that are not symmetric.
"""

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.randomness import Randomness

RecordPairs = NDArray[np.uint32]
"""Rows of two records."""


def rounds(records: int) -> int:
    """How many matchings it takes for every record to meet every other once."""
    return records - 1 if records % 2 == 0 else records


def distinct_matchings(records: int, count: int, seed: bytes) -> RecordPairs:
    """`count` matchings without a common pair, shape (count, records // 2, 2).

    They are the first rounds of a tournament by the circle method. In round r, places r + k and
    r − k meet, modulo the number of rounds; if the number of records is even, one of them stands in
    the middle and meets place r. Records are shuffled first, so each matching is uniform, and
    `rounds` of them contain every pair once.
    """
    _check(records, count)
    turns = rounds(records)
    if count > turns:
        raise LocalError(f"{records} records have {turns} matchings without a common pair")
    shuffled = _order(records, Randomness(seed).derive("distinct matchings"))
    turn = np.arange(count)[:, None]
    distance = np.arange(1, turns // 2 + 1)
    places = np.stack([turn + distance, turn - distance], axis=2) % turns
    if records % 2 == 0:
        middle = np.stack([turn, np.full_like(turn, turns)], axis=2)
        places = np.concatenate([middle, places], axis=1)
    pairs: RecordPairs = shuffled[places]
    return pairs


def _check(records: int, count: int) -> None:
    if records < 2:
        raise LocalError("pairs need at least two records")
    if records >= 1 << 32:
        raise LocalError("there are too many records to pair")
    if count < 1:
        raise LocalError(f"a record must be in at least one pair, not {count}")


def _order(length: int, randomness: Randomness) -> NDArray[np.uint32]:
    """A random permutation, by sorting random words.

    Equal words keep their order, which biases it by less than length²/2^65.
    """
    return np.argsort(randomness.words(length), kind="stable").astype(np.uint32)
