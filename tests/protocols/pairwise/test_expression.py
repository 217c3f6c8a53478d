"""Kernels in writing: what they compute, and what they cost."""

import itertools
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.kernels.bundled import Auc, Gini, Variance
from tallyroom.protocols.kernels.contract import MAX_OUTPUT_BITS, Grid, Kernel
from tallyroom.protocols.kernels.expression import Expression
from tallyroom.protocols.kernels.syntax import Node, parse
from tests.protocols.pairwise.expression_samples import (
    BELOW,
    EXAMPLES,
    FAR,
    HALVES,
    SIGNED,
    SMALL,
    computed,
    every_pair,
    kernel,
)


@pytest.mark.parametrize("text", EXAMPLES)
@pytest.mark.parametrize("grid", [SMALL, SIGNED, HALVES, Grid.integers(5, 6), FAR, BELOW])
def test_every_pair_of_4_bits(text: str, grid: Grid) -> None:
    each = kernel(text, grid)
    x, y = every_pair(each)
    told = each.reference(x, y)
    assert np.array_equal(computed(each, x, y), told)
    wanted = EXAMPLES[text](grid.values(x[:, 0]), grid.values(y[:, 0]))
    decoded = [each.decode(row, exact=True) for row in told.astype(np.float64)]
    assert np.array_equal(decoded, np.asarray(wanted, dtype=np.float64))
    output = each.outputs[0]
    assert told.min() >= output.low
    assert told.max() <= output.high
    assert most_moved(each) <= each.sensitivity <= output.high - output.low


def most_moved(each: Kernel) -> int:
    """By enumeration: the most that replacing one record of the two moves the output."""
    x, y = every_pair(each)
    told = each.reference(x, y)[:, 0].reshape(round(len(x) ** 0.5), -1)
    return int(max(np.ptp(told, axis=0).max(), np.ptp(told, axis=1).max()))


@pytest.mark.parametrize(
    "text",
    [
        "a.x - b.x",
        "a.x + b.x",
        "2 * a.x - 3 * b.x",
        "abs(a.x - b.x)",
        "(a.x - b.x) * (a.x - b.x)",
        "min(a.x, b.x) + 1",
        "max(a.x, b.x) - 2",
        "if(a.x > b.x, a.x, b.x)",
        "a.x > b.x",
        "if(a.x > 3, 2, 0) - b.x",
        "-a.x - b.x",
    ],
)
@pytest.mark.parametrize("grid", [SMALL, SIGNED, HALVES, FAR, BELOW])
def test_noise_is_for_what_one_record_moves(text: str, grid: Grid) -> None:
    """Not for the whole range, which both records move together."""
    each = kernel(text, grid)
    if text == "if(a.x > 3, 2, 0) - b.x" and grid in (FAR, BELOW):
        return  # no value is on the other side
    assert each.sensitivity == most_moved(each)


def test_columns_far_from_zero_cost_no_wider_words() -> None:
    """A second of time stamps: in one word with its offset it would have 62 bits."""
    near, far = Grid.reals(0.0, 1.0), Grid.reals(1.7e9, 1.7e9 + 1)
    assert far.step == near.step
    for text in ("abs(a.x - b.x)", "a.x > b.x", "min(a.x, b.x)"):
        assert kernel(text, far).circuit().ands == kernel(text, near).circuit().ands
    late = kernel("a.x > 1700000000.5", far)
    values = 1.7e9 + np.array([[0.25], [0.5], [0.75]])
    records = far.encode(values[:, 0])[:, None]
    assert late.reference(records, records).tolist() == [[0], [0], [1]]


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_truth_is_of_doubles(text: str) -> None:
    """Over both orders of every two of these records, as numpy has it."""
    x = np.array([-1.7, 0.3, 0.1 + 0.2, 2.5, 2.5])
    a, b = (np.array(side) for side in zip(*itertools.permutations(x, 2), strict=True))
    wanted = np.broadcast_to(np.asarray(EXAMPLES[text](a, b), dtype=float), 20).mean()
    if text == "0.1 * a.x":
        wanted = (0.1 * a).mean()
    assert kernel(text, Grid.reals(-2.0, 3.0, 8)).truth([x]) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("text", [text for text in EXAMPLES if "*" not in text])
def test_random_pairs_of_32_bits(text: str) -> None:
    each = kernel(text, Grid.reals(-3.0, 2.0))
    draw = np.random.default_rng(3)
    x, y = (draw.integers(each.grids[0].low, each.grids[0].high, (500, 1)) for _ in range(2))
    y[::4] = x[::4]
    assert np.array_equal(computed(each, x, y), each.reference(x, y))


def numbers(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["a.x", "b.x", "a.y", "b.y", "3", "0.5", "11"])
    if depth == 0:
        return leaf
    part = numbers(depth - 1)
    return st.one_of(
        leaf,
        st.builds("({} {} {})".format, part, st.sampled_from("+-*"), part),
        st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), part, part),
        st.builds("abs({})".format, part),
        st.builds("-{}".format, part),
        st.builds("if({}, {}, {})".format, truths(depth - 1), part, part),
    )


