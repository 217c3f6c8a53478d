"""Data that is in memory already: frames of pandas or polars, mappings of columns, numpy arrays.

Frames are recognised by their interface (`columns`, `frame[name]`), so neither library is imported.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tallyroom.parties.csv_source import missing_rule
from tallyroom.parties.data import Dataset, load
from tallyroom.parties.dataset import REFUSE, ROUNDED
from tallyroom.protocols.cells import (
    MICROSECONDS_PER_DAY,
    WHOLE,
    days_in,
    days_since_1970,
    encode_cells,
    is_rounded,
    is_word,
)
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Column


@runtime_checkable
class Frame(Protocol):
    """A pandas or polars DataFrame, or any object with column names and access by name."""

    @property
    def columns(self) -> Any: ...

    def __getitem__(self, name: Any, /) -> Any: ...


Table = Frame | Mapping[str, Any] | NDArray[Any]
Scalar = float | Decimal | date | timedelta | None
Data = str | Path | Dataset | Table | Sequence[Scalar] | Sequence[Table] | Mapping[str, Table]
"""A DATA SPEC, a file, one table that is divided among the parties, or one table per party."""
SCALARS = (Real, Decimal, date, timedelta, np.generic, type(None), type(np.ma.masked))


def dataset_of(data: Data, missing: str = REFUSE) -> Dataset:
    """Raises `LocalError` if `data` is not data. Skips columns of neither numbers nor names.

    `missing` is for data in memory what `missing=` is in a file's address."""
    if isinstance(data, Dataset):
        found = data
    elif isinstance(data, str | Path):
        found = load(data if isinstance(data, str) else f"csv:{data}").about()
    else:
        found = _in_memory(data)
    if missing == REFUSE:
        return found
    return dataclasses.replace(found, missing=missing_rule(missing)).about()


def _in_memory(data: Any) -> Dataset:
    if isinstance(data, Mapping) and data and all(map(_is_table, data.values())):
        return _one_each({f"{name!r}": table for name, table in data.items()})
    if _is_table(data) or isinstance(data, np.ndarray | Mapping):
        return _one_for_all(type(data).__name__, data)
    if isinstance(data, Sequence) and data:
        if all(isinstance(value, SCALARS) for value in data):
            return _one_for_all("values", {"value": data})
        if all(_is_table(each) or isinstance(each, np.ndarray | Mapping) for each in data):
            return _one_each({f"party-{i}": table for i, table in enumerate(data)})
    raise LocalError(
        f"{type(data).__name__} is not data: give a data frame, a mapping of columns, an array, "
        "or a list of such, one per party"
    )


def _is_table(data: object) -> bool:
    """Whether `data` has several columns; a plain array may also be a single column."""
    if isinstance(data, np.ndarray):
        return data.ndim > 1 or data.dtype.names is not None
    return isinstance(data, Mapping | Frame)


def _one_each(tables: Mapping[str, Any]) -> Dataset:
    """One table per party, in order; all tables have the same columns of numbers."""
    held = {owner: _columns(table, owner) for owner, table in tables.items()}
    first, known = next(iter(held.items()))
    shared = set.intersection(*(set(columns) for columns in held.values()))
    for columns in held.values():
        for name in columns.keys() - shared:
            if is_word(columns[name]).any():  # a column of names is used only if every table has it
                del columns[name]
    for owner, columns in held.items():
        for name in [*known, *columns]:
            if name not in columns or name not in known:
                lacking = first if name in columns else owner
                raise LocalError(f"{lacking} has no column {name!r}, others have one")
    sizes = [len(next(iter(columns.values()))) for columns in held.values()]
    merged = {name: np.concatenate([columns[name] for columns in held.values()]) for name in known}
    why: dict[str, str] = {}
    for owner, table in tables.items():
        why |= _rounded(table, held[owner], owner)
    dealt = np.repeat(np.arange(len(held)), sizes)
    return Dataset(f"{len(held)} tables", merged, owner=dealt, why=why)


def _one_for_all(name: str, table: Any) -> Dataset:
    columns = _columns(table, "the data")
    return Dataset(name, columns, why=_rounded(table, columns, "the data"))


