"""Programs of known cost, metered; and what is left when they, or the meter, are killed."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.simulation.meter.box import KEEPERS_OWN, Box, BoxMember, Limits, made_cgroup
from tallyroom.simulation.meter.conduct import Metered, meter
from tallyroom.simulation.meter.program import Program, one_command, parse_program, several
from tallyroom.simulation.meter.report import MeterReport
from tallyroom.simulation.networks import namespaces
from tests.conftest import Tally
from tests.simulation.meter import toys

reason = namespaces.missing()
needs_root = pytest.mark.skipif(bool(reason), reason=f"network namespaces: {reason}")
PYTHON = (sys.executable, "-S", "-c")
HEADERS = 20 + 8
FEW = Limits(seconds=60, processes=64, memory=1 << 30)


def listened_to(program: Program) -> tuple[Metered, bytes]:
    """With all that it wrote."""
    heard: list[bytes] = []
    return meter(program, lambda member, line: heard.append(line)), b"".join(heard)


def silent(member: str, line: bytes) -> None:
    pass


def alone(toy: str, *words: object, limits: Limits = FEW) -> Metered:
    return meter(one_command([*PYTHON, toy, *map(str, words)], limits), silent)


def of_roles(network: str | None, parties: int, size: int) -> Program:
    document = {
        "role": [
            {
                "name": "hub",
                "as": "server",
                "service": True,
                "command": ["{python}", "-S", "-c", toys.SERVER, "{address}"],
            },
            {
                "name": "client",
                "members": parties,
                "command": ["{python}", "-S", "-c", toys.PARTY, "{address:hub-0}", str(size)],
            },
        ]
    }
    return parse_program(document, Path.cwd(), "toy", network, FEW)


# --- bytes, packets, rounds ---


@needs_root
def test_datagrams_cost_their_payload_and_headers() -> None:
    metered = alone(toys.DATAGRAMS, 25, 700)
    total = metered.pairs[0].total
    assert len(metered.pairs) == 1
    assert (total.bytes, total.packets) == (25 * 700, 25)
    assert total.packet_bytes == 25 * (700 + HEADERS)
    assert metered.kernel == {"sent_bytes": total.packet_bytes, "sent_packets": 25}


@needs_root
@pytest.mark.parametrize(("turns", "size"), [(1, 1), (40, 300), (3, 1_000_000)])
def test_a_ping_pong_has_two_rounds_for_each_turn(turns: int, size: int) -> None:
    metered = alone(toys.PING_PONG, turns, size)
    report = MeterReport(metered)
    assert report.rounds == 2 * turns
    assert report.communication()["total_bytes"] == 2 * turns * size
    whole = [pair.total for pair in metered.pairs]
    assert sum(each.packets for each in whole) == metered.kernel["sent_packets"]
    assert sum(each.packet_bytes for each in whole) == metered.kernel["sent_bytes"]


@needs_root
@pytest.mark.parametrize("network", [None, "delay=30ms", "delay=2ms,loss=3%", "rate=20mbit"])
def test_members_of_roles_are_billed_by_ordered_pair_and_phase(network: str | None) -> None:
    size, parties = 200_000, 3
    metered = meter(of_roles(network, parties, size), silent)
    sent = {(p.sender, p.receiver): p for p in metered.pairs}
    assert len(sent) == 2 * parties
    for number in range(parties):
        up, down = sent[f"client-{number}", "hub-0"], sent["hub-0", f"client-{number}"]
        assert {name: part.bytes for name, part in up.phases.items() if part.bytes} == {
            "keys": 1000,
            "submit": size,
        }
        assert down.total.bytes == 2
        assert up.turns == 4
    packets = sum(pair.total.packets for pair in metered.pairs)
    assert packets == metered.kernel["sent_packets"]
    assert metered.notes == ()
    lost = sum(pair.total.lost_packets for pair in metered.pairs)
    assert (lost > 0) == (network is not None and "loss" in network)
    if network == "delay=30ms":  # two questions with their answers
        assert metered.phases["keys"] >= 0.06
        assert metered.phases["submit"] >= 0.06
    if network == "rate=20mbit":
        assert metered.phases["submit"] >= 0.9 * size * 8 / 20e6


@needs_root
def test_the_document_is_that_of_a_run() -> None:
    document = MeterReport(meter(of_roles("lan", 2, 5000), silent), "tally meter").as_json()
    assert document["estimate"] == 2.5
    assert document["error"] == {"rmse": 0.5, "max": 0.5}
    federation: Any = document["federation"]
    assert (federation["parties"], federation["servers"]) == (2, 1)
    assert (federation["aggregator"], federation["network"]) == ("toy", "lan")
    bill: Any = document["communication"]
    assert bill["party_bytes"] == {"mean": 6002.0, "max": 6002}
    assert bill["links"]["party->server"]["bytes"] == 12000
    assert bill["links"]["server->party"]["bytes"] == 4
    assert bill["phases"]["submit"]["bytes"] == 10000
    assert bill["rounds"] == 4
    roles: Any = document["roles"]
    assert roles["hub"]["as"] == "server"
    assert 0 < roles["hub"]["cpu_seconds"] < 5
    assert 0 < roles["client"]["peak_bytes"] < 1 << 28


@needs_root
def test_our_own_runs_cost_what_their_bill_says() -> None:
    """Of two sizes, the difference: what does not grow with the vectors is in both. TLS, HTTP/2 and
    gRPC add 0.2 %. What the coordinator tells the analyst is metered and is not on the bill."""
    billed, metered = [], []
    for bins in (1 << 15, 1 << 17):
        words = f"run histogram --runtime processes --parties 4 --hosts 4 --bins {bins} --json"
        tally = shutil.which("tally", path=Path(sys.executable).parent)
        assert tally is not None
        found, heard = listened_to(one_command([tally, *words.split()], Limits(200)))
        result = json.loads(heard[heard.index(b"{") :])
        billed.append(result["communication"]["total_bytes"])
        told = [p.total.bytes for p in found.pairs if p.receiver == "process-0"]
        assert max(told) > 0.5 * sum(told)
        metered.append(sum(p.total.bytes for p in found.pairs) - max(told))
    grown = np.diff(billed)[0]
    assert grown > 4e6
    assert np.diff(metered)[0] / grown == pytest.approx(1, abs=0.005)


# --- CPU and memory ---


def test_memory_of_a_known_size() -> None:
    least, more = (alone(toys.ALLOCATES, size).uses["program-0"].peak_bytes for size in (1, 2**28))
    assert more - least == pytest.approx(2**28, rel=0.01)


def test_cpu_of_a_known_time() -> None:
    use = alone(toys.WORKS, 0.6).uses["program-0"]
    assert use.cpu_seconds == pytest.approx(0.6, abs=0.1)
    assert use.ended - use.began >= 0.6


def test_what_detaches_itself_is_accounted_for() -> None:
    use = alone(toys.ORPHAN, 0.2, 2**27).uses["program-0"]
    assert use.cpu_seconds >= 0.2
    assert use.peak_bytes >= 2**27


# --- nothing is left ---


def of_token(token: str) -> list[int]:
    """Processes that have the token among their words."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and token in (entry / "cmdline").read_bytes().decode():
                found.append(int(entry.name))
        except (OSError, UnicodeDecodeError):
            continue
    return found


