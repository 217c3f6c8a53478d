"""The journal: every message is on disk before it is acknowledged.

A machine is a function of its messages and its randomness, so replaying the messages to a new
machine brings it to the same state: any protocol survives a crash without code of its own. Each run
has a file of records, each with its length and checksum. A record that a crash cut off is dropped:
it was never acknowledged.
"""

import asyncio
import contextlib
import logging
import os
import struct
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.run.participant import MOST_NAMES
from tallyroom.protocols.wire.messages import NONCE_BYTES
from tallyroom.storage.mark import Mark
from tallyroom.storage.store import MARK, name_in, sync_folder

log = logging.getLogger(__name__)

_HEAD = struct.Struct("<BII")


class Kind(IntEnum):
    QUERY = 1  # how our own machine began
    MESSAGE = 2  # a message that was accepted
    EXPIRE = 3  # the deadline passed
    ASK = 4  # a question that follows from none before it: of these, only the last is kept


MOST_OPEN = 64
"""How many run files are open at once: a process has about a thousand descriptors in all."""
OVER = "over"
OVER_KEY = b""

KINDS = frozenset(kind.value for kind in Kind)
Record = tuple[Kind, bytes]
Place = tuple[Path, int]


class Journal:
    """At most `most_open` of its files are open at a time, however many runs there are.

    The names of finished runs are kept in one more file, `over`, one per line. When there are twice
    `most_over` names, only those with the larger numbers stay, and `mark` records the number up to
    which names were removed (`protocols.run.begun`).
    """

    def __init__(
        self, folder: Path, most_open: int = MOST_OPEN, most_over: int = MOST_NAMES
    ) -> None:
        self._folder = folder
        self._mark = Mark(folder / MARK)
        self._most_open = most_open
        self._most_over = most_over
        self._over: int | None = None
        self._asks: dict[bytes, tuple[int, int]] = {}
        self._files: OrderedDict[bytes, _File] = OrderedDict()
        self._dirty: set[Path] = set()
        self._new_names = False
        self._syncing = asyncio.Lock()
        self._next: asyncio.Future[None] | None = None
        self._told: dict[bytes, tuple[bytes, int]] = {}

    def append(self, run: bytes, kind: Kind, data: bytes) -> int:
        """Writes a record, which is durable once `commit` returns. Returns where it begins.

        A question to a stored tree replaces the previous one: whoever asks the next question has
        received the answer to the last. Raises `OSError` if there is no room, and leaves the rest
        of the journal as it was.
        """
        record = _HEAD.pack(kind, len(data), zlib.crc32(data)) + data
        file = self._opened(run)
        if kind is Kind.ASK and (last := self._asks.pop(run, None)) and last[1] == file.end:
            file.cut(last[0])
        try:
            begin = self._write(file, record)
            self._told[run] = data, file.end
            if kind is Kind.ASK:
                self._asks[run] = begin, file.end
            return begin
        except OSError:
            if file.end == 0:
                self.drop(run)
            raise

    def retract(self, run: bytes, begin: int) -> None:
        """Takes back the last record of a run, which `append` began at `begin`."""
        self._opened(run).cut(begin)
        if begin == 0:
            self._close(run)
            self._path(run).unlink(missing_ok=True)

    async def commit(self) -> None:
        """Returns when every earlier record is on disk. Waiting calls share one sync."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._sync())
        await asyncio.shield(self._next)

    async def _sync(self) -> None:
        async with self._syncing:
            self._next = None
            dirty, self._dirty = self._dirty, set()
            names, self._new_names = self._new_names, False
            try:
                await asyncio.to_thread(_flush, dirty, self._folder if names else None)
            except BaseException:  # nothing may be reported as durable: the next commit tries again
                self._dirty |= dirty
                self._new_names |= names
                raise

    def place_of(self, run: bytes, block: NDArray[np.uint8]) -> Place | None:
        """Returns where these bytes are, if the run's last record was just written and ends with
        them."""
        if (told := self._told.get(run)) is None:
            return None
        data, end = told
        begin = len(data) - block.size
        if begin < 0 or not np.array_equal(np.frombuffer(data, np.uint8)[begin:], block):
            return None
        return self._path(run), end - block.size

    def taken(self, run: bytes) -> None:
        """The last record of a run need not be found in memory any longer."""
        self._told.pop(run, None)

    def runs(self) -> Iterator[tuple[bytes, list[Record]]]:
        """Yields the records of every run that is not forgotten, oldest run first."""
        return ((run, list(records)) for run, records in self.retold())

    def retold(self) -> Iterator[tuple[bytes, Iterator[Record]]]:
        """Like `runs`, one record at a time: a run's records may be more than memory holds."""
        over = set(self.forgotten())
        paths = sorted(self._folder.glob("*.log"), key=lambda path: path.stat().st_mtime_ns)
        for path in paths:
            run = name_in(path)
            if run in over:  # a crash came between the two steps of `forget`
                path.unlink()
            else:
                yield run, self._retold(run, path)

    def _retold(self, run: bytes, path: Path) -> Iterator[Record]:
        begin = 0
        for kind, data, end in _records(path):
            self._told[run] = data, end
            if kind is Kind.ASK:
                self._asks[run] = begin, end
            begin = end
            yield kind, data
        self.taken(run)

    def begin(self, mark: bytes) -> bytes:
        """Returns the mark up to which every run counts as begun. If there is no mark yet, it
        becomes `mark`, and run names left here are discarded: their state is unknown."""
        if self._mark.value is None:
            (self._folder / OVER).unlink(missing_ok=True)
            self._mark.write(mark)
        return self._mark.value or b""

    def forgotten(self) -> Iterator[bytes]:
        """Yields the names of finished runs. A name that a crash cut off was not acknowledged."""
        try:
            lines = (self._folder / OVER).read_text(errors="replace").split("\n")[:-1]
        except FileNotFoundError:
            return
        for line in lines:
            with contextlib.suppress(ValueError):
                yield bytes.fromhex(line)

    async def forget(self, run: bytes) -> None:
        """Drops a finished run but keeps its name, so that it cannot begin again.

        The name is on disk before the records are removed. Raises `OSError` if there is no room for
        the name; then nothing is dropped.
        """
        if self._over is None:
            self._over = sum(1 for _ in self.forgotten())
        if self._over >= 2 * self._most_over:
            self._over = self._shorten()
        self._write(self._opened(OVER_KEY), f"{run.hex()}\n".encode())
        self._over += 1
        await self.commit()
        self.drop(run)

    def _shorten(self) -> int:
        """Keeps the newest names, written in full to a temporary file first; returns their number.

        The mark is on disk before the names below it are removed.
        """
        names = sorted(set(self.forgotten()))
        older, newest = names[: -self._most_over], names[-self._most_over :]
        if older:
            self._mark.write(older[-1][:NONCE_BYTES])
        path = self._path(OVER_KEY)
        new = path.with_suffix(".new")
        try:
            new.write_text("".join(f"{run.hex()}\n" for run in newest))
            _flush({new}, None)
            new.replace(path)
        except OSError:
            new.unlink(missing_ok=True)
            raise
        self._close(OVER_KEY)  # the open descriptor is the old file's
        sync_folder(self._folder)
        return len(newest)

    def drop(self, run: bytes) -> None:
        """Drops the records of a run without keeping its name, which the caller must do."""
        self._close(run)
        self._asks.pop(run, None)
        self._path(run).unlink(missing_ok=True)

    def close(self) -> None:
        for run in list(self._files):
            self._close(run)

    def _write(self, file: "_File", record: bytes) -> int:
        begin = file.append(record)
        self._dirty.add(file.path)
        return begin

    def _opened(self, run: bytes) -> "_File":
        if run not in self._files:
            while len(self._files) >= self._most_open:
                self._close(next(iter(self._files)))
            path = self._path(run)
            self._new_names |= not path.exists()
            self._files[run] = _File(path)
        self._files.move_to_end(run)
        return self._files[run]

    def _close(self, run: bytes) -> None:
        if (file := self._files.pop(run, None)) is not None:
            file.close()

    def _path(self, run: bytes) -> Path:
        return self._folder / (OVER if run == OVER_KEY else f"{run.hex()}.log")


