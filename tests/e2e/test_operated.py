"""What an operator sees of a deployed server: figures, health, JSON logs, a store of its own."""

import contextlib
import json
import socket
import time
import urllib.request
from pathlib import Path

import pytest

from tallyroom.servers.federation_folder import create_federation
from tallyroom.servers.metrics_port import MOST_READERS, READ_SECONDS
from tests.e2e.deployed import MEAN, Room, Station, tally
from tests.e2e.disks import locked
from tests.e2e.keepers import wait_until

HALF_SENT = 60


def figures(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in lines
        if not line.startswith("#")
    }


def threads(station: Station) -> int:
    status = Path(f"/proc/{station.process.pid}/status").read_text()
    return int(status.partition("Threads:")[2].split()[0])


@pytest.mark.timeout(120)
def test_a_server_as_its_operator_sees_it(tmp_path: Path) -> None:
    create_federation(tmp_path / "fed", 1, 1)
    identity, store = str(tmp_path / "fed" / "server-0"), tmp_path / "store"
    serve = ["server", "--identity", identity, "--listen", "127.0.0.1:0", "--store", str(store)]
    serve += ["--cap", "1.5"]
    station = Station(tmp_path / "log", *serve, "--metrics", "127.0.0.1:0")
    try:
        where, port = f"127.0.0.1:{station.port('listens on')}", station.port("metrics on")
        seen = figures(port)
        assert seen["tally_epsilon_cap"] == 1.5
        assert seen["tally_healthy"] == 1.0
        assert seen["tally_releases_waiting"] == 0.0
        assert seen["process_resident_memory_bytes"] > 0
        assert any(name.startswith('tally_info{version="') for name in seen)

        health = ["health", where, "--identity", identity]
        wait_until(lambda: tally(*health).returncode == 0)
        with locked(store / "ledger.sqlite"):
            wait_until(lambda: tally(*health).returncode == 3)
            assert figures(port)["tally_healthy"] == 0.0
        wait_until(lambda: tally(*health).returncode == 0)

        second = tally(*serve)
        assert second.returncode == 2
        assert "another process is using the store" in second.stderr

        before = threads(station)
        with contextlib.ExitStack() as stack:
            for _ in range(HALF_SENT):
                half = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                half.sendall(b"GET /metr")
            time.sleep(0.5)
            assert threads(station) <= before + MOST_READERS
            time.sleep(READ_SECONDS)
            assert figures(port)["tally_healthy"] == 1.0
    finally:
        station.stop()
    for line in station.log.read_text().splitlines():
        assert {"time", "level", "station", "logger", "message"} <= json.loads(line).keys()


def test_a_party_as_its_operator_sees_it(tmp_path: Path) -> None:
    """Its policy is the cautious one: 20 is more than it agrees to, and it says so in its log."""
    room = Room(tmp_path, parties=["--metrics", "127.0.0.1:0"])
    try:
        party = room.parties[0]
        port = party.port("metrics on")
        wait_until(lambda: figures(port)["tally_connected"] == 1.0)
        room.ask(*MEAN, "--epsilon", "0.5")
        analyst = ["--coordinator", room.coordinator, "--identity", str(tmp_path / "fed/analyst")]
        assert tally(*MEAN, "--epsilon", "20", *analyst).returncode == 3
        seen = figures(port)
        assert seen['tally_runs_ended_total{outcome="answered"}'] == 1.0
        assert seen['tally_runs_ended_total{outcome="refused"}'] == 1.0
        assert (seen["tally_epsilon_spent"], seen["tally_epsilon_cap"]) == (0.5, 100.0)
        assert seen["tally_certificate_expiry_seconds"] > time.time()
        log = party.log.read_text()
        assert " is answered" in log
        assert " is refused: " in log
        room.stations[-1].stop()
        wait_until(lambda: figures(port)["tally_connected"] == 0.0)
    finally:
        room.stop()
