"""A party behind a slow uplink: it may take as long to submit as the question waits for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import tallyroom.parties.process
from tallyroom.parties.process import PartyConfig
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.simulation.runtimes import Layout, children
from tallyroom.simulation.runtimes.processes import Processes
from tests.e2e.relay import Relay
from tests.samples import holdings_of

BINS = 40_000
SECONDS = 3.0
"""What one party's submission to server-0 takes."""


def impatient_host(config: PartyConfig) -> None:
    """Would give up long before its submission is through, if the question did not wait."""
    tallyroom.parties.process.SEND_SECONDS = 0.5
    children.host(config)


class SlowUplink(Processes):
    """What is sent to servers is slow."""

    relays: list[Relay]

    def address_of(self, name: str, port: int) -> str:
        if name == "coordinator":
            return super().address_of(name, port)
        self.relays.append(Relay(port, 8 * BINS / SECONDS))
        return super().address_of(name, self.relays[-1].port)

    def host_program(self) -> Callable[[PartyConfig], None]:
        return impatient_host


@contextmanager
def slow(plan: Layout) -> Iterator[SlowUplink]:
    runtime = SlowUplink(plan)
    runtime.relays = []
    try:
        with runtime:
            yield runtime
    finally:
        for relay in runtime.relays:
            relay.close()


@pytest.mark.timeout(60)
def test_a_submission_may_take_as_long_as_the_question_waits() -> None:
    values = np.linspace(0.0, 1.0, 8)
    question = Question(
        Histogram(value="value", lower=0.0, upper=1.0, bins=BINS),
        "additive",
        None,
        Placement.EACH_SERVER,
        deadline=30.0,
        key="slow",
    )
    with slow(Layout(holdings_of(values, 2), 2, 2, seed=1)) as runtime:
        opened = runtime.ask(question, lambda _: None)
    expected, _ = np.histogram(values, bins=BINS, range=(0.0, 1.0))
    assert opened.total.astype(np.int64).tolist() == expected.tolist()
    assert opened.seconds["submit"] > SECONDS
