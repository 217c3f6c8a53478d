"""What documents promise of the code: tests that they name are there, commands run as printed."""

import itertools
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.exceptions import TyperException
from typer.main import get_command

from tallyroom.parties.schema import PUBLISHED
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.statistics.attributes import parse_attribute
from tallyroom.simulation.command.main import app
from tests.conftest import Tally

HERE = Path(__file__).resolve().parent.parent
DEPLOYMENT = HERE / "docs" / "deployment.md"
TUTORIAL = HERE / "docs" / "tutorial.md"
MACHINES = HERE / "docs" / "two-machines.md"
"""Run as printed by tests/e2e/test_two_machines.py."""
CHOOSING = HERE / "docs" / "choosing.md"
DEFINED = re.compile(r"^ *(?:async )?def (test_\w+)", re.M)


def rows_with_tests(text: str) -> list[str]:
    """The last cell of every row of a table whose last column is called test."""
    cells, inside = [], False
    for line in text.splitlines():
        if not line.startswith("|"):
            inside = False
            continue
        last = line.rstrip().rstrip("|").rpartition("|")[2].strip()
        if last == "test":
            inside = True
        elif inside and re.fullmatch(r"[-:]+", last) is None:
            cells.append(last)
    return cells


def faults(cell: str) -> list[str]:
    """What a cell names that is not there: files, tests in files, or tests of any file."""
    named = re.findall(r"`([^`]+)`", cell)
    if not named:
        return [f"no test is named in {cell!r}"]
    missing = []
    for name in named:
        path, _, test = name.partition("::")
        if path.startswith("tests/"):
            file = HERE / path
            there = file.is_file() and (not test or test in DEFINED.findall(file.read_text()))
        else:
            files = (HERE / "tests").rglob("test_*.py")
            there = any(name in DEFINED.findall(file.read_text()) for file in files)
        if not there:
            missing.append(name)
    return missing


def test_every_test_that_the_table_of_trust_names_exists() -> None:
    cells = rows_with_tests(DEPLOYMENT.read_text())
    assert len(cells) >= 20
    assert [fault for cell in cells for fault in faults(cell)] == []


@pytest.mark.parametrize(
    "cell",
    [
        "",
        "by hand",
        "`tests/none.py`",
        "`tests/test_documents.py::test_none`",
        "`test_that_nobody_wrote`",
        "`tests/test_documents.py`, `tests/none.py`",
    ],
)
def test_a_row_without_its_test_is_found(cell: str) -> None:
    table = f"| who | can | cannot | test |\n|---|---|---|---|\n| a | b | c | {cell} |\n"
    assert [bool(faults(last)) for last in rows_with_tests(table)] == [True]


