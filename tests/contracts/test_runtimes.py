"""Every installed runtime under the contract; `docker` needs an engine and `ray` a cluster, which
have tests of their own: tests/compose, tests/ray."""

import pytest

from tallyroom.extend import RuntimeContract
from tallyroom.simulation.runtimes import runtimes
from tallyroom.simulation.runtimes.inprocess import InProcess
from tallyroom.simulation.runtimes.processes import Processes


class TestInProcess(RuntimeContract):
    runtime = InProcess


@pytest.mark.slow
class TestProcesses(RuntimeContract):
    runtime = Processes


def test_every_installed_runtime_is_under_contract() -> None:
    tested = {kind.runtime.name for kind in RuntimeContract.__subclasses__()}
    assert runtimes().keys() - tested <= {"docker", "ray"}
