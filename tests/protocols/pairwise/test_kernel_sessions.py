"""Kernels through whole sessions: the two sides' shares are shares of the reference."""

from fractions import Fraction

import numpy as np
import pytest

from tallyroom.protocols.garbling.clear_evaluation import evaluate
from tallyroom.protocols.garbling.laplace_circuit import CircuitLaplace
from tallyroom.protocols.garbling.outputs import OutputShares
from tallyroom.protocols.kernels.bundled import KendallTauB
from tallyroom.protocols.kernels.contract import Grid, Kernel
from tests.protocols.pairwise.dealing import dealt, random_bits
from tests.protocols.pairwise.kernel_samples import KINDS, on

LINKS = np.array([3, 9], dtype=np.uint64)
INSTANCES = 50


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("swapped", [False, True])
def test_shares_of_kernel_values(kind: type[Kernel], swapped: bool) -> None:
    each = on(kind, Grid.reals(-1.0, 1.0))
    draw = np.random.default_rng(4)
    count = len(LINKS) * INSTANCES
    columns = [draw.integers(g.low, g.high, (2, count), endpoint=True) for g in each.grids]
    x, y = np.stack(columns, axis=2)
    y[::4] = x[::4]
    circuit = each.circuit(swapped=swapped)
    shape = (len(LINKS), INSTANCES, -1)
    ours, theirs = (each.input_bits(side).reshape(shape) for side in (x, y))
    evaluator, garbler = dealt(LINKS, 1)
    answer = garbler.answer(
        circuit, ours, evaluator.request(circuit, theirs, OutputShares.XOR), OutputShares.XOR
    )
    bits = (answer.shares ^ evaluator.finish(answer.rows)).astype(np.uint8).reshape(count, -1)
    wanted = each.reference(y, x) if swapped else each.reference(x, y)
    assert np.array_equal(each.values(bits), wanted)
    if len(each.outputs) == 1:
        output = OutputShares.SIGNED if each.outputs[0].signed else OutputShares.UNSIGNED
        request = evaluator.request(circuit, theirs, output)
        answer = garbler.answer(circuit, ours, request, output)
        total = (answer.shares + evaluator.finish(answer.rows)).view(np.int64)
        assert np.array_equal(total.ravel(), wanted[:, 0])


def test_shares_of_noisy_values() -> None:
    each = on(KendallTauB, Grid.integers(0, 5))
    noise = CircuitLaplace.spending(Fraction(2), 1e-6, each.sensitivity, 1, len(each.outputs))
    circuit = each.circuit(noise)
    ours, theirs = (random_bits(seed, 2, 5, each.inputs(noise)) for seed in (1, 2))
    evaluator, garbler = dealt(LINKS, 2)
    answer = garbler.answer(
        circuit, ours, evaluator.request(circuit, theirs, OutputShares.XOR), OutputShares.XOR
    )
    bits = (answer.shares ^ evaluator.finish(answer.rows)).reshape(10, -1)
    assert np.array_equal(bits, evaluate(circuit, ours.reshape(10, -1), theirs.reshape(10, -1)))
