"""The kernels that are tested, and their values on records."""

from tallyroom.protocols.kernels.bundled import (
    Auc,
    CollisionEntropy,
    Gini,
    KendallTau,
    KendallTauB,
    PublicClassesAuc,
    Variance,
)
from tallyroom.protocols.kernels.contract import Grid, Kernel

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


def on(kind: type[Kernel], grid: Grid) -> Kernel:
    return kind([LABEL if column == "label" else grid for column in kind.columns])
