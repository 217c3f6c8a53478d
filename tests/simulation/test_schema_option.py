"""`--schema`: the same question as with every column told on the command line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallyroom.simulation.federation import Federation
from tallyroom.simulation.web.form import options_of
from tests.conftest import Tally

SCHEMA = "age=0:100\njob=clerk,cook\npay=low,high\n# a comment\nhours=0:80\n"
OPTIONS = [f"--attribute={line}" for line in SCHEMA.splitlines() if "#" not in line]


@pytest.fixture
def here(tally_here: Tally, tmp_path: Path) -> Tally:
    """In a folder that has data and schemas."""
    generator = np.random.default_rng(0)
    rows = [
        f"{age:.1f},{job},{'high' if age > 50 else 'low'},{hours:.1f}"
        for age, job, hours in zip(
            generator.uniform(0, 100, 60),
            generator.choice(["clerk", "cook", "judge"], 60),
            generator.uniform(0, 80, 60),
            strict=True,
        )
    ]
    folder = tmp_path / "work"
    (folder / "people.csv").write_text("\n".join(["age,job,pay,hours", *rows]) + "\n")
    (folder / "columns.txt").write_text(SCHEMA)
    (folder / "more.txt").write_text(SCHEMA + "shoe=0:60\n")
    (folder / "twice.txt").write_text(SCHEMA + "age=0:99\n")
    return tally_here


def answered(here: Tally, *words: str) -> dict[str, Any]:
    done = here("run", *words, "--data", "people.csv", "--seed", 3, "--parties", 3, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def told(found: dict[str, Any]) -> Any:
    """What was asked, the digests that everybody was bound to, and the answer."""
    receipts = [
        (each["request"], each["share_digest"])
        for asked in [found, *found.get("questions", [])]
        for each in asked.get("receipts", [])
    ]
    assert receipts
    parameters = found.get("study", {}).get("parameters")
    return parameters, receipts, found["privacy"], found["estimate"]


@pytest.mark.parametrize("name", ["projected-histogram", "multinomial-regression"])
def test_attributes_of_a_file_are_those_of_options(here: Tally, name: str) -> None:
    words = (name, "--target", "pay", "--aggregator", "curator", "--epsilon", "9", "--k", "2")
    by_file = answered(here, *words, "--schema", "columns.txt")
    assert told(by_file) == told(answered(here, *words, *OPTIONS))
    assert any(
        "columns.txt: they are part of the question, hence public" in each
        for each in by_file["notes"]
    )
    other = answered(here, *words, "--schema", "columns.txt", "--attribute", "age=0:200")
    assert told(other) != told(by_file)


@pytest.mark.parametrize("name", ["linear-regression", "logistic-regression", "mean"])
def test_ranges_and_bounds_come_from_the_same_file(here: Tally, name: str) -> None:
    of = {
        "linear-regression": ("--x", "age", "--y", "hours"),
        "logistic-regression": ("--x", "hours", "--label", "age", "--positive", "1"),
        "mean": ("--value", "age"),
    }[name]
    given = {
        "linear-regression": ("--range", "age=0.0:100.0", "--range", "hours=0.0:80.0"),
        "logistic-regression": ("--range", "hours=0.0:80.0"),
        "mean": ("--lower", "0", "--upper", "100"),
    }[name]
    lines = [line.split(",") for line in Path("people.csv").read_text().splitlines()]
    for line in lines[1:] if name == "logistic-regression" else []:
        line[0] = f"{float(line[0]) // 50:g}"
    Path("people.csv").write_text("".join(f"{','.join(line)}\n" for line in lines))
    by_file = answered(here, name, *of, "--epsilon", "9", "--schema", "columns.txt")
    assert told(by_file) == told(answered(here, name, *of, "--epsilon", "9", *given))


@pytest.mark.parametrize(
    ("schema", "more", "words"),
    [
        ("more.txt", (), "no column 'shoe'"),
        ("twice.txt", (), "twice.txt, line 6: 'age' is listed twice"),
        ("none.txt", (), "cannot read the schema none.txt: No such file or directory"),
        (".", (), "cannot read the schema .: Is a directory"),
        ("columns.txt", ("--target", "wage"), "the target needs its values"),
    ],
)
def test_a_bad_schema_is_one_line(
    here: Tally, schema: str, more: tuple[str, ...], words: str
) -> None:
    done = here(
        "run",
        "projected-histogram",
        "--data",
        "people.csv",
        "--schema",
        schema,
        *(more or ("--target", "pay")),
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_page_offers_no_file_of_this_machine() -> None:
    for name in ("projected-histogram", "linear-regression", "mean"):
        assert "--schema" not in [each["flag"] for each in options_of("run", name)]


def test_a_picture_names_a_few_of_many_columns() -> None:
    with Federation(parties=2, data="breast-cancer", aggregator="curator", seed=1) as federation:
        result = federation.run("projected-histogram", epsilon=5)
    line = " · ".join(result.origin())
    assert "mean_radius, radius_error" in line
    assert "28 other columns" in line
    assert len(line) < 200
