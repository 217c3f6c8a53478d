"""The output rings Z_2^32 and Z_2^64, and the array types used throughout the package."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Points = npt.NDArray[np.uint64]
Words = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class Ring:
    """Z_2^bits. Shares are added in it, so counts must stay below 2^bits."""

    bits: int

    def __post_init__(self) -> None:
        if self.bits not in (32, 64):
            raise ValueError(f"a ring has 32 or 64 bits, not {self.bits}")

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """Little-endian on every machine, because rows and segments are views of it."""
        return np.dtype("<u4") if self.bits == 32 else np.dtype("<u8")

    def reduce(self, words: Words) -> Words:
        """Drops the high bits. Sums may be computed in 64 bits and reduced to Z_2^32 at the end."""
        return words.astype(self.dtype, copy=False)


Z32 = Ring(32)
Z64 = Ring(64)


def as_points(values: npt.ArrayLike, bits: int, name: str) -> Points:
    """`values` as a one-dimensional uint64 array.

    Raises ValueError unless they are integers of at most `bits` bits; `name` is for the message.
    """
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, not of shape {array.shape}")
    if array.size == 0:
        return np.zeros(0, dtype=np.uint64)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integers, not {array.dtype}")
    if array.dtype.kind == "i" and int(array.min()) < 0:
        raise ValueError(f"{name} must not be negative")
    points = array.astype(np.uint64)
    if bits < 64 and int(points.max()) >> bits:
        raise ValueError(f"{name} must lie below 2^{bits}")
    return points


def as_bytes(values: npt.ArrayLike, width: int, name: str) -> Bytes:
    """`values` as an array, without a copy. Raises ValueError unless they are (K, width) uint8."""
    array = np.asarray(values)
    if array.dtype != np.uint8:
        raise ValueError(f"{name} must be uint8, not {array.dtype}")
    if array.ndim != 2 or array.shape[1] != width:
        raise ValueError(f"{name} must have shape (K, {width}), not {array.shape}")
    return array
