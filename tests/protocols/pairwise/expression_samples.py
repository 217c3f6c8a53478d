"""Written kernels on small grids, and what their circuits compute."""

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tallyroom.protocols.garbling.clear_evaluation import evaluate
from tallyroom.protocols.kernels.contract import Grid, Integers, Kernel
from tallyroom.protocols.kernels.expression import Expression, ExpressionKernel


def kernel(text: str, *grids: Grid) -> ExpressionKernel:
    return Expression("test", text)(grids)


def computed(each: Kernel, x: Integers, y: Integers) -> Integers:
    return each.values(evaluate(each.circuit(), each.input_bits(x), each.input_bits(y)))


def every_pair(each: Kernel) -> tuple[Integers, Integers]:
    columns = [range(grid.low, grid.high + 1) for grid in each.grids]
    records = np.array(list(itertools.product(*columns)))
    return np.repeat(records, len(records), axis=0), np.tile(records, (len(records), 1))


SMALL = Grid.integers(0, 15)
SIGNED = Grid.integers(-8, 7)
HALVES = Grid(-8, 7, 1)
FAR = Grid(0, 15, 1, origin=10**6)
BELOW = Grid(0, 15, 0, origin=-1005)

EXAMPLES: dict[str, Callable[[Any, Any], Any]] = {
    "a.x + b.x": lambda a, b: a + b,
    "a.x - b.x": lambda a, b: a - b,
    "a.x * b.x": lambda a, b: a * b,
    "-a.x": lambda a, b: -a,
    "a.x - b.x - 3": lambda a, b: a - b - 3,
    "2 * a.x + b.x * 3 - 1.5": lambda a, b: 2 * a + 3 * b - 1.5,
    "(a.x - b.x) * (a.x - b.x)": lambda a, b: (a - b) ** 2,
    "abs(a.x - b.x)": lambda a, b: np.abs(a - b),
    "abs(a.x + 20)": lambda a, b: np.abs(a + 20),
    "min(a.x, b.x) + max(a.x, 2)": lambda a, b: np.minimum(a, b) + np.maximum(a, 2),
    "a.x > b.x": operator.gt,
    "a.x >= b.x": operator.ge,
    "a.x < b.x": operator.lt,
    "a.x <= b.x": operator.le,
    "a.x == b.x": operator.eq,
    "a.x != b.x": operator.ne,
    "a.x > 3 and b.x < 2 or not a.x == b.x": lambda a, b: (a > 3) & (b < 2) | ~(a == b),
    "not (a.x > 0 or b.x > 0)": lambda a, b: ~((a > 0) | (b > 0)),
    "(a.x > 0) == (b.x > 0)": lambda a, b: (a > 0) == (b > 0),
    "(a.x > 0) != (b.x > 0)": lambda a, b: (a > 0) != (b > 0),
    "if(a.x > b.x, a.x, -b.x)": lambda a, b: np.where(a > b, a, -b),
    "if(a.x > b.x, a.x > 1, b.x > 1)": lambda a, b: np.where(a > b, a > 1, b > 1),
    "abs(a.x - b.x) * (if(a.x < 1, 1, 0) - 2)": lambda a, b: np.abs(a - b) * ((a < 1) - 2.0),
    "a.x > 0.25": lambda a, b: a > 0.25,
    "0.1 * a.x": lambda a, b: round(0.1 * 2**16) / 2**16 * a,
}
"""Texts, and the same in numpy on the columns of one record and of the other."""
