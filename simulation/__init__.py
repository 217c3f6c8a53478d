"""The harness: runtimes, reports, benchmarks and the command."""

import protos  # noqa: F401 - before gRPC
from simulation.federation import Federation
from simulation.result import Result

__all__ = ["Federation", "Result"]
