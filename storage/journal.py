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
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO

from storage.store import sync_folder

_HEAD = struct.Struct("<BII")


class Kind(IntEnum):
    QUERY = 1  # how our own machine was begun
    MESSAGE = 2  # a message that was accepted
    EXPIRE = 3  # the deadline passed


KINDS = frozenset(kind.value for kind in Kind)
Record = tuple[Kind, bytes]


class Journal:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[bytes, BinaryIO] = {}
        self._dirty: set[BinaryIO] = set()
        self._new_names = False
        self._syncing = asyncio.Lock()
        self._next: asyncio.Future[None] | None = None

    def append(self, run: bytes, kind: Kind, data: bytes) -> int:
        """Writes a record; it is durable once `commit` returns. Returns where it begins.

        Raises `OSError` where there is no room for it, and leaves the journal as it was.
        """
        file = self._files.get(run)
        if file is None:
            self._new_names = True
            file = self._files[run] = self._path(run).open("ab", buffering=0)
        record = _HEAD.pack(kind, len(data), zlib.crc32(data)) + data
        begin = file.tell()
        try:
            if file.write(record) != len(record):
                raise OSError("the journal took only a part of a record")
        except OSError:
            file.truncate(begin)  # a torn record in the middle would hide all that follow it
            raise
        self._dirty.add(file)
        return begin

    def retract(self, run: bytes, begin: int) -> None:
        """Takes back the last record of a run, which `append` began at `begin`."""
        file = self._files.get(run)
        if file is not None:
            file.truncate(begin)
            if begin == 0:
                self._dirty.discard(file)
                self._files.pop(run).close()
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
            await asyncio.to_thread(self._flush, dirty, names)

    def _flush(self, files: set[BinaryIO], names: bool) -> None:
        for file in files:
            with contextlib.suppress(ValueError):  # closed meanwhile: its run is forgotten
                os.fsync(file.fileno())
        if names:
            sync_folder(self._folder)

    def runs(self) -> Iterator[tuple[bytes, list[Record]]]:
        """What was recorded of every run that is not forgotten, oldest run first."""
        paths = sorted(self._folder.glob("*.log"), key=lambda path: path.stat().st_mtime_ns)
        for path in paths:
            yield bytes.fromhex(path.stem), read_records(path)

    def forgotten(self) -> Iterator[bytes]:
        return (bytes.fromhex(path.stem) for path in self._folder.glob("*.over"))

    def forget(self, run: bytes) -> None:
        """Drops a run that is over; its name stays, so that it cannot be begun again."""
        file = self._files.pop(run, None)
        if file is not None:
            self._dirty.discard(file)
            file.close()
        self._path(run).with_suffix(".over").touch()
        self._path(run).unlink(missing_ok=True)

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _path(self, run: bytes) -> Path:
        return self._folder / f"{run.hex()}.log"


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
