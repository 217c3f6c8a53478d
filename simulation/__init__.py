"""The harness: runtimes, reports, benchmarks and the command."""

from importlib import import_module
from typing import TYPE_CHECKING

import tallyroom.protos  # noqa: F401 - before gRPC

if TYPE_CHECKING:
    from tallyroom.simulation.federation import Federation
    from tallyroom.simulation.result import Result

__all__ = ["Federation", "Result"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Loaded when they are used: the command must not pay for them to show its help."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"tallyroom.simulation.{name.lower()}"), name)
