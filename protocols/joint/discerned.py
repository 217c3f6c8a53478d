"""Pairs of records of different classes that a partition leaves together, from shares of counts.

A table has the counts n_cy of the records of class y in part c. The pairs of different classes
within parts, each counted twice, are Σ_c ((Σ_y n_cy)² − Σ_y n_cy²): sums of squares of counts. Two
servers that share the counts modulo 2^64 have shares of every Σ_y n_cy at once. A circuit squares
what they share, and its outputs are shares modulo 2^64 again, which add up to the score: neither
server learns a count, a square or a score. Squaring a count of w bits costs about w² ANDs.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.circuit_builder import Builder, Word
from tallyroom.protocols.garbling.outputs import IntegerShares
from tallyroom.protocols.joint.tasks import Part, in_messages, lowest_bits

Numbers = NDArray[Any]
"""Shares modulo 2^64, or whole numbers of any size in the clear."""


def squares_in(tables: tuple[int, ...], classes: int) -> int:
    """How many squares the scores of such tables take."""
    return sum(size + size // classes for size in tables)


def twice_together(counts: Numbers, tables: tuple[int, ...], classes: int) -> Numbers:
    """For each table, in the clear."""
    return _summed(counts**2, _parts(counts, tables, classes) ** 2, tables, classes)


def shared_together(counts: Vector, tables: tuple[int, ...], classes: int, width: int) -> Part:
    """Shares of the same, from shares of counts that are below 2^width."""
    words = np.concatenate([counts, _parts(counts, tables, classes)])
    form = IntegerShares(((2 * width, False),))
    squares = yield from in_messages(_square(width), form, lowest_bits(words, width))
    cells, parts = np.split(squares[:, 0], [len(counts)])
    return _summed(cells, parts, tables, classes)


def _parts(counts: Numbers, tables: tuple[int, ...], classes: int) -> Numbers:
    """The records of each part, whatever their class."""
    assert len(counts) == sum(tables)
    found: Numbers = counts.reshape(-1, classes).sum(axis=1, dtype=counts.dtype)
    return found


def _summed(
    cells: Numbers,
    parts: Numbers,
    tables: tuple[int, ...],
    classes: int,
) -> Numbers:
    """Squares of parts less squares of cells, by table; modulo 2^64 where they are shares."""
    apart = parts - cells.reshape(-1, classes).sum(axis=1, dtype=cells.dtype)
    starts = np.cumsum([0, *tables[:-1]]) // classes
    found: Numbers = np.add.reduceat(apart, starts)
    return found


@lru_cache(maxsize=32)
def _square(width: int) -> Circuit:
    """x², from shares of x modulo 2^width."""
    builder = Builder(width, width)
    total = builder.add(Word(builder.garbler), Word(builder.evaluator))
    return builder.circuit([builder.square(total.fitted(width, signed=False))])
