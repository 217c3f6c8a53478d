"""The suite that every runtime must pass; other packages import it too.

    from tallyroom.extend import RuntimeContract

    class TestMine(RuntimeContract):
        runtime = Mine

It needs pytest. Wherever processes live, the machines are the same: under one seed a runtime gives
the answers and the bill of `inprocess`, to the byte.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.records import deal
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.simulation.runtimes import runtime_named
from tallyroom.simulation.runtimes.contract import Layout, Opened, Progress, Runtime
from tallyroom.simulation.runtimes.inprocess import InProcess

VALUES = np.linspace(0.05, 0.95, 12)
COUNTS = np.histogram(VALUES, bins=4, range=(0.0, 1.0))[0].tolist()
PARTIES, SERVERS = 4, 2
EXACT = Question(
    Histogram(lower=0.0, upper=1.0, bins=4), "additive", None, Placement.EACH_SERVER, key="exact"
)
NOISY = replace(EXACT, epsilon=Fraction(1, 2), key="noisy")


def a_layout(cap: Fraction | None = None) -> Layout:
    holdings = deal({"value": VALUES}, PARTIES)
    return Layout(holdings, SERVERS, hosts=2, seed=11, cap=cap)


def ask(runtime: Runtime, question: Question) -> tuple[Opened, list[Progress]]:
    told: list[Progress] = []
    return runtime.ask(question, told.append), told


class RuntimeContract:
    """`runtime` is the class. One federation is brought up for all tests of it."""

    runtime: ClassVar[type[Runtime]]

    @pytest.fixture(scope="class")
    @classmethod
    def up(cls) -> Iterator[Runtime]:
        with cls.runtime(a_layout()) as runtime:
            yield runtime

    @pytest.fixture(scope="class")
    @classmethod
    def oracle(cls) -> Iterator[Runtime]:
        with InProcess(a_layout()) as runtime:
            yield runtime

    def test_it_is_found_by_its_name(self) -> None:
        assert runtime_named(self.runtime.name) is self.runtime

    def test_it_says_what_it_is(self) -> None:
        assert self.runtime.summary
        assert "\n" not in self.runtime.summary
        assert self.runtime.peer in ("direct", "relay")

    def test_an_exact_answer_is_numpys_about_everybody(self, up: Runtime) -> None:
        opened, told = ask(up, EXACT)
        assert opened.total.tolist() == COUNTS
        assert opened.contributors.tolist() == list(range(PARTIES))
        assert opened.records == len(VALUES)
        assert told
        assert {each.parties for each in told} == {PARTIES}

    def test_an_answer_is_proved_by_what_servers_signed(self, up: Runtime) -> None:
        opened, _ = ask(up, replace(EXACT, key="proved"))
        query, proof = opened.prove(replace(EXACT, key="proved"))
        assert query.statistic == EXACT.statistic
        assert proof.records == len(VALUES)
        with pytest.raises(RunFailed):
            opened.prove(replace(EXACT, key="proved", aggregator="curator"))

    def test_answer_and_bill_are_those_of_one_process(self, up: Runtime, oracle: Runtime) -> None:
        """Noise too: it is drawn from the layout's seed."""
        mine, theirs = (ask(each, NOISY)[0] for each in (up, oracle))
        assert mine.total.tolist() == theirs.total.tolist() != COUNTS
        assert list(mine.bill.rows()) == list(theirs.bill.rows())

    def test_too_few_parties_for_a_question_is_one_line(self, up: Runtime) -> None:
        with pytest.raises((LocalError, RunFailed)) as refused:
            ask(up, replace(EXACT, min_parties=PARTIES + 1, key="too few"))
        assert "\n" not in str(refused.value)

    def test_another_keeps_to_its_cap_and_goes_on_after_a_refusal(self) -> None:
        """Also after one that was stopped: nothing of that is left."""
        with self.runtime(a_layout(cap=Fraction(1))) as runtime:
            with pytest.raises((LocalError, RunFailed), match="refused"):
                ask(runtime, EXACT)
            with pytest.raises((LocalError, RunFailed), match="ledger"):
                ask(runtime, replace(NOISY, epsilon=Fraction(2), key="too much"))
            assert ask(runtime, NOISY)[0].contributors.tolist() == list(range(PARTIES))
