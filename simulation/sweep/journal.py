"""What a sweep has done so far, on disk: a line for each run that ended, appended and synced.

A kill may tear the last line; it is cut off when the sweep goes on, and its run is done again.
"""

import fcntl
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
    """Rows by the key of their run. One process at a time may hold it."""

    def __init__(self, folder: Path, version: str) -> None:
        """Raises `LocalError` if another process holds it, or if it is not of this version: numbers
        of two programs do not belong in one table."""
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / NAME
        self.rows: dict[str, Row] = {}
        self._file = self.path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise LocalError(f"another sweep is at work in {folder}") from None
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
                            f"{self.path} is of version {entry.get('version')} and this is "
                            f"{head['version']}: choose another --out"
                        )
                else:
                    self.rows[str(entry["key"])] = dict(entry["row"])
            except LocalError:
                raise
            except (ValueError, KeyError, TypeError, AttributeError):
                raise LocalError(f"{self.path}, line {number + 1}, is not of a sweep") from None
            whole += len(line)
        self._file.truncate(whole)
        if whole == 0:
            self._append(head)

    def add(self, key: str, row: Row) -> None:
        """When it returns, the row survives a kill."""
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
