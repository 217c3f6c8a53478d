"""Kernels under garbling: what a session shares is what the kernel's reference says."""

import numpy as np
import pytest

from tallyroom.protocols.algebra.ring import signed
from tallyroom.protocols.garbling.outputs import IntegerShares
from tallyroom.protocols.kernels.bundled import (
    CollisionEntropy,
    Gini,
    KendallTau,
    KendallTauB,
    Variance,
)
from tallyroom.protocols.kernels.contract import Grid, Kernel
from tests.protocols.pairwise.dealing import dealt

SMALL = Grid.integers(-3, 4)
KERNELS: list[Kernel] = [
    Gini([SMALL]),
    Variance([SMALL]),
    CollisionEntropy([SMALL]),
    KendallTau([SMALL, SMALL]),
    KendallTauB([SMALL, SMALL]),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_additive_shares_of_every_output(kernel: Kernel) -> None:
    """4 links of 50 pairs of records, ties among them."""
    generator = np.random.default_rng(1)
    x, y = (generator.integers(-3, 5, (200, len(kernel.grids))) for _ in range(2))
    form = IntegerShares(tuple((out.bits, out.signed) for out in kernel.released()))
    circuit = kernel.circuit()
    evaluator, garbler = dealt(np.arange(4, dtype=np.uint64), 1)
    theirs = kernel.input_bits(y).reshape(4, 50, -1)
    request = evaluator.request(circuit, theirs, form)
    answer = garbler.answer(circuit, kernel.input_bits(x).reshape(4, 50, -1), request, form)
    totals = signed(answer.shares + evaluator.finish(answer.rows))
    assert np.array_equal(totals.reshape(200, -1), kernel.reference(x, y))
