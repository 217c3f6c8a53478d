"""A mark on disk: every run whose number is not larger counts as begun (`protocols.run.begun`)."""

import os
from pathlib import Path

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.wire.messages import NONCE_BYTES
from tallyroom.storage.store import sync_folder


class Mark:
    """`value` is None where none was ever written, and never falls."""

    def __init__(self, path: Path) -> None:
        """Raises `LocalError` if there is something else at `path`."""
        self._path = path
        self.value: bytes | None = None
        if path.exists():
            try:
                self.value = bytes.fromhex(path.read_text().strip())
            except ValueError:
                raise LocalError(f"{path} is not the mark of a store") from None
            if len(self.value) not in (0, NONCE_BYTES):
                raise LocalError(f"{path} is not the mark of a store")

    def write(self, value: bytes) -> None:
        """It is on disk when this returns. Raises `OSError` where that cannot be."""
        value = max(value, self.value or b"")
        partial = self._path.with_name(self._path.name + ".partial")
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{value.hex()}\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path)
        sync_folder(self._path.parent)
        self.value = value
