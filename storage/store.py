"""A keeper's folder: its secret, its ledger, its journal, and the bulk that parties submitted.

version          the layout's version; a newer one is refused
secret.key       16 bytes that all of this keeper's randomness derives from, mode 600
ledger.sqlite    what was spent (storage/ledger.py)
runs/            one journal for each run that is not over, and the names of those that are
                 (storage/journal.py)
answers/         a coordinator's, for those who come back for them (storage/answers.py)
bulk/            what machines keep of submissions, rebuilt from the journal when it starts
"""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protocols.errors import LocalError
from protocols.randomness import KEY_BYTES, Randomness
from protos.identity_files import write_secret

VERSION = 1

Ids = NDArray[np.uint32]
Block = NDArray[np.uint8]


class Store:
    """Opens a folder, or makes a temporary one that goes when the process does."""

    def __init__(self, folder: Path | None) -> None:
        self.durable = folder is not None
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="tallyroom-")
        self.folder = folder or Path(self._temporary.name)  # type: ignore[union-attr]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            close_to_others(self.folder)
            (self.folder / "runs").mkdir(exist_ok=True)
            self._check_version()
            shutil.rmtree(self.folder / "bulk", ignore_errors=True)
            (self.folder / "bulk").mkdir()
        except OSError as error:
            raise LocalError(f"cannot use {self.folder} as a store: {error.strerror}") from None

    @property
    def ledger(self) -> Path | None:
        return self.folder / "ledger.sqlite" if self.durable else None

    @property
    def revoked(self) -> Path | None:
        """Where a server keeps the revocation list."""
        return self.folder / "revoked.pem" if self.durable else None

    def randomness(self, seed: int | None, role: str) -> Randomness:
        """The keeper's stream: from its secret, which is made once, or from a run's seed."""
        if seed is not None:
            return Randomness.from_seed(seed, role)
        path = self.folder / "secret.key"
        if not path.exists():
            write_secret(path, os.urandom(KEY_BYTES))
            sync_folder(self.folder)
        return Randomness(path.read_bytes())

    def bulk(self, run: bytes) -> "FileBulk":
        return FileBulk(self.folder / "bulk" / run.hex())

    def close(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()

    def _check_version(self) -> None:
        path = self.folder / "version"
        if not path.exists():
            path.write_text(f"{VERSION}\n")
        found = path.read_text().strip()
        if not found.isdigit() or int(found) > VERSION:
            raise LocalError(
                f"{self.folder} was written by a newer Tallyroom (layout {found}, this knows "
                f"{VERSION})"
            )


class FileBulk:
    """Blocks in one file, mapped: millions of keys take no memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._path.unlink(missing_ok=True)
        self._blocks: list[tuple[Ids, int, int]] = []
        self._size = 0

    def append(self, ids: Ids, block: Block) -> None:
        """Raises `OSError` where there is no room; then nothing of the block is kept."""
        try:
            with self._path.open("ab") as file:
                file.write(np.ascontiguousarray(block).data)
        except OSError:
            if self._path.exists():
                os.truncate(self._path, self._size)  # the next block must begin where it is sought
            raise
        self._blocks.append((ids, self._size, block.size))
        self._size += block.size

    def blocks(self) -> list[tuple[Ids, Block]]:
        if not self._size:
            return []
        mapped = np.memmap(self._path, dtype=np.uint8, mode="r")
        return [(ids, mapped[start : start + size]) for ids, start, size in self._blocks]

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)
        self._blocks.clear()
        self._size = 0


def keep_private() -> None:
    """What this process writes from now on is for its own user alone: called before anything is
    written, by every process that keeps a store."""
    os.umask(0o077)


def close_to_others(folder: Path) -> None:
    """Takes a folder's contents from other users' eyes; one that is not ours stays as it is, such
    as a volume that a cluster mounted for us."""
    with contextlib.suppress(PermissionError):
        folder.chmod(0o700)


def sync_folder(folder: Path) -> None:
    """Makes names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
