"""What each side sees does not depend on the other's input: statistics of whole views.

Two-sample chi-square on 128 joint cells, alpha = 1e-9, n = 5,000 links for each input. The cells
are low bits of what the side holds, its share among them. A share that gave the output away on one
link of six is found, which each test shows.
"""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.garbling.circuit import AND
from tallyroom.protocols.garbling.outputs import OutputShares
from tests.goodness import ALPHA, uniform_bytes_p
from tests.protocols.garbling.circuits import single_gate
from tests.protocols.pairwise.dealing import dealt

N = 5_000
CIRCUIT = single_gate(AND)
LINKS = np.arange(N, dtype=np.uint64)


class Run:
    """One AND of x and y on N links, with all that both sides hold in the end."""

    def __init__(self, x: int, y: int, seed: int, output: OutputShares) -> None:
        evaluator, garbler = dealt(LINKS, seed)
        bits = np.ones((N, 1, 1), dtype=np.uint8)
        self.request = evaluator.request(CIRCUIT, bits * y, output)
        self.own_labels = evaluator._labels[:, 0, 0]
        answer = garbler.answer(CIRCUIT, bits * x, self.request, output)
        self.rows: Bytes = answer.rows
        self.garbler_shares: Vector = answer.shares.reshape(N)
        self.evaluator_shares: Vector = evaluator.finish(answer.rows).reshape(N)

    def evaluator_cells(self, share: Vector) -> NDArray[np.int64]:
        """Its label's colour, and bits of seed, both table rows, ciphertext and digest."""
        places = [self.rows[:, place] for place in (0, 16, 32, 48, -1)]
        return cells([self.own_labels[:, 0], *places], share)

    def garbler_cells(self, share: Vector) -> NDArray[np.int64]:
        """Bits of six columns of the request."""
        return cells([self.request[:, 4 + column] for column in range(6)], share)

    def partly_opened(self, own: Vector, other: Vector) -> Vector:
        return np.where(LINKS % 6 == 0, own ^ other, own)


def cells(columns: list[Bytes], share: Vector) -> NDArray[np.int64]:
    """How often each combination of the lowest bits occurs."""
    bits = np.stack([*(column.astype(np.uint64) for column in columns), share]) & np.uint64(1)
    numbers = (bits << np.arange(len(bits), dtype=np.uint64)[:, None]).sum(axis=0)
    return np.bincount(numbers.astype(np.int64), minlength=1 << len(bits))


def differ(left: NDArray[np.int64], right: NDArray[np.int64]) -> float:
    table = np.stack([left, right])
    return float(stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue)


@pytest.mark.parametrize("y", [0, 1])
@pytest.mark.parametrize("output", [OutputShares.XOR, OutputShares.UNSIGNED])
def test_the_evaluator_sees_the_same_for_every_input_of_the_garbler(
    output: OutputShares, y: int
) -> None:
    zero, one = (Run(x, y, 10 * x + y, output) for x in (0, 1))
    for run in (zero, one):
        assert uniform_bytes_p(run.rows.tobytes()) > ALPHA
        assert uniform_bytes_p(run.own_labels.tobytes()) > ALPHA
    views = [run.evaluator_cells(run.evaluator_shares) for run in (zero, one)]
    assert differ(*views) > ALPHA
    if output is OutputShares.XOR and y == 1:  # the output is x
        shares = [r.partly_opened(r.evaluator_shares, r.garbler_shares) for r in (zero, one)]
        assert differ(zero.evaluator_cells(shares[0]), one.evaluator_cells(shares[1])) < ALPHA


@pytest.mark.parametrize("x", [0, 1])
@pytest.mark.parametrize("output", [OutputShares.XOR, OutputShares.UNSIGNED])
def test_the_garbler_sees_the_same_for_every_input_of_the_evaluator(
    output: OutputShares, x: int
) -> None:
    zero, one = (Run(x, y, 100 + 10 * y + x, output) for y in (0, 1))
    for run in (zero, one):
        assert uniform_bytes_p(run.request[:, 4:].tobytes()) > ALPHA
    views = [run.garbler_cells(run.garbler_shares) for run in (zero, one)]
    assert differ(*views) > ALPHA
    if output is OutputShares.XOR and x == 1:  # the output is y
        shares = [r.partly_opened(r.garbler_shares, r.evaluator_shares) for r in (zero, one)]
        assert differ(zero.garbler_cells(shares[0]), one.garbler_cells(shares[1])) < ALPHA
