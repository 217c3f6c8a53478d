"""Finds aggregators by name. The aggregator is what researchers swap."""

import contextlib
import dataclasses
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from tallyroom.protocols import registry
from tallyroom.protocols.aggregation.contract import Aggregator
from tallyroom.protocols.errors import LocalError

if TYPE_CHECKING:
    from tallyroom.protocols.aggregation.fss.on_demand import OnDemandCollector as OnDemandCollector
    from tallyroom.protocols.aggregation.joint_server import JointServer as JointServer
else:  # they take long to load, and few questions need them
    __getattr__ = registry.lazily(
        __name__,
        {
            "OnDemandCollector": "fss.on_demand",
            "JointServer": "joint_server",
        },
    )

_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)


def aggregator_names() -> list[str]:
    """The names of all installed aggregators, ours and those of other packages."""
    return list(registry.registered(registry.AGGREGATORS))


def aggregators() -> dict[str, Aggregator]:
    """All installed aggregators that can be loaded."""
    loaded = {}
    for name in aggregator_names():
        with contextlib.suppress(LocalError):
            loaded[name] = aggregator_named(name)
    return loaded


@lru_cache(maxsize=64)
def aggregator_named(spec: str) -> Aggregator:
    """The aggregator for `NAME` or `NAME?option=value&…`.

    Loads no other aggregator, so a broken package does not affect the others. Raises `LocalError`
    if there is no aggregator of that name, if it cannot be loaded, or if it has no such option.
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
            known = f"its options are {', '.join(types)}" if types else "it takes no options"
            raise LocalError(f"{name} has no option {option!r}; {known}")
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
