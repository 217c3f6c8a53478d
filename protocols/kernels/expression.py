"""A user's own kernel, from an expression such as `if(a.label != b.label, abs(a.x - b.x), 0)`.

Expressions are truth values or fixed-point numbers. The range of every part, and with it its width,
follows from the public bounds of the columns. So does the sensitivity: how far a part moves when
either record is replaced. Both are computed by interval arithmetic: they are never too small, but
sometimes larger than necessary, which costs accuracy and not privacy.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.circuit_builder import Builder, Word, width_of
from tallyroom.protocols.kernels.contract import (
    MAX_OUTPUT_BITS,
    Grid,
    Integers,
    Kernel,
    Output,
)
from tallyroom.protocols.kernels.expression_terms import Words, typed
from tallyroom.protocols.kernels.syntax import Node, parse
from tallyroom.protocols.records import Column


class Expression:
    """A kernel written as text. Called with grids, it gives a `Kernel`; an entry point may name it.

    A kernel that is not symmetric is averaged over both orders of a pair.
    """

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.tree = parse(text)
        self.columns = tuple(dict.fromkeys(_columns(self.tree)))
        if not self.columns:
            raise LocalError(f"kernel {name!r} does not depend on the records: {text[:80]}")

    def __call__(self, grids: Sequence[Grid]) -> "ExpressionKernel":
        return ExpressionKernel(self, grids)


def _columns(node: Node) -> Iterator[str]:
    if node.operation == "column":
        yield node.column[1]
    for each in node.arguments:
        yield from _columns(each)


class ExpressionKernel(Kernel):
    """An expression on given grids. Truth values count 1 or 0.

    If a number has more than `MAX_OUTPUT_BITS` bits, its lowest bits are dropped.
    """

    symmetric = False

    def __init__(self, expression: Expression, grids: Sequence[Grid]) -> None:
        self.name = expression.name
        self.columns = expression.columns
        super().__init__(grids)
        self._text, self._tree = expression.text, expression.tree
        places = {name: at for at, name in enumerate(self.columns)}
        self._term = typed(expression.tree, places, self.grids)
        if self.sensitivity == 0:
            raise LocalError(f"kernel {self.name!r} is constant within the bounds of its columns")

    def __repr__(self) -> str:
        return f"ExpressionKernel({self._text!r}, {self.grids!r})"

    @cached_property
    def _dropped(self) -> int:
        return max(0, width_of(self._term.low, self._term.high) - MAX_OUTPUT_BITS)

    @property
    def outputs(self) -> tuple[Output, ...]:
        low, high = self._term.low >> self._dropped, self._term.high >> self._dropped
        return (Output("value", low, high),)

    @property
    def sensitivity(self) -> int:
        """How far either record alone may move the output. Dropping bits rounds this up."""
        output, move = self.outputs[0], max(self._term.moves)
        return min(-(-move >> self._dropped), output.high - output.low)

    def build(self, builder: Builder, x: Words, y: Words) -> Words:
        word = self._term.build(builder, x, y)
        return (Word(word.wires[self._dropped :], word.signed),)

    def reference(self, x: Integers, y: Integers) -> Integers:
        return (self._term.reference(x, y) >> self._dropped)[:, None]

    def decode(self, means: Column, exact: bool = False) -> float:
        output = self.outputs[0]
        mean = float(means[0]) if exact else float(np.clip(means[0], output.low, output.high))
        term = self._term
        offset = math.ldexp(float(term.offset), -term.fraction_bits)
        return offset + math.ldexp(mean, self._dropped - term.fraction_bits)

    def truth(self, columns: Sequence[Column]) -> float:
        """The mean over all pairs in both orders, in doubles. Takes O(n²) operations."""
        records = dict(zip(self.columns, columns, strict=True))
        n, total = len(columns[0]), 0.0
        for i in range(n):
            one = {name: column[i] for name, column in records.items()}
            others = {name: np.delete(column, i) for name, column in records.items()}
            total += float(np.broadcast_to(plain(self._tree, one, others), n - 1).sum())
        return total / (n * (n - 1))


Reals = Mapping[str, Column | float]


def plain(node: Node, a: Reals, b: Reals) -> Column:
    """Evaluates an expression on doubles, with numpy; truth values are 1 and 0."""
    if node.operation == "number":
        return np.asarray(float(node.number))
    if node.operation == "column":
        record, name = node.column
        return np.asarray((a if record == "a" else b)[name])
    values = [plain(each, a, b) for each in node.arguments]
    return np.asarray(_PLAIN[node.operation](*values), dtype=np.float64)


def _choose(condition: Column, x: Column, y: Column) -> Column:
    return np.where(condition != 0, x, y)


_PLAIN: dict[str, Callable[..., Column]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "negate": np.negative,
    "abs": np.abs,
    "min": np.minimum,
    "max": np.maximum,
    "if": _choose,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