def truths(depth: int) -> st.SearchStrategy[str]:
    sign = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    leaf = st.builds("{} {} {}".format, numbers(0), sign, numbers(0))
    if depth == 0:
        return leaf
    part = truths(depth - 1)
    return st.one_of(
        st.builds("{} {} {}".format, numbers(depth - 1), sign, numbers(depth - 1)),
        st.builds("({} {} {})".format, part, st.sampled_from(["and", "or"]), part),
        st.builds("not ({})".format, part),
    )


def plain(node: Node, a: dict[str, float], b: dict[str, float]) -> float:
    """A second interpreter, in doubles, which are exact here."""
    if node.operation == "number":
        return float(node.number)
    if node.operation == "column":
        return (a if node.column[0] == "a" else b)[node.column[1]]
    values = [plain(each, a, b) for each in node.arguments]
    match node.operation:
        case "and":
            return values[0] and values[1]
        case "or":
            return values[0] or values[1]
        case "not":
            return not values[0]
        case "if":
            return values[1] if values[0] else values[2]
        case "min":
            return min(values)
        case "max":
            return max(values)
        case "abs":
            return abs(values[0])
        case "negate":
            return -values[0]
    signs = {"+": "add", "-": "sub", "*": "mul", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
    name = {**signs, "==": "eq", "!=": "ne"}[node.operation]
    return float(getattr(operator, name)(*values))


@given(st.one_of(numbers(3), truths(3)), st.data())
def test_any_expression_is_what_it_says(text: str, data: st.DataObject) -> None:
    expression = Expression("any", f"if(a.x == b.y, {text}, {text})")
    grids = {"x": Grid(-5, 9, 2), "y": Grid.integers(-3, 3)}
    try:
        each = expression([grids[name] for name in expression.columns])
    except LocalError:
        with pytest.raises(LocalError, match=r"use fewer bits|is constant"):
            expression([grids[name] for name in expression.columns])
        return
    side = st.lists(
        st.tuples(*(st.integers(g.low, g.high) for g in each.grids)), min_size=4, max_size=4
    )
    x, y = np.array(data.draw(side)), np.array(data.draw(side))
    told = each.reference(x, y)
    assert np.array_equal(computed(each, x, y), told)
    if each.outputs[0].bits < MAX_OUTPUT_BITS:
        for row, first, second in zip(told, x, y, strict=True):
            records = [
                {name: q * grids[name].step for name, q in zip(each.columns, values, strict=True)}
                for values in (first, second)
            ]
            assert each.decode(row.astype(float), exact=True) == plain(parse(text), *records)


def test_a_written_kernel_costs_no_more_than_ours() -> None:
    wide, label = Grid.reals(0.0, 1.0), Grid.integers(0, 1)
    gini = kernel("abs(a.x - b.x)", wide)
    assert gini.circuit().ands <= Gini([wide]).circuit().ands + 1
    auc = kernel("a.score > b.score and a.label > b.label", wide, label)
    assert auc.circuit().ands == 32 + 2
    assert auc.circuit().ands < Auc([wide, label]).circuit().ands


def test_a_square_is_known_to_be_positive() -> None:
    square = kernel("(a.x - b.x) * (a.x - b.x)", SMALL)
    assert square.outputs[0].low == 0
    assert square.sensitivity == Variance([SMALL]).sensitivity == 15**2
    assert kernel("(a.x - b.x) * (b.x - a.x)", SMALL).sensitivity == 2 * 15**2


@pytest.mark.parametrize(
    "text",
    [
        "abs(a.x + 20)",
        "abs(-20 - a.x)",
        "abs(a.x - b.x)",
        "min(a.x, b.x) + 1",
        "max(a.x, 2) - b.x",
        "if(a.x > 0, b.x, 3 - b.x)",
        "a.x * b.x",
        "(a.x + 9) * (a.x + 9)",
        "-a.x - b.x",
    ],
)
@pytest.mark.parametrize("grid", [SMALL, SIGNED, HALVES])
def test_ranges_are_no_wider_than_what_comes_out(text: str, grid: Grid) -> None:
    each = kernel(text, grid)
    told = each.reference(*every_pair(each))
    assert (told.min(), told.max()) == (each.outputs[0].low, each.outputs[0].high)


def test_wide_outputs_lose_their_lowest_bits() -> None:
    grid = Grid.reals(-1.0, 1.0, 30)
    each = kernel("a.x * b.x", grid)
    assert each.outputs[0].bits == MAX_OUTPUT_BITS
    draw = np.random.default_rng(4)
    x, y = (draw.integers(grid.low, grid.high, (200, 1)) for _ in range(2))
    told = each.reference(x, y)
    assert np.array_equal(computed(each, x, y), told)
    exact = (x * grid.step) * (y * grid.step)
    decoded = np.array([each.decode(row.astype(float)) for row in told])
    assert np.abs(decoded - exact[:, 0]).max() <= 2.0**-38


def test_both_orders_of_a_pair_count() -> None:
    each = kernel("a.x > b.x", SMALL)
    records = np.array([[1], [2], [2], [9]])
    assert each.full_means(records)[0] == pytest.approx(5 / 12)
