"""Keeps a bounded number of paid answers, so that an analyst who lost one can fetch it again.

Each answer is one file. It is written in full under a temporary name first, so a crash leaves all
of it or nothing. When there are too many answers, or too many bytes, the oldest are removed.
"""

import os
from collections import OrderedDict
from pathlib import Path

from tallyroom.storage.store import name_in, sync_folder

MOST_ANSWERS = 1000
MOST_BYTES = 256 << 20

_SUFFIX = ".answer"


class Answers:
    """`durable` answers are on disk when `keep` returns; others are lost with the process."""

    def __init__(
        self,
        folder: Path,
        durable: bool,
        most: int = MOST_ANSWERS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._folder = folder
        self._durable = durable
        self._most = most
        self._most_bytes = most_bytes
        folder.mkdir(exist_ok=True)
        for torn in folder.glob("*.new"):
            torn.unlink()
        states = {path: path.stat() for path in folder.glob(f"*{_SUFFIX}")}
        paths = sorted(states, key=lambda path: states[path].st_mtime_ns)
        self._sizes = OrderedDict((name_in(p), states[p].st_size) for p in paths)

    def __contains__(self, name: bytes) -> bool:
        return name in self._sizes

    def names(self) -> list[bytes]:
        """Oldest first."""
        return list(self._sizes)

    def read(self, name: bytes) -> bytes | None:
        return self._path(name).read_bytes() if name in self._sizes else None

    def keep(self, name: bytes, data: bytes) -> None:
        """Raises `OSError` if there is no room; answers kept earlier stay as they were."""
        path = self._path(name)
        new = path.with_suffix(".new")
        try:
            with new.open("wb") as file:
                file.write(data)
                file.flush()
                if self._durable:
                    os.fsync(file.fileno())
            new.replace(path)
        except OSError:
            new.unlink(missing_ok=True)
            raise
        if self._durable:
            sync_folder(self._folder)
        self._sizes.pop(name, None)
        self._sizes[name] = len(data)
        self._shrink()

    def _shrink(self) -> None:
        """The newest answer stays however large it is, because somebody is waiting for it."""
        excess = sum(self._sizes.values()) - self._most_bytes
        while len(self._sizes) > 1 and (len(self._sizes) > self._most or excess > 0):
            name, size = self._sizes.popitem(last=False)
            excess -= size
            self._path(name).unlink(missing_ok=True)

    def _path(self, name: bytes) -> Path:
        return self._folder / f"{name.hex()}{_SUFFIX}"
