"""Codes of kernels' outputs: exhaustively, every string of bits stands for possible outputs."""

from itertools import product

import numpy as np
import pytest

from tallyroom.protocols.garbling.circuit_builder import Builder, Word
from tallyroom.protocols.garbling.clear_evaluation import evaluate
from tallyroom.protocols.kernels.bundled import Gini, Variance
from tallyroom.protocols.kernels.codes import Code, MixedSignCode, RangeCode, TiedSignCode
from tallyroom.protocols.kernels.contract import Grid, Kernel
from tallyroom.protocols.kernels.expression import Expression
from tests.protocols.pairwise.expression_samples import EXAMPLES
from tests.protocols.pairwise.kernel_samples import GRIDS, KINDS, every_code, on

WIDE = Grid(0, 3_000_000_000)


def all_bits(wires: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    return np.array(list(product((0, 1), repeat=wires)), dtype=np.uint8).reshape(-1, wires)


def check_reach(code: Code) -> None:
    """By enumeration: of all strings of bits, no two are further apart than the code says, and
    some are that far; none is outside of a range."""
    values = code.values(all_bits(code.wires))
    low, high = np.array(code.ranges).T
    assert (low <= values).all()
    assert (values <= high).all()
    apart = np.abs(values[:, None] - values[None]).sum(axis=2)
    assert apart.max() == code.reach


@pytest.mark.parametrize("low", [-5, 0, 3])
def test_every_range_has_codes_for_its_integers_and_for_no_others(low: int) -> None:
    for size in range(1, 70):
        code = RangeCode(((low, low + size),))
        values = np.arange(low, low + size + 1)[:, None]
        assert np.array_equal(code.values(code.bits(values)), values)
        check_reach(code)


def test_several_ranges_are_coded_side_by_side() -> None:
    code = RangeCode(((0, 5), (-1, 1), (7, 8)))
    values = np.array(list(product(range(6), range(-1, 2), (7, 8))))
    assert np.array_equal(code.values(code.bits(values)), values)
    check_reach(code)


def test_outputs_that_depend_on_each_other_reach_no_further_than_honest_ones() -> None:
    auc = np.array([(0, 0), (0, 1), (1, 1), (-1, 1)])
    tau = np.array([(0, 0, 0), (0, 1, 0), (0, 0, 1), (2, 1, 1), (-2, 1, 1)])
    for code, outcomes in ((MixedSignCode(), auc), (TiedSignCode(), tau)):
        assert np.array_equal(code.values(code.bits(outcomes)), outcomes)
        found = {tuple(each) for each in code.values(all_bits(code.wires)).tolist()}
        assert found == {tuple(each) for each in outcomes.tolist()}
        check_reach(code)


@pytest.mark.parametrize("size", range(1, 40))
def test_a_sum_with_a_carry_has_a_code_wherever_it_is_in_range(size: int) -> None:
    code = RangeCode(((0, size),))
    width = size.bit_length()
    builder = Builder(width + 1, 0)
    wires = code.encoded_sum(builder, Word(builder.garbler[:width]), builder.garbler[width])
    circuit = builder.circuit([Word(wires)])
    inputs = all_bits(width + 1)
    sums = inputs @ np.append(1 << np.arange(width), 1)
    possible = sums <= size
    bits = evaluate(circuit, inputs, np.zeros((len(inputs), 0), dtype=np.uint8))
    assert np.array_equal(code.values(bits)[possible, 0], sums[possible])


def check_coded(each: Kernel) -> None:
    """For all records on their grids the code says what the reference says, in either order."""
    codes = every_code(each)
    on_grid = np.logical_and.reduce(
        [(g.low <= c) & (c <= g.high) for g, c in zip(each.grids, codes.T, strict=True)]
    )
    records = codes[on_grid]
    x, y = np.repeat(records, len(records), 0), np.tile(records, (len(records), 1))
    for swapped in (False, True):
        circuit = each.coded_circuit(swapped)
        sides = (
            (each.input_bits(y), each.input_bits(x))
            if swapped
            else tuple(map(each.input_bits, (x, y)))
        )
        found = each.code.values(evaluate(circuit, *sides))
        assert np.array_equal(found, each.reference(x, y))


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
@pytest.mark.parametrize("kind", KINDS)
def test_bundled_kernels_in_their_codes(kind: type[Kernel], grid: Grid) -> None:
    wide = sum(column != "label" for column in kind.columns) * grid.bits > 6
    each = on(kind, Grid.integers(-2, 1) if wide else grid)
    check_coded(each)
    check_reach(each.code)
    assert each.reach == each.sensitivity


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
@pytest.mark.parametrize("text", EXAMPLES)
def test_expressions_in_their_codes(text: str, grid: Grid) -> None:
    try:
        each = Expression("test", text)([grid])
    except ValueError:
        return  # constant on this grid
    check_coded(each)
    assert each.reach == each.outputs[0].high - each.outputs[0].low >= each.sensitivity


def test_a_liar_reaches_further_than_records_where_a_kernel_has_a_range_that_none_moves() -> None:
    each = Expression("test", "a.x - b.x")([Grid.integers(0, 7)])
    assert (each.sensitivity, each.reach) == (7, 14)


def test_coding_costs_gini_no_more_than_confining_did() -> None:
    assert Gini([WIDE]).coded_circuit().ands <= 70 < Gini([WIDE]).circuit().ands
    assert Gini([Grid(0, 2**32 - 1)]).coded_circuit().ands == 63
    narrow = Variance([Grid(0, 3000)])
    assert narrow.coded_circuit().ands <= 1.2 * narrow.circuit().ands
