"""Two-server keys as evaluation reads them: rows as uploaded, or level-major segments.

A segment of K keys holds one field of all K keys, then the next field of all K keys, and so on:

    root seeds        K × 16 bytes
    for each level    K × 16 bytes of seed corrections, then (comparison) K ring words
    terminal words    `words` times K ring words

so a field at offset f of a row starts at K·f. Evaluation then reads each level as one run of
memory, and a file of segments can be memory-mapped instead of loaded whole. This module does no
I/O: callers map or read a file and pass the array.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tallyroom.fss.ring import Bytes, as_bytes
from tallyroom.fss.shape import TreeShape


@dataclass(frozen=True, repr=False)
class KeyRows:
    """K keys as (K, key_bytes) uint8 rows; may be a memory map."""

    shape: TreeShape
    rows: Bytes

    def __post_init__(self) -> None:
        as_bytes(self.rows, self.shape.key_bytes, "keys")

    @property
    def count(self) -> int:
        return len(self.rows)

    def field(self, offset: int, width: int, begin: int, end: int) -> Bytes:
        return np.ascontiguousarray(self.rows[begin:end, offset : offset + width])


@dataclass(frozen=True, repr=False)
class Segment:
    """K keys, level-major, without a header; `data` is one-dimensional and may be a memory map."""

    shape: TreeShape
    data: Bytes

    def __post_init__(self) -> None:
        if self.data.dtype != np.uint8 or self.data.ndim != 1:
            raise ValueError("a segment must be a one-dimensional uint8 array")
        if not self.data.flags.c_contiguous:
            raise ValueError("a segment must be contiguous")
        if self.data.size % self.shape.key_bytes:
            raise ValueError(
                f"a segment of {self.data.size} bytes does not divide into keys"
                f" of {self.shape.key_bytes} bytes"
            )

    @property
    def count(self) -> int:
        return self.data.size // self.shape.key_bytes

    def field(self, offset: int, width: int, begin: int, end: int) -> Bytes:
        start = self.count * offset
        run = self.data[start + begin * width : start + end * width]
        return run.reshape(end - begin, width)

    def rows(self) -> Bytes:
        """The keys as they were uploaded."""
        rows = np.empty((self.count, self.shape.key_bytes), dtype=np.uint8)
        for offset, width in self.shape.fields():
            rows[:, offset : offset + width] = self.field(offset, width, 0, self.count)
        return rows


@dataclass(frozen=True, repr=False)
class KeyTable:
    """Any number of segments of one shape, evaluated one after the other."""

    shape: TreeShape
    segments: tuple[Segment, ...] = ()

    def __post_init__(self) -> None:
        if any(segment.shape != self.shape for segment in self.segments):
            raise ValueError("a key table's segments must all have its shape")

    @property
    def count(self) -> int:
        return sum(segment.count for segment in self.segments)

    def append(self, segment: Segment) -> "KeyTable":
        return KeyTable(self.shape, (*self.segments, segment))


Keys = Bytes | Segment | KeyTable


def level_major(shape: TreeShape, rows: Bytes) -> Segment:
    """Transposes uploaded rows. Raises ValueError unless they are (K, key_bytes) uint8."""
    source = KeyRows(shape, rows)
    data = np.empty(source.count * shape.key_bytes, dtype=np.uint8)
    segment = Segment(shape, data)
    for offset, width in shape.fields():
        segment.field(offset, width, 0, source.count)[:] = rows[:, offset : offset + width]
    return segment


def table(shape: TreeShape, blocks: Iterable[Bytes]) -> KeyTable:
    """A key table with one segment for each block of rows."""
    return KeyTable(shape, tuple(level_major(shape, rows) for rows in blocks))


def parts(shape: TreeShape, keys: Keys) -> Sequence[KeyRows | Segment]:
    """`keys`, in whatever form, as pieces that all have `field`. Raises ValueError if they were
    stored for another shape."""
    if isinstance(keys, KeyTable | Segment):
        if keys.shape != shape:
            raise ValueError("these keys are stored for another domain, ring or function")
        return keys.segments if isinstance(keys, KeyTable) else (keys,)
    return (KeyRows(shape, np.asarray(keys)),)


def blocks(part: KeyRows | Segment, size: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of the part's keys, at most `size` at a time."""
    for begin in range(0, part.count, size):
        yield begin, min(begin + size, part.count)
