"""The harness: runtimes, reports, benchmarks and the command."""

from simulation.federation import Federation
from simulation.result import Result

__all__ = ["Federation", "Result"]
