"""What one cell of a table is, by itself: a number, a name, or nothing.

A column is an array of doubles in which every cell is coded from its own text, and never from its
neighbours: replacing one record changes the codes of that record alone, which is what every
sensitivity here is about. Text that is a number is that number, so `0.0` is `0`. Any other text is
a NaN whose payload is 50 bits of its hash: whoever takes numbers finds that it is none, and whoever
knows the names that matter finds them without a list that all parties would have to share. Two
names collide with probability 2^-50. Empty text is a plain NaN.

Whether a column is asked for numbers or for names is for the question to say, which is public. What
the question has no use for has a public place to go: `numbers` takes it, names count as `other`.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.records import Column

BLANKS = frozenset({"", "NA", "N/A", "NaN", "nan", "NULL", "null"})
"""What a missing value is written as. A question about names may count such a text as a name."""

_NAME = 0x7FFC_0000_0000_0000
_HASH = (1 << 50) - 1


def encode_cells(texts: Iterable[str]) -> Column:
    """The code of each, without the blanks around it."""
    codes: dict[str, int] = {}
    found = []
    for text in texts:
        if text not in codes:
            codes[text] = _code(text)
        found.append(codes[text])
    return np.array(found, dtype=np.uint64).view(np.float64)


def _code(text: str) -> int:
    """The bits of a double: as integers, NaNs keep their payload wherever they go."""
    text = text.strip()
    value = number_of(text)
    if value is not None or not text:
        return int(np.array([np.nan if value is None else value]).view(np.uint64)[0])
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return _NAME | int.from_bytes(digest, "little") & _HASH


def number_of(text: str) -> float | None:
    """As people write numbers: not 1_000 as Python does, nor what is not finite."""
    if not text.isascii() or "_" in text:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value + 0.0 if np.isfinite(value) else None  # -0 is 0


def is_name(column: Column) -> NDArray[np.bool_]:
    """Where a name stands and not a number, nor nothing."""
    codes = np.ascontiguousarray(column).view(np.uint64)
    named: NDArray[np.bool_] = (codes & np.uint64(_NAME)) == np.uint64(_NAME)
    return named


def is_blank(column: Column) -> NDArray[np.bool_]:
    """Where a value is missing, however that is written."""
    blanks = encode_cells(text for text in BLANKS if text).view(np.uint64)
    codes = np.ascontiguousarray(column).view(np.uint64)
    return np.isnan(column) & (~is_name(column) | np.isin(codes, blanks))


def is_word(column: Column) -> NDArray[np.bool_]:
    """Where a name stands that is not how a missing value is written."""
    return is_name(column) & ~is_blank(column)


def numbers(column: Column, instead: float) -> Column:
    """A column as numbers. What is none, a word, a blank or an infinity, counts as `instead`, which
    is public: a party that refused it would tell of its records without noise."""
    return np.where(np.isfinite(column), column, instead)


def places(column: Column, names: tuple[str, ...]) -> NDArray[np.int64]:
    """For each cell the place of its name among `names`, or past the last for any other. Names that
    are numbers are found by their value."""
    codes = np.where(column == 0, 0.0, column).view(np.uint64)  # -0 is 0
    known = encode_cells(names).view(np.uint64)
    order = np.argsort(known)
    at = np.minimum(np.searchsorted(known[order], codes), len(names) - 1)
    found: NDArray[np.int64] = np.where(known[order][at] == codes, order[at], len(names))
    return found
