"""Hilbert's order of the cells of a grid: neighbours in the order are near each other in the grid.

A rectangle is covered by squares along its longer side, each a power of two that spans the shorter
one. Hilbert's curve enters a square at one corner and leaves it at the corner beside it, so the
squares' curves join. Cells outside the rectangle are passed over: the order is a bijection for
every rectangle, and a path of single steps where the sides are a power of two and a multiple of it.
"""

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]


def hilbert_order(rows: int, columns: int) -> Index:
    """The cells' places in a grid stored row by row, in Hilbert's order. Raises ValueError for no
    cell."""
    if rows < 1 or columns < 1:
        raise ValueError(f"a grid needs cells, not {rows} × {columns}")
    row, column = (axis.ravel() for axis in np.indices((rows, columns)))
    along, across = (row, column) if rows > columns else (column, row)
    side = 1 << (min(rows, columns) - 1).bit_length()
    distance = along // side * side**2 + _distance(along % side, across, side)
    order: Index = np.argsort(distance)
    return order


def _distance(x: Index, y: Index, side: int) -> Index:
    """How far along the curve, from (0, 0) to (side − 1, 0), each cell of a square lies.

    Quadrants are visited in the order (0, 0), (0, 1), (1, 1), (1, 0) of (right, up); the first and
    the last hold the curve mirrored at one of the diagonals.
    """
    distance = np.zeros_like(x)
    while side > 1:
        side //= 2
        right, up = x >= side, y >= side
        distance += side**2 * np.where(right, 3 - up, up)
        x, y = x % side, y % side
        first, last = ~right & ~up, right & ~up
        x, y = (
            np.where(first, y, np.where(last, side - 1 - y, x)),
            np.where(first, x, np.where(last, side - 1 - x, y)),
        )
    return distance
