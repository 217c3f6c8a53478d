"""Runtimes by name."""

from protocols.names import look_up
from simulation.runtimes.contract import Opened, Plan, Progress, Report, Runtime
from simulation.runtimes.docker import Docker
from simulation.runtimes.inprocess import InProcess
from simulation.runtimes.processes import Processes

RUNTIMES: dict[str, type[Runtime]] = {kind.name: kind for kind in (InProcess, Processes, Docker)}


def runtime_named(name: str) -> type[Runtime]:
    return look_up("runtime", name, RUNTIMES)


__all__ = ["RUNTIMES", "Opened", "Plan", "Progress", "Report", "Runtime", "runtime_named"]
