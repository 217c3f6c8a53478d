"""Conditions on a record, such as `age >= 40 and sex = "F"`: parsed, written canonically, decided.

    condition  = every { "or" every }
    every      = one { "and" one }
    one        = "not" one | "(" condition ")" | comparison
    comparison = column ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) value
               | column [ "not" ] "in" "(" value { "," value } ")"
               | column "is" [ "not" ] "null"

A value is a number or a text in quotes, single or double; a quote inside is doubled. A column with
other signs than letters, digits, `_` and `.` stands in backticks. Keywords may be capital; `==`
and `<>` are other ways to write `=` and `!=`.

A condition is about one record alone, and every record either meets it or does not, as in pandas:
a missing cell, or a name where numbers are compared, meets no comparison but `!=` and `not in`.
Text that is a number, a truth or a date counts as in the data (`protocols.cells`): `sex = "1"` is
`sex = 1`.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.cells import TRUTHS, encode_cells, is_blank, number_of
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Holdings

MAX_TEXT = 2000
"""Characters of a condition."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""They could write over a terminal where a message names a column."""
MAX_DEPTH = 32
"""How deep parentheses and `not` may be nested."""

Met = NDArray[np.bool_]


class Condition(ABC):
    """A frozen dataclass. Its `str` is canonical: parsing it gives the same condition again."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, each once."""

    @abstractmethod
    def met(self, holdings: Holdings) -> Met:
        """Which records meet it. Raises `LocalError` where a column is not in the data."""


@dataclass(frozen=True)
class Value:
    """A number or a text, as it was written: two texts are equal in data if their codes are."""

    text: str
    quoted: bool

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise LocalError(
                "a condition compares with something: `is null` asks for missing cells"
            )

    @property
    def number(self) -> float | None:
        return number_of(self.text.strip())

    def __str__(self) -> str:
        return '"' + self.text.replace('"', '""') + '"' if self.quoted else self.text


@dataclass(frozen=True)
class Compared(Condition):
    column: str
    sign: str
    value: Value

    def __post_init__(self) -> None:
        if self.sign in ORDERS and self.value.number is None:
            raise LocalError(f"{_name(self.column)} {self.sign} {self.value}: names have no order")

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def met(self, holdings: Holdings) -> Met:
        column = holdings.column(self.column)
        if self.sign == "=":
            return _among(column, (self.value,))
        if self.sign == "!=":
            return ~_among(column, (self.value,))
        assert self.value.number is not None
        met: Met = ORDERS[self.sign](column, self.value.number)  # NaN meets none
        return met

    def __str__(self) -> str:
        return f"{_name(self.column)} {self.sign} {self.value}"


ORDERS = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


@dataclass(frozen=True)
class OneOf(Condition):
    column: str
    values: tuple[Value, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def met(self, holdings: Holdings) -> Met:
        return _among(holdings.column(self.column), self.values)

    def __str__(self) -> str:
        return f"{_name(self.column)} in ({', '.join(map(str, self.values))})"


@dataclass(frozen=True)
class Missing(Condition):
    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def met(self, holdings: Holdings) -> Met:
        return is_blank(holdings.column(self.column))

    def __str__(self) -> str:
        return f"{_name(self.column)} is null"


@dataclass(frozen=True)
class Not(Condition):
    one: Condition

    @property
    def columns(self) -> tuple[str, ...]:
        return self.one.columns

    def met(self, holdings: Holdings) -> Met:
        return ~self.one.met(holdings)

    def __str__(self) -> str:
        return f"not {_within(self.one)}"


@dataclass(frozen=True)
class Several(Condition):
    """All of them, or any."""

    word: str
    parts: tuple[Condition, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self.parts for name in part.columns))

    def met(self, holdings: Holdings) -> Met:
        combine = np.logical_and if self.word == "and" else np.logical_or
        met: Met = combine.reduce([part.met(holdings) for part in self.parts])
        return met

    def __str__(self) -> str:
        return f" {self.word} ".join(map(_within, self.parts))


def _within(part: Condition) -> str:
    return f"({part})" if isinstance(part, Several) else str(part)


def _among(column: NDArray[np.float64], values: Sequence[Value]) -> Met:
    codes = np.where(column == 0, 0.0, column).view(np.uint64)  # -0 is 0
    return np.isin(codes, encode_cells(value.text for value in values).view(np.uint64))


# --- reading ---

_KEYWORDS = ("and", "or", "not", "in", "is", "null")
_PLAIN = re.compile(r"[^\W\d][\w.]*")
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    |(?P<word>[^\W\d][\w.]*)
    |(?P<column>`(?:[^`]|``)+`)
    |(?P<text>"(?:[^"]|"")*"|'(?:[^']|'')*')
    |(?P<sign><=|>=|==|!=|<>|[<>=(),])
    )""",
    re.VERBOSE,
)
_SIGNS = {"==": "=", "<>": "!="}


def _name(column: str) -> str:
    if _PLAIN.fullmatch(column) and column.lower() not in _KEYWORDS:
        return column
    return "`" + column.replace("`", "``") + "`"


