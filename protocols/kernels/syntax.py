"""The language of kernels: an expression over the two records `a` and `b`, parsed by hand.

    expression   either ("or" either)*             either   both ("and" both)*
    both         "not" both | comparison           comparison   sum (("<" | "==" | …) sum)?
    sum          product (("+" | "-") product)*    product   factor ("*" factor)*
    factor       "-" factor | number | a.column | b.column | function "(" … ")" | "(" … ")"

Functions: abs(x), min(x, y), max(x, y), if(condition, x, y). Text may come from anybody: length
and depth are bounded, and nothing is ever evaluated as Python.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

from tallyroom.protocols.errors import LocalError

MAX_LENGTH = 1000
MAX_DEPTH = 40

FUNCTIONS = {"abs": 1, "min": 2, "max": 2, "if": 3}
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
RECORDS = ("a", "b")

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<column>[ab]\.[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign><=|>=|==|!=|[-+*<>(),]))",
    re.ASCII,
)


@dataclass(frozen=True)
class Node:
    """One operation. Nodes are compared without their place `at` in the text."""

    operation: str
    """A sign or word of the language, or `number` or `column`."""
    arguments: tuple["Node", ...] = ()
    number: Fraction = Fraction(0)
    column: tuple[str, str] = ("", "")
    """The record and the name of its column."""
    at: int = field(default=0, compare=False)


def wrong(at: int, reason: str) -> LocalError:
    return LocalError(f"kernel expression, character {at + 1}: {reason}")


def parse(text: str) -> Node:
    """The tree of an expression. Raises `LocalError`, which says where the text is wrong."""
    if len(text) > MAX_LENGTH:
        raise LocalError(f"a kernel expression has at most {MAX_LENGTH} characters")
    parser = _Parser(text)
    tree = parser.expression()
    if parser.kind:
        raise wrong(parser.at, f"{parser.token!r} is not expected here")
    return tree


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text.rstrip()
        self._next = 0
        self._depth = 0
        self.advance()

    def advance(self) -> None:
        """Reads the next token; at the end, `kind` is empty."""
        self.at, self.kind, self.token = self._next, "", ""
        if self._next == len(self._text):
            return
        match = _TOKEN.match(self._text, self._next)
        if match is None or match.lastgroup is None:
            blank = len(self._text[self._next :]) - len(self._text[self._next :].lstrip())
            at = self._next + blank
            raise wrong(at, f"{self._text[at]!r} is not part of the language")
        self.kind, self.token = match.lastgroup, match[match.lastgroup]
        self.at, self._next = match.start(self.kind), match.end()

    def accept(self, *tokens: str) -> str:
        """If the token is one of these, returns it and advances; otherwise returns ""."""
        if self.kind not in ("sign", "word") or self.token not in tokens:
            return ""
        accepted = self.token
        self.advance()
        return accepted

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise wrong(
                self.at, f"{token!r} is missing" + (self.kind and f" before {self.token!r}")
            )

    def expression(self) -> Node:
        return self._chain(lambda: self._chain(self._negation, "and"), "or")

    def _chain(self, operand: Callable[[], Node], *signs: str) -> Node:
        """Operands between signs, grouped from the left."""
        left, count = operand(), 0
        while True:
            at = self.at
            sign = self.accept(*signs)
            if not sign:
                return left
            count += 1
            if count > MAX_DEPTH:  # a chain is as deep as it is long
                raise wrong(at, f"more than {MAX_DEPTH} terms in a row: use parentheses")
            left = Node(sign, (left, operand()), at=at)

    def _deeper(self, rule: Callable[[], Node]) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise wrong(self.at, f"nested deeper than {MAX_DEPTH}")
        node = rule()
        self._depth -= 1
        return node

    def _negation(self) -> Node:
        at = self.at
        if self.accept("not"):
            return Node("not", (self._deeper(self._negation),), at=at)
        return self._comparison()

    def _comparison(self) -> Node:
        left, at = self._sum(), self.at
        sign = self.accept(*COMPARISONS)
        if not sign:
            return left
        right = self._sum()
        if self.kind == "sign" and self.token in COMPARISONS:
            raise wrong(self.at, "comparisons do not chain: join them with 'and'")
        return Node(sign, (left, right), at=at)

    def _sum(self) -> Node:
        return self._chain(lambda: self._chain(self._factor, "*"), "+", "-")

    def _factor(self) -> Node:
        at, kind, token = self.at, self.kind, self.token
        if self.accept("-"):
            return Node("negate", (self._deeper(self._factor),), at=at)
        if self.accept("("):
            inner = self._deeper(self.expression)
            self.expect(")")
            return inner
        if kind == "number":
            self.advance()
            return Node("number", number=Fraction(token), at=at)
        if kind == "column":
            self.advance()
            record, _, name = token.partition(".")
            return Node("column", column=(record, name), at=at)
        if kind == "word" and token in FUNCTIONS:
            self.advance()
            return self._call(token, at)
        if kind == "word":
            known = ", ".join(FUNCTIONS)
            raise wrong(at, f"{token!r} is neither a.column, b.column nor one of {known}")
        raise wrong(at, f"{token!r} is not expected here" if kind else "something is missing")

    def _call(self, function: str, at: int) -> Node:
        self.expect("(")
        arguments = [self._deeper(self.expression)]
        while self.accept(","):
            arguments.append(self._deeper(self.expression))
        self.expect(")")
        if len(arguments) != FUNCTIONS[function]:
            raise wrong(at, f"{function} takes {FUNCTIONS[function]} arguments")
        return Node(function, tuple(arguments), at=at)
