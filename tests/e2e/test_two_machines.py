"""The documentation's deployment on two machines, block by block, as it is printed."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "two-machines.md"
BLOCK = re.compile(r"^On ([AB]):\n\n```\n(.*?)```$", re.M | re.S)
ADDRESS = {"A": "127.0.0.1", "B": "127.0.0.2"}
PORTS = ("7099", "7100", "7101")
SECONDS = 60.0
READY = {"server": "listens on", "coordinator": "enrolment listens on", "party": "holds"}


def free_ports() -> list[int]:
    held = [socket.create_server((ADDRESS["A"], 0)) for _ in PORTS]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


class Machines:
    """Two folders, each with its own address. `scp` copies from the first to the second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = dict(zip(PORTS, map(str, free_ports()), strict=True))
        self.groups: list[int] = []
        self.values = np.random.default_rng(4).integers(0, 61, 400)
        for name, part in zip("AB", np.split(self.values, [150]), strict=True):
            (folder / name).mkdir()
            (folder / name / "visits.csv").write_text(
                "\n".join(["days", *map(str, part.tolist())]) + "\n"
            )
        tools = folder / "bin"
        tools.mkdir()
        program = "from tallyroom.simulation.command.main import main; main()"
        (tools / "tally").write_text(f"#!/bin/sh\nexec {sys.executable} -c '{program}' \"$@\"\n")
        (tools / "scp").write_text(
            f'#!/bin/sh\n[ "$1" = -r ] && shift\ncp -r "$1" "{folder}/B/${{2#b.example.org:}}"\n'
        )
        for each in tools.iterdir():
            each.chmod(0o755)

    def run(self, machine: str, block: str) -> str:
        """What it prints. What it leaves running is awaited until it says that it is there."""
        for port, other in self.ports.items():
            block = block.replace(f":{port}", f":{other}")
        block = block.replace("0.0.0.0", ADDRESS[machine])
        for name, address in ADDRESS.items():
            block = re.sub(rf"{name.lower()}\.example\.org(?=:\d)", address, block)
        shell = subprocess.Popen(
            ["bash", "-e", "-c", block],
            cwd=self.folder / machine,
            env=os.environ | {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.groups.append(shell.pid)
        printed, _ = shell.communicate(timeout=SECONDS)
        assert shell.returncode == 0, printed
        for role in re.findall(r"nohup tally (\w+)", block):
            self._until_ready(self.folder / machine / f"{role}.log", READY[role])
        return printed

    def _until_ready(self, log: Path, word: str) -> None:
        deadline = time.monotonic() + SECONDS
        while word not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        for group in reversed(self.groups):
            try:
                os.killpg(group, signal.SIGTERM)
            except ProcessLookupError:
                continue


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    yield made
    made.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is an address on Linux alone")
def test_two_machines_as_printed(machines: Machines) -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    assert [machine for machine, _ in blocks] == [*"AABAABAB"]
    assert PAGE.read_text().count("```") == 2 * len(blocks)  # none is left out
    *_, answer, cost = [machines.run(machine, block) for machine, block in blocks]
    found = re.search(r"^mean +(\S+)|estimate +(\S+)", answer, re.M)
    assert found is not None, answer
    estimate = float(next(filter(None, found.groups())))
    # Noise of two servers with scale 60 / (0.5 · 400) = 0.3: beyond 8 less than once in 10^6.
    assert abs(estimate - machines.values.mean()) < 8
    assert answer.count("server-") >= 2, answer
    assert cost.count("spent: ε 0.5") == 2, cost
    # The other half of the federation's secrets never was on this machine.
    assert not list((machines.folder / "A").rglob("server-1/*"))
    assert not list((machines.folder / "B").rglob("authority/*.key"))
