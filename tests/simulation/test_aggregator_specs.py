"""An aggregator with options, from the command to the machines; and the δ that goes along."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import pytest

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.additive import Additive
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.registry import AGGREGATORS
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.simulation import Federation
from tests.conftest import Tally
from tests.registering import register

SEEN: list[Query] = []


@dataclass(frozen=True)
class Optioned(Additive):
    """Additive shares among three, for want of a number of one's own."""

    flavour: int = 1

    name: ClassVar[str] = "optioned"
    servers: ClassVar[int] = 3

    def check(self, query: Query) -> None:
        super().check(query)
        SEEN.append(query)
        if self.flavour == 9:
            raise LocalError("there is no flavour 9")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if a package had it among its entry points."""
    register(monkeypatch, AGGREGATORS, "optioned", f"{__name__}:Optioned")
    SEEN.clear()
    yield
    aggregator_named.cache_clear()


def test_every_role_gets_the_whole_spec_and_the_delta() -> None:
    with Federation(parties=5, aggregator="optioned?flavour=2", seed=1) as federation:
        result = federation.run(Mean(value="score"), 1, delta=1e-6)
    assert {(query.aggregator, query.delta) for query in SEEN} == {("optioned?flavour=2", 1e-6)}
    assert len(SEEN) >= 1 + 3 + 5  # the coordinator, three servers and five hosts checked it
    assert result.federation["aggregator"] == "optioned?flavour=2"


def test_an_aggregator_says_how_many_servers_there_are_if_nobody_does(tally_here: Tally) -> None:
    for aggregator, servers in (("curator", 1), ("additive", 2), ("optioned", 3)):
        done = tally_here("run", "mean", "--parties", 4, "--aggregator", aggregator, "--json")
        assert json.loads(done.stdout)["federation"]["servers"] == servers


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--aggregator", "optioned?flavour=9"), "there is no flavour 9"),
        (("--aggregator", "optioned?flavour=x"), "flavour is a whole number, not 'x'"),
        (("--aggregator", "optioned?colour=1"), "its options are flavour"),
        (("--delta", "1"), "delta is a probability from 0 to below 1"),
        (("--delta", "-1e-9"), "delta is a probability"),
        (("--delta", "nan"), "delta is a probability"),
    ],
    ids=" ".join,
)
def test_bad_specs_and_deltas(tally_here: Tally, words: tuple[str, ...], reason: str) -> None:
    done = tally_here("run", "mean", *words, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert reason in done.stderr


def test_a_question_carries_delta_over_the_wire() -> None:
    question = Question(Mean(), "additive", Fraction(1), Placement.EACH_SERVER, delta=1e-9)
    assert Question.decode(question.encode()) == question
    fields = json.loads(question.encode())
    for wrong in ("0", None, True, [0]):
        with pytest.raises(LocalError, match="delta cannot be"):
            Question.decode(json.dumps(fields | {"delta": wrong}))