@dataclass(frozen=True)
class Lexeme:
    kind: str
    text: str


def _tokens(text: str) -> Iterator[Lexeme]:
    at, text = 0, text.strip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise LocalError(f"the condition cannot be read at {text[at : at + 30].strip()!r}")
        kind, said = found.lastgroup, found[found.lastgroup]
        if kind == "word" and said.lower() in _KEYWORDS:
            kind, said = "keyword", said.lower()
        elif kind == "sign":
            said = _SIGNS.get(said, said)
        elif kind in ("column", "text"):
            said = said[1:-1].replace(2 * said[0], said[0])
        yield Lexeme("column" if kind == "word" else kind, said)
        at = found.end()


class _Reader:
    """Reads tokens from left to right."""

    def __init__(self, tokens: Sequence[Lexeme]) -> None:
        self._tokens = tokens
        self._at = 0

    def whole(self) -> Condition:
        found = self._condition(0)
        if self._at < len(self._tokens):
            raise LocalError(f"the condition goes on after its end, with {self._shown!r}")
        return found

    @property
    def _shown(self) -> str:
        return self._tokens[self._at].text[:30] if self._at < len(self._tokens) else "end"

    def _next(self, kind: str, *texts: str) -> Lexeme | None:
        """Takes the next token if it is such a one."""
        if self._at == len(self._tokens):
            return None
        token = self._tokens[self._at]
        if token.kind != kind or (texts and token.text not in texts):
            return None
        self._at += 1
        return token

    def _need(self, kind: str, words: str, *texts: str) -> Lexeme:
        if (token := self._next(kind, *texts)) is None:
            raise LocalError(f"the condition has {self._shown!r} where {words} should be")
        return token

    def _condition(self, depth: int) -> Condition:
        if depth > MAX_DEPTH:
            raise LocalError(f"a condition is nested at most {MAX_DEPTH} deep")
        return self._several("or", lambda: self._several("and", lambda: self._one(depth)))

    def _several(self, word: str, part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._next("keyword", word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Several(word, tuple(parts))

    def _one(self, depth: int) -> Condition:
        if depth > MAX_DEPTH:
            raise LocalError(f"a condition is nested at most {MAX_DEPTH} deep")
        if self._next("keyword", "not"):
            return Not(self._one(depth + 1))
        if self._next("sign", "("):
            found = self._condition(depth + 1)
            self._need("sign", "a closing parenthesis", ")")
            return found
        return self._comparison(self._need("column", "a column").text)

    def _comparison(self, column: str) -> Condition:
        if self._next("keyword", "is"):
            negated = self._next("keyword", "not")
            self._need("keyword", "null", "null")
            return Not(Missing(column)) if negated else Missing(column)
        if self._next("keyword", "not"):
            self._need("keyword", "in", "in")
            return Not(self._one_of(column))
        if self._next("keyword", "in"):
            return self._one_of(column)
        sign = self._need("sign", "a comparison such as = or >=", "=", "!=", *ORDERS)
        return Compared(column, sign.text, self._value())

    def _one_of(self, column: str) -> OneOf:
        self._need("sign", "an opening parenthesis", "(")
        values = [self._value()]
        while self._next("sign", ","):
            values.append(self._value())
        self._need("sign", "a closing parenthesis", ")")
        return OneOf(column, tuple(values))

    def _value(self) -> Value:
        if (text := self._next("text")) is not None:
            return Value(text.text, quoted=True)
        if (number := self._next("number")) is not None:
            return Value(_written(float(number.text)), quoted=False)
        if (truth := self._next("column", *TRUTHS)) is not None:
            return Value(_written(TRUTHS[truth.text]), quoted=False)
        raise LocalError(
            f"the condition has {self._shown!r} where a number, or a name in quotes, should be"
        )


def _written(number: float) -> str:
    if not math.isfinite(number):
        raise LocalError("a number in the condition is too large")
    return str(int(number)) if number.is_integer() and abs(number) < 1e16 else repr(number)


def parse_condition(text: str) -> Condition:
    """Raises `LocalError` with one clear line for what is no condition."""
    if len(text) > MAX_TEXT:
        raise LocalError(f"a condition has at most {MAX_TEXT} characters, not {len(text)}")
    if _CONTROL.search(text):
        raise LocalError("a condition is one line, without control characters")
    if not text.strip():
        raise LocalError("a condition is needed, such as 'age >= 40 and sex = \"F\"'")
    return _Reader(tuple(_tokens(text))).whole()


def canonical(text: str) -> str:
    """The condition as everybody writes it. Raises `LocalError` as `parse_condition` does."""
    return str(parse_condition(str(parse_condition(text))))
