"""Runtimes by name, through the entry-point group `tallyroom.runtimes`."""

from tallyroom.protocols import registry
from tallyroom.simulation.runtimes.contract import Layout, Opened, Progress, Report, Runtime, silent


def runtimes() -> dict[str, type[Runtime]]:
    """All installed runtimes that can be loaded."""
    return registry.loadable(registry.RUNTIMES)


def runtime_named(name: str) -> type[Runtime]:
    """Raises `LocalError` if there is none of that name, or if it cannot be loaded."""
    kind: type[Runtime] = registry.kind_named(registry.RUNTIMES, name, Runtime)
    return kind


__all__ = [
    "Layout",
    "Opened",
    "Progress",
    "Report",
    "Runtime",
    "runtime_named",
    "runtimes",
    "silent",
]
