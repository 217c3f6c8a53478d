"""A federation whose coordinator cannot make parties: they enrol at a process of its own."""

import json
import os
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.deployed import MEAN, SECONDS, Station, tally

DATA = ["--data", "synthetic:scores?n=200", "--slice", "2"]


class Room:
    """Two servers, a coordinator, a registrar and two parties, as a team would start them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        fed = folder / "fed"
        printed = tally("enrol", "create", str(fed), "--parties", "2", "--registrar").stdout
        self.tokens = re.findall(r"^party-\d+  (\S+)$", printed, re.M)
        self.stations: dict[str, Station] = {}
        ports = [
            self._start(
                f"server-{i}", "server", "--store", str(folder / f"store-{i}"), "--cap", "10"
            ).port("on")
            for i in range(2)
        ]
        servers = [f"--server=127.0.0.1:{port}" for port in ports]
        coordinator = self._start(
            "coordinator", "coordinator", *servers, "--parties", "2",
            "--store", str(folder / "c"), "--cap", "10", "--metrics", "127.0.0.1:0",
        )  # fmt: skip
        self.coordinator = f"127.0.0.1:{coordinator.port('listens on')}"
        registrar = self._start(
            "registrar", "enrolment", *servers, "--coordinator", self.coordinator
        )
        self.enrolment = f"127.0.0.1:{registrar.port('enrolment listens on')}"

    def _start(self, name: str, command: str, *more: str) -> Station:
        identity = ["--identity", str(self.folder / "fed" / name), "--listen", "127.0.0.1:0"]
        self.stations[name] = Station(self.folder / f"{name}.log", command, *identity, *more)
        return self.stations[name]

    def party(self, index: int, *more: str) -> Station:
        name = f"party-{index}"
        self.stations[name] = Station(
            self.folder / f"{name}.log", "party", "--identity", str(self.folder / name),
            "--coordinator", self.coordinator, "--enrolment", self.enrolment, *DATA, *more,
        )  # fmt: skip
        return self.stations[name]

    def stop(self) -> None:
        for station in reversed(self.stations.values()):
            station.process.terminate()
        for station in self.stations.values():
            station.stop()


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    made = Room(tmp_path)
    yield made
    made.stop()


def test_parties_enrol_elsewhere_take_part_and_are_revoked_there(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = room.folder / "fed"
    assert not (fed / "coordinator" / "enrolment").exists()
    assert "PRIVATE KEY" in (fed / "registrar" / "enrolment" / "key.pem").read_text()
    secret = room.folder / "token"
    secret.write_text(room.tokens[0] + "\n")
    by_file = room.party(0, "--token-file", str(secret))
    monkeypatch.setenv("TALLY_TOKEN", room.tokens[1])
    room.party(1)
    monkeypatch.delenv("TALLY_TOKEN")
    asked = tally(
        *MEAN, "--epsilon", "1", "--aggregator", "additive", "--coordinator", room.coordinator,
        "--identity", str(fed / "analyst"), "--deadline", "40",
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout)["federation"]["parties"] == 2
    metrics = room.stations["coordinator"].port("metrics on")
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics") as page:
        assert "\ntally_runs 0.0\n" in page.read().decode(), "answers that are kept are not runs"
    for index in range(2):
        assert "process list" not in (room.folder / f"party-{index}.log").read_text()

    # The registrar's word reaches the coordinator and the servers, and the party is out.
    assert tally("enrol", "revoke", str(fed), "party-0").stdout == (
        "party-0: certificates and tokens revoked: 1\n"
    )
    assert by_file.process.wait(SECONDS) != 0
    assert "revoked" in by_file.log.read_text()
    deadline = time.monotonic() + SECONDS
    while not all((room.folder / name / "revoked.pem").exists() for name in ("store-0", "c")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    listed = tally("enrol", "list", str(fed)).stdout
    assert listed == "party-0  revoked\nparty-1  enrolled\nanalyst  enrolled  cap none\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot read a token"), (b"\xff\xfe", "not text"), (b"tally1-x", "copy the whole")],
)
def test_a_token_file_that_has_none(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    done = tally(
        "party", "--identity", str(tmp_path / "id"), "--coordinator", "127.0.0.1:1", *DATA,
        "--token-file", str(path),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not os.path.exists(tmp_path / "id")
