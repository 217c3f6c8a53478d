"""The loops of `polynomial.py` over contiguous buffers of canonical elements; 1 or 2 limbs."""

import numpy as np
from numpy.typing import NDArray

_Vector = NDArray[np.uint64]

def shift(
    limbs: int,
    values: _Vector,
    outer: int,
    n: int,
    inner: int,
    roots: _Vector,
    inverse_roots: _Vector,
    twist: _Vector,
    /,
) -> None: ...
def lagrange(
    limbs: int,
    points: _Vector,
    count: int,
    n: int,
    roots: _Vector,
    scaled: _Vector,
    out: _Vector,
    /,
) -> None: ...
def weighted(
    limbs: int, weights: _Vector, values: _Vector, outer: int, n: int, inner: int, out: _Vector, /
) -> None: ...
def powers(limbs: int, bases: _Vector, bases_count: int, count: int, out: _Vector, /) -> None: ...
def pair_sums(limbs: int, values: _Vector, rows: int, pairs: int, out: _Vector, /) -> None: ...
