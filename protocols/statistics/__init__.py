"""Statistics by name.

Statistics are found through the entry-point group `tallyroom.statistics`, and those that only
studies ask through `tallyroom.questions`; no statistic is named here."""

from functools import cache

from tallyroom.protocols import registry
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.estimates import Curve, Estimate


def statistic_names() -> list[str]:
    """The names of all installed statistics, ours and those of other packages, and of those that
    only studies ask."""
    return [*registry.registered(registry.STATISTICS), *registry.registered(registry.QUESTIONS)]


def statistics() -> dict[str, type[Statistic]]:
    """All installed statistics that can be loaded, including those that only studies ask."""
    return registry.loadable(registry.STATISTICS) | registry.loadable(registry.QUESTIONS)


def offered() -> dict[str, type[Statistic]]:
    """The installed statistics that users ask by name."""
    return {name: kind for name, kind in statistics().items() if not kind.part_of}


@cache
def statistic_named(name: str) -> type[Statistic]:
    """Loads the statistic of that name, and no other. Raises `LocalError` if there is no such
    statistic, or if it cannot be loaded."""
    asked = name in registry.registered(registry.QUESTIONS)
    group = registry.QUESTIONS if asked else registry.STATISTICS
    kind: type[Statistic] = registry.kind_named(group, name, Statistic)
    return kind


__all__ = [
    "Curve",
    "Estimate",
    "Statistic",
    "offered",
    "statistic_named",
    "statistic_names",
    "statistics",
]
