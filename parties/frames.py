"""Data that is in memory already: frames of pandas or polars, mappings of columns, numpy arrays.

Frames are known by what they do (`columns`, `frame[name]`), so neither library is needed here.
"""

from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tallyroom.parties.data import Dataset, load
from tallyroom.protocols.cells import encode_cells, is_word
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Column


@runtime_checkable
class Frame(Protocol):
    """A pandas or polars DataFrame, or anything that names its columns and has them."""

    @property
    def columns(self) -> Any: ...

    def __getitem__(self, name: Any, /) -> Any: ...


Table = Frame | Mapping[str, Any] | NDArray[Any]
Data = str | Path | Dataset | Table | Sequence[float] | Sequence[Table] | Mapping[str, Table]
"""A DATA SPEC, a file, one table that is dealt to the parties, or one table per party."""


def dataset_of(data: Data) -> Dataset:
    """Raises `LocalError` on what is no data. Columns of neither numbers nor names are left out."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, str):
        return load(data).about()
    if isinstance(data, Path):
        return load(f"csv:{data}").about()
    if isinstance(data, Mapping) and data and all(map(_is_table, data.values())):
        return _one_each({f"{name!r}": table for name, table in data.items()})
    if _is_table(data) or isinstance(data, np.ndarray | Mapping):
        return _dataset(type(data).__name__, _columns(data, "the data"))
    if isinstance(data, Sequence) and data:
        if all(isinstance(value, Real) for value in data):
            return _dataset("values", _columns(np.asarray(data), "the data"))
        if all(_is_table(each) or isinstance(each, np.ndarray | Mapping) for each in data):
            return _one_each({f"party-{i}": table for i, table in enumerate(data)})
    raise LocalError(
        f"{type(data).__name__} is no data: give a data frame, a mapping of columns, an array, "
        "or a list of such, one per party"
    )


def _is_table(data: object) -> bool:
    """Whether it has several columns by itself; a plain array may also be one of them."""
    if isinstance(data, np.ndarray):
        return data.ndim > 1 or data.dtype.names is not None
    return isinstance(data, Mapping | Frame)


def _one_each(tables: Mapping[str, Any]) -> Dataset:
    """One table per party, in their order; all have the same columns of numbers."""
    held = {owner: _columns(table, owner) for owner, table in tables.items()}
    first, known = next(iter(held.items()))
    shared = set.intersection(*(set(columns) for columns in held.values()))
    for columns in held.values():
        for name in columns.keys() - shared:
            if is_word(columns[name]).any():  # names that not all have are of no use
                del columns[name]
    for owner, columns in held.items():
        for name in [*known, *columns]:
            if name not in columns or name not in known:
                lacking = first if name in columns else owner
                raise LocalError(f"{lacking} has no column {name!r}, others have one")
    sizes = [len(next(iter(columns.values()))) for columns in held.values()]
    merged = {name: np.concatenate([columns[name] for columns in held.values()]) for name in known}
    return _dataset(f"{len(held)} tables", merged, np.repeat(np.arange(len(held)), sizes))


def _dataset(
    name: str, columns: dict[str, Column], owner: NDArray[np.int64] | None = None
) -> Dataset:
    return Dataset(name, columns, owner=owner)


def _columns(table: Any, owner: str) -> dict[str, Column]:
    named: list[tuple[Any, Any]]
    if isinstance(table, np.ndarray):
        named = _columns_of_array(table, owner)
    elif isinstance(table, Mapping):
        named = list(table.items())
    else:
        named = [(name, table[name]) for name in table.columns]
    columns: dict[str, Column] = {}
    for label, content in named:
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
    """The code of every cell, by itself (`protocols.cells`); None for a column whose type is of
    neither numbers nor text nor dates.

    The type of a column says nothing else: one word in it makes objects of all its cells, and their
    codes are to stay as they were.
    """
    values = np.asarray(content.to_numpy() if hasattr(content, "to_numpy") else content)
    if values.ndim != 1:
        raise LocalError(f"column {name!r} of {owner} has {values.ndim} dimensions, not one")
    if values.dtype.kind in "biuf":
        column = values.astype(np.float64)
        column[column == 0] = 0.0  # -0 is 0
        infinite = np.isinf(column)
        column[infinite] = encode_cells(map(_text, column[infinite].tolist()))
        return column
    if isinstance(content, list | tuple):  # numpy has all of them in the form of one
        return encode_cells(map(_text, content))
    if values.dtype.kind == "M":
        values = values.astype("datetime64[us]").astype(object)
    if values.dtype.kind not in "UTO":
        return None
    return encode_cells(map(_text, values.tolist()))


def _text(cell: object) -> str:
    """As a file has it: numbers so that none is lost, dates and all else as they are written."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return ""
    if not isinstance(cell, Real):
        return str(cell)
    try:
        number = float(cell)
    except OverflowError:  # a whole number beyond all doubles
        return str(type(cell))
    return "" if number != number else repr(number)
