"""Reads the columns of a CSV file as its address says. Every cell is encoded by itself; the
address, which says what the columns are for, may turn names in a column into numbers.

Nothing here depends on the contents of records, except `Dataset.faults`: simulations refuse a file
that has faults, and a party accepts it.
"""

import codecs
import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tallyroom.parties.dataset import (
    DROP,
    LEAVE_OUT,
    NAMES,
    REFUSE,
    ROUNDED,
    Dataset,
    count_blanks,
)
from tallyroom.parties.plain_csv import PlainTable, plain_table
from tallyroom.parties.tables import (
    ENCODINGS,
    Cells,
    HeaderError,
    TextTable,
    read_bytes,
    text_table,
)
from tallyroom.protocols.categories import format_categories, parse_categories
from tallyroom.protocols.cells import (
    BLANKS,
    COMMA,
    POINT,
    encode_cells,
    is_blank,
    is_infinite,
    number_of,
    places,
)
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Column
from tallyroom.protocols.registry import look_up

Options = dict[str, str]
Table = PlainTable | TextTable

MOST_SHOWN = 5
ENCODING_NAMES = dict(zip(ENCODINGS, ENCODINGS, strict=True)) | {
    "cp1252": "windows-1252",
    "utf8": "utf-8",
}


@dataclass(frozen=True)
class Reading:
    """How an address says that its file is written."""

    delimiter: str | None
    decimal: str
    encoding: str
    spanning: bool

    @classmethod
    def of(cls, options: Options) -> "Reading":
        """Takes its part of the options. Raises `LocalError`."""
        return cls(
            _delimiter(options.pop("sep", None)),
            _decimal(options.pop("decimal", POINT)),
            look_up("encoding", options.pop("encoding", "utf-8").lower(), ENCODING_NAMES),
            look_up("lines", options.pop("lines", "plain"), {"plain": False, "quoted": True}),
        )

    def table(self, path: Path) -> Table:
        """Raises `LocalError` with one clear line if the file is not a table."""
        raw = read_bytes(path)
        bare = raw.removeprefix(codecs.BOM_UTF8) if self.encoding == "utf-8" else raw
        plain = plain_table(path, bare, self.delimiter)
        return plain or text_table(path, raw, self.delimiter, self.encoding, self.spanning)


def from_csv(
    path: Path, roles: dict[str, str], options: Options, also: tuple[str, ...] = ()
) -> Dataset:
    """Reads a file; see `from_table`."""
    reading = Reading.of(options)
    return from_table(reading.table(path), path, roles, options, also, reading.decimal)


def from_table(
    table: Table,
    path: Path,
    roles: dict[str, str],
    options: Options,
    also: tuple[str, ...] = (),
    decimal: str = POINT,
) -> Dataset:
    """Reads the columns that roles name, as numbers unless options say otherwise, and those that
    are read `also`, whatever is in them. Reads all columns if no role is given, or if there is a
    `target`, which the other columns predict."""
    missing = missing_rule(options.pop("missing", REFUSE))
    party = options.pop("party", None)
    for name in [*roles.values(), *([party] if party else []), *also]:
        check_column(name, table.header)
    asked = list(dict.fromkeys(name for role, name in roles.items() if role != "target"))
    wanted = table.header if "target" in roles or not asked else [*asked, *also]
    read = {name: table.column(name, decimal) for name in wanted}
    why = {name: _no_numbers(cells, roles) for name, cells in read.items()}
    found = Dataset(
        path.name,
        {name: cells.column for name, cells in read.items()},
        of_numbers=frozenset(asked),
        why={name: words for name, words in why.items() if words},
        missing=missing,
        from_file=True,
        faults=() if table.fault is None else (table.fault,),
    )
    found = _with_classes(found, table, roles, options)
    found = _with_categories(found, roles, options)
    found = _with_order(found, table, roles, options)
    found = _with_faults(found, (read[name] for name in asked))
    if party is None:
        return found
    _, owner = np.unique(table.column(party).texts, return_inverse=True)
    return dataclasses.replace(found, owner=owner)


def check_column(name: str, header: list[str]) -> None:
    """Raises `HeaderError` if the header has no such column."""
    try:
        look_up("column", name, dict.fromkeys(header))
    except LocalError as error:
        raise HeaderError(str(error), f"no column {name!r} in the header") from None


def _with_faults(found: Dataset, asked: Iterable[Cells]) -> Dataset:
    """Adds the faults for which simulations refuse the columns that the address names."""
    faults = list(found.faults)
    for cells in asked:
        if cells.name not in found.of_numbers:
            continue
        if cells.name in found.why:
            faults.append(found.why[cells.name])
        elif found.missing == REFUSE and np.isnan(found.columns[cells.name]).any():
            faults.append(_blanks(cells))
    return dataclasses.replace(found, faults=tuple(faults))


def _blanks(cells: Cells) -> str:
    row = cells.first_blank() or 0
    count = int(np.count_nonzero(is_blank(cells.column)))
    return cells.fault(row, f"; it has {count_blanks(count, len(cells.column))}: {LEAVE_OUT}")


