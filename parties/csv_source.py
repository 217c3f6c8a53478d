"""What a CSV file's options make of its columns: numbers, classes, categories, blanks."""

import dataclasses
from pathlib import Path

import numpy as np

from parties.dataset import DROP, LEAVE_OUT, NAMES, REFUSE, Dataset, count_blanks
from parties.tables import BLANKS, Cells, TextTable, read_table
from protocols.categories import encode_names, format_categories, parse_categories
from protocols.errors import LocalError
from protocols.names import look_up
from protocols.records import Column

Options = dict[str, str]

MOST_SHOWN = 5


def from_csv(path: Path, roles: dict[str, str], options: Options) -> Dataset:
    """Columns that roles name must be of numbers, or be made so; all are read if none is named, or
    if one is the target, which others predict."""
    missing = _missing(options.pop("missing", REFUSE))
    table = read_table(path, _delimiter(options.pop("sep", None)))
    party = options.pop("party", None)
    for name in [*roles.values(), *([party] if party else [])]:
        look_up("column", name, dict.fromkeys(table.header))
    asked = list(dict.fromkeys(name for role, name in roles.items() if role != "target"))
    wanted = table.header if "target" in roles or not asked else asked
    columns: dict[str, Column] = {}
    texts: dict[str, Column] = {}
    why: dict[str, str] = {}
    for name in wanted:
        cells = table.column(name)
        if (row := cells.first_fault()) is None:
            columns[name] = cells.numbers()
        else:
            why[name] = str(cells.fault(row)) + _hint(cells, roles)
            texts[name] = encode_names(cells.texts)
    found = Dataset(path.name, columns, texts=texts, why=why, missing=missing, from_file=True)
    found = _with_classes(found, table, roles, options)
    found = _with_categories(found, table, roles, options)
    for name in asked:
        if name in found.texts and name not in found.categories:
            raise LocalError(why[name])
        if missing == REFUSE and name in found.columns and np.isnan(found.columns[name]).any():
            raise _blanks(table.column(name))
    if party is None:
        return found
    _, owner = np.unique(table.column(party).texts, return_inverse=True)
    return dataclasses.replace(found, owner=owner)


def _blanks(cells: Cells) -> LocalError:
    row = cells.first_blank()
    count = sum(text in BLANKS for text in cells.texts)
    return LocalError(
        f"{cells.path}, line {cells.lines[row]}: column {cells.name!r} has "
        f"{cells.texts[row]!r}; it has {count_blanks(count, len(cells.texts))}: {LEAVE_OUT}"
    )


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
    written = table.column(label).texts
    if positive not in written:
        look_up(f"label in column {label!r}", positive, dict.fromkeys(sorted(set(written))[:20]))
    numbers = np.array([np.nan if not text else float(text == positive) for text in written])
    return _as_numbers(found, label, numbers, (0.0, 1.0))


def _with_categories(
    found: Dataset, table: TextTable, roles: dict[str, str], options: Options
) -> Dataset:
    """`categories=A,B`: names of the value column to count; `order=LOW,HIGH`: it as 1, 2, …"""
    for key in ("categories", "order"):
        if key in options and "value" not in roles:
            raise LocalError(f"{key}= goes with value=COLUMN")
    if "categories" in options:
        names = _vocabulary(options.pop("categories"))
        value = roles["value"]
        columns = {name: column for name, column in found.columns.items() if name != value}
        texts = found.texts | {value: encode_names(table.column(value).texts)}
        known = {value: format_categories(names)}
        return dataclasses.replace(found, columns=columns, texts=texts, categories=known)
    if "order" not in options:
        return found
    levels = _vocabulary(options.pop("order"))
    places = {name: place for place, name in enumerate(levels, start=1)}
    cells = table.column(roles["value"])
    for line, text in zip(cells.lines, cells.texts, strict=True):
        if text and text not in places:
            raise LocalError(
                f"{cells.path}, line {line}: column {cells.name!r} has {text[:40]!r}, "
                f"which is not in order={','.join(levels)}"
            )
    numbers = np.array([float(places[text]) if text else np.nan for text in cells.texts])
    return _as_numbers(found, cells.name, numbers, (1.0, float(max(2, len(levels)))))


def _as_numbers(found: Dataset, name: str, numbers: Column, bounds: tuple[float, float]) -> Dataset:
    texts = {other: column for other, column in found.texts.items() if other != name}
    return dataclasses.replace(
        found,
        columns=found.columns | {name: numbers},
        texts=texts,
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
