"""What machines keep of submissions: in files, with memory bounded by a block.

A file has no name: it goes with the run, or with the process, however that ends. Nothing of it is
needed after a crash, because a server that survives one is told everything again by its journal.
"""

import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.uint32]
Block = NDArray[np.uint8]

WINDOW_BYTES = 16 << 20
"""How much of a file may stay in memory behind whoever writes or reads it."""


class _NamelessFile:
    """Closed when it is dropped: a run that ends in whatever way leaves nothing open."""

    def __init__(self, folder: Path) -> None:
        with tempfile.TemporaryFile(dir=folder) as file:
            self.descriptor = os.dup(file.fileno())
        self.close = weakref.finalize(self, os.close, self.descriptor)

    def duplicate(self) -> int:
        return os.dup(self.descriptor)


class FileBulk:
    """The submissions of one run. `folder` is where there is room for them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: _NamelessFile | None = None
        self._blocks: list[tuple[Ids, int, int]] = []
        self._size = 0
        self._written_out = 0
        self._writing_out: threading.Thread | None = None

    def append(self, ids: Ids, block: Block) -> None:
        """Raises `OSError` where there is no room; then nothing of the block is kept."""
        if self._file is None:
            self._file = _NamelessFile(self._folder)
        data = np.ascontiguousarray(block).reshape(-1).data
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._file.descriptor, data[written:], self._size + written)
        except OSError:
            os.ftruncate(self._file.descriptor, self._size)
            raise
        # A copy: ids are a view of the message, and would keep the whole of it in memory.
        self._blocks.append((ids.copy(), self._size, len(data)))
        self._size += len(data)
        self._write_out()

    def blocks(self) -> Iterator[tuple[Ids, Block]]:
        """Blocks are mapped. When the caller goes on to the next, those behind it leave its memory;
        one that it keeps is read from the file again."""
        if self._file is None:
            return
        descriptor = self._file.duplicate()
        try:
            mapped = mmap.mmap(descriptor, self._size, access=mmap.ACCESS_READ)
            mapped.madvise(mmap.MADV_SEQUENTIAL)
            data = np.frombuffer(mapped, dtype=np.uint8)
            read = 0
            for ids, start, size in list(self._blocks):
                if start - read >= WINDOW_BYTES:
                    behind = (start - read) // mmap.PAGESIZE * mmap.PAGESIZE
                    mapped.madvise(mmap.MADV_DONTNEED, read, behind)
                    os.posix_fadvise(descriptor, read, behind, os.POSIX_FADV_DONTNEED)
                    read += behind
                yield ids, data[start : start + size]
        finally:
            os.close(descriptor)

    def clear(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._blocks.clear()
        self._size = self._written_out = 0

    def _write_out(self) -> None:
        """Sees to it that written pages leave memory as fast as the disk takes them. Left to
        itself, the system keeps them until they fill the memory that a container may have, and
        then stops the writer."""
        if self._size - self._written_out < WINDOW_BYTES or self._file is None:
            return
        if self._writing_out is None or not self._writing_out.is_alive():
            self._written_out = self._size
            self._writing_out = threading.Thread(
                target=_write_out, args=(self._file.duplicate(), self._size), daemon=True
            )
            self._writing_out.start()


def _write_out(descriptor: int, size: int) -> None:
    try:
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, size, os.POSIX_FADV_DONTNEED)
    except OSError:
        pass  # nobody was promised that this is on disk
    finally:
        os.close(descriptor)
