"""Runtimes by name, through the entry-point group `tallyroom.runtimes`."""

from protocols import registry
from protocols.errors import LocalError
from simulation.runtimes.contract import Opened, Plan, Progress, Report, Runtime


def runtimes() -> dict[str, type[Runtime]]:
    """All installed runtimes that can be loaded."""
    return registry.loadable(registry.RUNTIMES)


def runtime_named(name: str) -> type[Runtime]:
    """Raises `LocalError` if there is none of that name, or if it cannot be loaded."""
    kind = registry.named(registry.RUNTIMES, name)
    if not (isinstance(kind, type) and issubclass(kind, Runtime) and kind.name == name):
        raise LocalError(f"runtime {name!r} is none, or calls itself by another name")
    return kind


__all__ = ["Opened", "Plan", "Progress", "Report", "Runtime", "runtime_named", "runtimes"]
