"""Terms of a regression: columns of numbers, columns of names, and products of both.

    formula = column "~" part { "+" part }
    part    = factor { "*" factor } | factor { ":" factor }
    factor  = column | "C(" column [ "," name { "," name } ] ")"

`C(sex, F, M)` is a column of names: each name but the first, the reference, has a term, which is 1
for records of that name and 0 for others. The names are public; a schema may tell them. A name that
is not listed counts as the reference; where the last name is `other`, it has a term of its own.
`a:b` is the product of two factors, and `a*b` stands for `a + b + a:b`. A column with other signs
than letters, digits, `_` and `.` stands in backticks.

A record's terms depend on its own cells and on public bounds and names alone.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from math import isfinite, prod
from typing import Any, Self

import numpy as np

from tallyroom.protocols.categories import OTHER, format_categories, parse_categories
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.scaled import Indicator, ScaledColumn, ScaledProduct
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import MAX_COLUMNS, Ranged
from tallyroom.protocols.statistics.contract import Bounds, ReadsNames

MAX_TEXT = 1 << 16
MAX_FACTORS = 4
INTERCEPT = "intercept"
FORMULA = (
    "What is predicted and by what, as Y ~ X + C(NAMES), a*b for a, b and their product; in place "
    "of the columns."
)
_OPENING, _CLOSING = "C(", ")"
_SIGNS = frozenset(':*+~`(),"')


@dataclass(frozen=True)
class Factor:
    """A column of numbers, whose `names` are None, or of names: () until they are known."""

    column: str
    names: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, text: str) -> "Factor":
        text = text.strip()
        if not (text.startswith(_OPENING) and text.endswith(_CLOSING)):
            return cls(_column(text))
        column, *rest = _split(text[len(_OPENING) : -1], ",")
        if not rest:
            return cls(_column(column), ())
        names = parse_categories(",".join(rest))
        if rest[-1].strip() == OTHER:
            names = (*names, OTHER)
        if len(names) < 2:
            raise LocalError(f"C({_column(column)}) needs two names: the first is the reference")
        return cls(_column(column), names)

    def __str__(self) -> str:
        column = f"`{self.column}`" if _SIGNS & set(self.column) else self.column
        if self.names is None:
            return column
        names = f", {format_categories(self.names)}" if self.names else ""
        return f"C({column}{names})"

    @property
    def marks(self) -> list[Indicator]:
        """A mark for each name but the first."""
        if not self.names:
            raise LocalError(
                f"C({self.column}) needs its names, which are public: write "
                f"C({self.column}, NAME, NAME), the reference first, or give a --schema"
            )
        listed = self.names[:-1] if self.names[-1] == OTHER else self.names
        return [Indicator(self.column, listed, at) for at in range(1, len(self.names))]


@dataclass(frozen=True)
class ModelTerm:
    """A product of factors, each of another column."""

    factors: tuple[Factor, ...]

    @classmethod
    def parse(cls, text: str) -> "ModelTerm":
        """A text without `:` that is not C(…) is a column, whatever its signs are."""
        if len(text) > MAX_TEXT:
            raise LocalError(f"a term has at most {MAX_TEXT} characters")
        found = cls(tuple(map(Factor.parse, _split(text, ":"))))
        if len(found.factors) > MAX_FACTORS:
            raise LocalError(f"a product has at most {MAX_FACTORS} factors")
        columns = [each.column for each in found.factors]
        if len(set(columns)) < len(columns):
            raise LocalError(f"the term {text.strip()[:60]!r} names a column twice")
        return found

    def __str__(self) -> str:
        [first, *others] = self.factors
        if not others and first.names is None and ":" not in first.column:
            return first.column
        return ":".join(map(str, self.factors))

    def named(self, known: Mapping[str, str]) -> "ModelTerm":
        """With names that are known for columns of names, where it tells none itself."""
        return ModelTerm(
            tuple(
                Factor.parse(f"C(`{each.column}`, {known[each.column]})")
                if each.names == () and each.column in known
                else each
                for each in self.factors
            )
        )

    @property
    def size(self) -> int:
        """How many columns of the design it stands for."""
        return prod(len(each.names) - 1 for each in self.factors if each.names)

    @property
    def parts(self) -> Iterator["ModelTerm"]:
        """The terms of fewer factors that a product is made of."""
        for size in range(1, len(self.factors)):
            yield from map(ModelTerm, combinations(self.factors, size))

    def scaled(self, bounds: Mapping[str, Bounds]) -> list[ScaledColumn]:
        """The columns of the design that it stands for: one, or one for each combination of names
        but the references."""
        if len(self.factors) == 1 and self.factors[0].names is None:
            return [ScaledColumn(self.factors[0].column, *bounds[self.factors[0].column])]
        numbers = tuple(
            ScaledColumn(each.column, *bounds[each.column])
            for each in self.factors
            if each.names is None
        )
        named = [each.marks for each in self.factors if each.names is not None]
        return [self._product(numbers, marks) for marks in product(*named)]

    def _product(
        self, numbers: tuple[ScaledColumn, ...], marks: tuple[Indicator, ...]
    ) -> ScaledProduct:
        found = {each.column: str(each) for each in marks}
        label = ":".join(found.get(each.column, each.column) for each in self.factors)
        ends = [1.0]
        for each in numbers:
            ends = [end * bound for end in ends for bound in (each.lower, each.upper)]
        lower, upper = min(ends), max(ends)
        if marks:
            lower, upper = (min(lower, 0.0), max(upper, 0.0)) if numbers else (0.0, 1.0)
        if not (isfinite(upper - lower) and isfinite(lower + upper) and (upper - lower) / 2 > 0):
            raise LocalError(f"the products {label} leave the range of doubles: scale the columns")
        return ScaledProduct(label, lower, upper, numbers, marks)


def parse_formula(text: str) -> tuple[str, tuple[str, ...]]:
    """The column that is predicted, and the terms, each in its canonical form. Raises `LocalError`
    for a text that is not a formula."""
    if len(text) > MAX_TEXT:
        raise LocalError(f"a formula has at most {MAX_TEXT} characters")
    sides = _split(text, "~")
    if len(sides) != 2:
        raise LocalError(f"a formula is Y ~ X + C(NAMES), with one ~, not {text[:60]!r}")
    found: dict[str, None] = {}
    for part in _split(sides[1], "+"):
        for each in _expanded(part):
            found[str(each)] = None
    return _column(sides[0]), tuple(found)


def _expanded(part: str) -> list[ModelTerm]:
    """`a*b` as `a`, `b` and `a:b`."""
    if part.strip() in ("1", "0", "-1"):
        raise LocalError("a formula always has an intercept: leave 1 and 0 out")
    crossed = [ModelTerm.parse(each) for each in _split(part, "*")]
    if len(crossed) > MAX_FACTORS:
        raise LocalError(f"a product has at most {MAX_FACTORS} factors")
    found = []
    for size in range(1, len(crossed) + 1):
        for several in combinations(crossed, size):
            factors = tuple(factor for each in several for factor in each.factors)
            found.append(ModelTerm.parse(":".join(map(str, factors))))
    return found


def _split(text: str, sign: str) -> list[str]:
    """The parts between signs that are outside of parentheses, quotes and backticks."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in '`"':
            quote = letter
        elif letter in "()":
            depth += 1 if letter == "(" else -1
        if letter == sign and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _column(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == "`":
        text = text[1:-1]
    if not text:
        raise LocalError("a formula has a column on both sides of each sign")
    return text


def take_formula(asked: Any, target: str) -> None:
    """Sets the terms `x` and the field `target` by the field `formula`, if there is one."""
    x = asked.x
    if asked.formula:
        predicted, x = parse_formula(asked.formula)
        object.__setattr__(asked, target, predicted)
        object.__setattr__(asked, "formula", "")
    terms = (x,) if isinstance(x, str) else tuple(x)
    object.__setattr__(asked, "x", tuple(str(ModelTerm.parse(each)) for each in terms))


class OfTerms(ReadsNames, Ranged):
    """A regression on terms `x`: it has a range for each column of numbers."""

    x: tuple[str, ...]

    @property
    @abstractmethod
    def target(self) -> str:
        """The column that is predicted."""

    @cached_property
    def _terms(self) -> tuple[ModelTerm, ...]:
        return tuple(map(ModelTerm.parse, self.x))

    def check_terms(self) -> None:
        """Raises `LocalError` for terms that no regression has."""
        if len(self.x) > MAX_COLUMNS:
            raise LocalError(f"a regression has at most {MAX_COLUMNS} terms, not {len(self.x)}")
        terms = {frozenset(each.factors) for each in self._terms}
        if not terms or len(terms) < len(self._terms) or self.target in self.predicting:
            raise LocalError(
                f"--x names one column or more, each once, and none is {self.target!r}"
            )
        told = {factor for term in terms for factor in term}
        if len(told) > len(self.predicting):
            raise LocalError("a column is told either as numbers or as C(…), with the same names")
        for each in self._terms:
            for part in each.parts:
                if frozenset(part.factors) not in terms:
                    raise LocalError(f"{each} needs the term {part} beside it: write * for :")

    @property
    def predicting(self) -> tuple[str, ...]:
        """The columns of the terms, each once."""
        return tuple(dict.fromkeys(each.column for term in self._terms for each in term.factors))

    @property
    def numbers(self) -> tuple[str, ...]:
        """Those of them that hold numbers."""
        factors = [each for term in self._terms for each in term.factors]
        return tuple(dict.fromkeys(each.column for each in factors if each.names is None))

    @property
    def named_columns(self) -> tuple[str, ...]:
        return tuple(each for each in self.predicting if each not in self.numbers)

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.predicting, self.target)

    @property
    def bounded(self) -> tuple[str, ...]:
        return self.numbers

    def with_names(self, known: Mapping[str, str]) -> Self:
        named = tuple(str(each.named(known)) for each in self._terms)
        return self if named == self.x else self.from_parameters(self.parameters() | {"x": named})

    @cached_property
    def design(self) -> tuple[ScaledColumn, ...]:
        """The columns that the model has a coefficient for, but for the intercept. Raises
        `LocalError` where bounds or names are not known, and where there are too many."""
        self.check_bounds()
        if (size := sum(each.size for each in self._terms)) > MAX_COLUMNS:
            raise LocalError(f"a regression has at most {MAX_COLUMNS} terms, not {size}")
        return tuple(each for term in self._terms for each in term.scaled(self.column_bounds))

    @property
    def scaled(self) -> tuple[ScaledColumn, ...]:
        return self.design

    @property
    def terms(self) -> list[str]:
        return [INTERCEPT, *(each.name for each in self.design)]

    def raw(self, holdings: Holdings) -> dict[str, Column]:
        """The columns of the design as they are, for the truth. Raises `LocalError` where numbers
        are not finite."""
        found = {}
        for each in self.design:
            found[each.name] = each.raw(holdings)
            if not np.isfinite(found[each.name]).all():
                raise LocalError(f"column {each.name!r} has values that are not finite numbers")
        return found
