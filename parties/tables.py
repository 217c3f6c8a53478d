"""CSV files as they come: compressed or not, with the delimiter that they have, and blanks."""

import csv
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from protocols.errors import LocalError
from protocols.records import Column

FILES = (".csv", ".csv.gz", ".csv.xz")
OPENERS: dict[str, Callable[..., IO[str]]] = {".gz": gzip.open, ".xz": lzma.open}
DELIMITERS = (",", ";", "\t", "|")
BLANKS = frozenset({"", "NA", "N/A", "NaN", "nan", "NULL", "null"})
"""What a missing number is written as."""

TRIED = 50
"""Rows by which a delimiter is found."""


@dataclass(frozen=True)
class Cells:
    """One column as it is written, without blanks around it, and the lines that rows end on."""

    path: Path
    name: str
    texts: list[str]
    lines: list[int]

    def fault(self, row: int, hint: str = "") -> LocalError:
        return LocalError(
            f"{self.path}, line {self.lines[row]}: column {self.name!r} has "
            f"{self.texts[row][:40]!r}, not a number{hint}"
        )

    def first_fault(self) -> int | None:
        """The first row that is neither a number nor blank."""
        for row, text in enumerate(self.texts):
            if text not in BLANKS and not _is_number(text):
                return row
        return None

    def numbers(self) -> Column:
        """NaN where it is blank. Raises ValueError where it is no number."""
        return np.array([np.nan if text in BLANKS else _number(text) for text in self.texts])

    def first_blank(self) -> int:
        return next(row for row, text in enumerate(self.texts) if text in BLANKS)


def _number(text: str) -> float:
    """As people write numbers: not 1_000 as Python does, nor what is not finite."""
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    value = float(text)
    if not np.isfinite(value):
        raise ValueError(text)
    return value


def _is_number(text: str) -> bool:
    try:
        _number(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class TextTable:
    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int]

    def column(self, name: str) -> Cells:
        place = self.header.index(name)
        texts = [row[place].strip() for row in self.rows]
        return Cells(self.path, name, texts, self.lines)


def read_table(path: Path, delimiter: str | None) -> TextTable:
    """Raises `LocalError` with one clear line."""
    if not path.name.endswith(FILES):
        raise LocalError(f"{path}: files end in .csv, .csv.gz or .csv.xz")
    try:
        with OPENERS.get(path.suffix, open)(path, "rt", encoding="utf-8-sig", newline="") as text:
            written = text.read()
        found = _parsed(written, delimiter or _delimiter(written))
    except (
        OSError,
        EOFError,
        zlib.error,
        lzma.LZMAError,
        UnicodeDecodeError,
        csv.Error,
    ) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LocalError(f"cannot read {path}: {reason}") from None
    if len(found) < 2:
        raise LocalError(f"{path} has no records below its header")
    header = [name.strip() for name in found[0][1]]
    for name in header:
        if header.count(name) > 1:
            raise LocalError(f"{path}: two columns are called {name!r}")
    for number, row in found[1:]:
        if len(row) != len(header):
            raise LocalError(
                f"{path}, line {number}: {len(row)} fields, the header has {len(header)}"
            )
    return TextTable(path, header, [row for _, row in found[1:]], [at for at, _ in found[1:]])


def _parsed(written: str, delimiter: str, rows: int | None = None) -> list[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(written, newline=""), delimiter=delimiter)
    found: list[tuple[int, list[str]]] = []
    for line in reader:
        if line:
            found.append((reader.line_num, line))
        if rows is not None and len(found) >= rows:
            break
    return found


def _delimiter(written: str) -> str:
    """The one that divides the header into most fields, and all of the first rows alike."""

    def fields(delimiter: str) -> int:
        first = _parsed(written, delimiter, TRIED)
        widths = {len(row) for _, row in first}
        return max(widths) if len(widths) == 1 and max(widths) > 1 else 0

    try:
        return max(DELIMITERS, key=fields)
    except csv.Error:
        return ","