def cgroups(pid: int) -> list[Path]:
    """Of the process that meters; others may be at it meanwhile."""
    return [*Path("/sys/fs/cgroup").glob(f"**/tally-meter-{pid}")]


def gone(token: str, pid: int) -> bool:
    """Within ten seconds: its processes, and the cgroup that bounds them."""
    for _ in range(200):
        if not of_token(token) and not cgroups(pid):
            return True
        time.sleep(0.05)
    return False


def seconds_until(found: Any, many: int) -> None:
    for _ in range(200):
        if len(found()) >= many:
            return
        time.sleep(0.05)
    raise AssertionError("they did not start")


def test_a_fork_bomb_is_bounded_and_gone() -> None:
    token = f"bomb-{os.getpid()}"
    with pytest.raises(RunFailed, match=r"more than 2 s|more than 20 processes"):
        alone(toys.BOMB, token, limits=Limits(seconds=2, processes=20, memory=1 << 30))
    assert of_token(token) == []
    assert cgroups(os.getpid()) == []


@needs_root
def test_the_kernel_bounds_the_number_of_processes() -> None:
    try:
        made_cgroup(1).rmdir()
    except OSError as error:
        pytest.skip(str(error))
    token = f"bounded-{os.getpid()}"
    seen: list[int] = []

    def look(keeper: int) -> float:
        seen.append(len(of_token(token)))
        return 0.1

    box = Box(Limits(2, 20), lambda number, line: None, look)
    with pytest.raises(RunFailed, match="more than 2 s"):
        box.run([BoxMember("bomb", (*PYTHON, toys.BOMB, token), dict(os.environ))])
    assert 15 < max(seen) <= 20 + 1 + KEEPERS_OWN