def test_the_study_in_the_documentation_runs() -> None:
    """As it stands there, in a process of its own."""
    text = (HERE / "docs" / "studies.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.S)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=HERE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    estimate, truth, first, second = (float(n) for n in re.findall(r"[\d.]+", done.stdout))
    assert (first, second) == (0.25, 0.75)
    assert abs(estimate - truth) < 0.05  # the noise of the mean moves it by 0.005


@pytest.mark.slow
def test_the_program_in_the_readme_runs() -> None:
    """As it stands there, and what its comments say of it."""
    program = re.findall(r"```python\n(.*?)```", (HERE / "README.md").read_text(), re.S)[0]
    told = "\nprint(again.reused, list(result.to_frame().columns))"
    done = subprocess.run(
        [sys.executable, "-c", program + told],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "True ['score', 'estimate', '±', 'low', 'high', 'truth']"


PLACES = {
    "--coordinator": "a federation that runs: tests/e2e/test_two_machines.py",
    "--identity": "processes that run until they are stopped: tests/e2e/test_two_machines.py",
    "--runtime ray": "a cluster: tests/ray",
    "tally enrol ": "in order, by a test below",
    "tally serve": "until it is stopped, by a test below",
    "compare histogram --parties 50 --delta 1e-6": "by the test of its figures below",
}
"""What is not run as one of many, and where it is."""
MINUTES = {
    "tally sweep": "tests/simulation/sweep",
    "tally bench": "tests/simulation/test_bench_verified.py",
    "tally reproduce": "tests/simulation/test_reproduce.py",
    "--target": "tests/contracts/test_plans.py",
    "tally artifact": "tests/simulation/test_artifact.py",
}
"""What takes long, and where a small form of it is run. `make printed` runs all of it as it is
printed, but for the figures of all papers."""
SECONDS = ("compare ", "plan ", "--runtime processes", "--parties 100 ", "compare-aggregators")
PLACEHOLDERS = ("NAME", "KEY", "FILE.csv", "COLUMN", "…")


def is_read(words: list[str]) -> bool:
    """Whether the command takes all of these words; nothing is run. Raises as it would."""
    group: Any = get_command(app)
    context = group.make_context("tally", list(words))
    while hasattr(group, "resolve_command"):
        left = [*context._protected_args, *context.args]
        name, group, rest = group.resolve_command(context, left)
        context = group.make_context(name, list(rest), parent=context)
    return not context.args


def commands_in(text: str) -> list[str]:
    """The lines in blocks of code that call `tally`, whole and without their comments."""
    found: list[str] = []
    language: str | None = None
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("```"):
            language = line[3:] if language is None else None
        words = line.strip().removeprefix("$ ").removeprefix(".venv/bin/")
        if language == "" and words.startswith("tally "):
            found.append(words)
    return found


def words_of(line: str) -> list[str]:
    """As a shell passes them on."""
    words = shlex.split(line, comments=True)
    return list(itertools.takewhile(lambda word: word not in (">", "&"), words))


def printed() -> dict[str, str]:
    """Every printed command, and a document that prints it; without those of documents that are run
    as a whole, and those that name no values."""
    documents = (HERE / "README.md", *sorted((HERE / "docs").glob("*.md")))
    return {
        shlex.join(words_of(line)): path.name
        for path in documents
        if path not in (TUTORIAL, MACHINES)
        for line in commands_in(path.read_text())
        if not any(each in line for each in PLACEHOLDERS)
    }


PRINTED = printed()
ALL = "TALLY_PRINTED" in os.environ


def is_run_here(command: str) -> bool:
    if any(each in command for each in PLACES):
        return False
    long = any(each in command for each in MINUTES)
    return not long or (ALL and command != "tally reproduce all")


RUN = [command for command in PRINTED if is_run_here(command)]
NOT_RUN = [command for command in PRINTED if not is_run_here(command)]


def named(command: str) -> str:
    return f"{PRINTED[command]}: {command[:60]}"


def test_commands_are_found() -> None:
    text = "```\n.venv/bin/tally run mean \\\n    --parties 3  # x\nmake\n```\n`tally run no`\n"
    assert [words_of(line) for line in commands_in(text)] == [
        ["tally", "run", "mean", "--parties", "3"]
    ]
    assert words_of("tally enrol create fed > tokens.txt") == ["tally", "enrol", "create", "fed"]
    assert len(RUN) >= 50
    for each in (*PLACES, *MINUTES):
        assert any(each in command for command in PRINTED), each


def adults(records: int) -> str:
    """Made-up records within the published schema."""
    generator = np.random.default_rng(2)
    columns = []
    for each in map(parse_attribute, PUBLISHED["adult"]):
        drawn = (
            generator.choice(each.names, records)
            if each.bounds is None
            else generator.integers(int(each.bounds[0]), int(each.bounds[1]), records)
        )
        columns.append([each.name, *map(str, drawn)])
    return "".join(f"{','.join(row)}\n" for row in zip(*columns, strict=True))


METERED = {
    "statistic": "meter",
    "federation": {"aggregator": "hub", "servers": 1},
    "communication": {
        "total_bytes": 300,
        "rounds": 2,
        "party_bytes": {"mean": 100.0},
        "kernel": {"sent_bytes": 700, "sent_packets": 9},
    },
    "timing": {"server_cpu_seconds": 0.1},
}
"""What is read of a metered program's result."""


@pytest.fixture
def reader(tally_here: Tally, tmp_path: Path) -> Tally:
    """Who reads the documents, with the files of their own that these speak of."""
    folder = tmp_path / "work"
    incomes = np.random.default_rng(1).lognormal(10, 0.4, 3000)
    (folder / "incomes.csv").write_text("\n".join(["income", *map(str, incomes)]) + "\n")
    ages = [str(18 + at * 7 % 70) for at in range(500)]
    (folder / "patients.csv").write_text("\n".join(["age", *ages]) + "\n")
    (folder / "adult.csv").write_text(adults(300))
    (folder / "simulation").symlink_to(HERE / "simulation")
    (folder / "metered").mkdir()
    (folder / "metered" / "result.json").write_text(json.dumps(METERED))
    return tally_here


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            command,
            id=named(command),
            marks=[pytest.mark.slow] if any(each in command for each in SECONDS) else [],
        )
        for command in RUN
    ],
)
def test_every_printed_command_runs(reader: Tally, command: str) -> None:
    done = reader(*shlex.split(command)[1:])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [pytest.param(each, id=named(each)) for each in NOT_RUN])
