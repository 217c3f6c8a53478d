"""Field arithmetic in numpy. The native loops must agree with it; it is used where there are none.

An element is spread over digits of 32 bits in int64, where sums and small multiples do not
overflow; `fold` brings such columns back below the modulus p = B² − kB + 1.
"""

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.uint64]
Digits = NDArray[np.int64]

_SHIFT = np.int64(32)
_MASK = np.int64(0xFFFFFFFF)


def digits(vector: Vector) -> Digits:
    """(..., limbs) to (..., 2·limbs), lowest first."""
    split = np.empty((*vector.shape[:-1], 2 * vector.shape[-1]), dtype=np.int64)
    split[..., 0::2] = vector & np.uint64(0xFFFFFFFF)
    split[..., 1::2] = vector >> np.uint64(32)
    return split


def fold(columns: Digits, k: int) -> Vector:
    """Canonical elements from columns of magnitude below 2^61. Overwrites its argument."""
    size = columns.shape[-1]
    # The first carry out of the top is below 2^30, the second within one of 0, the third 0.
    for _ in range(2):
        over = _carry(columns)
        columns[..., 0] -= over
        columns[..., size // 2] += np.int64(k) * over
    _carry(columns)
    words = columns.view(np.uint64)
    whole: Vector = words[..., 0::2] | (words[..., 1::2] << np.uint64(32))
    return _subtract_modulus(whole, k)


def _carry(columns: Digits) -> Digits:
    """Brings every column into [0, 2^32) and returns the carry out of the last one."""
    over = np.zeros(columns.shape[:-1], dtype=np.int64)
    for place in range(columns.shape[-1]):
        column = columns[..., place] + over
        columns[..., place] = column & _MASK
        over = column >> _SHIFT
    return over


def modulus_limbs(limbs: int, k: int) -> Vector:
    p = (1 << 64 * limbs) - (k << 32 * limbs) + 1
    return np.array([(p >> 64 * i) & (2**64 - 1) for i in range(limbs)], dtype=np.uint64)


def canonical(vector: Vector, k: int) -> NDArray[np.bool_]:
    """Whether each element is below the modulus."""
    p = modulus_limbs(vector.shape[-1], k)
    below: NDArray[np.bool_] = vector[..., 0] < p[0]
    for limb in range(1, len(p)):
        below = (vector[..., limb] < p[limb]) | ((vector[..., limb] == p[limb]) & below)
    return below


def _subtract_modulus(vector: Vector, k: int) -> Vector:
    """Reduces elements below 2p to elements below p."""
    p = modulus_limbs(vector.shape[-1], k)
    taken = np.where(canonical(vector, k)[..., None], np.uint64(0), p)
    out = vector - taken
    if len(p) == 2:
        out[..., 1] -= (vector[..., 0] < taken[..., 0]).astype(np.uint64)
    return out


def add(a: Vector, b: Vector, k: int) -> Vector:
    return fold(digits(a) + digits(b), k)


def sub(a: Vector, b: Vector, k: int) -> Vector:
    return fold(digits(a) - digits(b), k)


def mul(a: Vector, b: Vector, k: int) -> Vector:
    """The schoolbook product, folded by B² = kB − 1 and B³ = (k² − 1)B − k."""
    x, y = digits(a).view(np.uint64), digits(b).view(np.uint64)
    size = x.shape[-1]
    product = np.zeros((*x.shape[:-1], 2 * size), dtype=np.int64)
    for i in range(size):
        part = x[..., i : i + 1] * y
        product[..., i : i + size] += (part & np.uint64(0xFFFFFFFF)).astype(np.int64)
        product[..., i + 1 : i + size + 1] += (part >> np.uint64(32)).astype(np.int64)
    _carry(product)
    half = size // 2
    l0, l1, h0, h1 = (product[..., half * part : half * (part + 1)] for part in range(4))
    columns = np.concatenate([l0 - h0 - k * h1, l1 + k * h0 + (k * k - 1) * h1], axis=-1)
    return fold(columns, k)


def inv(a: Vector, k: int) -> Vector:
    """a^(p − 2), which is the inverse of a, and 0 for 0."""
    limbs = a.shape[-1]
    result = np.zeros_like(a)
    result[..., 0] = 1
    power, exponent = a, (1 << 64 * limbs) - (k << 32 * limbs) - 1
    while exponent:
        if exponent & 1:
            result = mul(result, power, k)
        power = mul(power, power, k)
        exponent >>= 1
    return result


def total(values: Vector, axis: int, k: int) -> Vector:
    """Sum over an axis, which is not that of the limbs, of fewer than 2^29 terms."""
    return fold(digits(values).sum(axis=axis, dtype=np.int64), k)


def horner(coefficients: Vector, points: Vector, k: int) -> Vector:
    """(rows, terms, limbs) at (count, limbs), shape (rows, count, limbs)."""
    rows, terms, limbs = coefficients.shape
    out = np.zeros((rows, len(points), limbs), dtype=np.uint64)
    for term in reversed(range(terms)):
        out = add(mul(out, points, k), coefficients[:, None, term], k)
    return out