def test_memory_beyond_the_bound_ends_it() -> None:
    toy = toys.ALLOCATES + "import time; time.sleep(60)"
    with pytest.raises(RunFailed, match="more than 100 MB"):
        alone(toy, 2**28, limits=Limits(60, 64, 100 << 20))


def test_a_child_that_is_killed_ends_it_and_the_others() -> None:
    token = f"killed-{os.getpid()}"
    killed: list[int] = []

    def look(keeper: int) -> float:
        found = [pid for pid in of_token(token) if pid != keeper]
        if len(found) >= 4 and not killed:
            killed.append(min(found))
            os.kill(min(found), signal.SIGKILL)
        return 0.05

    box = Box(FEW, lambda n, line: None, look)
    with pytest.raises(RunFailed, match="signal 9"):
        box.run([BoxMember("program", (*PYTHON, toys.SLEEPS, token), dict(os.environ))])
    assert killed
    assert of_token(token) == []


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_meter_that_is_killed_leaves_nothing(ending: signal.Signals) -> None:
    token = f"left-{os.getpid()}-{ending}"
    tally = Path(sys.executable).parent / "tally"
    command = [str(tally), "meter", "--", *PYTHON, toys.SLEEPS, token]
    metering = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        seconds_until(lambda: of_token(token), 5)
        inside = {os.readlink(f"/proc/{pid}/ns/net") for pid in of_token(token)}
        inside -= {os.readlink("/proc/self/ns/net")}
        metering.send_signal(ending)
        metering.wait(20)
        assert gone(token, metering.pid)
        if not reason:
            assert len(inside) == 1
            assert inside.isdisjoint(_network_namespaces())
    finally:
        metering.kill()
        metering.wait()


