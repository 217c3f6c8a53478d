"""Matchings of records, which decide the pairs; they are drawn from a public seed.

All are rounds of a tournament by the circle method: in turn t, places t + k and t − k of a circle
meet, modulo the number of turns; if the number of records is even, one of them stands in the middle
and meets place t. All turns together are every pair once, so whatever the order of the records on
the circle, a turn drawn uniformly holds each pair with the same probability.

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

    They are the first turns. Records are shuffled first, so each matching is uniform, and `rounds`
    of them contain every pair once.
    """
    _check(records, count)
    shuffled = _order(records, Randomness(seed).derive("distinct matchings"))
    pairs: RecordPairs = shuffled[_places(records, np.arange(count))]
    return pairs


def neighbourly_matchings(
    counts: NDArray[np.integer], count: int, runs: int, seed: bytes
) -> RecordPairs:
    """Like `distinct_matchings`, of parties that hold so many records each, so that each party
    meets few others: the records of a party are neighbours on the circle, and the turns are `runs`
    runs of neighbouring turns, at equal distances from a start that is drawn.

    In turn t, place x meets place 2t − x. So an arc of r places meets its mirror image, and in L
    turns whose 2t follow one another, r + L − 1 places: of equal parties, two or three.
    """
    records = int(counts.sum())
    _check(records, count)
    drawn = Randomness(seed).derive("neighbourly matchings")
    owners = np.repeat(np.arange(len(counts)), counts)
    by_party = drawn.derive("parties").words(len(counts))[owners]
    order = np.lexsort((drawn.derive("records").words(records), by_party)).astype(np.uint32)
    start = int(drawn.derive("start").words(1)[0])
    turns = rounds(records)
    halves = turns_in_runs(turns, count, runs, start) * ((turns + 1) // 2) % turns
    pairs: RecordPairs = order[_places(records, halves)]
    swapped = (drawn.derive("order").words(pairs.size // 2) & 1).astype(bool)
    return np.where(swapped.reshape(*pairs.shape[:2], 1), pairs[..., ::-1], pairs)


def turns_in_runs(turns: int, count: int, runs: int, start: int) -> NDArray[np.int64]:
    """`count` of so many turns, in runs of equal length at equal distances; each is uniform if
    `start` is uniform."""
    runs = min(runs, count)

    def parts(whole: int) -> NDArray[np.int64]:
        return np.where(np.arange(runs) < whole % runs, whole // runs + 1, whole // runs)

    lengths, distances = parts(count), parts(turns)
    begins = start % turns + np.cumsum(distances) - distances
    within = np.arange(count) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return (np.repeat(begins, lengths) + within) % turns


def _places(records: int, turn: NDArray[np.int64]) -> NDArray[np.int64]:
    """Who meets whom in these turns, (turns, records // 2, 2)."""
    turns = rounds(records)
    turn = turn[:, None]
    distance = np.arange(1, turns // 2 + 1)
    places = np.stack([turn + distance, turn - distance], axis=2) % turns
    if records % 2:
        return places
    middle = np.stack([turn, np.full_like(turn, turns)], axis=2)
    return np.concatenate([middle, places], axis=1)


def _check(records: int, count: int) -> None:
    if records < 2:
        raise LocalError("pairs need at least two records")
    if records >= 1 << 32:
        raise LocalError("there are too many records to pair")
    if count < 1:
        raise LocalError(f"a record must be in at least one pair, not {count}")
    if count > (turns := rounds(records)):
        raise LocalError(f"{records} records have {turns} matchings without a common pair")


def _order(length: int, randomness: Randomness) -> NDArray[np.uint32]:
    """A random permutation, by sorting random words.

    Equal words keep their order, which biases it by less than length²/2^65.
    """
    return np.argsort(randomness.words(length), kind="stable").astype(np.uint32)
