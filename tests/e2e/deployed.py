"""A deployment of the real programs, each in a folder of its own."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TALLY = [sys.executable, "-c", "from tallyroom.simulation.command.main import main; main()"]
SECONDS = 60.0
DATA = ["--data", "synthetic:scores?n=200", "--slice", "2"]
TRIAL = ["--insecure"]
MEAN = ["run", "mean", "--value", "score", "--lower", "0", "--upper", "1", "--json"]


def tally(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TALLY, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False
    )


def answer(*arguments: str) -> dict[str, Any]:
    done = tally(*arguments)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


class Station:
    """A process of ours whose log is kept in a file."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self.log = log
        logs = ["--log-format", "json", "--log-level", "debug"]
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [*TALLY, *arguments, *logs], stdout=subprocess.DEVNULL, stderr=file
            )

    def port(self, pattern: str) -> int:
        deadline = time.monotonic() + SECONDS
        while not (found := re.search(pattern + r" port (\d+)", self.log.read_text())):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, f"{pattern}: never"
            time.sleep(0.05)
        return int(found[1])

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(SECONDS)


class Room:
    """Two servers, a coordinator and two parties; in a trial without safeguards if nobody says."""

    def __init__(
        self,
        folder: Path,
        stations: Sequence[str] = TRIAL,
        parties: Sequence[str] = TRIAL,
        coordinator: Sequence[str] = (),
        data: Sequence[Sequence[str]] = (DATA, DATA),
    ) -> None:
        self.folder = folder
        self._data = data
        self._options = parties
        printed = tally("enrol", "create", str(folder / "fed"), "--parties", "2").stdout
        self.tokens = re.findall(r"^party-\d+  (\S+)$", printed, re.M)
        self.stations = [
            self._start(
                f"server-{i}", "server", "--identity", str(folder / "fed" / f"server-{i}"),
                "--listen", "127.0.0.1:0", "--store", str(folder / f"store-{i}"),
                "--metrics", "127.0.0.1:0", *stations,
            )
            for i in range(2)
        ]  # fmt: skip
        ports = [station.port("listens on") for station in self.stations]
        desk = self._start(
            "coordinator", "coordinator", "--identity", str(folder / "fed" / "coordinator"),
            *(f"--server=127.0.0.1:{port}" for port in ports), "--parties", "2",
            "--listen", "127.0.0.1:0", "--enrolment", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
            *stations, *coordinator,
        )  # fmt: skip
        self.stations.append(desk)
        self.coordinator = f"127.0.0.1:{desk.port('coordinator listens on')}"
        self.enrolment = f"127.0.0.1:{desk.port('enrolment listens on')}"
        self.parties = [self.party(i, f"--token={self.tokens[i]}") for i in range(2)]

    def party(self, index: int, *more: str) -> Station:
        return self._start(
            f"party-{index}", "party", "--identity", str(self.folder / f"party-{index}"),
            "--coordinator", self.coordinator, "--enrolment", self.enrolment, *self._data[index],
            *self._options, *more,
        )  # fmt: skip

    def _start(self, name: str, *arguments: str) -> Station:
        return Station(self.folder / f"{name}.log", *arguments)

    def ask(self, *arguments: str) -> dict[str, Any]:
        analyst = str(self.folder / "fed" / "analyst")
        return answer(*arguments, "--coordinator", self.coordinator, "--identity", analyst)

    def stop(self) -> None:
        for station in [*self.parties, *self.stations]:
            station.process.terminate()
        for station in [*self.parties, *self.stations]:
            station.stop()