def test_those_that_are_not_run_here_are_commands(command: str) -> None:
    assert is_read(shlex.split(command)[1:])


@pytest.mark.parametrize(
    "line",
    ["run mean --nonsense 1", "serve runs --nonsense", "enrol make fed", "party --coordinator"],
)
def test_a_printed_command_that_is_not_one_is_found(line: str) -> None:
    with pytest.raises((LocalError, TyperException)):
        is_read(line.split())


def test_the_commands_of_enrolment_run_in_order(tally_here: Tally, tmp_path: Path) -> None:
    """Each folder is made once; then what is printed of its parties."""
    commands = [command for command in PRINTED if command.startswith("tally enrol ")]
    made = [command for command in commands if " create " in command]
    assert len(made) == 3
    for command in made:
        shutil.rmtree(tmp_path / "work" / "fed", ignore_errors=True)
        done = tally_here(*shlex.split(command)[1:])
        assert done.stdout.count("tally1-") in (3, 5), (command, done.stderr)
    shutil.rmtree(tmp_path / "work" / "fed")
    tally_here(*shlex.split(made[0])[1:])
    for command in commands:
        if command not in made:
            done = tally_here(*shlex.split(command)[1:])
            assert done.returncode == 0, (command, done.stderr)


def test_the_page_is_served_as_printed(tmp_path: Path) -> None:
    """Until it is interrupted. At another port where the usual one is taken."""
    assert "tally serve runs" in PRINTED
    with socket.socket() as probe:
        free = probe.connect_ex(("127.0.0.1", 8642)) != 0
    words = ["serve", "runs", *([] if free else ["--port", "0"])]
    page = subprocess.Popen(
        [Path(sys.executable).with_name("tally"), *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert page.stdout is not None
        address = next(
            found[0] for line in page.stdout if (found := re.findall(r"http://[^\s]+", line))
        )
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(address, timeout=20) as answer:
            assert b"<title>" in answer.read()
    finally:
        page.send_signal(signal.SIGINT)
        page.communicate(timeout=20)


def test_the_tutorial_runs_in_order(tally_here: Tally, tmp_path: Path) -> None:
    """One command after the other in one folder, with the file that the reader is told of."""
    rows = [f"clinic-{at % 8},{at * 7 % 60}" for at in range(80)]
    (tmp_path / "work" / "waiting.csv").write_text("\n".join(["clinic,days", *rows]) + "\n")
    ran = []
    for line in commands_in(TUTORIAL.read_text()):
        words = shlex.split(line, comments=True)[1:]
        done = tally_here(*words)
        expected = 2 if "exit code 2" in line else 0
        assert done.returncode == expected, (line, done.stderr)
        ran.append(words[0])
    assert ran == ["run", "verify", "plan", "run", "run", "run", "run", "run", "compare"]


def test_the_costs_of_aggregators_are_as_printed(tally_here: Tally) -> None:
    """Those in the table are what the command above it computes now."""
    text = CHOOSING.read_text()
    (command,) = [line for line in commands_in(text) if line.startswith("tally compare ")]
    done = tally_here(*shlex.split(command)[1:], "--json")
    assert done.returncode == 0, done.stderr
    found = {each["aggregator"]: each for each in json.loads(done.stdout)["aggregators"]}
    table = text.partition("| error of a count |")[2].partition("\n\n")[0]
    rows = {
        cells[0].strip("`"): cells[1:]
        for line in table.splitlines()[2:]
        if (cells := [cell.strip() for cell in line.strip("|").split("|")])
    }
    assert set(rows) == set(found)
    for name, (collude, error, size, rounds, cheats, *_) in rows.items():
        now = found[name]
        assert collude.startswith(now["may_collude"].replace("nobody", "none")) or name == "local"
        assert float(error) == pytest.approx(now["expected_rmse"], rel=0.05), name
        assert int(size.replace(",", "")) == pytest.approx(now["party_bytes"], rel=0.02), name
        assert int(rounds) == now["rounds"], name
        assert ("left out" in cheats) is now["catches"], name
