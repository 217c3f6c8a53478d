"""The journal: what a machine was told, on disk before it is acknowledged.

A machine is a function of its messages and its randomness, so telling a new one the same again
brings it to the same state: any protocol survives a crash without a line of its own. Each run has a
file of records, each with its length and checksum; a record that a crash tore is dropped, because
nobody was told that it was taken.
"""

import asyncio
import contextlib
import os
import struct
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

from storage.store import sync_folder

_HEAD = struct.Struct("<BII")


class Kind(IntEnum):
    QUERY = 1  # how our own machine was begun
    MESSAGE = 2  # a message that was accepted
    EXPIRE = 3  # the deadline passed


MOST_OPEN = 64
"""Files of runs that are open at a time: a process has a thousand descriptors for everything."""
OVER = "over"
OVER_KEY = b""

KINDS = frozenset(kind.value for kind in Kind)
Record = tuple[Kind, bytes]


class Journal:
    """At most `most_open` of its files are open at a time, however many runs there are.

    Runs that are over leave their names in one more file, `over`, a line each.
    """

    def __init__(self, folder: Path, most_open: int = MOST_OPEN) -> None:
        self._folder = folder
        self._most_open = most_open
        self._files: OrderedDict[bytes, _File] = OrderedDict()
        self._dirty: set[Path] = set()
        self._new_names = False
        self._syncing = asyncio.Lock()
        self._next: asyncio.Future[None] | None = None

    def append(self, run: bytes, kind: Kind, data: bytes) -> int:
        """Writes a record; it is durable once `commit` returns. Returns where it begins.

        Raises `OSError` where there is no room for it, and leaves the journal as it was.
        """
        record = _HEAD.pack(kind, len(data), zlib.crc32(data)) + data
        file = self._opened(run)
        try:
            return self._write(file, record)
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
        """Returns when all that was appended before is on disk. Waiting calls share one sync."""
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
            except BaseException:  # nobody may be told that it is on disk: the next one tries again
                self._dirty |= dirty
                self._new_names |= names
                raise

    def runs(self) -> Iterator[tuple[bytes, list[Record]]]:
        """What was recorded of every run that is not forgotten, oldest run first."""
        over = set(self.forgotten())
        paths = sorted(self._folder.glob("*.log"), key=lambda path: path.stat().st_mtime_ns)
        for path in paths:
            run = bytes.fromhex(path.stem)
            if run in over:  # a crash came between the two steps of forgetting it
                path.unlink()
            else:
                yield run, read_records(path)

    def forgotten(self) -> Iterator[bytes]:
        """The names of runs that are over; one that a crash tore was not acknowledged."""
        try:
            lines = (self._folder / OVER).read_text(errors="replace").split("\n")[:-1]
        except FileNotFoundError:
            return
        for line in lines:
            with contextlib.suppress(ValueError):
                yield bytes.fromhex(line)

    async def forget(self, run: bytes) -> None:
        """Drops a run that is over; its name stays, so that it cannot be begun again.

        The name is on disk before the records go. Raises `OSError` where there is no room for it;
        then nothing is dropped.
        """
        self._write(self._opened(OVER_KEY), f"{run.hex()}\n".encode())
        await self.commit()
        self.drop(run)

    def drop(self, run: bytes) -> None:
        """Drops the records of a run, and its name as well: whoever calls this keeps it."""
        self._close(run)
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
    """A file that grows by whole records. It knows its own end: a position in the file does not
    come back when the file is cut."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.end = os.fstat(self._descriptor).st_size

    def append(self, record: bytes) -> int:
        """Where the record begins. Raises `OSError` if it does not fit, and keeps nothing of it."""
        begin = self.end
        if os.fstat(self._descriptor).st_size > begin:
            self.cut(begin)  # what could not be cut off when it failed
        written = 0
        try:
            while written < len(record):
                written += os.pwrite(self._descriptor, record[written:], begin + written)
        except OSError:
            with contextlib.suppress(OSError):
                self.cut(begin)  # a torn record in the middle would hide all that follow it
            raise
        self.end = begin + len(record)
        return begin

    def cut(self, end: int) -> None:
        self.end = end
        os.ftruncate(self._descriptor, end)

    def close(self) -> None:
        os.close(self._descriptor)


def _flush(paths: set[Path], folder: Path | None) -> None:
    """By name: a file may have been closed since, and is gone if its run is forgotten."""
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
    """The whole records of a journal; a torn end is cut off the file."""
    data = path.read_bytes()
    records: list[Record] = []
    offset = 0
    while offset + _HEAD.size <= len(data):
        kind, size, checksum = _HEAD.unpack_from(data, offset)
        body = data[offset + _HEAD.size : offset + _HEAD.size + size]
        if len(body) < size or zlib.crc32(body) != checksum or kind not in KINDS:
            break
        records.append((Kind(kind), body))
        offset += _HEAD.size + size
    if offset < len(data):
        with path.open("r+b") as file:
            file.truncate(offset)
    return records
