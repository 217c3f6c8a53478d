"""Releases and trees that outlive their run: across restarts, and of the data they were made of."""

import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.estimates import shape_of
from tallyroom.protocols.statistics.on_demand import EcdfPoints
from tallyroom.protocols.statistics.planned import planned
from tallyroom.simulation.runtimes import Layout, Opened
from tallyroom.simulation.runtimes.processes import Processes
from tests.e2e.keepers import ANYTHING, PATIENCE, journals, spends, wait_until
from tests.samples import holdings_of


def test_a_stored_trees_journal_does_not_grow_with_what_is_asked_of_it(tmp_path: Path) -> None:
    """Nor does what is said again after a crash: the last question, and its answer."""
    plan = Layout(holdings_of([0.1, 0.4, 0.6, 0.9], 2), 2, 1, store=tmp_path)

    def ask(at: float) -> list[int]:
        points = EcdfPoints(value="value", lower=0.0, upper=1.0, at=(at,))
        question = Question(points, "fss", None, Placement.EACH_SERVER, key=f"{at}", deadline=20)
        opened = federation.ask(question, lambda _: None)
        opened.prove(question)
        return [int(each) for each in opened.total]

    def sizes() -> list[int]:
        wait_until(lambda: len(journals(tmp_path)) == 2)
        return [path.stat().st_size for path in journals(tmp_path)]

    with Processes(plan) as federation:
        assert ask(0.25) == [1]
        before = sizes()
        for begin in (0.5, 0.55):
            assert [ask(begin + i / 100) for i in range(4)] == [[2]] * 4
            assert sizes() == before
            federation.children["server-0"].kill()
            federation.restart("server-0")


class Changing(Processes):
    """A party may come back with other data."""

    def change(self, number: int, values: list[float]) -> None:
        block = self._blocks[number]
        columns = {"value": np.array(values)}
        self._blocks[number] = type(block)(block.ids, block.starts, columns)
        self.children[f"host-{number}"].kill()
        self.restart(f"host-{number}")


@pytest.mark.parametrize(
    ("statistic", "aggregator"),
    [
        (Ecdf(value="value", lower=0.0, upper=1.0, thresholds=4), "additive"),
        (EcdfPoints(value="value", lower=0.0, upper=1.0, at=(0.25, 0.5, 0.75, 1.0)), "fss"),
    ],
    ids=["curve", "on demand"],
)
def test_a_release_belongs_to_the_data_it_was_made_of(
    statistic: Any, aggregator: str, tmp_path: Path
) -> None:
    """Also when there are as many records as before; the coordinator is restarted in between."""
    plan = Layout(holdings_of([0.1, 0.4, 0.6, 0.9], 2), 2, 2, store=tmp_path)

    def ask(fresh: bool = False) -> Opened:
        key = os.urandom(8).hex()
        asked = Question(
            statistic, aggregator, None, Placement.EACH_SERVER, key=key, fresh=fresh, deadline=10
        )
        return federation.ask(asked, lambda _: None)

    def counts(opened: Opened) -> list[float]:
        curve = planned(statistic).decode(opened.total, opened.records, exact=True)
        return [round(y * opened.records) for y in shape_of(curve).values().tolist()]

    with Changing(plan) as federation:
        first = ask()
        assert (counts(first), first.reused) == ([1, 2, 3, 4], False)
        federation.children["coordinator"].kill()
        federation.restart("coordinator")
        again = ask()
        assert counts(again) == [1, 2, 3, 4]
        assert again.question is not None
        assert federation._analyst is not None
        for _ in range(2):  # what was given again is kept under its own key as well
            resumed = federation._analyst.resume(again.question.key, lambda _: None)
            assert (counts(resumed), resumed.question) == (counts(again), again.question)
            resumed.prove(again.question)
            federation.children["coordinator"].kill()
            federation.restart("coordinator")
        spent = spends(tmp_path)
        assert spent == [1, 1, 1]
        federation.change(0, [0.2, 0.24])
        wait_until(lambda: counts(ask()) == [2, 2, 3, 4])
        assert spends(tmp_path) == [2, 2, 2]
        federation.change(0, [0.2, 0.24, 0.3])
        wait_until(lambda: counts(ask()) == [2, 3, 4, 5])
        newest = spends(tmp_path)
        assert counts(ask(fresh=True)) == [2, 3, 4, 5]
        assert spends(tmp_path) == [count + 1 for count in newest]


def test_a_stored_tree_is_asked_across_restarts_and_parties_have_no_part_in_it(
    tmp_path: Path,
) -> None:
    """A server that is back says again what it said of other points; a party that is back is not
    asked, nor charged, for what its keys were uploaded for before."""
    plan = Layout(holdings_of([0.1, 0.4, 0.6, 0.9], 2), 2, 2, store=tmp_path, policy=ANYTHING)
    answers: list[Opened] = []
    here: list[int] = []

    def ask(at: float) -> None:
        points = EcdfPoints(value="value", lower=0.0, upper=1.0, at=(at,))
        question = Question(points, "fss", None, Placement.EACH_SERVER, key=f"{at}", deadline=20)
        opened = federation.ask(question, lambda progress: here.append(progress.enrolled))
        opened.prove(question)
        answers.append(opened)

    with Processes(plan) as federation:
        ask(0.25)
        ask(0.5)
        federation.children["server-1"].kill()
        asking = threading.Thread(target=ask, args=(0.75,))
        asking.start()
        federation.children["host-0"].kill()
        wait_until(lambda: here and here[-1] == 1)
        federation.restart("host-0")
        wait_until(lambda: here[-1] == 2)
        federation.restart("server-1")
        asking.join(PATIENCE)
        assert not asking.is_alive()
    assert [opened.total.tolist() for opened in answers] == [[1], [2], [3]]
    for host in ("host-0", "host-1"):
        with sqlite3.connect(tmp_path / host / "ledger.sqlite") as ledger:
            assert ledger.execute("SELECT COUNT(*) FROM spends").fetchone() == (1,)
