"""Parties of several hosts meet over real sockets: the same game, and the same bill, everywhere."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from tallyroom.parties.block import PartyBlock
from tallyroom.parties.data import Dataset
from tallyroom.parties.process import PartyConfig
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.wire.meter import SEALING_BYTES
from tallyroom.simulation import Federation
from tallyroom.simulation.misbehaviour import Misbehaviour
from tallyroom.simulation.runtimes import Layout, Opened, Progress, Runtime
from tallyroom.simulation.runtimes.inprocess import InProcess
from tallyroom.simulation.runtimes.processes import Processes
from tests.e2e.ping_pong import MARKER, ROUNDS, HastyBlock, PlayingBlock, play, play_and_die
from tests.samples import holdings_of

PARTIES = 6
VALUES = [0.1, 0.3, 0.3, 0.6, 0.9, 0.9]
COUNTS = [1, 2, 1, 2]
BALLS = ROUNDS * PARTIES * (PARTIES - 1)
BALL_BYTES = ROUNDS * sum(
    54 + len(MARKER) + 1 + me + you for me in range(PARTIES) for you in range(PARTIES) if me != you
)
QUESTION = Question(
    Histogram(lower=0.0, upper=1.0, bins=4), "additive", None, Placement.EACH_SERVER, deadline=10.0
)


def quiet(_: Progress) -> None:
    pass


class PlayingHere(InProcess):
    honest_block: ClassVar[type[PartyBlock]] = PlayingBlock


class PlayingProcesses(Processes):
    def host_program(self) -> Callable[[PartyConfig], None]:
        return play


class DyingProcesses(Processes):
    def host_program(self) -> Callable[[PartyConfig], None]:
        return play_and_die


def a_layout(peer: str, hosts: int) -> Layout:
    return Layout(holdings_of(VALUES, PARTIES), 2, hosts, seed=3, peer=peer)


def ask(runtime: Runtime, question: Question = QUESTION) -> Opened:
    with runtime:
        return runtime.ask(question, quiet)


@pytest.mark.parametrize(
    ("peer", "hosts"), [("direct", 3), ("relay", 3), ("direct", 6)], ids=lambda value: str(value)
)
def test_the_same_game_and_the_same_bill_in_one_process_and_in_many(peer: str, hosts: int) -> None:
    here = ask(PlayingHere(a_layout(peer, hosts)))
    there = ask(PlayingProcesses(a_layout(peer, hosts)))
    assert here.total.tolist() == there.total.tolist() == COUNTS
    assert list(there.bill.rows()) == list(here.bill.rows())
    assert there.bill.as_json() == here.bill.as_json()
    links = there.bill.by_link()
    if peer == "direct":
        assert (links["party->party"].bytes, links["party->party"].messages) == (BALL_BYTES, BALLS)
    else:
        legs = [links[name] for name in ("party->coordinator", "coordinator->party")]
        assert [leg.messages for leg in legs] == [BALLS, BALLS + PARTIES]
        assert legs[0].bytes == BALL_BYTES + BALLS * SEALING_BYTES
        assert "party->party" not in links


def test_hosts_change_no_bill() -> None:
    """A block of many plays in memory, and is charged as if every party had a host of its own."""
    alone, *others = (ask(PlayingHere(a_layout("direct", hosts))).bill for hosts in (6, 1, 2, 3))
    assert alone.by_link()["party->party"].messages == BALLS
    for other in others:
        assert other.as_json() == alone.as_json()
        assert list(other.rows()) == list(alone.rows())


@pytest.mark.parametrize("peer", ["direct", "relay"])
def test_who_waits_for_a_dead_peer_gives_up_at_the_deadline(peer: str) -> None:
    """The host of parties 0 and 1 dies: the others wait for the ball in vain, and go on."""
    opened = ask(DyingProcesses(a_layout(peer, 3)), replace(QUESTION, min_parties=4))
    assert opened.contributors.tolist() == [2, 3, 4, 5]
    assert opened.total.tolist() == [0, 1, 1, 2]


def test_silent_parties_are_waited_for_in_vain() -> None:
    class Hasty(InProcess):
        honest_block: ClassVar[type[PartyBlock]] = HastyBlock

    plan = replace(a_layout("direct", 3), misbehaviour=Misbehaviour(silent=frozenset([0])))
    opened = ask(Hasty(plan), replace(QUESTION, min_parties=5))
    assert opened.contributors.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("peer", ["direct", "relay"])
def test_a_statistic_of_pairs_is_the_same_in_one_process_and_in_many(peer: str) -> None:
    """Garbled circuits between nine parties of three hosts, and nothing lost on the way."""
    data = Dataset("values", {"value": np.linspace(0, 1, 9) ** 2}, {"value": (0.0, 1.0)})
    results = []
    for runtime in ("inprocess", "processes"):
        with Federation(9, runtime=runtime, data=data, hosts=3, seed=5, peer=peer) as federation:
            results.append(federation.run(Gini(), "1"))
    here, there = results
    assert here.estimate == there.estimate
    assert here.estimate != here.truth
    assert here.communication == there.communication
    assert list(here.bill.rows()) == list(there.bill.rows())
    assert ("party->party" in there.bill.by_link()) == (peer == "direct")


def test_a_coordinator_that_dies_meanwhile_hears_of_it_later(tmp_path: Path) -> None:
    """It is killed while the others wait for a dead peer, and started again: they join again, and
    what they have to say then finds its way."""
    runtime = DyingProcesses(replace(a_layout("relay", 3), store=tmp_path))
    killed: list[bool] = []

    def kill(progress: Progress) -> None:
        if progress.phase == "submit" and not killed:
            killed.append(True)
            runtime.children["coordinator"].kill()
            runtime.restart("coordinator")

    with runtime:
        opened = runtime.ask(replace(QUESTION, min_parties=4, deadline=5.0, key="one"), kill)
    assert killed
    assert opened.contributors.tolist() == [2, 3, 4, 5]
    assert opened.total.tolist() == [0, 1, 1, 2]
