"""The folder of one process: its secret, its ledger, its journal, and what parties submitted.

lock             held by the process that has the store (storage/lock.py)
version          the layout's version; a newer one is refused
secret.key       16 bytes from which all of this process's randomness is derived, mode 600
ledger.sqlite    what was spent (storage/ledger.py)
spent            how many releases it has at least (storage/served.py)
runs/            a journal for each unfinished run, the names of the newest finished runs, and the
                 mark up to which every run counts as over (storage/journal.py)
answers/         a coordinator's answers, for analysts who ask for them again (storage/answers.py)

Submissions are in the journal or in unnamed files (storage/bulk.py).
"""

import contextlib
import os
import tempfile
from pathlib import Path

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.ledger import Filter
from tallyroom.protocols.randomness import KEY_BYTES, Randomness
from tallyroom.protos.identity_files import write_public, write_secret
from tallyroom.storage.ledger import Ledger
from tallyroom.storage.lock import StoreLock
from tallyroom.storage.served import Served

VERSION = 1
SECRET = "secret.key"
MARK = "mark"
"""In `runs`: up to which number every run counts as begun."""


class Store:
    """Opens a folder, or makes a temporary one that is removed when the process ends."""

    def __init__(self, folder: Path | None) -> None:
        self.durable = folder is not None
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="tallyroom-")
        self.folder = folder or Path(self._temporary.name)  # type: ignore[union-attr]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            close_to_others(self.folder)
            self._lock = StoreLock(self.folder)
            (self.folder / "runs").mkdir(exist_ok=True)
            self._check_version()
        except OSError as error:
            raise LocalError(f"cannot use {self.folder} as a store: {error.strerror}") from None

    def open_ledger(self, filter: Filter) -> Ledger:
        """Raises `LocalError` if the ledger has fewer releases than this store has made."""
        served = Served(self.folder, self._was_used) if self.durable else None
        return Ledger(self.ledger, filter, served)

    @property
    def ledger(self) -> Path | None:
        return self.folder / "ledger.sqlite" if self.durable else None

    @property
    def revoked(self) -> Path | None:
        """Where a server keeps the revocation list."""
        return self.folder / "revoked.pem" if self.durable else None

    @property
    def has_secret(self) -> bool:
        """Whether this process has already drawn randomness that it could draw again."""
        return (self.folder / SECRET).exists()

    @property
    def _was_used(self) -> bool:
        """Whether a process has begun anything here: with the secret, the mark of its runs may be
        gone, but hardly both."""
        return self.has_secret or (self.folder / "runs" / MARK).exists()

    def randomness(self, seed: int | None, role: str) -> Randomness:
        """Derives randomness from the stored secret, which is made once, or from a run's seed.

        Raises `LocalError` if the secret is gone and there are runs that were begun with it: they
        would be replayed with another one, and release the same sums under other noise.
        """
        if seed is not None:
            return Randomness.from_seed(seed, role)
        path = self.folder / SECRET
        if not path.exists():
            if any((self.folder / "runs").glob("*.log")):
                raise LocalError(
                    f"{path} is gone, and runs were begun with it: restore it, or give them up by "
                    f"removing {self.folder / 'runs'}/*.log"
                )
            write_secret(path, os.urandom(KEY_BYTES))
            sync_folder(self.folder)
        try:
            return Randomness(path.read_bytes())
        except (ValueError, OSError):
            raise LocalError(f"{path} is not a secret of {KEY_BYTES} bytes") from None

    def close(self) -> None:
        self._lock.release()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _check_version(self) -> None:
        path = self.folder / "version"
        if not path.exists() or not path.stat().st_size:  # a full disk may leave an empty one
            write_public(path, f"{VERSION}\n".encode())
        found = path.read_text(errors="replace").strip()
        if not found.isdecimal() or int(found) > VERSION:
            raise LocalError(
                f"{self.folder} was written by a newer Tallyroom (layout {found[:20]!r}, this "
                f"knows {VERSION})"
            )


def name_in(path: Path) -> bytes:
    """Decodes the hexadecimal name of a file in the store. Raises `LocalError` for any other file:
    we cannot know what it is, and it is not ours to remove."""
    with contextlib.suppress(ValueError):
        if path.is_file() and (name := bytes.fromhex(path.stem)).hex() == path.stem:
            return name
    raise LocalError(f"{path} is not a file of this store: move it elsewhere")


def keep_private() -> None:
    """Makes files that this process writes readable by its own user alone. Every process that has a
    store calls this before it writes anything."""
    os.umask(0o077)


def close_to_others(folder: Path) -> None:
    """Hides a folder's contents from other users. A folder that we do not own stays as it is, such
    as a volume that a cluster mounted for us."""
    with contextlib.suppress(PermissionError):
        folder.chmod(0o700)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