def _network_namespaces() -> list[str]:
    """Of all processes that there are."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                found.append(os.readlink(entry / "ns" / "net"))
        except OSError:
            continue
    return found


@needs_root
def test_a_keeper_that_is_killed_takes_all_with_it() -> None:
    token = f"kept-{os.getpid()}"

    def look(keeper: int) -> float:
        if len(of_token(token)) >= 4:
            os.kill(keeper, signal.SIGKILL)
        return 0.05

    box = Box(FEW, lambda n, line: None, look)
    with pytest.raises(RunFailed, match="keeper was killed"):
        box.run([BoxMember("program", (*PYTHON, toys.SLEEPS, token), dict(os.environ))])
    assert gone(token, os.getpid())


# --- programs from others ---

ROLE = {"name": "party", "command": ["true"]}
WRONG: dict[str, Any] = {
    "no role": {},
    "no table": {"role": ["x"]},
    "an unknown field": {"role": [ROLE], "shell": "rm"},
    "an unknown field of a role": {"role": [ROLE | {"user": "root"}]},
    "a name that climbs": {"role": [ROLE | {"name": "../../etc"}]},
    "a name with quotes": {"role": [ROLE | {"name": "a'; rm -rf ~; '"}]},
    "a program's name that climbs": {"name": "../x", "role": [ROLE]},
    "a directory outside": {"role": [ROLE | {"directory": ".."}]},
    "the root directory": {"role": [ROLE | {"directory": "/"}]},
    "no directory": {"role": [ROLE | {"directory": "not-there"}]},
    "a command that a shell would read": {"role": [ROLE | {"command": "true; reboot"}]},
    "no words": {"role": [ROLE | {"command": []}]},
    "an empty command": {"role": [ROLE | {"command": [""]}]},
    "a word that ends early": {"role": [ROLE | {"command": ["true\0x"]}]},
    "a long word": {"role": [ROLE | {"command": ["true", "x" * 70000]}]},
    "nothing by that name": {"role": [ROLE | {"command": ["true", "{address:nobody-0}"]}]},
    "no such place": {"role": [ROLE | {"command": ["true", "{home}"]}]},
    "too many": {"role": [ROLE | {"members": 100_000}]},
    "too many together": {"role": [ROLE | {"members": 600}, ROLE | {"name": "b", "members": 600}]},
    "no number": {"role": [ROLE | {"members": True}]},
    "never": {"role": [ROLE | {"after": float("inf")}]},
    "twice": {"role": [ROLE, ROLE]},
    "only services": {"role": [ROLE | {"service": True}]},
    "no role of ours": {"role": [ROLE | {"as": "analyst"}]},
    "a list of roles": {"role": [ROLE | {"as": ["party"]}]},
    "no environment": {"role": [ROLE | {"environment": {"A=B": "x"}}]},
    "no network": {"role": [ROLE], "network": "moon"},
    "no text": {"role": [ROLE], "network": 7},
    "no limits": {"role": [ROLE], "limits": {"seconds": "long"}},
}


@pytest.mark.parametrize("document", WRONG.values(), ids=WRONG)
def test_a_program_that_is_none_is_refused_in_a_line(
    document: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(LocalError) as told:
        parse_program(document, tmp_path, "spec", None, FEW)
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 300


def test_a_program_may_ask_for_less_and_not_for_more(tmp_path: Path) -> None:
    for asked, given in ((5, 5.0), (1000, 60.0)):
        document = {"role": [ROLE], "limits": {"seconds": asked, "memory_mb": 1 << 20}}
        program = parse_program(document, tmp_path, "spec", None, FEW)
        assert (program.limits.seconds, program.limits.memory) == (given, FEW.memory)


def test_words_reach_a_program_as_they_are(tmp_path: Path) -> None:
    words = ["'", '"', "$(touch pwned)", "`id`", "a b", "*", "\n", "--json", "{", "{}", "ü€", ""]
    (tmp_path / "deep").mkdir()
    role = {
        "name": "echo",
        "command": ["{python}", "-S", "-c", toys.ECHO, *words, "{index}"],
        "directory": "deep",
        "environment": {"MINE": "$HOME;'\""},
    }
    heard: list[bytes] = []
    program = parse_program({"role": [role]}, tmp_path, "spec", None, FEW)
    meter(program, lambda member, line: heard.append(line))
    assert json.loads(heard[0]) == [[*words, "0"], "$HOME;'\"", str(tmp_path / "deep")]
    assert [each.name for each in tmp_path.rglob("*")] == ["deep"]


def test_nothing_in_one_command_is_replaced() -> None:
    heard: list[bytes] = []
    words = [*PYTHON, toys.ECHO, "{index}", "{nothing}"]
    meter(one_command(words, FEW), lambda member, line: heard.append(line))
    assert json.loads(heard[0])[0] == ["{index}", "{nothing}"]


def test_more_members_than_files_may_be_open_are_refused_in_a_line() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 12, hard))
    try:
        with pytest.raises(RunFailed, match="cannot start so many members"):
            Box(FEW, lambda number, line: None, lambda keeper: 1.0).run(
                [BoxMember(str(at), (sys.executable,), {}, "/", 0.0, False) for at in range(40)]
            )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_lines_that_only_look_like_marks_are_shown() -> None:
    toy = """
