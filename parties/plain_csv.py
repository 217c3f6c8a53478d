"""Reads CSV files that have nothing but ASCII, and no quotes, by array operations.

Most files are such, and this is several times as fast as `parties.tables`, which reads all others.
Where both can read a file, they agree on every cell. What a cell says is left to
`protocols.cells`; only cells that are plain decimal numbers are converted here, many at once.
"""

from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallyroom.parties.tables import QUOTE, Cells, header_of
from tallyroom.protocols.cells import COMMA, POINT, encode_cells
from tallyroom.protocols.records import Column

Bytes = NDArray[np.uint8]

PART_BYTES = 1 << 22
MOST_HEADER = 1 << 16
MOST_LETTERS = 64
"""The longest cell that is converted together with others."""

_NEWLINE, _POINT, _COMMA = map(ord, ("\n", POINT, COMMA))
_LETTERS = np.arange(128)
_DIGIT = np.isin(_LETTERS, list(b"0123456789"))
_DECIMAL = {
    POINT: np.isin(_LETTERS, list(b"\x000123456789+-eE.")),
    COMMA: np.isin(_LETTERS, list(b"\x000123456789+-eE,")),
}


@dataclass(frozen=True)
class _Part:
    """Some of the records. `fields[r, c]` is the delimiter or line end before cell c of record r,
    counted from the first byte of the part."""

    first: int
    begin: int
    bytes: Bytes
    fields: NDArray[np.int32]

    def ends_of(self, place: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        return self.fields[:, place] + 1, self.fields[:, place + 1]


@dataclass(frozen=True)
class PlainTable:
    """A file whose rows all match its header."""

    path: Path
    header: list[str]
    raw: bytes
    parts: list[_Part]

    @property
    def fault(self) -> None:
        """Nothing is wrong with any row."""

    @property
    def records(self) -> int:
        return self.parts[-1].first + len(self.parts[-1].fields)

    def checked(self) -> "PlainTable":
        return self

    def column(self, name: str, decimal: str = POINT) -> Cells:
        place = self.header.index(name)
        codes = [_codes(part.bytes, *part.ends_of(place), decimal) for part in self.parts]
        return Cells(self.path, name, np.concatenate(codes), self)

    def text(self, row: int, name: str) -> str:
        part, begin = self._record(row)
        at = self.header.index(name)
        cell = part.bytes[part.fields[begin, at] + 1 : part.fields[begin, at + 1]]
        return cell.tobytes().decode("ascii").strip()

    def line(self, row: int) -> int:
        part, begin = self._record(row)
        return self.raw.count(b"\n", 0, part.begin + int(part.fields[begin, 0]) + 1) + 1

    def texts(self, name: str) -> list[str]:
        at = self.header.index(name)
        return [
            part.bytes[begin:end].tobytes().decode("ascii").strip()
            for part in self.parts
            for begin, end in zip(*(each.tolist() for each in part.ends_of(at)), strict=True)
        ]

    def _record(self, row: int) -> tuple[_Part, int]:
        part = self.parts[bisect_right([each.first for each in self.parts], row) - 1]
        return part, row - part.first


def plain_table(path: Path, written: bytes, delimiter: str | None) -> PlainTable | None:
    """None for a file that is not so plain, or has no records: `parties.tables` tells why."""
    raw = written.replace(b"\r\n", b"\n") if b"\r" in written else written
    if not raw.isascii() or any(odd in raw for odd in (QUOTE.encode(), b"\r", b"\0")):
        return None
    if delimiter is not None and not delimiter.isascii():
        return None
    head = len(raw) - len(raw.lstrip(b"\n"))
    ends = raw.find(b"\n", head)
    if not head < ends <= head + MOST_HEADER:
        return None
    header = header_of([raw[head:ends].decode("ascii")], delimiter)
    if len(set(header.names)) < len(header.names):
        return None
    parts: list[_Part] = []
    begin, first = ends + 1, 0
    while begin < len(raw):
        end = raw.find(b"\n", begin + PART_BYTES) + 1 or len(raw)
        fields = _fields(raw[begin:end], header.delimiter, len(header.names))
        if fields is None:
            return None
        if len(fields):
            whole = np.frombuffer(raw, dtype=np.uint8)
            parts.append(_Part(first, begin, whole[begin:end], fields))
        begin, first = end, first + len(fields)
    return PlainTable(path, header.names, raw, parts) if parts else None


def _fields(lines: bytes, delimiter: str, columns: int) -> NDArray[np.int32] | None:
    """Where the cells of each line are, without empty lines; None if a line has another number of
    them."""
    letters = np.frombuffer(lines, dtype=np.uint8)
    ends = np.flatnonzero(letters == _NEWLINE).astype(np.int32)
    if not lines.endswith(b"\n"):
        ends = np.append(ends, np.int32(len(lines)))
    before = np.concatenate(([-1], ends[:-1])).astype(np.int32)
    filled = (ends - before > 1) | (columns == 1)  # an empty line is a blank of a single column
    before, ends = before[filled], ends[filled]
    found = np.flatnonzero(letters == ord(delimiter)).astype(np.int32)
    if len(found) != len(ends) * (columns - 1):
        return None
    between = found.reshape(len(ends), columns - 1)
    if (between <= before[:, None]).any() or (between >= ends[:, None]).any():
        return None
    return np.column_stack([before, between, ends])


def _codes(
    letters: Bytes, begins: NDArray[np.int32], ends: NDArray[np.int32], decimal: str
) -> Column:
    """The code of each cell, as `encode_cells` has it."""
    width = max(1, int((ends - begins).max()))
    if width > MOST_LETTERS:
        cells = zip(begins.tolist(), ends.tolist(), strict=True)
        texts = (letters[begin:end].tobytes().decode("ascii") for begin, end in cells)
        return encode_cells(texts, decimal)
    block = np.zeros((len(begins), width), dtype=np.uint8)
    for at in range(width):
        there = begins + at < ends
        block[there, at] = letters[begins[there] + at]
    written = block.reshape(-1).view(f"S{width}")
    decimals, digits = _DECIMAL[decimal][block], _DIGIT[block]
    numeric = np.logical_and.reduce(decimals, axis=1) & np.logical_or.reduce(digits, axis=1)
    column = np.full(len(written), np.nan)
    try:
        column[numeric] = _as_points(block[numeric], decimal).astype(np.float64) + 0.0  # -0 is 0
    except ValueError:  # such as 1-2
        numeric[:] = False
    odd = ~numeric | ~np.isfinite(column)
    texts = (cell.decode("ascii") for cell in written[odd].tolist())
    column.view(np.uint64)[odd] = encode_cells(texts, decimal).view(np.uint64)
    return column


def _as_points(block: Bytes, decimal: str) -> NDArray[np.bytes_]:
    pointed = (
        np.where(block == _COMMA, _POINT, block).astype(np.uint8) if decimal == COMMA else block
    )
    return np.ascontiguousarray(pointed).reshape(-1).view(f"S{block.shape[1]}")
