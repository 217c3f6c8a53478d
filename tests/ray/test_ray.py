"""`--runtime ray` on two nodes: the answers and bills of one process, also when a node is lost."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallyroom.extend import RuntimeContract
from tallyroom.parties.data import Dataset
from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.aggregation.fss.aggregator import Fss
from tallyroom.protocols.aggregation.fss.roles import CountedKeys, comparison
from tallyroom.protocols.aggregation.partial_sums import total_over
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import deal
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.statistics.on_demand import EcdfPoints
from tallyroom.protocols.wire.machine import Done
from tallyroom.protocols.wire.messages import Role
from tallyroom.simulation import Federation
from tallyroom.simulation.runtimes.contract import Layout, Progress
from tallyroom.simulation.runtimes.inprocess import InProcess
from tallyroom.simulation.runtimes.ray import Ray
from tallyroom.simulation.runtimes.spread_bulk import SpreadBulk
from tallyroom.simulation.sweep.columns import TIMES
from tallyroom.simulation.sweep.conduct import conduct
from tallyroom.simulation.sweep.journal import Row
from tallyroom.simulation.sweep.ray_workers import RayWorkers
from tallyroom.simulation.sweep.specification import parse
from tallyroom.simulation.sweep.work import work
from tests.ray.conftest import TwoNodes

VALUES = np.random.default_rng(5).uniform(0, 1, 23)
PARTIES = 9
BOUNDS: dict[str, Any] = {"lower": 0.0, "upper": 1.0}


def a_layout(cap: Fraction | None = None) -> Layout:
    return Layout(deal({"value": VALUES}, PARTIES), servers=2, hosts=3, seed=7, cap=cap)


def asked(statistic: Any, aggregator: str, key: str, epsilon: Fraction = Fraction(1)) -> Question:
    return Question(statistic, aggregator, epsilon, Placement.EACH_SERVER, key=key)


QUESTIONS = [
    asked(Histogram(bins=7, **BOUNDS), "additive", "histogram"),
    asked(Ecdf(thresholds=16, **BOUNDS), "fss", "curve"),
    asked(Histogram(bins=5, **BOUNDS), "prio3", "verified"),
    replace(asked(Mean(**BOUNDS), "shamir", "a polynomial"), noise=Placement.PARTIES),
    asked(Gini(bits=8, **BOUNDS), "additive", "pairs"),
    asked(EcdfPoints(at=(0.25,), **BOUNDS), "fss", "a point"),
    asked(EcdfPoints(at=(0.75,), **BOUNDS), "fss", "another point of the same tree"),
]


def quiet(_: Progress) -> None:
    pass


@pytest.fixture(scope="module")
def up(cluster: TwoNodes) -> Iterator[Ray]:
    cluster.restore()
    with Ray(a_layout()) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def oracle() -> Iterator[InProcess]:
    with InProcess(a_layout()) as runtime:
        yield runtime


@pytest.mark.usefixtures("cluster")
class TestRay(RuntimeContract):
    runtime = Ray


def test_seats_are_on_both_nodes(up: Ray) -> None:
    assert len({handle.node for handle in up.handles.values()}) == 2


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.key)
def test_estimate_and_bill_are_those_of_one_process(
    up: Ray, oracle: InProcess, question: Question
) -> None:
    mine, theirs = (runtime.ask(question, quiet) for runtime in (up, oracle))
    assert mine.total.tolist() == theirs.total.tolist()
    assert list(mine.bill.rows()) == list(theirs.bill.rows())
    assert mine.contributors.tolist() == theirs.contributors.tolist()
    assert mine.prove(question)[1].records == theirs.records == mine.records


@pytest.mark.usefixtures("two_nodes")
def test_parties_of_several_actors_believe_what_they_sign_for_each_other() -> None:
    """By certificates, as between processes. The whole way of a question, with its error."""
    data = Dataset("values", {"value": VALUES}, {"value": (0.0, 1.0)})
    results = []
    for runtime in ("inprocess", "ray"):
        with Federation(PARTIES, aggregator="masking", runtime=runtime, data=data, seed=3) as room:
            results.append(room.run(Mean(), 1))
    here, there = results
    assert here.estimate == there.estimate != here.truth
    assert here.communication == there.communication
    assert here.error == there.error
    assert there.privacy.threat_model == here.privacy.threat_model
    assert there.federation["trust"] == Ray.trust


def test_a_release_is_given_again_and_costs_nothing(up: Ray) -> None:
    opened = up.ask(replace(QUESTIONS[1], key="the curve again"), quiet)
    assert opened.reused
    assert opened.bill.total.bytes == 0


def test_a_node_that_is_lost_in_a_run_changes_nothing(two_nodes: TwoNodes) -> None:
    """The node has servers or hosts in the middle of their work. Also what was spent before, and
    trees that servers keep, are as they were."""
    tree, point, histogram = QUESTIONS[5], QUESTIONS[6], QUESTIONS[0]
    with InProcess(a_layout(cap=Fraction(3))) as here:
        expected = [here.ask(question, quiet) for question in (tree, histogram, point)]
    told = []

    def lose_one(progress: Progress) -> None:
        told.append(progress.phase)
        if two_nodes.second is not None:
            two_nodes.lose()

    with Ray(a_layout(cap=Fraction(3))) as runtime:
        lost = {n for n, handle in runtime.handles.items() if handle.node == two_nodes.second_id}
        assert lost
        found = [runtime.ask(tree, quiet), runtime.ask(histogram, lose_one)]
        found.append(runtime.ask(point, quiet))
        assert told
        assert {name for name, handle in runtime.handles.items() if handle.restarts} == lost
        with pytest.raises((LocalError, RunFailed), match="ledger"):
            runtime.ask(replace(histogram, epsilon=Fraction(2), key="too much"), quiet)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.total.tolist() == theirs.total.tolist()
        assert list(mine.bill.rows()) == list(theirs.bill.rows())


def test_one_servers_keys_are_counted_by_workers_of_both_nodes(two_nodes: TwoNodes) -> None:
    holdings = deal({"value": np.random.default_rng(1).random(400)}, 400)
    question = asked(Ecdf(thresholds=64, **BOUNDS), "fss?verified=no", "many")
    query = question.query(bytes(8), 400, 2, 400, 1)
    step = Fss("no").party(query, holdings, Randomness.from_seed(1, "parties")).start()
    assert isinstance(step, Done)
    (message,) = (m for m in step.messages if m.receiver_role is Role.SERVER and not m.receivers[0])
    spread, memory = SpreadBulk(task_bytes=4_000), Memory()
    for chunk in message.chunks(limit=3_000):
        for bulk in (spread, memory):
            bulk.append(chunk.senders, chunk.rows().reshape(-1))
    keys = comparison(query)
    points = np.arange(0, 1 << keys.bits, 1 << (keys.bits - 6), dtype=np.uint64)
    members = np.random.default_rng(2).random(400) < 0.7
    part = CountedKeys(keys, 0, points, members)
    assert total_over(spread, part, 64).tolist() == total_over(memory, part, 64).tolist()
    assert sum(spread.nodes.values()) > 8
    assert spread.nodes[two_nodes.second_id]
    assert len(spread.nodes) == 2


def untimed(rows: list[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


SWEEP: dict[str, Any] = {
    "seed": 5,
    "trials": 5,
    "statistic": "mean",
    "options": {"parties": 60, "data": "synthetic:scores?n=240"},
    "grid": {"epsilon": [0.5, 2]},
}


def test_a_sweep_that_loses_a_node_is_that_of_one_process(
    two_nodes: TwoNodes, tmp_path: Path
) -> None:
    second, counted = two_nodes.second_id, []
    workers: RayWorkers[Any, Any] = RayWorkers(work)

    def lose_one(done: int, of: int) -> None:
        counted.append(done)
        if two_nodes.second is not None and workers.nodes[second] and done < of - 2:
            two_nodes.lose()

    specification = parse(SWEEP)
    swept = conduct(specification, tmp_path, workers, lose_one)
    assert two_nodes.second is None, "it was to be lost before the sweep was over"
    assert counted == list(range(11))
    assert sum(workers.nodes.values()) == 10
    whole = [work(run) for run in specification.runs()]
    assert untimed(swept.rows) == untimed(whole)
    assert not swept.failed


def divide(task: int) -> float:
    return 1 / task


@pytest.mark.usefixtures("two_nodes")
def test_what_a_task_raises_is_raised_here() -> None:
    with pytest.raises(ZeroDivisionError):
        list(RayWorkers(divide, 2).done([1, 0]))
