"""Keeps submissions in files, so that memory is bounded by one block.

A submission is written once. If it is already in the journal, only its position is noted; otherwise
it goes to an unnamed file, which disappears with the run or with the process, however that ends.
These files are not needed after a crash: a restarted server replays its journal.
"""

import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.uint32]
Block = NDArray[np.uint8]

WINDOW_BYTES = 16 << 20
"""How much of a file may stay in memory behind the position of its writer or reader."""


class Log(Protocol):
    def place_of(self, run: bytes, block: Block) -> tuple[Path, int] | None:
        """Returns the file and position of these bytes of a run, if they were just written."""


@dataclass(frozen=True)
class _Place:
    """`path` is None for our own file."""

    ids: Ids
    path: Path | None
    start: int
    size: int


class FileBulk:
    """The submissions of one run. What is not in `log` goes to an unnamed file in `folder`."""

    def __init__(self, folder: Path, run: bytes = b"", log: Log | None = None) -> None:
        self._folder = folder
        self._run = run
        self._log = log
        self._file: _OwnFile | None = None
        self._places: list[_Place] = []

    def append(self, ids: Ids, block: Block) -> None:
        """Raises `OSError` if there is no room; then no part of the block is kept."""
        block = np.ascontiguousarray(block).reshape(-1)
        path, start = self._place_of(block) or (None, self._write(block))
        # A copy: ids are a view of the message and would keep the whole message in memory.
        self._places.append(_Place(ids.copy(), path, start, block.size))

    def blocks(self) -> Iterator[tuple[Ids, Block]]:
        """Yields memory-mapped blocks. Blocks that the caller has passed are dropped from memory;
        if it kept a reference to one, its pages are read from the file again."""
        readers: dict[Path | None, _Reader] = {}
        for place in list(self._places):
            if place.path not in readers:
                readers[place.path] = _Reader(self._open(place.path))
            yield place.ids, readers[place.path].read(place.start, place.size)

    def clear(self) -> None:
        self._file = None
        self._places.clear()

    def _place_of(self, block: Block) -> tuple[Path, int] | None:
        return self._log.place_of(self._run, block) if self._log else None

    def _write(self, block: Block) -> int:
        if self._file is None:
            self._file = _OwnFile(self._folder)
        return self._file.append(block)

    def _open(self, path: Path | None) -> int:
        if path is not None:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        assert self._file is not None
        return os.dup(self._file.descriptor)


class _Reader:
    """Reads a file from beginning to end. Owns its descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)
        self._mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        self._mapped.madvise(mmap.MADV_SEQUENTIAL)
        self._data = np.frombuffer(self._mapped, dtype=np.uint8)
        self._behind = 0

    def read(self, start: int, size: int) -> Block:
        if start - self._behind >= WINDOW_BYTES:
            dropped = (start - self._behind) // mmap.PAGESIZE * mmap.PAGESIZE
            self._mapped.madvise(mmap.MADV_DONTNEED, self._behind, dropped)
            os.posix_fadvise(self._descriptor, self._behind, dropped, os.POSIX_FADV_DONTNEED)
            self._behind += dropped
        return self._data[start : start + size]


class _OwnFile:
    """An unnamed file, closed when the object is dropped: however a run ends, it leaves nothing
    behind."""

    def __init__(self, folder: Path) -> None:
        with tempfile.TemporaryFile(dir=folder) as file:
            self.descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.descriptor)
        self._size = 0
        self._written_out = 0
        self._writing_out: threading.Thread | None = None

    def append(self, block: Block) -> int:
        """Returns where the block begins. Raises `OSError`, and then keeps no part of the block."""
        begin = end = self._size
        try:
            while end < begin + block.size:
                end += os.pwrite(self.descriptor, block[end - begin :].data, end)
        except OSError:
            os.ftruncate(self.descriptor, begin)
            raise
        self._size = end
        self._write_out()
        return begin

    def _write_out(self) -> None:
        """Makes written pages leave memory as fast as the disk takes them. Otherwise the kernel
        keeps them until they fill the container's memory limit, and then stalls the writer."""
        if self._size - self._written_out < WINDOW_BYTES:
            return
        if self._writing_out is None or not self._writing_out.is_alive():
            self._written_out = self._size
            self._writing_out = threading.Thread(
                target=_write_out, args=(os.dup(self.descriptor), self._size), daemon=True
            )
            self._writing_out.start()


def _write_out(descriptor: int, size: int) -> None:
    try:
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, size, os.POSIX_FADV_DONTNEED)
    except OSError:
        pass  # these bytes were never promised to be on disk
    finally:
        os.close(descriptor)
