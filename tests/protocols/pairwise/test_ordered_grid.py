"""The grid of columns of which only the order matters."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.protocols.kernels.ordered_grid import OrderedGrid

FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(FLOATS, min_size=1, max_size=30))
def test_an_ordered_grid_keeps_the_order(values: list[float]) -> None:
    """What rounds to different 24-bit numbers keeps its order, the rest is tied, and nothing is
    turned round. Past the largest of them, all is tied."""
    column = np.array(values)
    grid = OrderedGrid()
    ranks = grid.encode(column)
    assert (ranks >= grid.low).all()
    assert (ranks <= grid.high).all()
    largest = float(np.finfo(np.float32).max)
    rounded = np.clip(column, -largest, largest).astype(np.float32)
    order = np.sign(rounded[:, None] - rounded[None, :].astype(np.float64))
    assert np.array_equal(np.sign(ranks[:, None] - ranks[None, :]), order)
    below = column[:, None] < column[None, :]
    assert (ranks[:, None] <= ranks[None, :])[below].all()


def test_an_ordered_grid_has_one_zero_and_every_float32() -> None:
    grid = OrderedGrid()
    zeros = grid.encode(np.array([0.0, -0.0, 1e-320, -1e-320]))
    assert zeros.tolist() == [0, 0, 0, 0]
    around = np.float32(1.0)
    steps = [np.nextafter(around, np.float32(-2)), around, np.nextafter(around, np.float32(2))]
    ranks = grid.encode(np.array(steps, dtype=np.float64))
    assert np.diff(ranks).tolist() == [1, 1]
    negative = grid.encode(-np.array(steps, dtype=np.float64))
    assert np.diff(negative).tolist() == [-1, -1]
