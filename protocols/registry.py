"""What can be chosen by name, ours and other packages': entry points, one group of each kind.

An entry is loaded when it is asked for: a party does not import what it does not need, and a
broken package breaks nothing else.
"""

import contextlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.names import look_up
from tallyroom.protocols.offers import Offers

AGGREGATORS = "tallyroom.aggregators"
STATISTICS = "tallyroom.statistics"
QUESTIONS = "tallyroom.questions"
"""Statistics that studies ask, and nobody by name."""
STUDIES = "tallyroom.studies"
KERNELS = "tallyroom.kernels"
NOISE_LAWS = "tallyroom.noise_laws"
RUNTIMES = "tallyroom.runtimes"

KINDS: Mapping[str, str] = {
    AGGREGATORS: "aggregator",
    STATISTICS: "statistic",
    QUESTIONS: "statistic",
    STUDIES: "study",
    KERNELS: "kernel",
    NOISE_LAWS: "noise law",
    RUNTIMES: "runtime",
}
"""What an entry of each group is called."""


@cache
def registered(group: str) -> Mapping[str, EntryPoint]:
    """The entries of a group by name, in alphabetical order. None of them is loaded."""
    found = {entry.name: entry for entry in entry_points(group=group)}
    return dict(sorted(found.items()))


def named(group: str, name: str) -> Any:
    """What the entry of that name stands for.

    Raises `LocalError` with the nearest names if there is none, or if it cannot be loaded.
    """
    entry = look_up(KINDS[group], name, registered(group))
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        raise LocalError(f"{KINDS[group]} {name!r} cannot be loaded: {error}") from None


def kind_named(group: str, name: str, base: type) -> Any:
    """The class of that name, which is derived from `base` and calls itself so. Nothing else of the
    group is loaded.

    Raises `LocalError` if there is none, or if it cannot be loaded.
    """
    kind = named(group, name)
    found = isinstance(kind, type) and issubclass(kind, base)
    if not found or getattr(kind, "name", None) != name:
        raise LocalError(f"{KINDS[group]} {name!r} is none, or calls itself by another name")
    return kind


@cache
def offers_of(spec: str) -> Offers:
    """What the aggregator of this specification offers; nothing, if there is no such aggregator."""
    with contextlib.suppress(LocalError):
        found: Offers = named(AGGREGATORS, spec.partition("?")[0]).offers
        return found
    return frozenset()


def loadable(group: str) -> dict[str, Any]:
    """All entries of a group that can be loaded."""
    found = {}
    for name in registered(group):
        with contextlib.suppress(LocalError):
            found[name] = named(group, name)
    return found
