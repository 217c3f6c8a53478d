"""A party host with a store is killed while pairs meet, over real processes: no total is wrong."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tallyroom.parties.data import Dataset
from tallyroom.protocols.errors import TallyError
from tallyroom.protocols.statistics.of_pairs import CollisionEntropy
from tallyroom.simulation import Federation, Result
from tallyroom.simulation.runtimes.processes import Processes

DATA = Dataset("equal", {"value": np.full(12, 0.5)}, {"value": (0.0, 1.0)})
"""All records are equal: every pair collides, so whichever pairs are lost, the collision entropy is
0. Half of a pair, or halves of two sharings, are a random number of 64 bits."""


def test_a_killed_host_makes_no_total_wrong(tmp_path: Path) -> None:
    statistic = CollisionEntropy(value="value")
    answered = 0
    with Federation(
        parties=4, hosts=2, runtime="processes", data=DATA, store=tmp_path, seed=3
    ) as federation:
        federation.start()
        runtime = federation.runtime
        assert isinstance(runtime, Processes)
        for number, delay in enumerate((0.05, 0.15, 0.3)):
            found: list[Result | TallyError] = []

            def ask(found: list[Result | TallyError] = found) -> None:
                try:
                    found.append(federation.run(statistic, "inf", min_parties=1, deadline=1.0))
                except TallyError as error:
                    found.append(error)

            asking = threading.Thread(target=ask)
            asking.start()
            time.sleep(delay)
            victim = f"host-{number % 2}"
            runtime.children[victim].kill()
            runtime.restart(victim)
            asking.join(timeout=60)
            assert found
            if isinstance(found[0], Result):
                answered += 1
                assert found[0].estimate == pytest.approx(0.0, abs=1e-9)
            else:
                assert "no pair was completed" in str(found[0])
    assert answered
