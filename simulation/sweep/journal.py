"""The finished runs of a sweep, on disk: one line per run, appended and synced.

A kill may cut the last line; it is removed when the sweep continues, and its run is done again.
"""

import fcntl
import hashlib
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tallyroom.protocols.errors import LocalError

Row = dict[str, Any]
NAME = "runs.jsonl"
FORMAT = 1


class SweepJournal:
    """Rows by the key of their run. One process at a time may hold the journal."""

    def __init__(self, folder: Path, version: str) -> None:
        """Raises `LocalError` if another process holds the journal or if another version wrote it:
        numbers of two programs do not belong in one table."""
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / NAME
        self.rows: dict[str, Row] = {}
        self._file = self.path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise LocalError(f"another sweep is running in {folder}") from None
        try:
            self._read({"sweep": FORMAT, "version": version})
        except BaseException:
            self._file.close()
            raise

    def _read(self, head: Row) -> None:
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file):
            if not line.endswith(b"\n"):
                break
            try:
                entry = json.loads(line)
                if number == 0:
                    if entry != head:
                        raise LocalError(
                            f"{self.path} was written by version {entry.get('version')}, and this "
                            f"is {head['version']}: choose another --out"
                        )
                else:
                    self.rows[str(entry["key"])] = dict(entry["row"])
            except LocalError:
                raise
            except (ValueError, KeyError, TypeError, AttributeError):
                raise LocalError(
                    f"{self.path}, line {number + 1}, was not written by a sweep"
                ) from None
            whole += len(line)
        self._file.truncate(whole)
        if whole == 0:
            self._append(head)

    def add(self, key: str, row: Row) -> None:
        """Adds a row, which survives a kill once this returns."""
        self._append({"key": key, "row": row})
        self.rows[key] = row

    def _append(self, entry: Row) -> None:
        self._file.write(json.dumps(entry, allow_nan=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


MACHINES = "machines.json"
KEY_LENGTH = 12


class Machines:
    """What runs were made with, once for each machine, by a key that stands in the rows. It is on
    disk before a row that names it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / MACHINES
        self._known: dict[str, Any] = {}
        if self.path.exists():
            try:
                self._known = dict(json.loads(self.path.read_text()))
            except (ValueError, TypeError):
                raise LocalError(f"{self.path} is not of a sweep") from None

    def keyed(self, row: Row) -> Row:
        """The row with the key of its machine in its place."""
        machine = row["machine"]
        words = json.dumps(machine, sort_keys=True).encode()
        key = hashlib.sha256(words).hexdigest()[:KEY_LENGTH]
        if key not in self._known:
            self._known[key] = machine
            draft = self.path.with_suffix(f".{os.getpid()}.draft")
            draft.write_text(json.dumps(self._known, indent=1) + "\n")
            draft.replace(self.path)
        return row | {"machine": key}
