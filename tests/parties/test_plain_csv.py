"""The fast reader of plain files agrees with the reader of all files, on every cell and line."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tallyroom.parties import plain_csv
from tallyroom.parties.csv_source import Reading
from tallyroom.parties.plain_csv import PlainTable, plain_table
from tallyroom.parties.tables import text_table
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.statistics.conformance import ANYTHING

HERE = Path("data.csv")
CELLS = st.one_of(
    st.sampled_from([*ANYTHING, " 7", "7 ", "\t", "1-2", "e", "1e5", "+.5", "5.", "0" * 70, "00"]),
    st.floats().map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.text("0123456789.,-+eE ", max_size=6),
    st.text("ab \t\x0b\x1f", max_size=3),
)
FILES = st.builds(
    lambda header, rows, sep, newline, last: (
        newline.join(sep.join(row) for row in [header, *rows]) + last
    ),
    st.lists(st.sampled_from(["a", "b", " c", "d e"]), min_size=1, max_size=4),
    st.lists(st.lists(CELLS, min_size=1, max_size=4), max_size=6),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
    st.sampled_from(["", "\n", "\r\n", "\n\n"]),
)
RECTANGLES = st.integers(1, 4).flatmap(
    lambda columns: st.lists(
        st.lists(CELLS.filter(lambda cell: ";" not in cell), min_size=columns, max_size=columns),
        min_size=1,
        max_size=8,
    ).map(lambda rows: "\n".join([";".join("abcd"[:columns]), *(";".join(row) for row in rows)]))
)


def check_agreement(text: str, decimal: str, delimiter: str | None = None) -> bool:
    raw = text.encode()
    found = plain_table(HERE, raw, delimiter)
    if found is None:
        return False
    table = text_table(HERE, raw, delimiter, "utf-8", spanning=False)
    assert table.fault is None
    assert found.header == table.header
    assert found.records == table.records
    for name in table.header:
        ours, theirs = found.column(name, decimal), table.column(name, decimal)
        assert ours.column.tobytes() == theirs.column.tobytes()
        assert ours.texts == theirs.texts
        for row in range(table.records):
            assert ours.fault(row, "") == theirs.fault(row, "")
    return True


@pytest.fixture(autouse=True, params=[16, 1 << 22])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_csv, "PART_BYTES", request.param)


@settings(max_examples=50)
@example("a\n1\n\n2", ".")
@example("\n\na;b\n1;2\n;\n", ",")
@example("a,b\n1,2\n3\n4,5,6\n", ".")
@given(st.one_of(FILES, RECTANGLES), st.sampled_from(".,"))
def test_both_readers_agree(text: str, decimal: str) -> None:
    check_agreement(text, decimal)


@settings(max_examples=30)
@given(RECTANGLES.filter(lambda text: text.isascii() and '"' not in text), st.sampled_from(".,"))
def test_plain_files_take_the_fast_way(text: str, decimal: str) -> None:
    rows = text.split("\n")[1:]
    assert check_agreement(text, decimal, ";") == any(rows)


@pytest.mark.parametrize(
    "text",
    [
        'a,b\n1,"2"\n',
        "a,b\n1,é\n",
        "a,b\n1\n",
        "a,b\n1,2,3\n4\n",
        "a\n1\r2\n",
        "a\n\0\n",
        "a",
        "a\n",
    ],
)
def test_other_files_do_not(text: str) -> None:
    assert plain_table(HERE, text.encode(), None) is None


def test_many_numbers_are_those_that_pandas_reads(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    numbers = rng.normal(size=2_000) * 10.0 ** rng.integers(-300, 300, 2_000)
    frame = pd.DataFrame({"x": numbers, "n": rng.integers(-(2**53), 2**53, 2_000)})
    frame.to_csv(tmp_path / "m.csv.gz", index=False)
    with gzip.open(tmp_path / "m.csv.gz", "rb") as file:
        assert b"\n" in file.read()
    table = Reading.of({}).table(tmp_path / "m.csv.gz")
    assert isinstance(table, PlainTable)
    for name in frame:
        assert (table.column(str(name)).column == frame[name].to_numpy()).all()


def test_a_byte_order_mark_is_no_reason_to_be_slow(tmp_path: Path) -> None:
    path = tmp_path / "b.csv"
    path.write_text("\ufeffa,b\n1,2\n")
    table = Reading.of({}).table(path)
    assert isinstance(table, PlainTable)
    assert table.header == ["a", "b"]
    path.write_text("a,b\n")
    with pytest.raises(LocalError, match="no records below its header"):
        Reading.of({}).table(path)
