"""What the runs of a sweep were made with, once for each machine: `machines.json`."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from tallyroom.protocols.errors import LocalError
from tallyroom.simulation.sweep.journal import Row

NAME = "machines.json"
KEY_LENGTH = 12


class Machines:
    """By a key that stands in the rows. It is on disk before a row that names it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
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
