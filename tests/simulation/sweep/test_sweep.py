"""Grids of runs: what is asked, what a kill leaves, and the table."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from tallyroom.protocols.errors import LocalError
from tallyroom.simulation.sweep.columns import TIMES
from tallyroom.simulation.sweep.conduct import conduct
from tallyroom.simulation.sweep.drawing import draw, lines_of
from tallyroom.simulation.sweep.journal import NAME, Row, SweepJournal
from tallyroom.simulation.sweep.specification import Plot, parse, read
from tallyroom.simulation.sweep.table import write_table
from tallyroom.simulation.sweep.work import check, work
from tallyroom.simulation.sweep.workers import Workers

EXAMPLES = Path(__file__).parents[3] / "simulation" / "examples"
SMALL: dict[str, Any] = {
    "seed": 5,
    "trials": 2,
    "statistic": "mean",
    "options": {"parties": 5, "data": "synthetic:scores?n=50"},
    "grid": {"epsilon": [0.5, 1, "inf"], "aggregator": ["additive", "curator"]},
}
TEXT = """
seed = 5
trials = 2
statistic = "mean"
[options]
parties = 5
data = "synthetic:scores?n=50"
[grid]
epsilon = [0.5, 1, "inf"]
aggregator = ["additive", "curator"]
"""


def untimed(rows: list[Row]) -> list[Row]:
    return [{k: v for k, v in row.items() if k not in TIMES} for row in rows]


def test_a_sweep_that_was_killed_ends_as_one_that_was_not(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(TEXT)
    out = tmp_path / "out"
    command = "from tallyroom.simulation.command.main import main; main()"
    words = ["sweep", str(tmp_path / "spec.toml"), "--out", str(out), "--workers", "1"]
    journal = out / NAME
    with subprocess.Popen([sys.executable, "-c", command, *words]) as process:
        deadline = time.monotonic() + 120
        while not journal.exists() or journal.read_bytes().count(b"\n") < 3:
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
    before = journal.read_bytes()
    before = before[: before.rindex(b"\n") + 1]
    journal.write_bytes(before + b'{"key": "torn')
    specification = parse(SMALL)
    swept = conduct(specification, out, 2)
    kept = before.count(b"\n") - 1
    assert 2 <= kept == swept.kept < len(specification)
    assert journal.read_bytes().startswith(before)
    whole = [work(run) for run in specification.runs()]
    assert untimed(swept.rows) == untimed(whole)
    assert not swept.failed
    again = conduct(specification, out, 2)
    assert again.kept == len(specification)
    assert again.rows == swept.rows, "with their times: nothing was computed again"
    with (out / "results.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["rmse"] for row in table] == [str(row["rmse"]) for row in swept.rows]
    assert table[4]["epsilon"] == "1"
    assert table[4]["aggregator"] == "additive"


def test_runs_have_seeds_of_their_own_which_a_larger_grid_keeps() -> None:
    runs = list(parse(SMALL).runs())
    assert len(runs) == len({run.seed for run in runs}) == len({run.key for run in runs}) == 12
    grown = SMALL | {"trials": 3, "grid": {"aggregator": ["curator", "additive"]} | SMALL["grid"]}
    assert {run.key for run in runs} < {run.key for run in parse(grown).runs()}
    other = {run.seed for run in parse(SMALL | {"seed": 6}).runs()}
    assert other.isdisjoint(run.seed for run in runs)


def test_a_combination_that_cannot_be_asked_is_told_in_its_row() -> None:
    spec = SMALL | {"trials": 1, "grid": {"servers": [2, 1]}}
    asked, refused = [work(run) for run in parse(spec).runs()]
    assert asked["failed"] == ""
    assert "server" in refused["failed"]
    assert "rmse" not in refused


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": None}, "needs `seed`"),
        ({"seed": -1}, "whole number"),
        ({"trials": 0}, "whole number"),
        ({"trials": 10**7}, "whole number"),
        ({"trials": True}, "whole number"),
        ({"statistic": None}, "a sweep needs `statistic`"),
        ({"grid": {"epsilon": []}}, "list of values"),
        ({"grid": {"epsilon": 1}}, "list of values"),
        ({"grid": 3}, "table"),
        ({"grid": {"a" + str(n): list(range(100)) for n in range(4)}}, "at most"),
        ({"options": {"seed": 3}}, "derived"),
        ({"options": {"coordinator": "x"}}, "simulations"),
        ({"options": {"--epsilon": 3}}, "without dashes"),
        ({"options": {"epsilon": {"a": 1}}}, "cannot be"),
        ({"options": {"epsilon=1 --out": 3}}, "is not an option"),
        ({"format": "xml"}, "csv or parquet"),
        ({"speed": 1}, "no 'speed'"),
        ({"plot": {"x": "epsilon", "y": "beauty"}}, "y must be one of"),
        ({"plot": {"y": "rmse"}}, "x must be one of"),
        ({"plot": {"x": "epsilon", "y": "rmse", "log": "z"}}, "log must be one of"),
        ({"statistic": "meen"}, "mean"),
        ({"options": {"bins": 3}}, "no --bins"),
        ({"grid": {"parties": [5, "many"]}}, "parties"),
    ],
)
def test_a_bad_specification_gets_one_line(change: dict[str, Any], words: str) -> None:
    document = {k: v for k, v in (SMALL | change).items() if v is not None}
    with pytest.raises(LocalError, match=words) as caught:
        check(parse(document))
    assert "\n" not in str(caught.value)


def test_a_journal_has_one_holder_and_one_version(tmp_path: Path) -> None:
    with SweepJournal(tmp_path, "1"), pytest.raises(LocalError, match="another sweep"):
        SweepJournal(tmp_path, "1")
    with pytest.raises(LocalError, match="another --out"):
        SweepJournal(tmp_path, "2")
    (tmp_path / NAME).write_text("garbage\n")
    with pytest.raises(LocalError, match="line 1"):
        SweepJournal(tmp_path, "1")
    assert (tmp_path / NAME).read_text() == "garbage\n"


def test_lines_are_means_with_their_standard_errors() -> None:
    rows: list[Row] = [
        {"pairs-per-party": "4", "rmse": 1.0, "failed": ""},
        {"pairs-per-party": "4", "rmse": 3.0, "failed": ""},
        {"pairs-per-party": "8", "rmse": 5.0, "failed": ""},
        {"pairs-per-party": "8", "failed": "no answer"},
    ]
    assert lines_of(rows, Plot("pairs_per_party", "rmse")) == {"": [(4.0, 2.0, 1.0), (8.0, 5.0, 0)]}


def test_parquet_holds_what_csv_does(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"statistic": "mean", "epsilon": 1, "trial": 0, "run_seed": 7, "rmse": 0.5, "failed": ""},
        {"statistic": "mean", "epsilon": "inf", "trial": 1, "run_seed": 8, "failed": "no"},
    ]
    table = parquet.read_table(write_table(rows, tmp_path, "parquet")).to_pylist()
    assert [row["epsilon"] for row in table] == ["1", "inf"]
    assert [row["rmse"] for row in table] == [0.5, None]
    assert [row["run_seed"] for row in table] == [7, 8]


def test_the_plot_is_written(tmp_path: Path) -> None:
    rows: list[Row] = [{"epsilon": 1, "rmse": 1.0}, {"epsilon": 2, "rmse": 0.5}]
    path = draw(rows, Plot("epsilon", "rmse", log="xy"), tmp_path)
    assert path is not None
    assert path.read_bytes().startswith(b"\x89PNG")
    assert draw([{"epsilon": 1, "failed": "no"}], Plot("epsilon", "rmse"), tmp_path) is None


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_examples_can_be_asked(path: Path) -> None:
    specification = read(path)
    check(specification)
    assert specification.plot is not None
    assert json.dumps([run.words for run in specification.runs()])


def fail(task: int) -> int:
    if task == 3:
        os._exit(9)
    return task * task


def test_workers_do_every_task_once_and_a_dead_one_is_told() -> None:
    assert dict(Workers(fail, 2).done(range(3))) == {0: 0, 1: 1, 2: 4}
    with pytest.raises(Exception, match="a worker died"):
        list(Workers(fail, 2).done(range(5)))
