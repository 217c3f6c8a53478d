"""`docker`: every role in a container of its own, from the repository's docker-compose.yml."""

import contextlib
import csv
import io
import json
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from google.protobuf.json_format import Parse, ParseError

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.privacy.ledger import cap_text
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.run.question import Question
from tallyroom.protos import tally_pb2 as pb
from tallyroom.simulation.analyst import follow
from tallyroom.simulation.runtimes.contract import Layout, Opened, Report, Runtime

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "tallyroom:latest"
MAX_SERVERS = 16
MAX_CONTAINERS = 50
START_SECONDS = 600.0
STOP_SECONDS = 120.0
ANY_DELTA = 1 - 2.0**-20
"""A cap of δ that nothing meets."""

_KEEP = "import shutil,sys; shutil.copyfileobj(sys.stdin.buffer, open('/data/records.csv','wb'))"


class Docker(Runtime):
    name: ClassVar[str] = "docker"
    summary: ClassVar[str] = "one container a role, by docker compose; needs an engine"
    scripted: ClassVar[bool] = False
    peer: ClassVar[str] = "relay"

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        parties = len(layout.holdings.ids)
        if layout.seed is not None:
            raise LocalError("containers draw their own randomness: --runtime docker has no --seed")
        if layout.store is not None:
            raise LocalError("containers keep their ledgers on their own volumes")
        if layout.hosts != parties or parties > MAX_CONTAINERS:
            raise LocalError(
                f"docker gives every party its own container: {MAX_CONTAINERS} at most"
            )
        if layout.peer != "relay":
            raise LocalError("containers of parties publish no port: docker has --peer relay")
        if layout.servers > MAX_SERVERS:
            raise LocalError(f"docker runs at most {MAX_SERVERS} servers")
        self._project = f"tally-{secrets.token_hex(4)}"
        self._volume = f"{self._project}-data"
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._compose: list[str] = []

    def start(self) -> None:
        composer = compose_command()
        base = ROOT / "docker-compose.yml"
        if not base.is_file():
            raise LocalError("docker needs a clone of the repository: no docker-compose.yml here")
        self._folder = tempfile.TemporaryDirectory(prefix="tally-")
        override = Path(self._folder.name) / "override.json"
        override.write_text(json.dumps(self._override()))
        self._compose = [
            *composer,
            *("-p", self._project, "--project-directory", str(ROOT)),
            *("-f", str(base), "-f", str(override)),
        ]
        try:
            image = self._environment()["TALLY_IMAGE"]
            if _run(["docker", "image", "inspect", image]).returncode != 0:
                self._do([*self._compose, "build", "enrol"], "build the image")
            self._do(["docker", "volume", "create", self._volume], "make a volume")
            self._do(
                [
                    *("docker", "run", "--rm", "-i", "--network=none"),
                    *("-v", f"{self._volume}:/data", image, "python3", "-c", _KEEP),
                ],
                "give the parties their records",
                as_table(self.layout.holdings),
            )
            self._do(
                [*self._compose, "up", "-d", "--no-build", *self._scales()], "start the containers"
            )
        except BaseException:
            self.stop()
            raise

    def ask(self, question: Question, report: Report) -> Opened:
        if not self._compose:
            raise LocalError("the federation is not started")
        command = [*self._compose, "run", "--rm", "-T", "analyst", "tally", "ask"]
        with subprocess.Popen(
            [*command, question.encode()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment(),
        ) as process:
            try:
                opened = follow(_events(process), report)
            finally:
                # The answer is the last line: what is left is the container's end.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=STOP_SECONDS)
                process.kill()
        return opened

    def stop(self) -> None:
        if self._compose:
            down = [*self._compose, "down", "--volumes", "--remove-orphans", "-t", "5"]
            for _ in range(3):  # a container that restarts at this moment holds its network
                if _run(down, self._environment(), seconds=STOP_SECONDS).returncode == 0:
                    break
                time.sleep(1)
            _run(["docker", "volume", "rm", "-f", self._volume], seconds=STOP_SECONDS)
            self._compose = []
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _environment(self) -> dict[str, str]:
        return {
            "TALLY_IMAGE": IMAGE,
            **os.environ,
            "PARTIES": str(len(self.layout.holdings.ids)),
            "SERVERS": str(self.layout.servers),
            "CAP": cap_text(self.layout.cap),
            "CAP_DELTA": str(ANY_DELTA if self.layout.cap_delta is None else self.layout.cap_delta),
            "INSECURE": "1",  # a simulation permits everything
        }

    def _scales(self) -> list[str]:
        scales = [f"--scale=party={len(self.layout.holdings.ids)}"]
        return [*scales, "--scale=server-1=0"] if self.layout.servers == 1 else scales

    def _override(self) -> dict[str, object]:
        """What differs from docker-compose.yml: the parties' data, and servers past the second."""
        further = [f"server-{i}" for i in range(2, self.layout.servers)]
        names = [f"server-{i}" for i in range(self.layout.servers)]
        parties = len(self.layout.holdings.ids)
        services: dict[str, object] = {
            "enrol": {"volumes": [f"{name}:/federation/{name}" for name in further]},
            "coordinator": {
                "environment": {"TALLY_SERVERS": " ".join(f"{name}:7101" for name in names)}
            },
            "party": {
                "command": [
                    *("tally", "party", "--identity=/party/identity", "--tokens=/tokens"),
                    *("--coordinator=coordinator:7100", f"--slice={parties}", "--peer=relay"),
                    "--data=csv:/data/records.csv?party=party",
                ],
                "volumes": ["data:/data:ro"],
            },
        }
        services |= {name: _server(name) for name in further}
        volumes: dict[str, object] = {"data": {"external": True, "name": self._volume}}
        volumes |= {volume: {} for name in further for volume in (name, f"store-{name}")}
        return {"services": services, "volumes": volumes}

    def _do(self, command: list[str], what: str, stdin: str | None = None) -> None:
        """Raises `RunFailed` with the last thing that the command said."""
        done = _run(command, self._environment(), stdin, START_SECONDS)
        if done.returncode != 0:
            said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            raise RunFailed(f"docker could not {what}: {said[-1] if said else 'no reason given'}")


def compose_command() -> list[str]:
    """`docker compose`, or `docker-compose`. Raises `LocalError` where there is no engine."""
    if shutil.which("docker") is None:
        raise LocalError("there is no docker here: install it, or choose another runtime")
    if _run(["docker", "info"]).returncode != 0:
        raise LocalError("no docker engine answers: start one, or set DOCKER_HOST")
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and _run([*command, "version"]).returncode == 0:
            return command
    raise LocalError("docker has no compose here: install its plugin, or docker-compose")


def as_table(holdings: Holdings) -> str:
    """Records with the party that holds each, in a form that `csv:…?party=party` reads back."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["party", *holdings.columns])
    owners = [
        f"party-{party:09d}"
        for party, count in zip(holdings.ids.tolist(), holdings.counts.tolist(), strict=True)
        for _ in range(count)
    ]
    columns = [map(repr, column.tolist()) for column in holdings.columns.values()]
    writer.writerows(zip(owners, *columns, strict=True))
    return table.getvalue()


def _server(name: str) -> dict[str, object]:
    return {
        "image": "${TALLY_IMAGE}",
        "init": True,
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "tmpfs": ["/tmp"],
        "restart": "on-failure",
        "environment": {
            "TALLY_LOG_FORMAT": "json",
            "TALLY_CAP": "${CAP:-10}",
            "TALLY_CAP_DELTA": "${CAP_DELTA:-1e-5}",
            "TALLY_INSECURE": "${INSECURE:-0}",
        },
        "command": f"tally server --identity /federation/{name} --listen 0.0.0.0:7101 "
        "--store /store",
        "depends_on": {"enrol": {"condition": "service_completed_successfully"}},
        "volumes": [f"{name}:/federation/{name}:ro", f"store-{name}:/store"],
    }


def _events(process: subprocess.Popen[str]) -> Iterator[pb.Event]:
    if process.stdout is None or process.stderr is None:
        raise TypeError("the process has no pipes")
    for line in process.stdout:
        if line.startswith("{"):
            try:
                yield Parse(line, pb.Event())
            except ParseError:
                raise RunFailed("the analyst's container said something else than JSON") from None
    said = process.stderr.read().split("\n")
    lines = [line for line in said if line.startswith("tally:")] or said
    raise RunFailed(" ".join(lines).strip() or "the analyst's container ended without an answer")


def _run(
    command: list[str],
    environment: dict[str, str] | None = None,
    stdin: str | None = None,
    seconds: float = 30.0,
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            input="" if stdin is None else stdin,
            capture_output=True,
            text=True,
            env=environment,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"no end after {seconds:g} seconds")
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))
