"""What a question will cost before it is asked, where its aggregator states that in a formula.

`Aggregator.party_bytes` is what a party sends, in whole numbers and letters:

sum      = product (("+" | "−") product)*
product  = factor ("·"? factor)*
factor   = whole number | L | n | m | k | b | c | "(" sum ")"
"""

import re
from collections.abc import Mapping

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.query import Query
from tallyroom.protocols.run.machines import own_machines
from tallyroom.protocols.wire.messages import SINGLE_BYTES

_TOKEN = re.compile(r"\s*([0-9]+|[Lnmkbc]|[-+−·*()])")


def predicted_links(query: Query) -> dict[str, int]:
    """Bytes by link; nothing where they follow from more than one round."""
    aggregator, parties, servers = aggregator_named(query.aggregator), query.parties, query.servers
    if (
        aggregator.stages > 1 or own_machines(query.plan) is not None
    ):  # pairs speak among themselves
        return {}
    most = query.max_records_per_party
    values = {"L": query.plan.length, "n": parties, "m": servers, "k": most}
    formula, more = aggregator.bytes_formula(query)
    try:
        sent = evaluate(formula, values | more)
    except NotAFormula:
        return {}
    return {"party->server": parties * (sent + SINGLE_BYTES * servers)}


class NotAFormula(ValueError):  # noqa: N818 - it names what was read, which need be no mistake
    """Words, or nothing that can be computed."""


def evaluate(text: str, values: Mapping[str, int]) -> int:
    """The value of a formula, of which words after a semicolon are no part. b is ⌈log₂ L⌉, at least
    1, unless it is given.

    Raises `NotAFormula` on anything else.
    """
    known = dict(values)
    if "L" in known:
        known.setdefault("b", max(1, (known["L"] - 1).bit_length()))
    reader = _Reader(_tokens(text.partition(";")[0].strip()), known)
    value = reader.sum()
    if reader.tokens:
        raise NotAFormula(f"{text!r}: {reader.tokens[0]!r} is left over")
    return value


def _tokens(text: str) -> list[str]:
    tokens, at = [], 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise NotAFormula(f"{text!r}: no formula at {text[at:]!r}")
        tokens.append(found[1])
        at = found.end()
    return tokens


class _Reader:
    def __init__(self, tokens: list[str], values: Mapping[str, int]) -> None:
        self.tokens = tokens
        self._values = values

    def sum(self) -> int:
        value = self._product()
        while self._next in ("+", "-", "−"):
            sign = 1 if self.tokens.pop(0) == "+" else -1
            value += sign * self._product()
        return value

    def _product(self) -> int:
        value = self._factor()
        while self._next not in ("", "+", "-", "−", ")"):
            if self._next in ("·", "*"):
                self.tokens.pop(0)
            value *= self._factor()
        return value

    def _factor(self) -> int:
        token = self.tokens.pop(0) if self.tokens else ""
        if token.isdecimal():
            return int(token)
        if token in self._values:
            return self._values[token]
        if token != "(":
            raise NotAFormula(f"{token!r} where a number, a letter or a bracket must be")
        value = self.sum()
        if self._next != ")":
            raise NotAFormula("a bracket is not closed")
        self.tokens.pop(0)
        return value

    @property
    def _next(self) -> str:
        return self.tokens[0] if self.tokens else ""
