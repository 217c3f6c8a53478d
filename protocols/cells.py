"""How one cell of a table is encoded, by itself: as a number, a name, or nothing.

A column is an array of doubles in which every cell is encoded from its own text, never from its
neighbours. So replacing one record changes the codes of that record only, as every sensitivity here
assumes. Text that is a number becomes that number, so `0.0` is `0`; true and false become 1 and 0,
and an ISO date the number of days since 1970-01-01. Any other text becomes a NaN whose payload is
50 bits of the text's hash. Code that needs numbers sees that it is not one, and
code that knows which names matter can find them, without a list that all parties would have to
share. Two names collide with probability 2^-50. Empty text is a plain NaN.

The question, which is public, decides whether a column is read as numbers or as names. Cells that
it cannot use are replaced by a public value: `numbers` takes that value as an argument, and names
count as `other`.
"""

import hashlib
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.records import Column

BLANKS = frozenset(
    {"", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", ".", "?", "-"},
)
"""Texts that stand for a missing value. A question about names may count such a text as a name."""
TRUTHS = {"true": 1.0, "True": 1.0, "TRUE": 1.0, "false": 0.0, "False": 0.0, "FALSE": 0.0}
INFINITIES = ("inf", "-inf", "+inf", "Inf", "-Inf", "+Inf", "Infinity", "-Infinity", "+Infinity")

POINT, COMMA = ".", ","
"""Decimal marks."""
WHOLE = 2**53
"""From here on, a double stands for more than one whole number."""

_NAME = 0x7FFC_0000_0000_0000
_HASH = (1 << 50) - 1
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:.+)?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
MICROSECONDS_PER_DAY = 86_400e6


def encode_cells(texts: Iterable[str], decimal: str = POINT) -> Column:
    """The code of each text, without the spaces around it."""
    codes: dict[str, int] = {}
    cells = []
    for text in texts:
        if text not in codes:
            codes[text] = _code(text, decimal)
        cells.append(codes[text])
    return np.array(cells, dtype=np.uint64).view(np.float64)


def _code(text: str, decimal: str) -> int:
    """The bits of a double. They are kept as an integer, because a NaN may lose its payload."""
    text = text.strip()
    value = number_of(text, decimal)
    if value is not None or not text:
        return int(np.array([np.nan if value is None else value]).view(np.uint64)[0])
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return _NAME | int.from_bytes(digest, "little") & _HASH


def number_of(text: str, decimal: str = POINT) -> float | None:
    """The number that a text stands for, or None. Python's 1_000 and infinities do not count; with
    a decimal comma, a point may mean thousands, so 1.5 does not count either."""
    if not text.isascii() or "_" in text:
        return None
    if text in TRUTHS:
        return TRUTHS[text]
    if _DATE.fullmatch(text):
        return _days_of_text(text)
    if decimal == COMMA:
        text = text.replace(".", "_").replace(",", ".")
    try:
        value = float(text)
    except ValueError:
        return None
    return value + 0.0 if np.isfinite(value) and "_" not in text else None  # -0 is 0


def _days_of_text(text: str) -> float | None:
    try:
        return days_since_1970(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


def days_since_1970(moment: date) -> float:
    """A date as a number of days. A time of day is a fraction, in UTC unless a zone is given."""
    if not isinstance(moment, datetime):
        return float(moment.toordinal() - _EPOCH.toordinal())
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return float((aware - _EPOCH) // _MICROSECOND) / MICROSECONDS_PER_DAY


def days_in(span: timedelta) -> float:
    return float(span // _MICROSECOND) / MICROSECONDS_PER_DAY


def is_rounded(text: str) -> bool:
    """Whether a text is a whole number that a double cannot hold."""
    written = text.strip()
    if not re.fullmatch(r"[+-]?[0-9]{16,300}", written):
        return False
    return int(float(written)) != int(written)


def is_name(column: Column) -> NDArray[np.bool_]:
    """Which cells hold a name, rather than a number or nothing."""
    codes = np.ascontiguousarray(column).view(np.uint64)
    named: NDArray[np.bool_] = (codes & np.uint64(_NAME)) == np.uint64(_NAME)
    return named


def is_blank(column: Column) -> NDArray[np.bool_]:
    """Which cells are missing, however that is written."""
    blanks = encode_cells(text for text in BLANKS if text).view(np.uint64)
    codes = np.ascontiguousarray(column).view(np.uint64)
    return np.isnan(column) & (~is_name(column) | np.isin(codes, blanks))


def is_word(column: Column) -> NDArray[np.bool_]:
    """Which cells hold a name that does not stand for a missing value."""
    return is_name(column) & ~is_blank(column)


def is_infinite(column: Column) -> NDArray[np.bool_]:
    """Which cells hold an infinity, which is coded as a name."""
    codes = np.ascontiguousarray(column).view(np.uint64)
    return np.isinf(column) | np.isin(codes, encode_cells(INFINITIES).view(np.uint64))


def numbers(column: Column, instead: float) -> Column:
    """A column as numbers. A word, a blank or an infinity counts as `instead`, which is public. A
    party that refused to take part instead would reveal something about its records, without
    noise."""
    return np.where(np.isfinite(column), column, instead)


def places(column: Column, names: tuple[str, ...]) -> NDArray[np.int64]:
    """For each cell, the index of its name in `names`, or len(names) for any other. Names that are
    numbers are compared by value."""
    codes = np.where(column == 0, 0.0, column).view(np.uint64)  # -0 is 0
    known = encode_cells(names).view(np.uint64)
    order = np.argsort(known)
    at = np.minimum(np.searchsorted(known[order], codes), len(names) - 1)
    found: NDArray[np.int64] = np.where(known[order][at] == codes, order[at], len(names))
    return found
