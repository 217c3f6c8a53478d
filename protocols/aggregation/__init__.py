"""Aggregators by name: the thing researchers swap."""

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from protocols.aggregation.contract import Aggregator
from protocols.errors import LocalError
from protocols.names import look_up

GROUP = "tallyroom.aggregators"


@cache
def _entries() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def aggregators() -> dict[str, Aggregator]:
    """All installed aggregators, ours and those of other packages."""
    return {name: aggregator_named(name) for name in _entries()}


@cache
def aggregator_named(name: str) -> Aggregator:
    """Only the one that is asked for is loaded: a broken package does not break the others.

    Raises `LocalError` if there is none of that name, or if it cannot be loaded.
    """
    entry = look_up("aggregator", name, _entries())
    try:
        loaded: Aggregator = entry.load()()
    except (ImportError, AttributeError) as error:
        raise LocalError(f"aggregator {name!r} cannot be loaded: {error}") from None
    return loaded
