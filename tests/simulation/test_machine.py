"""What results, sweeps and benchmarks say they were measured with."""

import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from tallyroom.simulation.machine import ROOT, commit, machine
from tests.conftest import Tally


def test_the_machine_is_this_one() -> None:
    found = machine()
    assert found["cores"] == len(os.sched_getaffinity(0))
    assert found["kernel"] == os.uname().release
    assert found["python"] == platform.python_version()
    packages: Any = found["packages"]
    assert packages["numpy"] == importlib.metadata.version("numpy")
    assert "pytest" not in packages  # of an extra
    assert packages["tallyroom"] == importlib.metadata.version("tallyroom")
    text = Path("/proc/cpuinfo").read_text()
    assert str(found["cpu"]) in text
    assert str(found["flags"]) in text


def test_the_commit_is_that_of_the_checkout() -> None:
    if not (ROOT / ".git").exists():
        assert commit() == ""
        return
    head = subprocess.check_output(["git", "-C", str(ROOT), "rev-parse", "HEAD"], text=True)
    assert commit().removesuffix("-dirty") == head.strip()


def test_a_result_can_be_cited(tally: Tally) -> None:
    done = tally("run", "mean", "--seed", "3", "--json")
    document = json.loads(done.stdout)
    assert document["machine"] == machine()
    assert document["command"].endswith("run mean --seed 3 --json")
    assert document["federation"]["seed"] == 3
    use = document["roles"]["all"]
    assert 0 < use["cpu_seconds"] < 60
    assert 1 << 24 < use["peak_bytes"] < 1 << 32


def test_roles_are_told_apart_where_they_are_processes(tally: Tally) -> None:
    words = "run mean --runtime processes --parties 3 --aggregator shamir --json"
    document = json.loads(tally(*words.split()).stdout)
    assert {name: use["processes"] for name, use in document["roles"].items()} == {
        "server": 3,
        "coordinator": 1,
        "party": 3,
    }
    assert all(use["peak_bytes"] > 1 << 24 for use in document["roles"].values())


def test_a_study_adds_up_what_its_questions_took(tally: Tally) -> None:
    words = "run quantile-search --data synthetic:scores?n=200 --value score --json"
    document = json.loads(tally(*words.split()).stdout)
    parts = [each["roles"]["all"]["cpu_seconds"] for each in document["questions"]]
    assert len(parts) > 1
    whole = document["roles"]["all"]["cpu_seconds"]
    assert abs(whole - sum(parts)) < 1e-9
    assert "machine" not in document["questions"][0]


def test_a_row_of_a_sweep_names_its_machine(tally: Tally, tmp_path: Path) -> None:
    spec = tmp_path / "small.toml"
    spec.write_text('statistic = "mean"\nseed = 1\n[grid]\nepsilon = [1, 2]\n')
    done = tally("sweep", str(spec), f"--out={tmp_path / 'out'}", "--workers=1")
    assert done.returncode == 0, done.stderr
    known = json.loads((tmp_path / "out" / "machines.json").read_text())
    lines = (tmp_path / "out" / "runs.jsonl").read_text().splitlines()[1:]
    rows = [json.loads(line)["row"] for line in lines]
    assert [known[row["machine"]] for row in rows] == [machine(), machine()]
    assert all(row["cpu_seconds"] > 0 and row["peak_bytes"] > 1 << 24 for row in rows)
