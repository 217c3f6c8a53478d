"""CSV files as they come: compressed or not, with the delimiter that they have.

What a file says of its form is its header, which is public: the delimiter and the number of fields
follow from it alone. Rows are records, and none of them decides how another is read. A row that is
no row of this header is still a record, all of whose cells are empty; `TextTable.fault` says what
is wrong, for simulations, which refuse such a file.
"""

import csv
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tallyroom.protocols.cells import BLANKS, number_of
from tallyroom.protocols.errors import LocalError

FILES = (".csv", ".csv.gz", ".csv.xz")
OPENERS: dict[str, Callable[..., IO[str]]] = {".gz": gzip.open, ".xz": lzma.open}
DELIMITERS = (",", ";", "\t", "|")
QUOTE = '"'

MOST_LINES = 100
"""That a record may go on for inside its quotes."""
MOST_LETTERS = 1 << 30
"""Of a cell: more than a file has, so that no cell is too long for others to be read."""


@dataclass(frozen=True)
class Cells:
    """One column as it is written, without blanks around it, and the lines that rows end on."""

    path: Path
    name: str
    texts: list[str]
    lines: list[int]

    def fault(self, row: int, why: str) -> str:
        return (
            f"{self.path}, line {self.lines[row]}: column {self.name!r} has "
            f"{self.texts[row][:40]!r}{why}"
        )

    def first_word(self) -> int | None:
        """The first row that is neither a number nor blank."""
        for row, text in enumerate(self.texts):
            if text not in BLANKS and number_of(text) is None:
                return row
        return None

    def first_blank(self) -> int | None:
        return next((row for row, text in enumerate(self.texts) if text in BLANKS), None)


@dataclass(frozen=True)
class TextTable:
    """`fault` is what is wrong with the first row that is none."""

    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int]
    fault: str | None = None

    def column(self, name: str) -> Cells:
        place = self.header.index(name)
        texts = [row[place].strip() for row in self.rows]
        return Cells(self.path, name, texts, self.lines)

    def checked(self) -> "TextTable":
        """For simulations. Raises `LocalError` where a row is none."""
        if self.fault is not None:
            raise LocalError(self.fault)
        return self


def read_table(path: Path, delimiter: str | None) -> TextTable:
    """Raises `LocalError` with one clear line for what is no table, whatever its records are."""
    if not path.name.endswith(FILES):
        raise LocalError(f"{path}: files end in .csv, .csv.gz or .csv.xz")
    opened = OPENERS.get(path.suffix, open)
    try:
        # Bytes that are no text are letters that no name has: a cell's own matter.
        with opened(path, "rt", encoding="utf-8-sig", errors="surrogateescape") as text:
            written = text.read()
        lines = _lines(written)
        header = _header(lines, delimiter or _delimiter(lines))
    except (OSError, EOFError, zlib.error, lzma.LZMAError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LocalError(f"cannot read {path}: {reason}") from None
    for name in header.names:
        if header.names.count(name) > 1:
            raise LocalError(f"{path}: two columns are called {name!r}")
    found = list(_records(lines, header))
    if not found:
        raise LocalError(f"{path} has no records below its header")
    faults = (
        f"{path}, line {line}: {len(row)} fields, the header has {len(header.names)}"
        for line, row in found
        if len(row) != len(header.names)
    )
    fault = next(faults, None)
    if not written.isascii() and any("\udc80" <= letter <= "\udcff" for letter in written):
        fault = f"cannot read {path}: it is not UTF-8"
    empty = [""] * len(header.names)
    rows = [row if len(row) == len(header.names) else empty for _, row in found]
    return TextTable(path, header.names, rows, [line for line, _ in found], fault)


@dataclass(frozen=True)
class _Header:
    names: list[str]
    delimiter: str
    ends: int
    """How many lines it has."""


def _lines(written: str) -> list[str]:
    csv.field_size_limit(MOST_LETTERS)
    return written.split("\n")


def _header(lines: list[str], delimiter: str) -> _Header:
    at = next((at for at, line in enumerate(lines) if line), 0)
    reader = csv.reader(io.StringIO("\n".join(lines[at : at + MOST_LINES])), delimiter=delimiter)
    names = [name.strip() for name in next(reader, [])]
    return _Header(names, delimiter, at + reader.line_num)


def _delimiter(lines: list[str]) -> str:
    """The one that divides the header into most fields."""
    return max(DELIMITERS, key=lambda each: len(_header(lines, each).names))


def _records(lines: list[str], header: _Header) -> Iterator[tuple[int, list[str]]]:
    """The fields of each record, and the line that it ends on."""
    at = header.ends
    while at < len(lines):
        end, fields = at + 1, lines[at].split(header.delimiter)
        if QUOTE in lines[at]:
            end, fields = _quoted(lines, at, header)
        if lines[at]:
            yield end, fields
        at = end


def _quoted(lines: list[str], at: int, header: _Header) -> tuple[int, list[str]]:
    """A record with quotes, and the line after it. It goes on over further lines only if all of
    them together are one row of this header, with every quote where RFC 4180 has it: a quote that
    somebody forgot to close is of its own line."""
    for end in range(at + 1, min(at + MOST_LINES, len(lines)) + 1):
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