def _rounded(table: Any, columns: dict[str, Column], owner: str) -> dict[str, str]:
    """The columns with a whole number that a double cannot hold, and what to do about it."""
    return {
        str(label): f"column {str(label)!r} of {owner} has {ROUNDED}"
        for label, content in _named(table, owner)
        if str(label) in columns and _has_rounded(content, columns[str(label)])
    }


def _has_rounded(content: Any, column: Column) -> bool:
    large = np.flatnonzero(np.abs(column) >= WHOLE).tolist()
    if not large:
        return False
    cells = np.asarray(content, dtype=object)
    return any(is_rounded(str(cells[row])) for row in large)


def _named(table: Any, owner: str) -> list[tuple[Any, Any]]:
    if isinstance(table, np.ndarray):
        return _columns_of_array(table, owner)
    if isinstance(table, Mapping):
        return list(table.items())
    return [(name, table[name]) for name in table.columns]


def _columns(table: Any, owner: str) -> dict[str, Column]:
    columns: dict[str, Column] = {}
    for label, content in _named(table, owner):
        name = str(label)
        values = _values(content, name, owner)
        if name in columns:
            raise LocalError(f"{owner} has two columns {name!r}")
        if values is not None:
            columns[name] = values
    if not columns:
        raise LocalError(f"{owner} has no column of numbers or names")
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise LocalError(f"columns of {owner} differ in length: {sizes}")
    if not all(sizes.values()):
        raise LocalError(f"{owner} has no records")
    return columns


def _columns_of_array(array: NDArray[Any], owner: str) -> list[tuple[str, Any]]:
    if array.dtype.names is not None:
        return [(name, array[name]) for name in array.dtype.names]
    if array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1):
        return [("value", array.reshape(-1))]
    raise LocalError(
        f"{owner} is an array of shape {array.shape}, whose columns have no names: "
        "give a mapping of names to columns"
    )


def _values(content: Any, name: str, owner: str) -> Column | None:
    """Encodes every cell by itself (`protocols.cells`); returns None for a column that holds
    neither numbers nor text nor dates.

    The column's type decides nothing else: a single word turns all its cells into objects, and
    their codes must not change because of that.
    """
    if isinstance(content, np.ma.MaskedArray):
        column = _values(content.data, name, owner)
        if column is not None:
            column[np.ma.getmaskarray(content)] = np.nan
        return column
    values = _array(content)
    if values.ndim != 1:
        raise LocalError(f"column {name!r} of {owner} has {values.ndim} dimensions, not one")
    if values.dtype.kind in "biuf":
        column = values.astype(np.float64)
        column[column == 0] = 0.0  # -0 is 0
        infinite = np.isinf(column)
        column[infinite] = encode_cells(map(_text, column[infinite].tolist()))
        return column
    if values.dtype.kind in "mM":
        moments = values.astype(f"{values.dtype.kind}8[us]")
        return np.where(np.isnat(moments), np.nan, moments.astype(float) / MICROSECONDS_PER_DAY)
    if values.dtype.kind not in "UTO":
        return None
    return encode_cells(map(_text, values.tolist()))


def _array(content: Any) -> NDArray[Any]:
    if isinstance(content, list | tuple) and not set(map(type, content)) <= {int, float}:
        return np.asarray(content, dtype=object)  # numpy would convert all cells to one type
    return np.asarray(content.to_numpy() if hasattr(content, "to_numpy") else content)


def _text(cell: object) -> str:
    """A cell as a file would have it: numbers without loss of digits, dates and times as days, the
    rest as it prints."""
    if cell is None or cell is np.ma.masked or type(cell).__name__ in ("NAType", "NaTType"):
        return ""
    if isinstance(cell, np.datetime64 | np.timedelta64):
        kind = cell.dtype.kind
        return _text(cell.astype(f"{kind}8[us]").item())
    if isinstance(cell, date):
        return repr(days_since_1970(cell))
    if isinstance(cell, timedelta):
        return repr(days_in(cell))
    if not isinstance(cell, Real):
        return str(cell)
    try:
        number = float(cell)
    except OverflowError:  # a whole number too large for a double
        return str(type(cell))
    return "" if number != number else repr(number)
