"""Keeps the certificates of the servers that signed receipts.

A share outlives the connection that it came over: its receipt is checked against the certificate
that the server showed at that time, even if the server shows another one by now.
"""

import os
from pathlib import Path

from tallyroom.storage.store import sync_folder

MAX_CERTIFICATE = 16 << 10


class Certificates(dict[int, bytes]):
    """PEM certificates by server index. With a folder, they are on disk when `keep` returns."""

    def __init__(self, folder: Path | None) -> None:
        super().__init__()
        self._folder = folder
        if folder is not None:
            folder.mkdir(exist_ok=True)
            for path in folder.glob("server-*.pem"):
                index = path.stem.removeprefix("server-")
                if index.isdecimal():
                    self[int(index)] = path.read_bytes()

    def keep(self, server: int, certificate: bytes) -> None:
        """Raises `OSError` if there is no room for it."""
        if len(certificate) > MAX_CERTIFICATE or self.get(server) == certificate:
            return
        if self._folder is not None:
            path = self._folder / f"server-{server}.pem"
            new = path.with_suffix(".new")
            with new.open("wb") as file:
                file.write(certificate)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
            sync_folder(self._folder)
        self[server] = certificate
