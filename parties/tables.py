"""Reads CSV files, compressed or not, with any common delimiter.

The header is public, and it alone determines the delimiter and the number of fields. Rows are
records, and no row affects how another is read. A row that does not match the header still counts
as a record, with all its cells empty; `TextTable.fault` says what is wrong, for simulations, which
refuse such a file.
"""

import csv
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.cells import POINT, WHOLE, encode_cells, is_blank, is_rounded, is_word
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Column

FILES = (".csv", ".csv.gz", ".csv.xz")
UNPACK: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".xz": lzma.decompress}
DELIMITERS = (",", ";", "\t", "|")
ENCODINGS = {"utf-8": "utf-8-sig", "latin-1": "latin-1", "windows-1252": "cp1252"}
"""What `encoding=` may say. In each of them a byte that is no letter affects only its own cell."""
QUOTE = '"'

MOST_LINES = 100
"""How many lines a quoted record may span."""
MOST_LETTERS = 1 << 30
"""The limit on a cell's length: larger than any file, so that a long cell is never an error."""


class HeaderError(LocalError):
    """What is wrong with a header, in words that repeat its names. `unsaid` does not: in a file
    without a header these names are the cells of the first record."""

    def __init__(self, said: str, unsaid: str) -> None:
        super().__init__(said)
        self.unsaid = unsaid


class Texts(Protocol):
    """Cells as they are written, without surrounding blanks, and the line on which a row ends."""

    def text(self, row: int, name: str) -> str: ...

    def line(self, row: int) -> int: ...

    def texts(self, name: str) -> list[str]: ...


@dataclass(frozen=True)
class Cells:
    """One column: the codes of its cells (`protocols.cells`), and where they are written."""

    path: Path
    name: str
    column: Column
    written: Texts

    @property
    def texts(self) -> list[str]:
        return self.written.texts(self.name)

    def text(self, row: int) -> str:
        return self.written.text(row, self.name)

    def fault(self, row: int, why: str) -> str:
        return (
            f"{self.path}, line {self.written.line(row)}: column {self.name!r} has "
            f"{self.text(row)[:40]!r}{why}"
        )

    def first_word(self) -> int | None:
        """The first row that is neither a number nor blank."""
        return _first(np.flatnonzero(is_word(self.column)))

    def first_blank(self) -> int | None:
        return _first(np.flatnonzero(is_blank(self.column)))

    def first_rounded(self) -> int | None:
        """The first row with a whole number that a double cannot hold."""
        large = np.flatnonzero(np.abs(self.column) >= WHOLE).tolist()
        return next((row for row in large if is_rounded(self.text(row))), None)


def _first(rows: NDArray[np.intp]) -> int | None:
    return int(rows[0]) if len(rows) else None


@dataclass(frozen=True)
class TextTable:
    """`fault` says what is wrong with the first row that does not match the header, if any."""

    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int]
    fault: str | None = None

    @property
    def records(self) -> int:
        return len(self.rows)

    def column(self, name: str, decimal: str = POINT) -> Cells:
        return Cells(self.path, name, encode_cells(self.texts(name), decimal), self)

    def text(self, row: int, name: str) -> str:
        return self.rows[row][self.header.index(name)].strip()

    def line(self, row: int) -> int:
        return self.lines[row]

    def texts(self, name: str) -> list[str]:
        place = self.header.index(name)
        return [row[place].strip() for row in self.rows]

    def checked(self) -> "TextTable":
        """For simulations: raises `LocalError` if a row does not match the header."""
        if self.fault is not None:
            raise LocalError(self.fault)
        return self


def read_table(path: Path, delimiter: str | None, encoding: str = "utf-8") -> TextTable:
    """Raises `LocalError` with one clear line if the file is not a table; never because of its
    records."""
    return text_table(path, read_bytes(path), delimiter, encoding, spanning=True)


def read_bytes(path: Path) -> bytes:
    """Reads a file, and unpacks it. Raises `LocalError` with one clear line."""
    if not path.name.endswith(FILES):
        raise LocalError(f"{path}: files end in .csv, .csv.gz or .csv.xz")
    try:
        return UNPACK.get(path.suffix, bytes)(path.read_bytes())
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LocalError(f"cannot read {path}: {reason}") from None


