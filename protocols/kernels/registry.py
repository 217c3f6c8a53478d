"""Kernels by name: the pairwise thing that researchers swap."""

from collections.abc import Sequence
from functools import cache
from typing import Protocol

from tallyroom.protocols import registry
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.kernels.contract import Grid, Kernel


class KernelKind(Protocol):
    """What an entry point names: a class of kernels, or an `Expression`."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    def __call__(self, grids: Sequence[Grid]) -> Kernel:
        """The kernel on these grids, one a column."""


@cache
def kernel_named(name: str) -> KernelKind:
    """Only the one that is asked for is loaded: a broken package does not break the others.

    Raises `LocalError` if there is none of that name, or if it cannot be loaded.
    """
    loaded: KernelKind = registry.named(registry.KERNELS, name)
    if not callable(loaded) or not hasattr(loaded, "columns"):
        raise LocalError(f"kernel {name!r} is none: it has no columns, or takes no grids")
    return loaded
