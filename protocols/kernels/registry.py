"""Finds kernels by name."""

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
        """The kernel on these grids, one per column."""


@cache
def kernel_named(name: str) -> KernelKind:
    """The kernel of that name. Loads no other, so a broken package does not affect the others.

    Raises `LocalError` if there is no kernel of that name, or if it cannot be loaded.
    """
    loaded: KernelKind = registry.named(registry.KERNELS, name)
    if not callable(loaded) or not hasattr(loaded, "columns"):
        raise LocalError(f"{name!r} is not a kernel: it has no columns, or cannot be called")
    return loaded
