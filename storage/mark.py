"""A mark on disk: every run up to this number counts as begun (`protocols.run.begun`)."""

import os
from pathlib import Path

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.wire.messages import NONCE_BYTES
from tallyroom.storage.store import sync_folder


class Mark:
    """`value` is None if no mark was ever written; it never decreases."""

    def __init__(self, path: Path) -> None:
        """Raises `LocalError` if the file at `path` is not a mark."""
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
        """The mark is on disk when this returns. Raises `OSError` if it cannot be written."""
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
