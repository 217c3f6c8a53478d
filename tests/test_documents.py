"""What documents promise of the code: tests that they name are there, commands run as printed."""

import itertools
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.exceptions import TyperException
from typer.main import get_command

from protocols.errors import LocalError
from simulation.command.main import app
from tests.conftest import Tally

HERE = Path(__file__).resolve().parent.parent
DEPLOYMENT = HERE / "docs" / "deployment.md"
TUTORIAL = HERE / "docs" / "tutorial.md"
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


COMMANDS = ("run", "list", "verify", "plan")
"""Of the command, what a simulation can answer. The others start or measure for long."""
ELSEWHERE = {
    "--coordinator": "a federation that runs: tests/e2e/test_two_machines.py",
    "--runtime": "processes and clusters: tests/e2e, tests/ray",
    "--target": "searches take seconds: tests/contracts/test_plans.py",
    "verify first": "on two machines: tests/e2e/test_two_machines.py",
    "NAME": "a placeholder",
    "KEY": "a placeholder",
    "incomes.csv": "a file of the reader's own",
    "patients.csv": "a file of the reader's own",
    "compare": "each takes seconds: tests/simulation/test_compare.py",
    "--parties 100": "a hundred parties that mask: tests/simulation/test_masked_and_shared_sums.py",
}
"""What is not run here, and why."""


def is_read(words: list[str]) -> None:
    """The command takes these words; nothing is run. Raises as it would. What a shell makes of
    them is left to the shell."""
    words = list(itertools.takewhile(lambda word: word not in (">", "&"), words))
    group: Any = get_command(app)
    context = group.make_context("tally", list(words))
    while hasattr(group, "resolve_command"):
        left = [*context._protected_args, *context.args]
        name, group, rest = group.resolve_command(context, left)
        context = group.make_context(name, list(rest), parent=context)


def commands_in(text: str) -> list[str]:
    """The lines in blocks of code that call `tally`, whole and without their comments."""
    found: list[str] = []
    language: str | None = None
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("```"):
            language = line[3:] if language is None else None
        words = line.strip().removeprefix(".venv/bin/")
        if language == "" and words.startswith("tally "):
            found.append(words)
    return found


PRINTED = [
    pytest.param(line, id=f"{path.name}: {line[:60]}")
    for path in (HERE / "README.md", *sorted((HERE / "docs").glob("*.md")))
    if path != TUTORIAL
    for line in commands_in(path.read_text())
]


def test_commands_are_found() -> None:
    text = "```\n.venv/bin/tally run mean \\\n    --parties 3  # x\nmake\n```\n`tally run no`\n"
    assert [shlex.split(line, comments=True) for line in commands_in(text)] == [
        ["tally", "run", "mean", "--parties", "3"]
    ]
    assert len(PRINTED) >= 30


@pytest.mark.parametrize("line", PRINTED)
def test_every_printed_command_runs(tally_here: Tally, line: str) -> None:
    """Or is taken by the command at least, where it is tried elsewhere."""
    line = re.sub(r" {3,}\w.*", "", line)  # what it does, in words
    words = shlex.split(line, comments=True)[1:]
    told = " ".join(words)
    if words[0] not in COMMANDS or any(each in told for each in ELSEWHERE):
        if not any(word in ("NAME", "KEY", "…") for word in re.split(r"[ ?]", told)):
            is_read(words)
        return
    done = tally_here(*words)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "line",
    ["run mean --nonsense 1", "serve runs --nonsense", "enrol make fed", "party --coordinator"],
)
def test_a_printed_command_that_is_not_one_is_found(line: str) -> None:
    with pytest.raises((LocalError, TyperException)):
        is_read(line.split())


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
