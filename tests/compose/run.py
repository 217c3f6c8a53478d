"""`make compose-test`: the repository's docker-compose.yml for real, against `inprocess`.

Builds the image, brings up a coordinator, two servers and five parties that enrol by themselves,
asks them, kills a server, revokes a party, runs `--runtime docker`, and takes everything down.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tallyroom.simulation.runtimes.docker import compose_command
from tests.compose.engine import NoEngine, build_secrets, engine, output, say

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "tally-compose-test"
IMAGE = "tallyroom:compose-test"
MEAN = ["mean", "--value", "score", "--lower", "0", "--upper", "1"]
ECDF = ["ecdf", *MEAN[1:], "--aggregator", "fss", "--thresholds", "64"]
MODE = ["mode", *MEAN[1:], "--bins", "4", "--epsilon", "20"]
GINI = ["gini", *MEAN[1:], "--pairs-per-party", "1", "--epsilon", "inf"]

Json = dict[str, Any]


class Federation:
    """The compose project under test."""

    def __init__(self, compose: list[str], environment: dict[str, str]) -> None:
        self._compose = [*compose, "-p", PROJECT, "-f", str(ROOT / "docker-compose.yml")]
        self._environment = {**environment, "TALLY_IMAGE": IMAGE, "PARTIES": "5"}
        self._environment |= {"INSECURE": "1", "CAP": "inf"}  # exact answers are compared

    def do(self, *arguments: str) -> str:
        return output([*self._compose, *arguments], self._environment)

    def ask(self, *arguments: str) -> Json:
        answer = self.do("run", "--rm", "-T", "analyst", "tally", "run", *arguments, "--json")
        document: Json = json.loads(answer[answer.index("{") :])
        return document

    def wait_healthy(self, containers: int) -> None:
        deadline = time.monotonic() + 180
        while True:
            ids = self.do("ps", "-q").split()
            form = "{{.Name}} {{if .State.Health}}{{.State.Health.Status}}{{end}}"
            listed = output(["docker", "inspect", "-f", form, *ids], self._environment)
            if listed.count(" healthy") == containers:
                return
            if time.monotonic() > deadline:
                raise SystemExit(f"not healthy in time:\n{listed}{self.do('logs', '--tail=5')}")
            time.sleep(1)

    def wait_ended(self, service: str, running: int) -> None:
        """Until only so many containers of a service run, and none of them restarts."""
        deadline = time.monotonic() + 60
        form = "{{.State.Status}}"
        while True:
            ids = self.do("ps", "-q", service).split()
            states = output(["docker", "inspect", "-f", form, *ids], self._environment).split()
            if states.count("running") == running and "restarting" not in states:
                return
            if time.monotonic() > deadline:
                raise SystemExit(f"compose-test: FAILED: {service} containers are {states}")
            time.sleep(1)

    def down(self) -> None:
        self.do("down", "--volumes", "--remove-orphans", "-t", "5")


def simulate(*arguments: str) -> Json:
    """The same in one process, on the same five slices."""
    data = ["--data", "synthetic:scores?n=2000", "--parties", "5"]
    command = "from tallyroom.simulation.command.main import main; main()"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TALLY_")}
    environment["PYTHONPATH"] = str(ROOT)
    answer = output(
        [sys.executable, "-c", command, "run", *arguments, *data, "--json"], environment
    )
    document: Json = json.loads(answer)
    return document


def expect(truth: bool, what: str) -> None:
    if not truth:
        raise SystemExit(f"compose-test: FAILED: {what}")
    say(f"ok: {what}")


def check_image(environment: dict[str, str]) -> None:
    shell = ["docker", "run", "--rm", "--network=none", IMAGE, "sh", "-c"]
    found = output([*shell, "for t in gcc cc make ld; do command -v $t; done; id -u"], environment)
    expect(found.split() == ["10001"], "the image runs as user 10001 and has no build tools")
    native = output([*shell, "tally list runtimes"], environment).splitlines()[-1]
    say(native)
    left = output(
        [
            *shell,
            "ls -A /run/secrets 2>/dev/null; ls /etc/pip.conf /opt/tally/pip.conf 2>/dev/null; :",
        ],
        environment,
    )
    expect(left == "", "what pip was told in secret is in no layer")


def check_answers(federation: Federation) -> None:
    private = federation.ask(*MEAN, "--epsilon", "1")
    exact = federation.ask(*MEAN, "--epsilon", "inf")
    alone = simulate(*MEAN, "--epsilon", "inf")
    expect("truth" not in private and "error" not in private, "a deployment knows no truth")
    expect(private["federation"]["runtime"] == "deployed", "the runtime is called deployed")
    # Two servers' Laplace noise of scale 1/(2000·ε): 0.05 is a hundred deviations.
    gap = abs(private["estimate"] - alone["truth"])
    expect(gap < 0.05, f"a private mean of {private['estimate']:.4f}, off by {gap:.5f}")
    expect(exact["estimate"] == alone["estimate"], f"the exact mean {exact['estimate']} is equal")
    # Queries name their data, which is called otherwise here; what answers them is the same.
    links = ("party->server", "server->coordinator")
    bills = [[run["communication"]["links"][link] for link in links] for run in (exact, alone)]
    expect(bills[0] == bills[1], f"the bill is equal: {links[0]} {bills[0][0]['bytes']} bytes")
    curve = federation.ask(*ECDF, "--epsilon", "inf")
    expect(
        curve["estimate"] == simulate(*ECDF, "--epsilon", "inf")["estimate"],
        f"an ECDF over fss is equal in {len(curve['estimate']['y'])} points",
    )


def check_meetings(federation: Federation) -> None:
    """Servers call each other, and parties meet through the coordinator."""
    mode = federation.ask(*MODE)
    # The fullest bin has 121 records more than the next, and noise of scale 1/10.
    expect(mode["estimate"] == simulate(*MODE)["truth"], "two servers choose the fullest bin")
    pairs = federation.ask(*GINI)
    gap = abs(pairs["estimate"] - simulate(*GINI)["truth"])
    # The mean of 1000 pairs' differences in [0, 1]: a deviation is at most 0.02.
    expect(gap < 0.15, f"parties meet in pairs: {pairs['estimate']:.4f}, off by {gap:.4f}")
    study = federation.ask("mean", "--value", "score", "--bounds", "private", "--epsilon", "4")
    expect(len(study["questions"]) == 2, "a study asks twice")


def check_restart(federation: Federation) -> None:
    def spent() -> Json:
        command = ["tally", "ledger", "/store/ledger.sqlite", "--json"]
        document: Json = json.loads(federation.do("exec", "-T", "server-0", *command))
        return document

    before = spent()
    federation.do("kill", "-s", "KILL", "server-0")
    federation.do("up", "-d", "--no-build", "--no-deps", "server-0")
    federation.wait_healthy(8)
    expect(spent() == before, f"server-0's ledger survives SIGKILL: {len(before['spends'])} spends")
    federation.do("restart", "-t", "5", "party")
    federation.wait_healthy(8)
    after = federation.ask(*MEAN, "--epsilon", "inf")
    alone = simulate(*MEAN, "--epsilon", "inf")
    expect(after["estimate"] == alone["estimate"], "after restarts the exact mean is equal again")


def check_revocation(federation: Federation) -> None:
    federation.do(
        "run", "--rm", "-T", "enrol", "tally", "enrol", "revoke", "/federation", "party-4"
    )
    time.sleep(4)
    rest = federation.ask(*MEAN, "--epsilon", "inf", "--min-parties", "4", "--deadline", "5")
    expect("4 of 5 parties contributed" in rest["notes"], "a revoked party is out")
    federation.wait_ended("party", 4)
    say("ok: the revoked party has given up")


def check_runtime(environment: dict[str, str]) -> None:
    arguments = ["--parties", "3", "--servers", "3", "--epsilon", "inf", "--json"]
    command = [
        sys.executable,
        "-c",
        "from tallyroom.simulation.command.main import main; main()",
        "run",
        "mean",
    ]
    ours = {**environment, "TALLY_IMAGE": IMAGE, "PYTHONPATH": str(ROOT)}
    answers = [
        json.loads(output([*command, *arguments, "--runtime", runtime], ours))
        for runtime in ("docker", "inprocess")
    ]
    equal = all(answers[0][key] == answers[1][key] for key in ("estimate", "communication"))
    expect(equal, "tally run --runtime docker gives the answer and the bill of inprocess")
    left = output(["docker", "ps", "-aq", "--filter", "name=tally-"], environment).split()
    volumes = output(["docker", "volume", "ls", "-q"], environment).split()
    expect(not [v for v in volumes if v.endswith("-data")], "it leaves no data behind")
    expect(not left, "no container is left")


def main() -> None:
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="tally-compose-") as folder:
            work = Path(folder)
            with engine(work) as environment:
                os.environ.update(environment)
                say(f"building {IMAGE}")
                build = ["docker", "build", "--network=host", *build_secrets(work), "-t", IMAGE]
                output([*build, str(ROOT)], environment, 1800)
                check_image(environment)
                federation = Federation(compose_command(), environment)
                try:
                    federation.do("up", "-d", "--no-build", "--scale", "party=5")
                    federation.wait_healthy(8)
                    say("a coordinator, two servers and five parties are healthy")
                    check_answers(federation)
                    check_meetings(federation)
                    check_restart(federation)
                    check_revocation(federation)
                finally:
                    federation.down()
                check_runtime(environment)
    except NoEngine as reason:
        say(f"skipped: {reason}")
        return
    except subprocess.TimeoutExpired as error:
        raise SystemExit(f"compose-test: FAILED: {error}") from None
    say(f"passed in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
