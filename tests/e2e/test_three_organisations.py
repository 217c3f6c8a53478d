"""docs/three-organisations.md, followed step by step with the compose files that it names.

Every role is started by its file's own command and environment, with the variables that the page
has people set, at an address of its organisation's own and the ports that the file publishes; paths
in the container are folders here. The image is left out, and the user that containers run as.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.e2e.deployed import SECONDS, TALLY, answer, tally

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "three-organisations.md").read_text()
_NET = f"127.{1 + os.getpid() // 256 % 254}.{os.getpid() % 256}"
"""For this process alone: the ports are those of the compose files."""
ADDRESS = {"hospital": f"{_NET}.2", "university": f"{_NET}.3", "insurer": f"{_NET}.4"}
ROLES = {
    "hospital": ("server", "party"),
    "university": ("coordinator", "server", "party"),
    "insurer": ("party",),
}
RECORDS = {"hospital": 150, "university": 150, "insurer": 100}
NOISE = 120.0
"""Two servers with noise of scale 1000 / (0.5 · 400) = 5: beyond it less than once in 10^8."""
DIGEST = "registry.example/tallyroom@sha256:" + 64 * "0"
VARIABLE = re.compile(r"\$\{(\w+)(?::([?-])([^}]*))?\}")


def compose(role: str) -> dict[str, Any]:
    loaded = yaml.safe_load((ROOT / "deploy" / "organisation" / f"{role}.yml").read_text())
    found: dict[str, Any] = loaded["services"][role]
    return found


def filled(text: str, given: dict[str, str]) -> str:
    """As compose fills in variables: one that must be set and is not ends it."""

    def value(found: re.Match[str]) -> str:
        name, kind, other = found.groups()
        assert kind != "?" or name in given, f"{name}: {other}"
        return given.get(name) or (other if kind == "-" else "")

    return VARIABLE.sub(value, text)


class Organisations:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        for name in ADDRESS:
            (folder / name / "data").mkdir(parents=True)

    def here(self, text: str) -> str:
        """With addresses on this machine for the organisations' names."""
        for name, address in ADDRESS.items():
            text = text.replace(f"{name}.example", address)
        return text

    def start(self, name: str, role: str, **given: str) -> Path:
        """`docker compose -f ROLE.yml up -d`, with `given` in `.env`. Its log."""
        home, service = self.folder / name, compose(role)
        given = {"TALLY_IMAGE": DIGEST, **given}
        filled(service["image"], given)
        places = {
            "/identity": home / f"{role}-identity",
            "/store": home / f"{role}-store",
            "/data": home / "data",
            "/policy.toml": home / "policy.toml",
        }
        published = dict(port.split(":")[-2:] for port in service.get("ports", []))

        def on_this_machine(text: str) -> str:
            text = filled(text, given)
            for outer, inner in published.items():
                text = text.replace(f"0.0.0.0:{inner}", f"{ADDRESS[name]}:{outer}")
            for inside, outside in places.items():
                text = re.sub(rf"(?<=[=:]){inside}(?=[/?]|$)", str(outside), text)
            return self.here(text)

        _, *words = (on_this_machine(word) for word in service["command"])
        told = {key: on_this_machine(value) for key, value in service["environment"].items()}
        log = home / f"{role}.log"
        with log.open("ab") as file:
            process = subprocess.Popen(
                [*TALLY, *words], env=os.environ | told, stdout=subprocess.DEVNULL, stderr=file
            )
        self.running[name, role] = process
        return log

    def reboot(self, name: str) -> None:
        """All that an organisation runs is stopped."""
        for (owner, role), process in list(self.running.items()):
            if owner == name:
                process.terminate()
                assert process.wait(SECONDS) == 0, role
                del self.running[owner, role]

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait(SECONDS)


def await_words(log: Path, words: str, times: int = 1) -> None:
    deadline = time.monotonic() + SECONDS
    while log.read_text().count(words) < times:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


@pytest.fixture
def organisations(tmp_path: Path) -> Iterator[Organisations]:
    made = Organisations(tmp_path)
    yield made
    made.stop()


