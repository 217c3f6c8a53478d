"""Data in memory: frames, mappings and arrays, one for all parties or one for each."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tallyroom.parties.data import load
from tallyroom.parties.frames import dataset_of
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.of_pairs import Auc
from tallyroom.simulation.federation import Federation

AGES = [30.0, 40.0, 50.0, 61.0]
HEIGHTS = [1.5, 1.75, 2.0, 1.8]
FRAME = pd.DataFrame({"age": [30, 40, 50, 61], "city": list("abab"), "height": HEIGHTS})
RECORDS = np.array(list(zip(AGES, HEIGHTS, strict=True)), dtype=[("age", "i4"), ("height", "f8")])


class Columnar:
    """A frame of another library: it names its columns, and each can become an array."""

    def __init__(self, **columns: list[Any]) -> None:
        self._columns = columns

    @property
    def columns(self) -> list[str]:
        return list(self._columns)

    def __getitem__(self, name: str) -> "pd.Series[Any]":
        return pd.Series(self._columns[name])


@pytest.mark.parametrize(
    "data",
    [
        FRAME,
        {"age": AGES, "city": list("abab"), "height": np.array(HEIGHTS)},
        {"age": pd.Series(AGES), "height": HEIGHTS},
        RECORDS,
        Columnar(age=AGES, city=list("abab"), height=HEIGHTS),
        FRAME.astype({"age": "Int64", "height": "object"}),
    ],
    ids=["pandas", "lists", "series", "structured", "columnar", "nullable"],
)
def test_one_table_is_dealt_to_the_parties(data: Any) -> None:
    dataset = dataset_of(data)
    assert {name: column.tolist() for name, column in dataset.numbers.items()} == {
        "age": AGES,
        "height": HEIGHTS,
    }
    assert all(column.dtype == np.float64 for column in dataset.columns.values())
    assert dataset.deal(3).counts.tolist() == [1, 1, 2]


@pytest.mark.parametrize("data", [np.array(AGES), np.array(AGES)[:, None], AGES, (30, 40, 50, 61)])
def test_an_array_alone_is_the_column_value(data: Any) -> None:
    dataset = dataset_of(data)
    assert {name: column.tolist() for name, column in dataset.columns.items()} == {"value": AGES}


@pytest.mark.parametrize(
    "data",
    [
        [FRAME[:1], FRAME[1:]],
        {"hospital-a": FRAME[:1], "hospital-b": FRAME[1:]},
        [{"age": AGES[:1], "height": HEIGHTS[:1]}, FRAME[1:]],
        {"a": RECORDS[:1], "b": RECORDS[1:]},
    ],
    ids=["list", "mapping", "mixed", "structured"],
)
def test_one_table_per_party(data: Any) -> None:
    dataset = dataset_of(data)
    holdings = dataset.deal(None)
    assert holdings.counts.tolist() == [1, 3]
    assert holdings.column("age").tolist() == AGES
    with pytest.raises(LocalError, match="names 2 parties"):
        dataset.deal(3)


def test_one_array_per_party() -> None:
    holdings = dataset_of([np.array(AGES[:3]), np.array(AGES[3:])]).deal(None)
    assert holdings.counts.tolist() == [3, 1]
    assert holdings.column("value").tolist() == AGES


def test_more_than_ten_parties_keep_their_order() -> None:
    holdings = dataset_of([np.full(i + 1, float(i)) for i in range(12)]).deal(None)
    assert holdings.counts.tolist() == list(range(1, 13))
    assert holdings.column("value").tolist() == np.repeat(np.arange(12), range(1, 13)).tolist()


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ([], "list is not data"),
        ({}, "no column of numbers"),
        (7, "int is not data"),
        ([FRAME, "b"], "list is not data"),
        (FRAME[:0], "the data has no records"),
        ([FRAME, FRAME[:0]], "party-1 has no records"),
        ([FRAME, FRAME[["age"]]], "party-1 has no column 'height'"),
        ({"a": FRAME[["age"]], "b": FRAME}, "'a' has no column 'height'"),
        ({"age": [1, 2], "height": [1]}, "differ in length"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "column 'a' of the data has 2 dimensions"),
        (pd.DataFrame([[1, 2]], columns=[1, "1"]), "two columns '1'"),
        (np.zeros((2, 3)), "columns have no names"),
        (np.float64(3) * np.ones(()), "is not data|no names"),
        (np.array([1 + 2j]), "no column of numbers"),
    ],
)
def test_what_is_no_data_gets_one_line(data: Any, line: str) -> None:
    with pytest.raises(LocalError, match=line) as refused:
        dataset_of(data)
    assert "\n" not in str(refused.value)


def test_missing_values_matter_only_where_they_are_asked_about() -> None:
    frame = FRAME.assign(glucose=[1.0, np.nan, 3.0, np.nan], label=[0, 1, 0, 1])
    with Federation(parties=2, data=frame) as federation:
        mean = federation.run(Mean(value="age", lower=0, upper=120), epsilon="inf")
        assert mean.estimate == pytest.approx(frame["age"].mean(), abs=1e-4)
        for statistic in (Mean(value="glucose", lower=0, upper=9), Auc(score="glucose")):
            with pytest.raises(LocalError, match="'glucose' has 2 blanks in 4"):
                federation.run(statistic, epsilon="inf")


def test_a_frame_per_party_answers_as_their_union_does() -> None:
    with Federation(data={"a": FRAME[:1], "b": FRAME[1:]}) as federation:
        result = federation.run(Mean(value="height", lower=0, upper=3), epsilon="inf")
    assert result.estimate == pytest.approx(FRAME["height"].mean(), abs=1e-6)
    assert result.federation["parties"] == 2


def test_a_polars_frame() -> None:
    polars = pytest.importorskip("polars")
    dataset = dataset_of(polars.DataFrame({"age": AGES, "city": list("abab")}))
    assert {name: column.tolist() for name, column in dataset.numbers.items()} == {"age": AGES}


@pytest.mark.parametrize("name", ["ages.csv", "ages.csv?value=age", "csv:ages.csv"])
def test_a_file_needs_no_prefix(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ages.csv").write_text("age\n30\n40\n")
    assert load(name).columns["age"].tolist() == [30, 40]
    assert dataset_of(Path("ages.csv")).columns["age"].tolist() == [30, 40]


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(LocalError, match=r"cannot read nowhere\.csv: No such file"):
        load("nowhere.csv")
