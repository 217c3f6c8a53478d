"""Typed terms of a kernel expression, with their ranges, in the clear and as circuits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.garbling.circuit_builder import Builder, Word, constant, width_of
from tallyroom.protocols.kernels.contract import Grid, Integers
from tallyroom.protocols.kernels.syntax import Node, wrong

MAX_WIDTH = 62
"""The widest intermediate result."""

LITERAL_BITS = 16
"""Numbers in the text are rounded to multiples of 2^-16."""

Words = tuple[Word, ...]
Moves = tuple[int, int]


@dataclass(frozen=True)
class Term:
    """A typed expression: its range, and how it is computed in the clear and in a circuit.

    Both compute an integer in [low, high]; the value is that integer plus `offset`. Offsets are
    public and cancel in differences and comparisons, so that columns far from zero do not need
    wider words. `moves` is the most that the integer moves when record a is replaced, and when
    record b is.
    """

    truth: bool
    low: int
    high: int
    fraction_bits: int
    reference: Callable[[Integers, Integers], Integers]
    word: Callable[[Builder, Words, Words], Word]
    moves: Moves = (0, 0)
    offset: int = 0

    def __post_init__(self) -> None:
        span = self.high - self.low
        a, b = self.moves
        object.__setattr__(self, "moves", (min(a, span), min(b, span)))

    def build(self, builder: Builder, x: Words, y: Words) -> Word:
        """The word, in exactly as many bits as the range needs."""
        return self.word(builder, x, y).fitted(width_of(self.low, self.high), self.low < 0)

    def scaled(self, places: int) -> "Term":
        """The same value with `places` more fraction bits."""
        if places == 0:
            return self
        return Term(
            self.truth,
            self.low << places,
            self.high << places,
            self.fraction_bits + places,
            lambda x, y: self.reference(x, y) << places,
            lambda builder, x, y: self.build(builder, x, y).shifted(places),
            (self.moves[0] << places, self.moves[1] << places),
            self.offset << places,
        )

    def rebased(self, offset: int) -> "Term":
        """The same value with this offset."""
        more = self.offset - offset
        if more == 0:
            return self
        return Term(
            self.truth,
            self.low + more,
            self.high + more,
            self.fraction_bits,
            lambda x, y: self.reference(x, y) + more,
            lambda builder, x, y: builder.add(self.build(builder, x, y), constant(more)),
            self.moves,
            offset,
        )

    @property
    def largest(self) -> int:
        return max(abs(self.low), abs(self.high))


def typed(node: Node, columns: Mapping[str, int], grids: Sequence[Grid]) -> Term:
    """The term of a tree. Raises `LocalError` where types do not fit or a number is too wide."""
    if node.operation == "number":
        return _literal(node)
    if node.operation == "column":
        record, name = node.column
        return _column(columns[name], grids[columns[name]], first=record == "a")
    terms = tuple(typed(each, columns, grids) for each in node.arguments)
    term = _operation(node, terms)
    _check_width(node, term)
    return term


def _literal(node: Node) -> Term:
    exact = node.number.denominator.bit_length() - 1
    dyadic = node.number.denominator == 1 << exact and exact <= LITERAL_BITS
    fraction_bits = exact if dyadic else LITERAL_BITS
    value = round(node.number * (1 << fraction_bits))
    if width_of(value, value) > MAX_WIDTH:
        raise wrong(node.at, "the number is too large")
    return Term(
        False,
        value,
        value,
        fraction_bits,
        lambda x, y: np.full(len(x), value, dtype=np.int64),
        lambda builder, x, y: constant(value),
    )


def _column(at: int, grid: Grid, first: bool) -> Term:
    return Term(
        False,
        grid.low,
        grid.high,
        grid.fraction_bits,
        lambda x, y: (x if first else y)[:, at],
        lambda builder, x, y: (x if first else y)[at],
        (grid.span, 0) if first else (0, grid.span),
        grid.origin,
    )


def _operation(node: Node, terms: tuple[Term, ...]) -> Term:
    match node.operation:
        case "and" | "or" | "not":
            _require(node, terms, truth=True)
            return _logic(node.operation, terms)
        case "if":
            _require(node, terms[:1], truth=True)
            _require(node, terms[1:], truth=terms[1].truth)
            return _choice(terms[0], *_comparable(node, *terms[1:]))
        case "==" | "!=" if terms[0].truth:
            _require(node, terms, truth=True)
        case _:
            _require(node, terms, truth=False)
    match node.operation:
        case "negate":
            return _negated(terms[0])
        case "abs":
            return _absolute(_rebased(node, terms[0], 0))
        case "*":
            left, right = (_rebased(node, term, 0) for term in terms)
            return _product(left, right, same=node.arguments[0] == node.arguments[1])
        case "+":
            return _sum(*_aligned(node, *terms))
        case "-":
            return _difference(*_aligned(node, *terms))
    left, right = _comparable(node, *terms)
    match node.operation:
        case "min" | "max":
            return _extreme(left, right, larger=node.operation == "max")
        case comparison:
            return _comparison(comparison, left, right)


def _require(node: Node, terms: Sequence[Term], truth: bool) -> None:
    if any(term.truth != truth for term in terms):
        wanted = (
            "conditions, such as a.x > b.x" if truth else "numbers; if(condition, 1, 0) makes one"
        )
        name = "-" if node.operation == "negate" else node.operation
        raise wrong(node.at, f"{name!r} takes {wanted}")


def _aligned(node: Node, left: Term, right: Term) -> tuple[Term, Term]:
    """Both with the same fraction bits."""
    bits = max(left.fraction_bits, right.fraction_bits)
    left, right = left.scaled(bits - left.fraction_bits), right.scaled(bits - right.fraction_bits)
    for term in (left, right):
        _check_width(node, term)
    return left, right


def _comparable(node: Node, left: Term, right: Term) -> tuple[Term, Term]:
    """Both with the same fraction bits and offset; a constant takes the other's, at no cost."""
    left, right = _aligned(node, left, right)
    offset = right.offset if left.low == left.high else left.offset
    return _rebased(node, left, offset), _rebased(node, right, offset)


