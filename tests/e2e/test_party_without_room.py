"""A party whose disk is full says so, tries again until the deadline, and refuses after it."""

import threading
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.simulation.runtimes import Layout
from tallyroom.simulation.runtimes.processes import Processes
from tests.e2e.disks import full, locked
from tests.e2e.keepers import ANYTHING, wait_until
from tests.samples import holdings_of


def question(key: str, deadline: float) -> Question:
    counted = Histogram(value="value", lower=0.0, upper=1.0, bins=4)
    return Question(
        counted, "additive", Fraction(1), Placement.EACH_SERVER, deadline=deadline, key=key
    )


@pytest.mark.timeout(120)
def test_a_party_waits_for_room_and_says_so(tmp_path: Path) -> None:
    values = np.linspace(0.0, 1.0, 8)
    layout = Layout(holdings_of(values, 4), 2, 2, seed=1, store=tmp_path, policy=ANYTHING)
    with Processes(layout) as runtime:
        wait_until(lambda: runtime.present() == 4)
        totals: list[object] = []
        with full(runtime, "host-1", 10):
            asking = threading.Thread(
                target=lambda: totals.append(runtime.ask(question("full", 40.0), lambda _: None))
            )
            asking.start()
            time.sleep(2.0)
            assert not totals
        asking.join(40.0)
        assert len(totals) == 1
        with (
            locked(tmp_path / "host-1" / "ledger.sqlite"),
            pytest.raises(RunFailed, match=r"party-2.*waits for its disk: the ledger cannot be"),
        ):
            runtime.ask(question("locked", 3.0), lambda _: None)
        assert runtime.ask(question("again", 20.0), lambda _: None).records == 8
