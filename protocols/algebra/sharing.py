"""Shamir's secret sharing (Shamir 1979) of elements of FIELD128.

A secret is the value at 0 of a polynomial with `threshold` coefficients, all but the first random;
holder i keeps its value at i + 1. Any threshold − 1 of these values are independent and uniform,
whatever the secret is.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.field import FIELD128, Vector
from tallyroom.protocols.randomness import Randomness

Ids = NDArray[np.uint32]

ELEMENT_BYTES = FIELD128.width


def draw_elements(randomness: Randomness, label: str, ids: Ids, count: int) -> Vector:
    """`count` uniform elements for every id, shape (len(ids), count, limbs).

    An id's elements depend on the label and the id only, as in `Randomness.rows`. Candidates that
    are not below the modulus, one in 2^59, are drawn again.
    """
    elements = FIELD128.unchecked(randomness.rows(label, ids, ELEMENT_BYTES * count)).copy()
    attempt = 0
    while not (fine := FIELD128.canonical(elements)).all():
        attempt += 1
        again = randomness.rows(f"{label}, again {attempt}", ids, ELEMENT_BYTES * count)
        elements = np.where(fine[..., None], elements, FIELD128.unchecked(again))
    return elements


def points_of(holders: NDArray[np.integer]) -> Vector:
    """The points of the holders' shares: their index plus one, because the secret is at 0."""
    points = FIELD128.zeros(len(holders))
    points[:, 0] = holders.astype(np.uint64) + np.uint64(1)
    return points


def deal(terms: Vector, holders: NDArray[np.integer]) -> Vector:
    """Shares (..., holders, limbs); the secret is term 0 of `terms`, (..., threshold, limbs)."""
    return FIELD128.evaluate(terms, points_of(holders))


def open_secrets(holders: NDArray[np.integer], shares: Vector) -> Vector:
    """Secrets (..., limbs) from the shares (..., holders, limbs) of exactly threshold holders."""
    return FIELD128.combine(_weights(holders.astype(np.uint32).tobytes()), shares)


@lru_cache(maxsize=256)
def _weights(holders: bytes) -> Vector:
    return FIELD128.lagrange_at_zero(points_of(np.frombuffer(holders, dtype=np.uint32)))
