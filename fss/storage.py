"""Two-server keys as evaluation reads them: rows as uploaded, or level-major segments.

A segment of K keys holds every field of its rows for all K keys before the next field:

    header            32 bytes, below
    root seeds        K × 16 bytes
    for each level    K × 16 bytes of seed corrections, then (comparison) K ring words
    terminal words    `words` times K ring words

so a field at offset f of a row starts at K·f behind the header. Evaluation then reads each level
as one run of memory, and a file of segments can be mapped and never be loaded whole.

The header is described at `pack_header`. This module does no I/O: callers map or read a file and
pass the array.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fss.ring import Bytes, Ring, as_bytes
from fss.shape import TreeShape

MAGIC: Final = b"TRFS"
VERSION: Final = 1
KIND_POINT: Final = 0
KIND_COMPARISON: Final = 1
KIND_SEED_TABLE: Final = 2
KIND_SQUARE_ROOT: Final = 3
_HEADER: Final = struct.Struct("<4sHBBBBB5xQ8x")
HEADER_BYTES: Final = _HEADER.size


@dataclass(frozen=True)
class BlockKind:
    """What a stored block of keys holds; a block of another kind is refused."""

    kind: int
    bits: int
    ring: Ring
    server: int
    servers: int


def pack_header(block: BlockKind, count: int) -> Bytes:
    """32 bytes, little-endian: magic "TRFS", u16 version, u8 kind, u8 ring bits, u8 domain bits,
    u8 server, u8 servers, 5 zero bytes, u64 count of keys, 8 zero bytes."""
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        block.kind,
        block.ring.bits,
        block.bits,
        block.server,
        block.servers,
        count,
    )
    return np.frombuffer(header, dtype=np.uint8)


def open_block(block: BlockKind, key_bytes: int, stored: Bytes) -> tuple[Bytes, int]:
    """The keys' bytes behind the header at the start of `stored`, as a view, and the total length.

    Raises ValueError if the block is cut short, of another version, or not of the kind asked for.
    """
    if stored.dtype != np.uint8 or stored.ndim != 1 or stored.size < HEADER_BYTES:
        raise ValueError("a stored block is cut short in its header")
    header = stored[:HEADER_BYTES].tobytes()
    count = int(_HEADER.unpack(header)[-1])
    if header[:6] != pack_header(block, count)[:6].tobytes():
        raise ValueError(f"not a block of keys of version {VERSION}")
    if header != pack_header(block, count).tobytes():
        raise ValueError("a stored block is for another domain, ring, function or server")
    if count > (stored.size - HEADER_BYTES) // key_bytes:
        raise ValueError(f"a stored block of {count} keys is cut short")
    used = HEADER_BYTES + count * key_bytes
    return stored[HEADER_BYTES:used], used


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
    """K keys level-major, without the header; `data` is one-dimensional, may be a memory map."""

    shape: TreeShape
    data: Bytes

    def __post_init__(self) -> None:
        if self.data.dtype != np.uint8 or self.data.ndim != 1:
            raise ValueError("a segment must be a one-dimensional uint8 array")
        if not self.data.flags.c_contiguous:
            raise ValueError("a segment must be contiguous")
        if self.data.size % self.shape.key_bytes:
            raise ValueError(
                f"a segment of {self.data.size} bytes is no whole number of keys"
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
    """Transpose uploaded rows. Raises ValueError unless they are (K, key_bytes) uint8."""
    source = KeyRows(shape, rows)
    data = np.empty(source.count * shape.key_bytes, dtype=np.uint8)
    segment = Segment(shape, data)
    for offset, width in shape.fields():
        segment.field(offset, width, 0, source.count)[:] = rows[:, offset : offset + width]
    return segment


def table(shape: TreeShape, blocks: Iterable[Bytes]) -> KeyTable:
    """A key table of one segment for each block of rows."""
    return KeyTable(shape, tuple(level_major(shape, rows) for rows in blocks))


def pack_segment(server: int, segment: Segment) -> Bytes:
    """The persisted form: header, then data."""
    return np.concatenate([pack_header(_kind(segment.shape, server), segment.count), segment.data])


def open_segment(shape: TreeShape, server: int, stored: Bytes) -> tuple[Segment, int]:
    """The segment at the start of `stored`, and how many bytes it took; see `open_block`."""
    data, used = open_block(_kind(shape, server), shape.key_bytes, stored)
    return Segment(shape, data), used


def _kind(shape: TreeShape, server: int) -> BlockKind:
    kind = KIND_COMPARISON if shape.step else KIND_POINT
    return BlockKind(kind, shape.bits, shape.ring, server, 2)


def parts(shape: TreeShape, keys: Keys) -> Sequence[KeyRows | Segment]:
    """`keys` in any of its forms, as pieces with a common `field`; ValueError on another shape."""
    if isinstance(keys, KeyTable | Segment):
        if keys.shape != shape:
            raise ValueError("these keys are stored for another domain, ring or function")
        return keys.segments if isinstance(keys, KeyTable) else (keys,)
    return (KeyRows(shape, np.asarray(keys)),)


def blocks(part: KeyRows | Segment, size: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of the part's keys, at most `size` at a time."""
    for begin in range(0, part.count, size):
        yield begin, min(begin + size, part.count)