class _File:
    """A file that grows by whole records. It tracks its own end, because the file position does not
    move back when the file is truncated."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.end = os.fstat(self._descriptor).st_size

    def append(self, record: bytes) -> int:
        """Returns where the record begins. Raises `OSError` if it does not fit, and keeps no part
        of it."""
        begin = self.end
        if os.fstat(self._descriptor).st_size > begin:
            self.cut(begin)  # the remains of a record that could not be cut off when it failed
        written = 0
        try:
            while written < len(record):
                written += os.pwrite(self._descriptor, record[written:], begin + written)
        except OSError:
            with contextlib.suppress(OSError):
                self.cut(begin)  # a torn record in the middle would hide all records after it
            raise
        self.end = begin + len(record)
        return begin

    def cut(self, end: int) -> None:
        self.end = end
        os.ftruncate(self._descriptor, end)

    def close(self) -> None:
        os.close(self._descriptor)


def _flush(paths: set[Path], folder: Path | None) -> None:
    """Opens files by name, because they may have been closed, or removed with a forgotten run."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    if folder is not None:
        sync_folder(folder)


def read_records(path: Path) -> list[Record]:
    """Returns the complete records of a journal; cuts an incomplete last one off the file."""
    return [(kind, data) for kind, data, _ in _records(path)]


def _records(path: Path) -> Iterator[tuple[Kind, bytes, int]]:
    """Like `read_records`, one at a time, each with its end in the file."""
    end = 0
    with path.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        whole = True
        while end + _HEAD.size <= size:
            kind, length, checksum = _HEAD.unpack(file.read(_HEAD.size))
            if length > size - end - _HEAD.size or kind not in KINDS:
                whole = kind in KINDS
                break
            data = file.read(length)
            if zlib.crc32(data) != checksum:
                whole = False
                break
            end += _HEAD.size + length
            yield Kind(kind), data, end
        if not whole:
            lost = f"{size - end} bytes from byte {end} on are lost"
            log.error("the journal %s is damaged: %s; its run may fail", path.name, lost)
        if end < size:
            file.truncate(end)
