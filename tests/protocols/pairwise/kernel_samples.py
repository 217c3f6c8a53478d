"""The kernels that are tested, and their values on records."""

import numpy as np

from tallyroom.protocols.garbling.clear_evaluation import from_bits, to_bits
from tallyroom.protocols.kernels.bundled import (
    Auc,
    CollisionEntropy,
    Gini,
    KendallTau,
    KendallTauB,
    PublicClassesAuc,
    Variance,
)
from tallyroom.protocols.kernels.contract import Grid, Integers, Kernel

KINDS: list[type[Kernel]] = [
    Gini,
    Variance,
    CollisionEntropy,
    KendallTau,
    KendallTauB,
    Auc,
    PublicClassesAuc,
]
LABEL = Grid.integers(0, 1)
GRIDS = {
    "from 0": Grid.integers(0, 4),
    "all codes": Grid.integers(0, 7),
    "around 0": Grid.integers(-3, 4),
    "one side": Grid.integers(5, 6),
    "below 0": Grid.integers(-5, -3),
    "halves, far": Grid(0, 5, 1, origin=1000),
}


def on(kind: type[Kernel], grid: Grid) -> Kernel:
    return kind([LABEL if column == "label" else grid for column in kind.columns])


def every_code(each: Kernel) -> Integers:
    """All that a record's bits can say, row by row."""
    bits = to_bits(np.arange(1 << each.record_bits), each.record_bits)
    columns, start = [], 0
    for grid in each.grids:
        columns.append(from_bits(bits[:, start : start + grid.bits], grid.signed))
        start += grid.bits
    return np.stack(columns, axis=1)