def _rebased(node: Node, term: Term, offset: int) -> Term:
    rebased = term.rebased(offset)
    _check_width(node, rebased)
    return rebased


def _check_width(node: Node, term: Term) -> None:
    width = width_of(term.low, term.high)
    if width > MAX_WIDTH:
        reason = f"{node.operation!r} needs {width} bits, more than {MAX_WIDTH}"
        raise wrong(node.at, f"{reason}: use fewer bits for its columns")


def _truth(
    terms: Sequence[Term],
    reference: Callable[[Integers, Integers], NDArray[np.bool]],
    wire: Callable[[Builder, Words, Words], int],
) -> Term:
    """A truth value, which may change with any record that one of its `terms` depends on."""
    return Term(
        True,
        0,
        1,
        0,
        lambda x, y: reference(x, y).astype(np.int64),
        lambda builder, x, y: Word((wire(builder, x, y),)),
        _either(*(term.moves for term in terms)),
    )


def _either(*moves: Moves) -> Moves:
    """The moves of a term that always moves like one of several."""
    return max(a for a, _ in moves), max(b for _, b in moves)


def _together(*moves: Moves) -> Moves:
    return sum(a for a, _ in moves), sum(b for _, b in moves)


def _logic(operation: str, terms: Sequence[Term]) -> Term:
    def reference(x: Integers, y: Integers) -> NDArray[np.bool]:
        values: list[NDArray[np.bool]] = [term.reference(x, y) != 0 for term in terms]
        if operation == "not":
            return np.logical_not(values[0])
        combined: NDArray[np.bool] = (np.all if operation == "and" else np.any)(values, axis=0)
        return combined

    def wire(builder: Builder, x: Words, y: Words) -> int:
        wires = [term.build(builder, x, y).wires[0] for term in terms]
        if operation == "not":
            return builder.not_(wires[0])
        return (builder.and_ if operation == "and" else builder.or_)(wires[0], wires[1])

    return _truth(terms, reference, wire)


_COMPARE: dict[str, Callable[[Integers, Integers], NDArray[np.bool]]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}


def _comparison(sign: str, left: Term, right: Term) -> Term:
    def wire(builder: Builder, x: Words, y: Words) -> int:
        one, other = left.build(builder, x, y), right.build(builder, x, y)
        if sign in ("==", "!="):
            equal = builder.equal(one, other)
            return equal if sign == "==" else builder.not_(equal)
        above = builder.greater(one, other) if sign in (">", "<=") else builder.greater(other, one)
        return above if sign in (">", "<") else builder.not_(above)

    return _truth(
        (left, right),
        lambda x, y: _COMPARE[sign](left.reference(x, y), right.reference(x, y)),
        wire,
    )