print("tally:phase ../x"); print("tally:estimate nan"); print("tally:truth lots")
print("tally:phase a b"); print("x tally:phase a"); print("y" * 200000)
import os; os.write(1, bytes([255, 0, 10]) + b"rest")
for k in range(70): print("tally:phase p%d" % k)
"""
    heard: list[bytes] = []
    metered = meter(one_command([*PYTHON, toy], FEW), lambda member, line: heard.append(line))
    assert metered.figures == {}
    assert len(metered.phases) == 51
    assert b"tally:phase ../x" in heard
    assert b"rest" in b"".join(heard)


@needs_root
def test_nothing_outside_can_be_reached() -> None:
    toy = """
import socket
try:
    socket.create_connection(("192.0.2.1", 80), 2)
except OSError as error:
    print(error.errno)
"""
    heard: list[bytes] = []
    meter(one_command([*PYTHON, toy], FEW), lambda member, line: heard.append(line))
    assert heard == [b"101"]


# --- the command ---


def test_the_command_prints_one_object(tally: Tally, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = tally("meter", "--json", f"--out={out}", "--", *PYTHON, "print(7)")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["statistic"] == "meter"
    assert document["command"].startswith("tally meter --json")
    assert "7" in done.stderr.splitlines()
    assert sorted(each.name for each in out.iterdir()) == [
        "communication.csv",
        "communication.png",
        "resources.png",
        "result.json",
    ]
    assert json.loads((out / "result.json").read_text()) == document


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--", "false"], 3, "ended with exit code 1"),
        (["--", "no-such-program"], 3, "could not be started: No such file"),
        (["nowhere.toml"], 2, "cannot read nowhere.toml"),
        (["--network", "wan", "--", "true"], 2, "share a loopback"),
        (["--members", "0", "--", "true"], 2, "--members is from 1"),
        (["--members", "2", "x.toml"], 2, "goes with -- COMMAND"),
        (["--seconds", "-1", "--", "true"], 2, "positive"),
        (["--network", "moon", "--members", "2", "--", "true"], 2, "no network 'moon'"),
        (["--seconds", "0.5", "--", "sleep", "9"], 3, "more than 0.5 s"),
        ([], 2, "SPEC.toml"),
    ],
)
def test_bad_ends_are_told_in_a_line(tally: Tally, words: list[str], code: int, said: str) -> None:
    done = tally("meter", *words)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_without_root_it_says_what_is_missing_and_meters_the_rest() -> None:
    """In a user namespace that maps nobody, where root is none."""
    if subprocess.run(["unshare", "-U", "true"], capture_output=True).returncode:
        pytest.skip("no user namespaces here")
    tally = Path(sys.executable).parent / "tally"
    words = ["unshare", "-U", str(tally), "meter", "--json", "--members=2", "--network=wan"]
    work = ["sh", "-c", "head -c 100000000 /dev/zero | tail -c 1 > /dev/null"]
    done = subprocess.run([*words, "--", *work], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    told = " ".join(document["notes"])
    assert "need root" in told
    assert "wan is not emulated" in told
    assert document["federation"]["network"] == "none"
    assert document["communication"]["kernel"] == {}
    assert document["roles"]["party"]["cpu_seconds"] > 0.01
    assert document["roles"]["party"]["peak_bytes"] > 100_000


def test_several_members_are_the_same_command() -> None:
    heard: dict[str, bytes] = {}
    program = several([*PYTHON, toys.ECHO, "{index}", "{members}"], 3, None, FEW)
    meter(program, lambda member, line: heard.update({member: line}))
    assert {name: json.loads(line)[0] for name, line in heard.items()} == {
        f"party-{index}": [str(index), "3"] for index in range(3)
    }
