"""Aggregators by name: the thing researchers swap."""

import contextlib
import dataclasses
import re
from functools import lru_cache

from tallyroom.protocols import registry
from tallyroom.protocols.aggregation.contract import Aggregator
from tallyroom.protocols.errors import LocalError

_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)


def aggregator_names() -> list[str]:
    """The names of all installed aggregators, ours and those of other packages."""
    return list(registry.registered(registry.AGGREGATORS))


def aggregators() -> dict[str, Aggregator]:
    """All installed aggregators that can be loaded."""
    found = {}
    for name in aggregator_names():
        with contextlib.suppress(LocalError):
            found[name] = aggregator_named(name)
    return found


@lru_cache(maxsize=64)
def aggregator_named(spec: str) -> Aggregator:
    """The aggregator of a `NAME`, or of a `NAME?option=value&…`.

    Only the one that is asked for is loaded: a broken package does not break the others.
    Raises `LocalError` if there is none of that name, or if it cannot be loaded or has no such
    option.
    """
    name, _, options = spec.partition("?")
    kind: type[Aggregator] = registry.named(registry.AGGREGATORS, name)
    return kind(**_parse_options(name, kind, options))


def _parse_options(name: str, kind: type[Aggregator], text: str) -> dict[str, int | float | str]:
    types: dict[str, object] = {}
    if dataclasses.is_dataclass(kind):
        types = {field.name: field.type for field in dataclasses.fields(kind)}
    chosen: dict[str, int | float | str] = {}
    for option in filter(None, text.split("&")):
        key, _, value = option.partition("=")
        if key not in types or key in chosen:
            there = f"its options are {', '.join(types)}" if types else "it has none"
            raise LocalError(f"{name} has no option {option!r}; {there}")
        if types[key] is str:
            chosen[key] = value
        elif types[key] is float:
            if not _DECIMAL.fullmatch(value):
                raise LocalError(f"{name}: {key} is a decimal number, not {value!r}")
            chosen[key] = float(value)
        elif value.isascii() and value.isdecimal() and len(value) < 10:
            chosen[key] = int(value)
        else:
            raise LocalError(f"{name}: {key} is a whole number, not {value!r}")
    return chosen
