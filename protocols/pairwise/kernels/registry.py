"""Kernels by name: the pairwise thing that researchers swap."""

from collections.abc import Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from protocols.errors import LocalError
from protocols.names import look_up
from protocols.pairwise.kernels.contract import Grid, Kernel

GROUP = "tallyroom.kernels"


class KernelKind(Protocol):
    """What an entry point names: a class of kernels, or an `Expression`."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    def __call__(self, grids: Sequence[Grid]) -> Kernel:
        """The kernel on these grids, one a column."""


@cache
def _entries() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def kernel_names() -> list[str]:
    """All installed kernels, ours and those of other packages."""
    return list(_entries())


@cache
def kernel_named(name: str) -> KernelKind:
    """Only the one that is asked for is loaded: a broken package does not break the others.

    Raises `LocalError` if there is none of that name, or if it cannot be loaded.
    """
    entry = look_up("kernel", name, _entries())
    try:
        loaded: KernelKind = entry.load()
    except (ImportError, AttributeError) as error:
        raise LocalError(f"kernel {name!r} cannot be loaded: {error}") from None
    if not callable(loaded) or not hasattr(loaded, "columns"):
        raise LocalError(f"kernel {name!r} is none: it has no columns, or takes no grids")
    return loaded
