"""The restricted tree, against its definition for every subset of eight points."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.protocols.privacy.smoothing.skeleton import Skeleton, skeleton
from tallyroom.protocols.privacy.tree import Tree


def assert_restricts(tree: Skeleton, indices: list[int], levels: int) -> None:
    m = len(indices)
    nodes: dict[int, set[int]] = {}
    for point, path in enumerate(Tree(2**levels).paths(np.array(indices))):
        for node in path.tolist():
            nodes.setdefault(node, set()).add(point)
    blocks = {frozenset(points) for points in nodes.values()}
    chains = {block: sum(set(block) == points for points in nodes.values()) for block in blocks}

    below = [frozenset([i]) for i in range(m)]
    for fork in range(m - 1):
        left, right = below[tree.left[fork]], below[tree.right[fork]]
        assert max(left) == tree.gap[fork] == min(right) - 1
        block = left | right
        assert (min(block), max(block)) == (tree.first[fork], tree.last[fork])
        assert tree.above[tree.left[fork]] == tree.above[tree.right[fork]] == m + fork
        below.append(block)
    assert set(below) == blocks
    assert tree.above[-1] == 2 * m - 1
    assert [chains[block] for block in below] == tree.length.tolist()

    floors = np.concatenate([np.empty(0, dtype=np.int64), *tree.floors])
    assert sorted(floors.tolist()) == list(range(m - 1))
    done = set(range(m))
    for floor in tree.floors:
        assert done.issuperset(tree.left[floor].tolist() + tree.right[floor].tolist())
        done |= set((m + floor).tolist())


@pytest.mark.parametrize("levels", [3, 5])
def test_every_subset_of_eight_points(levels: int) -> None:
    for subset in range(1, 2**8):
        indices = [i + 1 for i in range(8) if subset >> i & 1]
        assert_restricts(skeleton(np.array(indices), levels), indices, levels)


@given(st.sets(st.integers(1, 2**32), min_size=1, max_size=60))
def test_points_of_a_domain_of_32_bits(points: set[int]) -> None:
    indices = sorted(points)
    assert_restricts(skeleton(np.array(indices), 32), indices, 32)
