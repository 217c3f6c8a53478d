"""What a CSV file's address makes of its columns. Every cell is coded by itself; the address, which
says what columns are for, may make numbers of the names in one.

Nothing here depends on what records hold, but for what is said of them: `Dataset.faults` are for
simulations, which refuse a file for them. A party takes any.
"""

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tallyroom.parties.dataset import DROP, LEAVE_OUT, NAMES, REFUSE, Dataset, count_blanks
from tallyroom.parties.tables import Cells, TextTable, read_table
from tallyroom.protocols.categories import format_categories, parse_categories
from tallyroom.protocols.cells import BLANKS, encode_cells, is_blank, is_name, places
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.names import look_up
from tallyroom.protocols.records import Column

Options = dict[str, str]

MOST_SHOWN = 5


def from_csv(path: Path, roles: dict[str, str], options: Options) -> Dataset:
    """The columns that roles name, which are of numbers unless options say otherwise; all are read
    if none is named, or if one is the target, which others predict."""
    missing = _missing(options.pop("missing", REFUSE))
    table = read_table(path, _delimiter(options.pop("sep", None)))
    party = options.pop("party", None)
    for name in [*roles.values(), *([party] if party else [])]:
        look_up("column", name, dict.fromkeys(table.header))
    asked = list(dict.fromkeys(name for role, name in roles.items() if role != "target"))
    wanted = table.header if "target" in roles or not asked else asked
    columns = {name: encode_cells(table.column(name).texts) for name in wanted}
    why = {
        cells.name: cells.fault(row, ", not a number") + _hint(cells, roles)
        for cells in map(table.column, wanted)
        if (row := cells.first_word()) is not None
    }
    found = Dataset(
        path.name,
        columns,
        of_numbers=frozenset(asked),
        why=why,
        missing=missing,
        from_file=True,
        faults=() if table.fault is None else (table.fault,),
    )
    found = _with_classes(found, table, roles, options)
    found = _with_categories(found, roles, options)
    found = _with_order(found, table, roles, options)
    found = _with_faults(found, map(table.column, asked))
    if party is None:
        return found
    _, owner = np.unique(table.column(party).texts, return_inverse=True)
    return dataclasses.replace(found, owner=owner)


def _with_faults(found: Dataset, asked: Iterable[Cells]) -> Dataset:
    """With what simulations refuse in the columns that the address names."""
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
    count = sum(text in BLANKS for text in cells.texts)
    return cells.fault(row, f"; it has {count_blanks(count, len(cells.texts))}: {LEAVE_OUT}")


def _hint(cells: Cells, roles: dict[str, str]) -> str:
    name = cells.name
    if roles.get("label", "label") == name:
        found = sorted({text for text in cells.texts if text not in BLANKS})
        shown = ", ".join(each[:40] for each in found[:MOST_SHOWN])
        more = ", …" if len(found) > MOST_SHOWN else ""
        way = "positive=NAME" if "label" in roles else f"label={name}&positive=NAME"
        return f"; it has {shown}{more}: {way} says which of them counts as 1"
    if roles.get("value") == name:
        return f"; {NAMES}"
    return ""


def _with_classes(
    found: Dataset, table: TextTable, roles: dict[str, str], options: Options
) -> Dataset:
    """`positive=NAME`: the label is 1 where it is that name, and 0 elsewhere."""
    if "positive" not in options:
        return found
    positive, label = options.pop("positive").strip(), roles.get("label")
    if label is None:
        raise LocalError("positive= goes with label=COLUMN")
    column = found.columns[label]
    is_positive = places(column, (positive,)) == 0
    blank = np.isnan(column) & ~is_name(column)
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


def _with_order(
    found: Dataset, table: TextTable, roles: dict[str, str], options: Options
) -> Dataset:
    """`order=LOW,HIGH`: the names of the value column as 1, 2, …; any other is no number."""
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
    """Names separated by commas, or `@FILE` with one a line."""
    if not text.startswith("@"):
        return parse_categories(text)
    path = Path(text[1:])
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LocalError(f"cannot read {path}: {reason}") from None
    return parse_categories(format_categories(line.strip() for line in lines if line.strip()))


def _missing(text: str) -> str:
    if text in (REFUSE, DROP):
        return text
    try:
        if "_" not in text and np.isfinite(float(text)):
            return text
    except ValueError:
        pass
    raise LocalError(f"missing= takes refuse, drop or a number, not {text[:40]!r}")


def _delimiter(text: str | None) -> str | None:
    named = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}
    chosen = None if text is None else named.get(text, text)
    if chosen is not None and (len(chosen) != 1 or chosen in '"\r\n'):
        raise LocalError(f"sep= takes one character, or tab, not {text!r}")
    return chosen
