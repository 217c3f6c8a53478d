"""Whoever is cut off comes back for the answer, which is paid for once; Ctrl-C cancels a run."""

import json
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.deployed import MEAN, SECONDS, TALLY, Room, Station, answer, tally

PRIVATE = [*MEAN, "--epsilon", "0.25", "--deadline", "50"]


class Restartable(Room):
    """Its coordinator keeps a store, and can be started again where it was."""

    def _start(self, name: str, *arguments: str) -> Station:
        if name == "coordinator":
            arguments = (*arguments, "--store", str(self.folder / "store"))
            self._arguments = arguments
        return super()._start(name, *arguments)

    def restart_coordinator(self) -> None:
        ports = iter((self.coordinator, self.enrolment, "127.0.0.1:0"))
        same = [next(ports) if word == "127.0.0.1:0" else word for word in self._arguments]
        self.stations[-1] = Station(self.folder / "coordinator-again.log", *same)

    @property
    def asked(self) -> list[str]:
        return ["--coordinator", self.coordinator, "--identity", str(self.folder / "fed/analyst")]

    def open_runs(self) -> list[Path]:
        return [
            path
            for store in ("store", "store-0")
            for path in self.folder.glob(f"{store}/runs/*.log")
        ]

    def spends(self) -> list[int]:
        """How many there are in each ledger."""
        return [
            sqlite3.connect(self.folder / store / "ledger.sqlite")
            .execute("SELECT count(*) FROM spends")
            .fetchone()[0]
            for store in ("store", "store-0", "store-1")
        ]

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """A party that does not answer: runs wait for it."""
        self.parties[1].process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.parties[1].process.send_signal(signal.SIGCONT)


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restartable]:
    made = Restartable(tmp_path_factory.mktemp("room"))
    made.ask(*MEAN, "--epsilon", "0.25")  # everybody is here
    yield made
    made.stop()


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.05)


class Client:
    """`tally run` in the middle of a run, and the key that it showed."""

    def __init__(self, room: Restartable) -> None:
        wait_until(lambda: not room.open_runs())
        self.process = subprocess.Popen(
            [*TALLY, *PRIVATE, *room.asked],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        shown = re.search(r"--resume ([\w-]+)", self.process.stderr.readline())
        assert shown
        self.key = shown[1]
        wait_until(lambda: len(room.open_runs()) == 2)

    def end(self) -> tuple[int, str, list[str]]:
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, out, err.splitlines()


OF_THE_ASKING = {"timing", "date", "command"}


def without_timing(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in OF_THE_ASKING}


def test_an_answer_survives_the_coordinator_and_is_paid_for_once(room: Restartable) -> None:
    before = room.spends()
    with room.held_up():
        client = Client(room)
        room.stations[-1].stop(signal.SIGKILL)
        room.restart_coordinator()
    code, out, said = client.end()
    assert (code, said) == (0, [])
    first = json.loads(out)
    assert first["key"] == client.key
    assert room.spends() == [spends + 1 for spends in before]
    # Before parties have joined again, even: what was asked is known, and of whom.
    room.stations[-1].stop(signal.SIGKILL)
    room.restart_coordinator()
    resumed = answer("run", "--resume", client.key, "--json", *room.asked)
    assert without_timing(resumed) == without_timing(first)
    asked_again = answer(*PRIVATE, "--key", client.key, *room.asked)
    assert without_timing(asked_again) == without_timing(first)
    other = tally(*MEAN, "--epsilon", "0.5", "--key", client.key, *room.asked)
    assert other.returncode == 2
    assert "another question was asked under this key" in other.stderr
    assert room.spends() == [spends + 1 for spends in before]


def test_a_client_that_is_gone_finds_its_answer(room: Restartable) -> None:
    with room.held_up():
        client = Client(room)
        client.process.kill()
        client.end()
    found = answer("run", "--resume", client.key, "--json", *room.asked)
    assert found["statistic"] == "mean"
    assert found["privacy"]["epsilon"] == 0.25


def test_ctrl_c_cancels_a_run_everywhere(room: Restartable) -> None:
    before = room.spends()
    with room.held_up():
        client = Client(room)
        client.process.send_signal(signal.SIGINT)
        code, out, said = client.end()
        assert (code, out) == (130, "")
        assert said == ["tally: cancelled: it was cancelled, and nothing was released"]
        wait_until(lambda: not room.open_runs())
    room.stations[-1].stop(signal.SIGKILL)
    room.restart_coordinator()
    late = tally("run", "--resume", client.key, *room.asked)
    assert late.returncode == 3
    assert "it was cancelled" in late.stderr
    assert room.spends() == before
    room.ask(*PRIVATE)
    assert room.spends() == [spends + 1 for spends in before]


STUDY = ["run", "mean", "--value", "score", "--bounds", "private", "--epsilon", "40", "--json"]


def test_a_study_goes_on_where_it_was_and_pays_for_nothing_twice(room: Restartable) -> None:
    """The analyst is killed in the middle of the first question, the coordinator in the second."""
    before = room.spends()
    command = [*TALLY, *STUDY, "--deadline", "50", *room.asked]
    wait_until(lambda: not room.open_runs())
    with room.held_up():
        first = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert first.stderr is not None
        shown = re.search(r"--key (study-[0-9a-f]{32}) ", first.stderr.readline())
        assert shown
        wait_until(lambda: len(room.open_runs()) == 2)
        first.kill()
        first.communicate()
    wait_until(lambda: room.spends() == [spends + 1 for spends in before])
    wait_until(lambda: not room.open_runs())
    again = ["--key", shown[1]]
    with room.held_up():
        second = subprocess.Popen(
            [*command, *again], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        wait_until(lambda: len(room.open_runs()) == 2)
        room.stations[-1].stop(signal.SIGKILL)
        room.restart_coordinator()
    out, _ = second.communicate(timeout=SECONDS)
    found = json.loads(out)
    assert [asked["epsilon"] for asked in found["questions"]] == [8.0, 32.0]
    assert found["key"] == shown[1]
    assert abs(found["estimate"] - 0.5) < 0.5
    assert room.spends() == [spends + 2 for spends in before]
    once_more = answer(*STUDY, "--deadline", "50", *again, *room.asked)
    assert once_more["estimate"] == found["estimate"]
    assert room.spends() == [spends + 2 for spends in before]
    alone = tally("run", "--resume", shown[1], *room.asked)
    assert alone.returncode == 2
    assert "the same command" in alone.stderr


def test_an_unknown_key_is_one_line(room: Restartable) -> None:
    done = tally("run", "--resume", "nobody", *room.asked)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "this key is unknown" in done.stderr


def test_a_study_whose_second_question_cannot_be_asked_spends_nothing(room: Restartable) -> None:
    """Counts by group have no proof, and quantiles, which come first, do."""
    before = room.spends()
    study = ["run", "hosmer-lemeshow", "--score", "score", "--label", "score", "--groups", "3"]
    done = tally(*study, "--aggregator", "prio3", "--epsilon", "4", *room.asked)
    assert (done.returncode, done.stdout) == (2, "")
    assert "prio3 has no proof for calibration-counts" in done.stderr
    assert room.spends() == before