def test_the_page_says_who_runs_what_and_what_to_set() -> None:
    for name, roles in ROLES.items():
        (row,) = re.findall(rf"^\| {name} \| (.*?) \|", PAGE, re.M)
        assert re.findall(r"`(\w+)\.yml`", row) == list(roles)
    for role in ("server", "coordinator", "party"):
        text = (ROOT / "deploy" / "organisation" / f"{role}.yml").read_text()
        needed = {name for name, kind, _ in VARIABLE.findall(text) if kind == "?"}
        assert needed
        for name in needed:
            assert re.search(rf"`{name}\b", PAGE), f"the page does not say to set {name}"


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is an address on Linux alone")
def test_three_organisations_as_the_page_says(organisations: Organisations) -> None:
    room, folder = organisations, organisations.folder
    values = np.random.default_rng(5).integers(0, 1001, sum(RECORDS.values()))
    parts = np.split(values, np.cumsum(list(RECORDS.values()))[:-1])
    for name, part in zip(RECORDS, parts, strict=True):
        rows = "\n".join(["amount", *map(str, part.tolist())])
        (folder / name / "data" / "ours.csv").write_text(rows + "\n")
        (folder / name / "policy.toml").write_text(
            'statistics = ["mean"]\ncolumns = ["amount"]\nepsilon_in_all = 3.0\n'
        )

    # 2. The university makes the federation, and hands out what the page says.
    (create,) = re.findall(r"^tally (enrol create .*)$", PAGE, re.M)
    fed = folder / "safe" / "fed"
    made = tally(*shlex.split(create.replace(" fed ", f" {fed} ")))
    tokens = re.findall(r"^party-\d+  (\S+)$", made.stdout, re.M)
    for member, name, role in (
        ("server-0", "hospital", "server"),
        ("server-1", "university", "server"),
        ("coordinator", "university", "coordinator"),
    ):
        (fed / member).rename(folder / name / f"{role}-identity")

    # 3. to 5. Servers, the coordinator, and parties.
    for name in ("hospital", "university"):
        await_words(room.start(name, "server", CAP="3"), "listens on port")
    (servers,) = re.findall(r"`SERVERS=([^`]*)`", PAGE)
    set_up = {"CAP": "3", "PARTIES": "3", "SERVERS": servers}
    desk = room.start("university", "coordinator", **set_up)
    await_words(desk, "listens on port", 2)
    (coordinator,) = re.findall(r"`COORDINATOR=([^`]*)`", PAGE)
    (data,) = re.findall(r"`DATA=([^`]*)`", PAGE)
    joining = {"COORDINATOR": coordinator, "DATA": data}
    for name, token in zip(ADDRESS, tokens, strict=True):
        log = room.start(name, "party", **joining, TALLY_TOKEN=token)
        await_words(log, f"holds {RECORDS[name]} records")

    # 6. Somebody asks, from anywhere.
    (asked,) = re.findall(r"`tally (run mean [^`]*)`", PAGE)
    question = shlex.split(
        room.here(asked).replace("--identity analyst", f"--identity {fed}/analyst")
    )
    assert abs(answer(*question, "--json")["estimate"] - values.mean()) < NOISE

    # After a reboot of the hospital everything comes back, and no token is needed.
    room.reboot("hospital")
    await_words(room.start("hospital", "server", CAP="3"), "listens on port", 2)
    room.start("hospital", "party", **joining)
    assert abs(answer(*question, "--json", "--fresh")["estimate"] - values.mean()) < NOISE
    for name in ("hospital", "university"):
        spent = answer("ledger", str(folder / name / "server-store"), "--json")
        assert spent["spent_with_noise"] == 1.0

    # Nobody has what is another's.
    for name in ADDRESS:
        keys = {path.parent.name for path in (folder / name).rglob("key.pem")}
        theirs = {f"{role}-identity" for role in ROLES[name] if role != "party"}
        enrolling = {"enrolment"} if name == "university" else set()
        assert keys == theirs | {"identity"} | enrolling
