"""One record may change only itself: from the cells of a source, as a deployed party reads them, to
what every statistic makes of them, and to what a model says of records that it was not trained on.

Sensitivities are about one record. Were a cell read by what its neighbours hold, replacing it would
move all of them, and no noise here is scaled to that.
"""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tallyroom.parties.data import held
from tallyroom.parties.frames import dataset_of
from tallyroom.parties.models import scored
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.class_objective import ClassObjective
from tallyroom.protocols.statistics.classifier_curves import Roc
from tallyroom.protocols.statistics.conformance import ANYTHING, check_one_record
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.projected import NextAttribute, ProjectedCells
from tallyroom.protocols.statistics.sparse_cells import SparseCells
from tests.every_statistic import EVERY, records

NAMED: dict[str, Any] = {
    "attributes": ("flag=0,1", "job=nurse,clerk", "x=0:1"),
    "target": "flag",
}
OF_NAMES: tuple[Statistic, ...] = (
    Histogram(value="flag", categories="0,1"),
    Histogram(value="job", categories="nurse,NA,1"),
    ProjectedCells(**NAMED, chosen=("job",)),
    NextAttribute(**NAMED, chosen=("job",)),
    SparseCells(**NAMED, chosen=("job",)),
    ClassObjective(**NAMED),
    Roc(lower=0.0, upper=1.0, thresholds=4, positive=2.0),
)
ROWS = 8


def table() -> dict[str, list[Any]]:
    """Numbers in every column that is asked about, flags that are written as 0.0, and jobs."""
    columns: dict[str, list[Any]] = {
        name: column.tolist() for name, column in records(ROWS // 2).columns.items()
    }
    columns["flag"] = [float(at % 2) for at in range(ROWS)]
    columns["job"] = [["nurse", "clerk", "cook"][at % 3] for at in range(ROWS)]
    return columns


def with_first(cell: Any) -> dict[str, list[Any]]:
    return {name: [cell, *column[1:]] for name, column in table().items()}


def written(folder: Path, columns: dict[str, list[Any]]) -> Path:
    path = folder / "ours.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])
    return path


def of_a_party(folder: Path, columns: dict[str, list[Any]]) -> Holdings:
    """As `tally party --data FILE` has it."""
    return held(f"csv:{written(folder, columns)}").deal(ROWS)


def of_a_frame(_: Path, columns: dict[str, list[Any]]) -> Holdings:
    return dataset_of(pd.DataFrame(columns)).deal(ROWS)


def of_lists(_: Path, columns: dict[str, list[Any]]) -> Holdings:
    return dataset_of(columns).deal(ROWS)


def of_arrays(_: Path, columns: dict[str, list[Any]]) -> Holdings:
    return dataset_of({name: np.array(column) for name, column in columns.items()}).deal(ROWS)


Source = Callable[[Path, dict[str, list[Any]]], Holdings]
SOURCES: list[Source] = [of_a_party, of_a_frame, of_lists, of_arrays]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.__name__)
@pytest.mark.parametrize("cell", ANYTHING)
def test_a_cell_of_any_source_is_coded_by_itself(source: Source, cell: str, tmp_path: Path) -> None:
    before, after = (source(tmp_path, each) for each in (table(), with_first(cell)))
    assert before.columns.keys() == after.columns.keys()
    for name, column in before.columns.items():
        assert column[1:].tobytes() == after.columns[name][1:].tobytes(), name
    for statistic in (*EVERY, *OF_NAMES):
        check_one_record(statistic, before, after)


@pytest.mark.parametrize("cell", [True, None, 10**400, pd.Timestamp("2020-01-01"), b"x"])
@pytest.mark.parametrize("source", [of_a_frame, of_lists], ids=lambda source: source.__name__)
def test_an_object_of_any_kind_is_coded_by_itself(
    source: Source, cell: object, tmp_path: Path
) -> None:
    before, after = (source(tmp_path, each) for each in (table(), with_first(cell)))
    assert before.columns.keys() == after.columns.keys()
    for name, column in before.columns.items():
        assert column[1:].tobytes() == after.columns[name][1:].tobytes(), name


def arrays_of(frame: pd.DataFrame) -> dict[str, Any]:
    return {str(name): frame[name].to_numpy() for name in frame}


@pytest.mark.parametrize("cell", [*ANYTHING, 0.5, None])
def test_the_type_of_a_column_decides_nothing(cell: Any) -> None:
    """Columns of plain numbers and of dates become columns of objects with one cell that is none:
    infinities, NaNs, -0 and dates among the others are then coded as they were."""
    odd = np.array([1.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1e308, 0.1])
    times = pd.date_range("2020-01-01", periods=len(odd), freq="36h")
    typed = pd.DataFrame({"odd": odd, "whole": range(len(odd)), "time": times})
    mixed = typed.astype(object)
    mixed.iloc[0] = cell
    for after in (dataset_of(mixed), dataset_of(arrays_of(mixed))):
        before = dataset_of(arrays_of(typed))
        assert before.columns.keys() == dataset_of(typed).columns.keys() == after.columns.keys()
        for name, column in before.columns.items():
            assert column[1:].tobytes() == after.columns[name][1:].tobytes(), name
            assert column.tobytes() == dataset_of(typed).columns[name].tobytes()


