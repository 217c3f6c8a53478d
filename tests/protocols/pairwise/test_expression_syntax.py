"""The language of written kernels: any text is a kernel or a clear error, at a bounded cost."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.kernels.contract import kernel_named
from tallyroom.protocols.kernels.expression import Expression
from tallyroom.protocols.kernels.syntax import MAX_DEPTH, MAX_LENGTH, parse
from tallyroom.protocols.registry import KERNELS
from tests.protocols.pairwise.expression_samples import SIGNED, SMALL, computed, every_pair, kernel
from tests.registering import register

MINE = Expression("mine", "abs(a.x - b.x)")
"""What another package's entry point would name."""


def test_columns_come_in_the_order_of_the_text() -> None:
    expression = Expression("two", "a.score > b.score and a.label != b.other")
    assert expression.columns == ("score", "label", "other")
    with pytest.raises(LocalError, match="columns score, label, other"):
        expression([SMALL])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "character 1: something is missing"),
        ("   ", "character 1: something is missing"),
        ("a.x +", "character 6: something is missing"),
        ("a.x b.x", "character 5: 'b.x' is not expected here"),
        ("(a.x", "')' is missing"),
        ("(a.x b.x)", "')' is missing before 'b.x'"),
        ("a.x)", "character 4: ')' is not expected"),
        ("a.x < b.x < a.x", "character 11: comparisons do not chain"),
        ("a.x; b.x", "character 4: ';' is not part of the language"),
        ("a.x / b.x", "character 5: '/' is not part"),
        ("a.x ** 2", "character 6: '*' is not expected"),
        ("a.x[0]", "'[' is not part"),
        ("a.__class__.__mro__", "'.' is not part"),
        ("c.x > 1", "'c' is neither"),
        ("x > 1", "'x' is neither a.column, b.column nor one of abs, min, max, if"),
        ("__import__('os')", "'__import__' is neither"),
        ("lambda: 1", "'lambda' is neither"),
        ("a.x > 'x'", '"\'" is not part'),
        ("abs(a.x, b.x)", "abs takes 1 arguments"),
        ("if(a.x > 1, 2)", "if takes 3 arguments"),
        ("abs a.x", "'(' is missing before 'a.x'"),
        ("min()", "')' is not expected"),
        ("a.x > 1e9", "'e9' is not expected"),
        ("a.x > .5", "'.' is not part"),
        ("a.é > 1", "'a' is neither"),
        ("a.x > ٣", "is not part"),
        ("a.x \x00", "is not part"),
        ("1 + 2", "does not depend on the records"),
        ("0 * a.x", "is constant"),
        ("a.x and b.x", "'and' takes conditions"),
        ("not a.x", "'not' takes conditions"),
        ("(a.x > b.x) + 1", "'+' takes numbers"),
        ("-(a.x > b.x)", "'-' takes numbers"),
        ("abs(a.x > b.x)", "'abs' takes numbers"),
        ("(a.x > 1) == b.x", "'==' takes conditions"),
        ("a.x == (b.x > 1)", "'==' takes numbers"),
        ("(a.x > 1) < (b.x > 1)", "'<' takes numbers"),
        ("if(a.x, 1, 2)", "'if' takes conditions"),
        ("if(a.x > 1, 1, a.x > 2)", "'if' takes numbers"),
        ("if(a.x > 1, a.x > 2, 1)", "'if' takes conditions"),
        ("a.x > 99999999999999999999", "too large"),
        ("a.x" + " * a.x" * 20, "use fewer bits"),
        ("a.x" + " + a.x" * (MAX_DEPTH + 1), "terms in a row"),
        ("-" * 900 + "a.x", "nested deeper"),
        ("not " * 200 + "a.x > 1", "nested deeper"),
        ("(" * 499 + "a.x" + ")" * 498, "nested deeper"),
        ("abs(" * 200 + "a.x", "nested deeper"),
        ("a.x + " * MAX_LENGTH, "at most 1000 characters"),
    ],
)
def test_what_is_not_a_kernel_is_refused_with_its_place(text: str, reason: str) -> None:
    with pytest.raises(LocalError, match=re.escape(reason)):
        kernel(text, SMALL)


CHARACTERS = "abxy.<>=!()+-*,0123456789 \n\t'\"_é٣\x00{}[]\\/%&|^~@#$:;fi"


@given(st.text(CHARACTERS, max_size=80))
def test_any_text_is_an_expression_or_a_clear_error(text: str) -> None:
    try:
        parse(text)
    except LocalError:
        with pytest.raises(LocalError, match=r"\Akernel expression, character \d+: .+\Z"):
            parse(text)


WORDS = ["a.x", "b.x", "(", ")", "not", "and", "or", "if", ",", "<", "==", "-", "+", "*", "7"]


@given(st.lists(st.sampled_from([*WORDS, "abs", "min", "0.3"]), max_size=25))
def test_any_row_of_words_is_a_kernel_or_a_clear_error(words: list[str]) -> None:
    try:
        each = kernel(" ".join(words), SIGNED)
    except LocalError:
        return
    x, y = every_pair(each)
    assert np.array_equal(computed(each, x, y), each.reference(x, y))


def test_another_package_may_bring_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, KERNELS, "mine", f"{__name__}:MINE")
    register(monkeypatch, KERNELS, "gone", "no_such_package:KERNEL")
    register(monkeypatch, KERNELS, "none", f"{__name__}:WORDS")
    found = kernel_named.__wrapped__("mine")
    assert found.columns == ("x",)
    assert found([SMALL]).reference(np.array([[3]]), np.array([[9]]))[0, 0] == 6
    with pytest.raises(LocalError, match="kernel 'gone' cannot be loaded"):
        kernel_named.__wrapped__("gone")
    with pytest.raises(LocalError, match="'none' is not a kernel"):
        kernel_named.__wrapped__("none")


@pytest.mark.parametrize("shape", ["min({}, b.x)", "max(b.x, {})", "if({} > b.x, 1, 2)", "abs({})"])
def test_depth_costs_no_more_than_its_length(shape: str) -> None:
    """Text may come from anybody: were a part built twice at every level, this would not end."""
    text = "a.x"
    for _ in range(MAX_DEPTH - 1):
        text = shape.format(text)
    assert len(text) <= MAX_LENGTH
    each = kernel(text, SMALL)
    assert len(each.circuit().gates) < 100 * MAX_DEPTH
    x, y = every_pair(each)
    assert np.array_equal(computed(each, x, y), each.reference(x, y))
