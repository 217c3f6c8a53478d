"""A kind of plan may have machines of its own for every role, by one table."""

import ast
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import NoisySum
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.run.machines import (
    MACHINES,
    check,
    collector_machine,
    party_machine,
    repeatable,
    server_machine,
    stages,
)
from tallyroom.protocols.statistics.moments import Sum
from tests.samples import a_query, holdings_of

ROOT = Path(__file__).parents[3]


class Recorder:
    """Role machines that tell which role was asked for, of which aggregator."""

    stages = 7
    repeatable = False

    def __init__(self, refusal: str = "") -> None:
        self._refusal = refusal

    def check(self, aggregator: Any, query: Any) -> None:
        if self._refusal:
            raise LocalError(self._refusal)

    def party(self, aggregator: Any, *_: object) -> Any:
        return "party", aggregator.name

    def server(self, aggregator: Any, query: Any, index: int, *_: object) -> Any:
        return "server", aggregator.name, index

    def collector(self, aggregator: Any, *_: object) -> Any:
        return "collector", aggregator.name


@dataclass(frozen=True)
class Recorded(NoisySum):
    """A sum with machines of its own."""

    refusal: str = ""


@pytest.fixture(autouse=True)
def _table(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: Any = Recorded
    monkeypatch.setitem(MACHINES, recorded, lambda plan: Recorder(plan.refusal))


@dataclass(frozen=True)
class OwnMachines(Sum):
    name: ClassVar[str] = "sum"
    refusal: ClassVar[str] = ""

    def plan(self, facts: Facts) -> NoisySum:
        plain = super().plan(facts)
        return Recorded(plain.encoding, plain.strategy, refusal=self.refusal)


@dataclass(frozen=True)
class Unsuited(OwnMachines):
    """One that this aggregator does not suit."""

    refusal: ClassVar[str] = "not with this aggregator"


def test_every_role_has_the_machine_that_the_plan_brings() -> None:
    query = replace(a_query(), statistic=OwnMachines(lower=0.0, upper=1.0))
    randomness = Randomness.from_seed(1, "test")
    name = query.aggregator
    made: list[Any] = [
        party_machine(query, holdings_of([0.5] * 4, 4), randomness),
        server_machine(query, 1, randomness, Memory()),
        collector_machine(query, np.ones(4, np.int64), randomness),
    ]
    assert made == [("party", name), ("server", name, 1), ("collector", name)]
    assert stages(query) == 7
    assert not repeatable(query)


def test_others_have_those_of_the_aggregator() -> None:
    query = replace(a_query(), statistic=Sum(lower=0.0, upper=1.0))
    assert stages(query) == 1
    assert repeatable(query)


def test_machines_of_its_own_say_which_aggregator_does_not_suit() -> None:
    query = replace(a_query(), statistic=Unsuited(lower=0.0, upper=1.0))
    with pytest.raises(LocalError, match="not with this aggregator"):
        check(query)


def test_only_those_who_know_pairs_ask_whether_a_plan_is_of_pairs() -> None:
    """Everything else goes by hooks and by the table of machines."""
    packages = ("protocols", "storage", "parties", "servers", "simulation", "tallyroom")
    asking = {
        str(path.relative_to(ROOT))
        for package in packages
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("isinstance", "issubclass", "hasattr")
        and {"Pairs", "PairwiseMean"} & {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    }
    assert asking == {
        "protocols/pairwise/sampling/schedule.py",
        "protocols/statistics/pairwise.py",  # reads what they release
        "protocols/statistics/planned.py",
        "simulation/in_the_clear.py",
        "simulation/planning/outcomes.py",  # draw what they would release
        "simulation/planning/rehearsal.py",
    }