@pytest.mark.parametrize(
    "query",
    [
        "score=score&label=flag",
        "score=score&label=job&positive=nurse",
        "value=job&order=nurse,clerk",
        "value=job&categories=nurse,clerk",
        "value=x&missing=0",
        "value=x&decimal=comma",
        "value=x&encoding=latin-1",
        "x=x&y=y&target=flag",
    ],
)
@pytest.mark.parametrize("cell", ANYTHING)
def test_whatever_the_address_says(query: str, cell: str, tmp_path: Path) -> None:
    before, after = (
        held(f"csv:{written(tmp_path, each)}?{query}") for each in (table(), with_first(cell))
    )
    assert before.columns.keys() == after.columns.keys()
    assert (before.bounds, before.categories) == (after.bounds, after.categories)
    for name, column in before.columns.items():
        assert column[1:].tobytes() == after.columns[name][1:].tobytes(), name


@pytest.mark.parametrize(
    "line",
    ['"', 'a,"b', "1;2;3;4", "", "a", "1" * 200_000, "a,b,c,d", "\udcff,1", '"a"b,1', "a\tb"],
    ids=lambda line: ascii(line[:9]),
)
@pytest.mark.parametrize("lines", ["plain", "quoted"])
def test_a_line_of_any_form_is_one_record_at_most(line: str, lines: str, tmp_path: Path) -> None:
    """The delimiter is the header's, and a quote that is left open is of its own line."""
    fourth = '4,"two"' if lines == "plain" else '4,"two\nlines"'
    path, others = tmp_path / "ours.csv", ['2,"x, y"', "3,z", fourth, '5,"""q"""']
    for first in ("1,x", line):
        path.write_text("\n".join(["a,b", first, *others]), errors="surrogateescape")
        found = held(f"csv:{path}?lines={lines}")
        assert found.columns["a"][-4:].tolist() == [2, 3, 4, 5]
        assert found.rows == (5 if first else 4)


def test_a_party_starts_whatever_it_holds(tmp_path: Path) -> None:
    """No positive label, an unknown level, a blank name: its operator hears how many."""
    path = tmp_path / "ours.csv"
    path.write_text("v,label,name\n0.5,secret-no,\nsecret-word,secret-no,a\n,,b\n")
    for query in (
        "score=v&label=label&positive=yes",
        "value=name&order=x,y",
        "value=name&categories=x,y",
        "value=v",
        "",
    ):
        found = held(f"csv:{path}?{query}")
        assert found.rows == 3
        assert not any("secret" in told for told in (*found.notes, *found.uncounted()))
    assert any("1 blanks and 1 words in 3 records" in told for told in found.uncounted())
    dropped = held(f"csv:{path}?value=v&missing=drop")
    assert dropped.rows == 2  # a word is not a missing value
    assert "1 of 3 records lack 'v' and are left out" in dropped.notes[0]
    names = held(f"csv:{path}?value=name&missing=drop")
    assert names.rows == 2


@pytest.mark.parametrize("cell", ANYTHING)
def test_a_held_out_record_changes_no_score_but_its_own(cell: str, tmp_path: Path) -> None:
    """Nor which label is positive, nor what thresholds are chosen by."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=40)
    rows = [[each, ["a", "b"][at % 2], int(each > 0)] for at, each in enumerate(x.tolist())]
    path = tmp_path / "m.csv"

    def judged(first: list[Any]) -> Any:
        changed = [first if at == place else row for at, row in enumerate(rows)]
        path.write_text("")
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([["x", "word", "y"], *changed])
        return scored(f"{path}?label=y&missing=mean", "logistic")

    place = -1
    whole = judged([])
    place = min(np.random.default_rng(0).permutation(40)[20:].tolist())  # the first held out
    found = judged([cell, cell, cell])
    for name in ("score", "label"):
        assert (found.columns[name][1:] == whole.columns[name][1:]).all()
        assert (found.public[name] == whole.public[name]).all()


@pytest.mark.parametrize("cell", ['"6', '6"', '"', '""6', '6""', '"6"x', ""])
@pytest.mark.parametrize("others", [["70", "71", '5"'], ['"1"', "2", '"3'], ["1", "", '"x"']])
@pytest.mark.parametrize("columns", [1, 2])
def test_no_cell_takes_other_lines_into_its_record(
    tmp_path: Path, cell: str, others: list[str], columns: int
) -> None:
    """Whatever is in it, and whatever quotes other records have."""
    path, more = tmp_path / "held.csv", ",1" * (columns - 1)

    def codes(second: str) -> Any:
        rows = [others[0], second, *others[1:]]
        path.write_text("".join(f"{each}{more}\n" for each in ["h", *rows]).replace("h,1", "h,w"))
        return np.delete(held(f"csv:{path}?value=h").deal(4).column("h"), 1)

    assert len(codes("66")) == 3
    np.testing.assert_array_equal(codes("66"), codes(cell))
