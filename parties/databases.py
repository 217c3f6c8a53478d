"""Tables that are no text: an answer of an SQLite or a PostgreSQL database, and a Parquet file.
They are read, and never written.

Each row is a record. A cell becomes the text that a CSV file would have for it, so it counts as it
would there (`protocols.cells`).
"""

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tallyroom.parties.tables import HeaderError, TextTable
from tallyroom.protocols.errors import LocalError

PARQUET = ".parquet"
SQLITE = "sqlite:"
POSTGRESQL = "postgresql:"
_READING = (
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
)
"""All that a query may do: it changes nothing, and opens no other file."""


def sqlite_table(path: Path, query: str) -> TextTable:
    """What a query finds in a database. Raises `LocalError` with one clear line."""
    try:
        database = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)
    except sqlite3.Error as error:
        raise LocalError(f"cannot read {path}: {error}") from None
    try:
        database.set_authorizer(_only_reading)
        found = database.execute(query)
        names = [each[0] for each in found.description or ()]
        return _table(path, names, found)
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise LocalError(f"{path}: the query fails: {_line(error)}") from None
    finally:
        database.close()


def _only_reading(action: int, *_: Any) -> int:
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


def postgresql_table(address: str, query: str) -> TextTable:
    """What a query finds in the database at a libpq address, in a transaction that only reads.
    Raises `LocalError` with one clear line."""
    try:
        import psycopg
    except ImportError:
        raise LocalError("a PostgreSQL database needs the package psycopg") from None
    where = Path("the database")
    try:
        if psycopg.conninfo.conninfo_to_dict(address).get("password"):
            raise LocalError(
                "the address of a database is told in results: leave the password out, and give it "
                "in PGPASSWORD or ~/.pgpass"
            )
        with psycopg.connect(address, connect_timeout=10) as database:
            database.read_only = True
            # A prepared statement is one statement: none can end the transaction and go on.
            found = database.execute(query.encode(), prepare=True)
            names = [each.name for each in found.description or ()]
            table = _table(where, names, found.fetchall() if names else [])
            database.rollback()
            return table
    except psycopg.Error as error:
        raise LocalError(f"{where} does not answer the query: {_line(error)}") from None


def parquet_table(path: Path) -> TextTable:
    """Raises `LocalError` with one clear line."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise LocalError(f"{path}: a Parquet file needs the package pyarrow") from None
    try:
        read = parquet.read_table(path)
    except (OSError, ArrowException) as error:
        raise LocalError(f"cannot read {path}: {_line(error)}") from None
    columns = [column.to_pylist() for column in read.columns]
    return _table(path, list(read.column_names), zip(*columns, strict=True))


def _table(path: Path, names: list[str], rows: Iterable[Sequence[Any]]) -> TextTable:
    if len(set(names)) < len(names):
        raise HeaderError(*[f"{path}: two columns have the same name"] * 2)
    texts = [[_text(cell) for cell in row] for row in rows]
    if not (names and texts):
        raise LocalError(f"{path} has no records")
    return TextTable(path, names, texts, list(range(1, len(texts) + 1)), None)


def _text(cell: Any) -> str:
    match cell:
        case None:
            return ""
        case bool():
            return "true" if cell else "false"
        case float():
            return "" if cell != cell else repr(cell)
        case date():
            return cell.isoformat()
    return str(cell).strip()


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
