"""The two loops of DAWA's first stage, native or pure: interval costs and the cheapest partition.

Intervals have lengths 1, 2, 4, …, 2^(levels−1) ≤ N and start anywhere. Tables have a row a length
and a column a start; entries whose interval runs past N are unused.
"""

import os

import numpy as np
from numpy.typing import NDArray

try:
    from tallyroom.protocols.privacy import _dawa
except ImportError:  # no compiler at build time
    HAVE_NATIVE = False
else:
    HAVE_NATIVE = True

Integers = NDArray[np.int64]

_WINDOW_CELLS = 1 << 22


def levels_of(cells: int) -> int:
    """How many lengths there are for N cells."""
    return cells.bit_length()


def native() -> bool:
    return HAVE_NATIVE and os.environ.get("TALLYROOM_NATIVE") != "0"


def deviations(cells: Integers) -> Integers:
    """M·Σ|x_j − mean| of every interval, M being the longest length: exact integers.

    Preconditions: N ≤ 2^20 and Σ|x_j| ≤ 2^40, so that nothing overflows. O(N log² N).
    """
    if not native():
        return deviations_twin(cells)
    table = np.empty((levels_of(len(cells)), len(cells)), dtype=np.int64)
    _dawa.deviations(np.ascontiguousarray(cells), len(table), table)
    return table


def deviations_twin(cells: Integers) -> Integers:
    """The deviations, computed over all windows of every length: O(N²)."""
    n, levels = len(cells), levels_of(len(cells))
    table = np.zeros((levels, n), dtype=np.int64)
    for level in range(1, levels):
        width = 1 << level
        windows = np.lib.stride_tricks.sliding_window_view(cells, width)
        rows = max(1, _WINDOW_CELLS // width)
        for start in range(0, len(windows), rows):
            some = windows[start : start + rows]
            spread = np.abs(width * some - some.sum(axis=1, keepdims=True)).sum(axis=1)
            table[level, start : start + len(some)] = (1 << (levels - 1)) // width * spread
    return table


def cheapest(costs: Integers) -> Integers:
    """The lengths, left to right, of the intervals that cover all cells at the least total cost.

    Of equal totals the one whose last interval is shortest, then the last but one, and so on: an
    order of partitions that reads no data, which stage 1's proof needs. Precondition: no sum of
    costs over a partition overflows. O(N log N).
    """
    if not native():
        last = cheapest_twin(costs)
    else:
        last = np.empty(costs.shape[1], dtype=np.int64)
        _dawa.cheapest(np.ascontiguousarray(costs), len(costs), last)
    lengths = []
    end = len(last)
    while end:
        lengths.append(int(last[end - 1]))
        end -= lengths[-1]
    return np.array(lengths[::-1], dtype=np.int64)


def cheapest_twin(costs: Integers) -> Integers:
    """For each prefix of the cells, the length of the last interval of its cheapest partition."""
    rows = costs.tolist()
    best = [0]
    last = []
    for end in range(1, costs.shape[1] + 1):
        cost, level = min(
            (best[end - (1 << level)] + row[end - (1 << level)], level)
            for level, row in enumerate(rows)
            if 1 << level <= end
        )
        best.append(cost)
        last.append(1 << level)
    return np.array(last, dtype=np.int64)
