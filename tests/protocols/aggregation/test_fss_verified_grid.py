"""Bad grid keys at real servers: over 40 thresholds keys have 18 blocks, which are a root, 3 of
states, 2 of proofs, 4 of words, and a low part of 8."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tallyroom.fss.grid import GridKeys
from tallyroom.protocols.aggregation.contract import Bodies
from tallyroom.protocols.aggregation.fss.verified_keys import verified_keys
from tallyroom.protocols.statistics.ecdf import Ecdf
from tests.protocols.aggregation.fss_verified_runs import (
    INVALID,
    Spoil,
    check_caught,
    exchange_over,
    query_about,
    some_holdings,
    spoiled,
    words,
)

GRID_CURVE = Ecdf(lower=0.0, upper=1.0, thresholds=40)
KEY = 36


def with_words(change: Callable[[NDArray[np.uint64], int], None]) -> Spoil:
    def spoil(server: int, body: Bodies) -> Bodies:
        change(words(body), server)
        return body

    return spoil


def add(where: slice, more: int, servers: tuple[int, ...] = (0, 1)) -> Spoil:
    def change(key: NDArray[np.uint64], server: int) -> None:
        if server in servers:
            key[where] += np.uint64(more % 2**64)

    return with_words(change)


def from_the_next_key(where: slice) -> Spoil:
    def change(key: NDArray[np.uint64], server: int) -> None:
        key[where] = key[where.start + KEY : where.stop + KEY]

    return with_words(change)


def drawn(where: slice) -> Spoil:
    def change(key: NDArray[np.uint64], server: int) -> None:
        key[where] = np.random.default_rng(1).integers(
            0, 2**64, where.stop - where.start, dtype=np.uint64
        )

    return with_words(change)


def flip(word: int, bits: int, servers: tuple[int, ...] = (0, 1)) -> Spoil:
    def change(key: NDArray[np.uint64], server: int) -> None:
        if server in servers:
            key[word] ^= np.uint64(bits)

    return with_words(change)


GRID_SPOILS: dict[str, Spoil] = {
    **{f"words + {more}": add(slice(12, 20), more) for more in (1, -1, -2, 1 << 63)},
    **{f"word {i} + 1": add(slice(i, i + 1), 1) for i in range(12, 20)},
    "a word at one server": add(slice(12, 13), 1, (1,)),
    "a weight of the low part": add(slice(20 + 12, 20 + 13), 1),
    "two steps": flip(6, 6),
    "two steps in the low part": flip(20 + 10, 6),
    "random corrections": drawn(slice(2, 20)),
    "proof of another key": from_the_next_key(slice(8, 12)),
    "low part of another key": from_the_next_key(slice(20, 36)),
    "another root": flip(1, 1, (1,)),
}


@pytest.mark.parametrize("name", GRID_SPOILS)
def test_a_bad_grid_key_costs_its_party_and_nobody_else(name: str) -> None:
    holdings = some_holdings()
    query = query_about(holdings, GRID_CURVE)
    assert isinstance(verified_keys(query), GridKeys)
    cells = query.plan.measured(holdings)[holdings.starts[4] :][:2]
    assert (cells[0] - cells[1]) % 8 != 0, "a low part of the other record would be the right one"
    exchange = exchange_over(holdings, query, spoiled([4], GRID_SPOILS[name]))
    check_caught(exchange, holdings, [4], INVALID)