def _choice(condition: Term, left: Term, right: Term) -> Term:
    """Either term. A record that the condition depends on may move it through its whole range."""
    low, high = min(left.low, right.low), max(left.high, right.high)
    a, b = _either(left.moves, right.moves)
    turns = condition.moves
    return Term(
        left.truth,
        low,
        high,
        left.fraction_bits,
        lambda x, y: np.where(
            condition.reference(x, y) != 0, left.reference(x, y), right.reference(x, y)
        ),
        lambda builder, x, y: builder.select(
            condition.build(builder, x, y).wires[0],
            left.build(builder, x, y),
            right.build(builder, x, y),
        ),
        (high - low if turns[0] else a, high - low if turns[1] else b),
        left.offset,
    )


def _extreme(left: Term, right: Term, larger: bool) -> Term:
    """Builds each side once: twice would mean 2^40 times at the greatest depth of a text."""
    pick, among = (max, np.maximum) if larger else (min, np.minimum)

    def word(builder: Builder, x: Words, y: Words) -> Word:
        one, other = left.build(builder, x, y), right.build(builder, x, y)
        above = builder.greater(one, other) if larger else builder.greater(other, one)
        return builder.select(above, one, other)

    return Term(
        False,
        pick(left.low, right.low),
        pick(left.high, right.high),
        left.fraction_bits,
        lambda x, y: among(left.reference(x, y), right.reference(x, y)),
        word,
        _either(left.moves, right.moves),
        left.offset,
    )


def _sum(left: Term, right: Term) -> Term:
    return Term(
        False,
        left.low + right.low,
        left.high + right.high,
        left.fraction_bits,
        lambda x, y: left.reference(x, y) + right.reference(x, y),
        lambda builder, x, y: builder.add(left.build(builder, x, y), right.build(builder, x, y)),
        _together(left.moves, right.moves),
        left.offset + right.offset,
    )


def _difference(left: Term, right: Term) -> Term:
    return Term(
        False,
        left.low - right.high,
        left.high - right.low,
        left.fraction_bits,
        lambda x, y: left.reference(x, y) - right.reference(x, y),
        lambda builder, x, y: builder.subtract(
            left.build(builder, x, y), right.build(builder, x, y)
        ),
        _together(left.moves, right.moves),
        left.offset - right.offset,
    )


def _negated(term: Term) -> Term:
    return Term(
        False,
        -term.high,
        -term.low,
        term.fraction_bits,
        lambda x, y: -term.reference(x, y),
        lambda builder, x, y: builder.negate(term.build(builder, x, y)),
        term.moves,
        -term.offset,
    )


def _absolute(term: Term) -> Term:
    ends = (abs(term.low), abs(term.high))
    return Term(
        False,
        0 if term.low <= 0 <= term.high else min(ends),
        max(ends),
        term.fraction_bits,
        lambda x, y: np.abs(term.reference(x, y)),
        lambda builder, x, y: builder.absolute(term.build(builder, x, y)),
        term.moves,
    )


def _product(left: Term, right: Term, same: bool) -> Term:
    """The product. If both terms are the `same`, it is a square: never negative, at half the cost.

    |lr − l'r'| ≤ |l|·|r − r'| + |r'|·|l − l'|.
    """
    (left_a, left_b), (right_a, right_b) = left.moves, right.moves
    moves = (
        left.largest * right_a + right.largest * left_a,
        left.largest * right_b + right.largest * left_b,
    )
    corners = [one * other for one in (left.low, left.high) for other in (right.low, right.high)]
    low = min(corners)
    if same:
        low = 0 if left.low <= 0 <= left.high else min(left.low**2, left.high**2)

    def word(builder: Builder, x: Words, y: Words) -> Word:
        if same:
            return builder.square(left.build(builder, x, y))
        return builder.multiply(left.build(builder, x, y), right.build(builder, x, y))

    return Term(
        False,
        low,
        max(corners),
        left.fraction_bits + right.fraction_bits,
        lambda x, y: left.reference(x, y) * right.reference(x, y),
        word,
        moves,
    )