def text_table(
    path: Path, raw: bytes, delimiter: str | None, encoding: str, spanning: bool
) -> TextTable:
    """The table that a file's bytes are. Raises as `read_table` does.

    A line is a record, unless records may be `spanning` lines within quotes. Then two quotes, in
    two records, can make all between them one record: whoever says so takes that for granted.
    """
    # Bytes that are no letters become characters that no name has.
    written = raw.decode(ENCODINGS[encoding], errors="surrogateescape")
    written = written.replace("\r\n", "\n").replace("\r", "\n")
    lines = _lines(written)
    try:
        header = header_of(lines, delimiter)
    except csv.Error as error:
        raise LocalError(f"cannot read {path}: {error}") from None
    for name in header.names:
        if header.names.count(name) > 1:
            said = f"{path}: two columns are called {name!r}"
            raise HeaderError(said, f"{path}: two columns have the same name")
    found = list(_records(lines, header, spanning))
    if not found:
        raise LocalError(f"{path} has no records below its header")
    faults = (
        f"{path}, line {line}: {len(row)} field{'s' * (len(row) != 1)}, "
        f"the header has {len(header.names)}"
        + ("" if spanning else "; lines=quoted in its address lets quoted cells span lines")
        for line, row in found
        if len(row) != len(header.names)
    )
    fault = next(faults, None)
    if not written.isascii() and any("\udc80" <= letter <= "\udcff" for letter in written):
        fault = f"cannot read {path}: it is not {encoding.upper()}"
        if encoding == "utf-8":
            fault += "; encoding=latin-1 or encoding=windows-1252 in its address reads older files"
    empty = [""] * len(header.names)
    rows = [row if len(row) == len(header.names) else empty for _, row in found]
    return TextTable(path, header.names, rows, [line for line, _ in found], fault)


@dataclass(frozen=True)
class Header:
    names: list[str]
    delimiter: str
    ends: int
    """The number of lines up to the end of the header."""


def _lines(written: str) -> list[str]:
    csv.field_size_limit(MOST_LETTERS)
    return written.split("\n")


def header_of(lines: list[str], delimiter: str | None) -> Header:
    """Reads the header; left out, the delimiter is the one that divides it into the most fields.
    Raises `csv.Error`."""
    candidates = DELIMITERS if delimiter is None else (delimiter,)
    return max((_header(lines, each) for each in candidates), key=lambda each: len(each.names))


def _header(lines: list[str], delimiter: str) -> Header:
    at = next((at for at, line in enumerate(lines) if line), 0)
    reader = csv.reader(io.StringIO("\n".join(lines[at : at + MOST_LINES])), delimiter=delimiter)
    names = [name.strip() for name in next(reader, [])]
    return Header(names, delimiter, at + reader.line_num)


def _records(lines: list[str], header: Header, spanning: bool) -> Iterator[tuple[int, list[str]]]:
    """Yields the fields of each record and the line on which it ends. An empty line is none, but of
    a single column it is a blank."""
    at, lines = header.ends, lines[:-1] if lines[-1] == "" else lines
    while at < len(lines):
        end, fields = at + 1, lines[at].split(header.delimiter)
        if QUOTE in lines[at]:
            end, fields = _quoted(lines, at, header, MOST_LINES if spanning else 1)
        if lines[at] or len(header.names) == 1:
            yield end, fields
        at = end


def _quoted(lines: list[str], at: int, header: Header, most: int) -> tuple[int, list[str]]:
    """Returns a quoted record and the line after it. It continues over further lines, `most` in
    all, only if all of them together are one row of this header with every quote where RFC 4180
    has it: a quote that was never closed affects only its own line."""
    for end in range(at + 1, min(at + most, len(lines)) + 1):
        if end > at + 1 and QUOTE not in lines[end - 1]:
            continue
        text = "\n".join(lines[at:end])
        try:
            [fields] = csv.reader(io.StringIO(text), delimiter=header.delimiter, strict=True)
        except csv.Error as error:
            if "unexpected end" in str(error):
                continue
            break
        if end == at + 1 or len(fields) == len(header.names):
            return end, fields
        break
    return at + 1, next(csv.reader([lines[at]], delimiter=header.delimiter))
