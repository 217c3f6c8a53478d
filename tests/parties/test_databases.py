"""Tables of SQLite and Parquet are read as a CSV file of the same cells is, and never written."""

import sqlite3
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tallyroom.parties.data import held, load
from tallyroom.protocols.errors import LocalError

ROWS: list[tuple[Any, ...]] = [
    (1, 40, 1.5, "F", "2024-02-29"),
    (2, 39, None, "M", "2023-01-01"),
    (3, -1, 0.0, None, None),
    (4, 10**6, 1e-9, 'a, "b"\nc', "never"),
]
HEAD = "id,age,pay,sex,day"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "our people.db"
    with sqlite3.connect(path) as opened:
        opened.execute(f"create table people ({HEAD})")
        opened.executemany("insert into people values (?, ?, ?, ?, ?)", ROWS)
    return path


def as_csv(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text(
        f"{HEAD}\n1,40,1.5,F,2024-02-29\n2,39,,M,2023-01-01\n3,-1,0.0,,\n"
        '4,1000000,1e-09,"a, ""b""\nc",never\n'
    )
    return path


def test_a_database_is_read_as_the_same_cells_of_a_file(database: Path, tmp_path: Path) -> None:
    found = held(f"sqlite:{database}?query=select * from people order by id")
    expected = held(f"{as_csv(tmp_path)}?lines=quoted")
    assert found.columns.keys() == expected.columns.keys()
    for name, column in found.columns.items():
        assert column.tobytes() == expected.columns[name].tobytes(), name


def test_a_parquet_file_is_read_as_the_same_cells_of_a_file(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet is an optional source")
    from pyarrow import parquet

    rows = [(*row[:4], date.fromisoformat(row[4])) for row in ROWS[:2]]
    columns = dict(zip(HEAD.split(","), map(list, zip(*rows, strict=True)), strict=True))
    path = tmp_path / "people.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    found, expected = held(str(path)), held(str(as_csv(tmp_path)))
    for name, column in found.columns.items():
        assert column.tobytes() == expected.columns[name][:2].tobytes(), name


def test_roles_and_options_are_those_of_files(database: Path) -> None:
    query = "select age, pay from people where age > 0"
    found = load(f"sqlite:{database}?query={query}&value=pay&missing=drop")
    assert found.roles == {"value": "pay"}
    assert found.about(["pay"]).columns["pay"].tolist() == [1.5, 1e-9]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "which records"),
        ("selec 1", "syntax error"),
        ("select * from nobody", "no such table"),
        ("select * from people where id > 9", "no records"),
        ("select age, age from people", "same name"),
        ("delete from people", "not authorized"),
        ("drop table people", "not authorized"),
        ("attach 'other.db' as other", "not authorized"),
        ("pragma user_version = 3", "not authorized"),
        ("select 1; delete from people", "one statement"),
        ("select load_extension('x')", "not authorized"),
    ],
)
def test_what_is_no_reading_is_refused(database: Path, query: str, words: str) -> None:
    before = database.read_bytes()
    with pytest.raises(LocalError, match=words) as refused:
        load(f"sqlite:{database}?query={query.replace(';', '%3B')}")
    assert "\n" not in str(refused.value)
    assert database.read_bytes() == before
    assert not (database.parent / "other.db").exists()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    for name, words in (("none.db", "unable to open"), ("text.db", "not a database")):
        path = tmp_path / name
        if name == "text.db":
            path.write_text("a table\n" * 1000)
        with pytest.raises(LocalError, match=words):
            load(f"sqlite:{path}?query=select * from people")
        assert path.exists() == (name == "text.db")
    (tmp_path / "bad.parquet").write_text("no")
    with pytest.raises(LocalError, match=r"bad\.parquet"):
        load(str(tmp_path / "bad.parquet"))
