"""Hilbert's order: a bijection on every rectangle, and a path where it can be one."""

import numpy as np
import pytest

from tallyroom.protocols.privacy.hilbert import hilbert_order


@pytest.mark.parametrize("rows", range(1, 14))
def test_every_cell_comes_once(rows: int) -> None:
    for columns in range(1, 14):
        assert sorted(hilbert_order(rows, columns)) == list(range(rows * columns))


@pytest.mark.parametrize(
    "shape", [(1, 1), (2, 2), (4, 4), (32, 32), (1, 9), (9, 1), (4, 12), (12, 4), (8, 40)]
)
def test_neighbours_in_the_order_are_neighbours_in_the_grid(shape: tuple[int, int]) -> None:
    row, column = np.divmod(hilbert_order(*shape), shape[1])
    assert (np.abs(np.diff(row)) + np.abs(np.diff(column)) == 1).all()


def test_runs_of_the_order_are_compact() -> None:
    """The first quarter, sixteenth, … of a square are squares: that is Hilbert's, not a snake."""
    row, column = np.divmod(hilbert_order(16, 16), 16)
    for side in (1, 2, 4, 8):
        blocks = row.reshape(-1, side**2) // side * 16 + column.reshape(-1, side**2) // side
        assert (blocks == blocks[:, :1]).all()


def test_no_cell_is_refused() -> None:
    for shape in ((0, 1), (1, 0), (-1, 3)):
        with pytest.raises(ValueError, match="cells"):
            hilbert_order(*shape)
