"""Which nodes of a verified key's tree given thresholds visit, and which of them are compared."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from tallyroom.fss.ring import Bytes, Points

NODE_WEIGHTS: Final = 4
"""Words of weights for each compared node: three for its proof, and one unused."""

MIN_LEAF_LEVEL: Final = 2


class NodeKind(IntEnum):
    INNER = 0
    """Split into its children, not compared."""
    CHECKED = 1
    """Split into its children and compared, because its level has leaves."""
    LEAF = 2


@dataclass(frozen=True)
class Nodes:
    """`kinds`, `levels` and `prefixes` of the visited nodes, in preorder. They form a whole tree,
    whose leaves cover the domain. `ends` is, for each threshold, the leaf that ends there."""

    kinds: Bytes
    levels: Points
    prefixes: Points
    ends: Points

    @property
    def leaves(self) -> int:
        return int(np.count_nonzero(self.kinds == NodeKind.LEAF))

    @property
    def checks(self) -> int:
        return int(np.count_nonzero(self.kinds != NodeKind.INNER))

    @property
    def deepest(self) -> int:
        return int(self.levels.max())


def state_block(level: int) -> int:
    """Which block of a row corrects the states of a level. The blocks that correct its values and
    proofs follow; the first level has neither."""
    return 1 if level == 1 else 3 * level - 4


def blocks_of(levels: int) -> int:
    """How many blocks the first `levels` levels of a row take; `levels` is at least two."""
    return state_block(levels) + 3


def visited(points: Points, bits: int) -> Nodes:
    """The nodes that `points` visit. A node is split if it contains a threshold other than its last
    point; nodes above the second level are always split."""
    points = points.astype(np.uint64)
    distinct = np.unique(points)
    prefixes = np.zeros(1, dtype=np.uint64)
    found: list[tuple[Points, Points, Bytes]] = []
    for level in range(bits + 1):
        last = np.uint64((1 << (bits - level)) - 1)
        first = _first(prefixes, bits - level)
        inside = np.searchsorted(distinct, first) < np.searchsorted(distinct, first + last)
        split = inside if level >= MIN_LEAF_LEVEL else np.ones(len(prefixes), dtype=bool)
        inner = NodeKind.INNER if split.all() else NodeKind.CHECKED
        kinds = np.where(split, inner, NodeKind.LEAF).astype(np.uint8)
        found.append((np.full(len(prefixes), level, dtype=np.uint64), prefixes, kinds))
        parents = prefixes[split]
        if not len(parents):
            break
        prefixes = np.stack([2 * parents, 2 * parents + 1], axis=1).reshape(-1).astype(np.uint64)
    levels = np.concatenate([level for level, _, _ in found])
    prefixes = np.concatenate([path for _, path, _ in found])
    kinds = np.concatenate([kind for _, _, kind in found])
    first = np.concatenate([_first(path, bits - level) for level, (_, path, _) in enumerate(found)])
    order = np.lexsort((levels, first))
    levels, prefixes, kinds = levels[order], prefixes[order], kinds[order]
    starts = first[order][kinds == NodeKind.LEAF]
    ends = np.searchsorted(starts, points, side="right").astype(np.uint64) - np.uint64(1)
    return Nodes(kinds, levels, prefixes, ends)


def _first(prefixes: Points, below: int) -> Points:
    """The first point of each node that has `below` bits below it. numpy cannot shift by 64."""
    return prefixes << np.uint64(below) if below < 64 else prefixes