def _no_numbers(cells: Cells, roles: dict[str, str]) -> str:
    """Why simulations refuse the column as numbers; empty if they do not."""
    if (row := cells.first_word()) is not None:
        return cells.fault(row, ", not a number") + _hint(cells, roles, cells.text(row))
    if (row := cells.first_rounded()) is not None:
        return cells.fault(row, f", {ROUNDED}")
    return ""


def _hint(cells: Cells, roles: dict[str, str], word: str) -> str:
    name = cells.name
    if number_of(word, COMMA) is not None:
        return "; decimal=comma in the address reads decimal commas"
    if is_infinite(encode_cells([word])).any():
        return ", but infinite: put a number there, such as a bound"
    if roles.get("label", "label") == name:
        found = sorted({text for text in cells.texts if text not in BLANKS})
        shown = ", ".join(each[:40] for each in found[:MOST_SHOWN])
        more = ", …" if len(found) > MOST_SHOWN else ""
        way = "positive=NAME" if "label" in roles else f"label={name}&positive=NAME"
        return f"; it has {shown}{more}: {way} says which of them counts as 1"
    return f"; {NAMES}"


def _with_classes(found: Dataset, table: Table, roles: dict[str, str], options: Options) -> Dataset:
    """`positive=NAME`: the label is 1 where the column has that name, and 0 elsewhere."""
    if "positive" not in options:
        return found
    positive, label = options.pop("positive").strip(), roles.get("label")
    if label is None:
        raise LocalError("positive= goes with label=COLUMN")
    column = found.columns[label]
    is_positive = places(column, (positive,)) == 0
    blank = is_blank(column) & ~is_positive
    found = _as_numbers(found, label, np.where(blank, np.nan, is_positive), (0.0, 1.0))
    if is_positive.any():
        return found
    known = dict.fromkeys(sorted(set(table.column(label).texts))[:20])
    try:
        look_up(f"label in column {label!r}", positive, known)
    except LocalError as error:
        return dataclasses.replace(found, faults=(*found.faults, str(error)))
    return found


def _with_categories(found: Dataset, roles: dict[str, str], options: Options) -> Dataset:
    """`categories=A,B`: names of the value column to count."""
    if "categories" not in options:
        return found
    if "value" not in roles:
        raise LocalError("categories= goes with value=COLUMN")
    names = _vocabulary(options.pop("categories"))
    value = roles["value"]
    return dataclasses.replace(
        found,
        of_numbers=found.of_numbers - {value},
        categories={value: format_categories(names)},
    )


def _with_order(found: Dataset, table: Table, roles: dict[str, str], options: Options) -> Dataset:
    """`order=LOW,HIGH`: codes these names of the value column as 1, 2, …, others as NaN."""
    if "order" not in options:
        return found
    if "value" not in roles:
        raise LocalError("order= goes with value=COLUMN")
    levels = _vocabulary(options.pop("order"))
    cells = table.column(roles["value"])
    column = found.columns[cells.name]
    place = places(column, levels)
    known = place < len(levels)
    numbers = np.where(known, place + 1.0, np.nan)
    found = _as_numbers(found, cells.name, numbers, (1.0, float(max(2, len(levels)))))
    for row in np.flatnonzero(~known & ~is_blank(column))[:1]:
        fault = cells.fault(int(row), f", which is not in order={','.join(levels)}")
        return dataclasses.replace(found, faults=(*found.faults, fault))
    return found


def _as_numbers(found: Dataset, name: str, numbers: Column, bounds: tuple[float, float]) -> Dataset:
    return dataclasses.replace(
        found,
        columns=found.columns | {name: numbers},
        why={other: words for other, words in found.why.items() if other != name},
        bounds=found.bounds | {name: bounds},
    )


def _vocabulary(text: str) -> tuple[str, ...]:
    """Names separated by commas, or `@FILE` to read them from a file, one per line."""
    if not text.startswith("@"):
        return parse_categories(text)
    path = Path(text[1:])
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LocalError(f"cannot read {path}: {reason}") from None
    return parse_categories(format_categories(line.strip() for line in lines if line.strip()))


def missing_rule(text: str) -> str:
    """What `missing=` says. Raises `LocalError`."""
    if text in (REFUSE, DROP):
        return text
    try:
        if "_" not in text and np.isfinite(float(text)):
            return text
    except ValueError:
        pass
    raise LocalError(f"missing= takes refuse, drop or a number, not {text[:40]!r}")


def _decimal(text: str) -> str:
    named = {"comma": COMMA, "point": POINT, COMMA: COMMA, POINT: POINT}
    if text not in named:
        raise LocalError(f"decimal= takes comma or point, not {text[:40]!r}")
    return named[text]


def _delimiter(text: str | None) -> str | None:
    named = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}
    chosen = None if text is None else named.get(text, text)
    if chosen is not None and (len(chosen) != 1 or chosen in '"\r\n'):
        raise LocalError(f"sep= takes one character, or tab, not {text!r}")
    return chosen
