"""A deployment as a team would start it: real processes, enrolled by token, asked from outside."""

import base64
import json
import re
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Tally
from tests.e2e.deployed import DATA, MEAN, SECONDS, Room, answer, tally


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    made = Room(tmp_path_factory.mktemp("room"))
    yield made
    made.stop()


def test_a_token_on_the_command_line_works_and_is_warned_of(room: Room) -> None:
    logs = [party.log for party in room.parties]
    deadline = time.monotonic() + SECONDS
    while not all("holds 100 records" in log.read_text() for log in logs):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for log in logs:
        assert "--token is visible in the process list" in log.read_text()


def test_a_remote_analyst_gets_what_one_process_computes(room: Room) -> None:
    ours = room.ask(*MEAN, "--epsilon", "inf")
    alone = answer(*MEAN, "--epsilon", "inf", "--data", "synthetic:scores?n=200", "--parties", "2")
    assert ours["estimate"] == alone["estimate"]
    assert ours["federation"] == alone["federation"] | {"runtime": "deployed"}
    assert "truth" not in ours
    assert "error" not in ours
    links = ("party->server", "server->coordinator")
    for link in links:
        assert ours["communication"]["links"][link] == alone["communication"]["links"][link]


def test_a_private_answer_is_written_in_every_ledger(room: Room) -> None:
    room.ask(*MEAN, "--epsilon", "0.5", "--unit", "party")
    for i in range(2):
        ledger = str(room.folder / f"store-{i}" / "ledger.sqlite")
        assert answer("ledger", ledger, "--json")["spent_with_noise"] == 0.5


def test_a_token_is_no_use_a_second_time(room: Room, tmp_path: Path) -> None:
    room.ask(*MEAN, "--epsilon", "inf")
    done = tally(
        "party", "--identity", str(tmp_path / "again"), "--token", room.tokens[0],
        "--coordinator", room.coordinator, "--enrolment", room.enrolment, *DATA,
    )  # fmt: skip
    assert done.returncode == 3
    assert "its token was used before" in done.stderr
    assert not (tmp_path / "again" / "key.pem").exists()


def test_a_killed_party_comes_back_without_a_token(room: Room) -> None:
    before = room.ask(*MEAN, "--epsilon", "inf")
    room.parties[1].stop(signal.SIGKILL)
    room.parties[1] = room.party(1)
    assert room.ask(*MEAN, "--epsilon", "inf")["estimate"] == before["estimate"]


def test_health_and_metrics(room: Room) -> None:
    identity = str(room.folder / "fed" / "coordinator")
    assert tally("health", room.coordinator, "--identity", identity).returncode == 0
    assert tally("health", room.coordinator).returncode == 0
    wrong = tally("health", room.coordinator, "--identity", identity, "--expect", "server-0")
    assert wrong.returncode == 3
    room.ask(*MEAN, "--epsilon", "inf")
    for station in room.stations:
        url = f"http://127.0.0.1:{station.port('metrics on')}/metrics"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        text = opener.open(url, timeout=SECONDS).read().decode()
        assert re.search(r'^tally_calls_total\{method="\w+"\} [1-9]', text, re.M)
        assert "tally_certificate_expiry_seconds" in text
        assert re.search(r"^tally_epsilon_spent \+Inf$", text, re.M)
        assert re.search(r"^tally_releases_without_noise [1-9]", text, re.M)


def test_no_log_line_has_a_secret_at_any_level(room: Room) -> None:
    """Every level, every station; tokens and keys whole or in the encodings they might leak in."""
    room.ask(*MEAN, "--epsilon", "inf")
    logs = {path.name: path.read_text() for path in room.folder.glob("*.log")}
    assert len(logs) == 5
    keys = [path.read_text() for path in room.folder.rglob("key.pem")]
    assert len(keys) == 8
    secrets = [line for key in keys for line in key.splitlines() if not line.startswith("-")]
    for token in room.tokens:
        raw = base64.urlsafe_b64decode(token.removeprefix("tally1-") + "=" * 3)[-16:]
        secrets += [token, raw.hex(), base64.b64encode(raw).decode()[:-3], repr(raw)]
    for name, text in logs.items():
        assert [line for line in text.splitlines() if line.startswith("{")], name
        for line in text.splitlines():
            if line.startswith("{"):
                assert {"time", "level", "station", "logger", "message"} <= json.loads(line).keys()
        for secret in secrets:
            assert secret not in text, name


def test_keys_of_parties_are_theirs_alone(room: Room) -> None:
    room.ask(*MEAN, "--epsilon", "inf")
    for i in range(2):
        folder = room.folder / f"party-{i}"
        assert (folder / "key.pem").stat().st_mode & 0o777 == 0o600
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "mean", "--coordinator", "127.0.0.1:1"], "both --coordinator and --identity"),
        (["run", "mean", "--coordinator", "nowhere", "--identity", "."], "not host:port"),
        (
            ["run", "mean", "--coordinator", "h:1", "--identity", "x", "--parties", "3"],
            "simulation",
        ),
        (["enrol", "create", "none", "--servers", "0"], "at least one server"),
        (["enrol", "token", "none", "party-1"], "no federation"),
        (["enrol", "renew", "none", "server-0"], "no authority"),
        (["server", "--identity", "none"], "no identity"),
        (["server", "--identity", "none", "--log-format", "xml"], "no identity"),
        (["health", "nowhere"], "not host:port"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], words: str, tally_here: Tally
) -> None:
    done = tally_here(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert words in done.stderr
    assert not any(Path().iterdir())


@pytest.mark.parametrize(("more", "words"), [([], "give --token"), (["--token", "x"], "token")])
def test_a_party_that_cannot_enrol_says_so_in_one_line(
    more: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of its own: it takes over the logs."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    monkeypatch.chdir(tmp_path)
    done = tally("party", "--identity", "none", "--coordinator", "h:1", *DATA, *more)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert words in done.stderr
    assert not any(tmp_path.iterdir())
