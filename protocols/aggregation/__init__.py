"""Aggregators by name: the thing researchers swap."""

from functools import cache
from importlib.metadata import entry_points

from protocols.aggregation.contract import Aggregator
from protocols.names import look_up

GROUP = "tallyroom.aggregators"


@cache
def aggregators() -> dict[str, Aggregator]:
    """All installed aggregators, ours and those of other packages."""
    return {entry.name: entry.load()() for entry in entry_points(group=GROUP)}


def aggregator_named(name: str) -> Aggregator:
    return look_up("aggregator", name, aggregators())
