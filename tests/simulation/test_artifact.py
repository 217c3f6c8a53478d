"""Bundles that repeat a result: elsewhere, to the last digit, and not where something differs."""

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tallyroom.protocols.errors import LocalError
from tallyroom.simulation.artifact.bundle import files_named
from tallyroom.simulation.artifact.repeat import differences
from tallyroom.simulation.networks import namespaces
from tests.conftest import Tally

HUB = Path(__file__).parents[2] / "simulation" / "examples" / "hub"

AGES = "age\n30\n40\n50\n60\n"
RUN = "run mean --data deep/ages.csv?value=age --parties 4 --lower 0 --upper 100"
SWEEP = """
statistic = "mean"
seed = 7
trials = 2
[options]
data = "deep/ages.csv?value=age"
parties = 4
lower = 0
upper = 100
[grid]
epsilon = [1, 2]
"""


@pytest.fixture
def place(tally_here: Tally, tmp_path: Path) -> Path:
    """Where the commands are called from."""
    folder = tmp_path / "work"
    (folder / "deep").mkdir()
    (folder / "deep" / "ages.csv").write_text(AGES)
    return folder


def bundled(tally_here: Tally, *words: str) -> None:
    done = tally_here("artifact", *words)
    assert done.returncode == 0, done.stderr


def repeated(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(folder / "repeat.py"), "--band=1000", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd="/")


def test_a_seeded_run_is_repeated_elsewhere(tally_here: Tally, place: Path, tmp_path: Path) -> None:
    done = tally_here(*RUN.split(), "--seed", "3", "--json", "--out", "found")
    assert done.returncode == 0, done.stderr
    bundled(tally_here, "found", "--out", "kept")
    with tarfile.open(place / "kept.tar.gz") as packed:
        packed.extractall(tmp_path / "elsewhere", filter="data")
    shutil.rmtree(place)
    folder = tmp_path / "elsewhere" / "kept"
    done_again = repeated(folder)
    assert done_again.returncode == 0, done_again.stdout + done_again.stderr
    assert "it agrees" in done_again.stdout
    assert (folder / "inputs" / "deep" / "ages.csv").read_text() == AGES
    assert {"README.md", "CITATION.cff", "machine.json", "artifact.json"} <= {
        each.name for each in folder.iterdir()
    }
    result = folder / "original" / "result.json"
    document = json.loads(result.read_text())
    document["estimate"] += 1e-9
    result.write_text(json.dumps(document))
    done_again = repeated(folder)
    assert done_again.returncode == 1
    assert "estimate" in done_again.stdout
    (folder / "inputs" / "deep" / "ages.csv").write_text(AGES + "70\n")
    done_again = repeated(folder)
    assert done_again.returncode == 2
    assert "not the file that was used" in done_again.stdout


def test_without_a_seed_noise_is_not_compared(tally_here: Tally, place: Path) -> None:
    assert tally_here(*RUN.split(), "--out", "found").returncode == 0
    bundled(tally_here, "found", "--out", "kept", "--digests")
    folder = place / "kept"
    assert repeated(folder).returncode == 2, "its data is missing"
    shutil.copytree(place / "deep", folder / "inputs" / "deep", dirs_exist_ok=True)
    done = repeated(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no seed" in (folder / "README.md").read_text()


def test_a_sweep_is_run_bundled_and_repeated(tally_here: Tally, place: Path) -> None:
    (place / "small.toml").write_text(SWEEP)
    bundled(tally_here, "small.toml")
    folder = place / "artifact" / "small"
    done = repeated(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    journal = folder / "original" / "runs.jsonl"
    journal.write_text(journal.read_text().replace('"rounds": 5', '"rounds": 6', 1))
    done = repeated(folder)
    assert done.returncode == 1
    assert "rounds: 6 is now 5" in done.stdout


def test_a_metered_program_is_bundled_with_what_is_beside_its_specification(
    tally_here: Tally, place: Path
) -> None:
    if namespaces.missing():
        pytest.skip(namespaces.missing())
    shutil.copytree(HUB, place / "hub")
    done = tally_here("meter", "hub/hub.toml", "--out", "found")
    assert done.returncode == 0, done.stderr
    bundled(tally_here, "found", "--out", "kept")
    shutil.rmtree(place / "hub")
    done_again = repeated(place / "kept")
    assert done_again.returncode == 0, done_again.stdout + done_again.stderr


TOLD = {"exact": ["a"], "timed": ["timing.s"], "left_out": [], "close": {"bytes": 0.01}}


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ({}, []),
        ({"a": 2}, ["result: a: 1 is now 2"]),
        ({"b": 2}, []),
        ({"timing": {"s": 2.9}}, []),
        ({"timing": {"s": 3.1}}, ["all together: timing.s: 1 s is now 3.1 s: more than a factor"]),
        ({"timing": {"s": 0.3}}, ["all together: timing.s: 1 s is now 0.3 s"]),
        ({"bytes": 1009}, []),
        ({"bytes": 1011}, ["result: bytes: 1000 is now 1011"]),
    ],
)
def test_what_differs_is_named(second: dict[str, Any], found: list[str], tmp_path: Path) -> None:
    first = {"a": 1, "b": 1, "timing": {"s": 1.0}, "bytes": 1000}
    for name, document in (("one", first), ("other", first | second)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(json.dumps(document))
    told = differences(tmp_path / "one", tmp_path / "other", TOLD, 3.0)
    assert len(told) == len(found)
    assert all(line.startswith(begin) for line, begin in zip(told, found, strict=True))


def test_paths_that_no_bundle_has_are_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    assert files_named(["x", "--data=csv:deep/ages.csv?value=age", "", "a\0b"]) == [
        Path("deep/ages.csv")
    ]
    for climbing in (str(place / "deep" / "ages.csv"), "deep/../deep/ages.csv"):
        with pytest.raises(LocalError, match="relative"):
            files_named([climbing])


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("rm -rf x", "only `tally run`"),
        ("tally run mean --coordinator h:1 --identity i", "paid for"),
        ("tally party --data x", "only `tally run`"),
        ("'", "names no command"),
        (7, "names no command"),
    ],
)
def test_what_is_no_run_of_ours_is_not_bundled(
    tally_here: Tally, place: Path, command: object, said: str
) -> None:
    (place / "found").mkdir()
    document = {"command": command, "statistic": "mean", "federation": {"seed": 1}}
    (place / "found" / "result.json").write_text(json.dumps(document))
    done = tally_here("artifact", "found")
    assert done.returncode == 2
    assert said in done.stderr
    assert not (place / "artifact").exists()


def test_bad_words_are_told_in_a_line(tally_here: Tally, place: Path) -> None:
    (place / "empty").mkdir()
    for words, said in (
        (["nowhere"], "neither a folder"),
        (["empty"], "neither result.json nor runs.jsonl"),
        (["empty", "--band", "0.5"], "at least 1"),
        (["empty", "--out", "deep"], "is there already"),
    ):
        done = tally_here("artifact", *words)
        assert done.returncode == 2
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1
