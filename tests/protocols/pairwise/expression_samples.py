"""Written kernels on small grids, and what their circuits compute."""

import itertools

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
