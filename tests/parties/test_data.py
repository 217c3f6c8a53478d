"""Data sources: files in three formats, what is wrong with them, and the bundled sets."""

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tallyroom.parties.data import BUNDLED, load
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.statistics.bounded import clipped_records
from tallyroom.protocols.statistics.moments import Mean

TEXT = "age,city,height\n30,a,1.5\n40,b,1.75\n50,a,2\n"


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str | bytes, str], str]:
    def write(text: str | bytes, name: str = "data.csv") -> str:
        data = text.encode() if isinstance(text, str) else text
        (tmp_path / name).write_bytes(data)
        return f"csv:{tmp_path / name}"

    return write


File = Callable[..., str]


@pytest.mark.parametrize(
    ("name", "pack"),
    [("d.csv", bytes), ("d.csv.gz", gzip.compress), ("d.csv.xz", lzma.compress)],
)
def test_files(file: File, name: str, pack: Callable[[bytes], bytes]) -> None:
    spec = file(pack(TEXT.encode()), name) + "?value=age&x=height"
    data = load(spec)
    assert data.name == spec
    assert {key: column.tolist() for key, column in data.columns.items()} == {
        "age": [30, 40, 50],
        "height": [1.5, 1.75, 2],
    }
    assert data.roles == {"value": "age", "x": "height"}
    assert data.bounds == {}


def test_without_roles_all_columns_are_read(file: File) -> None:
    found = load(file(TEXT))
    assert list(found.columns) == ["age", "city", "height"]
    assert list(found.numbers) == ["age", "height"]


def test_records_belong_to_the_party_that_a_column_names(file: File) -> None:
    data = load(file(TEXT) + "?value=age&party=city")
    holdings = data.deal(None)
    assert holdings.ids.tolist() == [0, 1]
    assert holdings.counts.tolist() == [2, 1]
    assert holdings.column("age").tolist() == [30, 50, 40]
    assert len(data.deal(2).ids) == 2
    with pytest.raises(LocalError, match="names 2 parties, but --parties says 3"):
        data.deal(3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("age\n1\nx\n", "line 3: column 'age' has 'x', not a number"),
        ("age\n1\n\n\nx\n", "line 5: column 'age' has 'x'"),
        ('age,b\n1,"two\nlines"\nx,3\n', "line 3: 1 field, the header has 2; lines=quoted"),
        ("age\nnan\n", "line 2: column 'age' has 'nan'"),
        ("age\n1\ninf\n", "line 3: column 'age' has 'inf'"),
        ("age,b\n1,2\n,3\n", "line 3: column 'age' has ''; it has 1 blank in 2 records"),
        ("age\n1_000\n", "line 2: column 'age' has '1_000', not a number"),
        ("age\n٣\n", "line 2: column 'age' has '٣', not a number"),
        ("age,b,age\n1,2,3\n", "two columns are called 'age'"),
        ("age,b, age\n1,2,3\n", "two columns are called 'age'"),
        ("age,b\n1,2\n3\n", "line 3: 1 field, the header has 2"),
        ("age\n1,2\n", "line 2: 2 fields, the header has 1"),
        ("", "has no records below its header"),
        ("age\n", "has no records below its header"),
        ("agee\n1\n", "no column 'age'; did you mean agee"),
        (b"age\n\xff\xfe\n", "cannot read"),
    ],
)
def test_bad_files(file: File, text: str | bytes, words: str) -> None:
    with pytest.raises(LocalError, match=words.replace("?", "[?]")):
        load(file(text) + "?value=age")


@pytest.mark.parametrize(
    ("query", "way"),
    [("", "label=label&positive=NAME"), ("?score=p&label=label", "positive=NAME")],
)
def test_names_for_labels_are_told_with_how_to_say_the_positive_one(
    file: File, query: str, way: str
) -> None:
    words = f"line 2: column 'label' has 'yes', not a number; it has no, yes: {way} says which"
    with pytest.raises(LocalError, match=words):
        load(file("p,label\n.1,yes\n.2,no\n.3,yes\n") + query).check(["p", "label"])


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "plain"])
def test_damaged_archives(file: File, pack: Callable[[bytes], bytes], damage: str) -> None:
    packed = pack((TEXT * 50).encode())
    middle = len(packed) // 2
    data = {
        "truncated": packed[:middle],
        "flipped": packed[:middle] + bytes([packed[middle] ^ 255]) + packed[middle + 1 :],
        "plain": TEXT.encode(),
    }[damage]
    name = "d.csv.gz" if pack is gzip.compress else "d.csv.xz"
    with pytest.raises(LocalError):
        load(file(data, name) + "?value=age")


def test_a_damaged_deflate_stream_is_said_to_be_unreadable(file: File) -> None:
    packed = bytearray(gzip.compress(TEXT.encode()))
    packed[10] = 0xFF  # the first byte of the stream: a block type that does not exist
    with pytest.raises(LocalError, match="cannot read"):
        load(file(bytes(packed), "d.csv.gz") + "?value=age")


def test_missing_files_folders_and_other_formats(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    for spec, words in (
        (f"csv:{tmp_path}/none.csv?value=age", "No such file"),
        (f"csv:{tmp_path}/folder.csv?value=age", "directory"),
        (f"csv:{tmp_path}/data.parquet", "files end in .csv"),
        ("csv:", "files end in .csv"),
    ):
        with pytest.raises(LocalError, match=words):
            load(spec)


def test_columns_of_the_bundled_sets() -> None:
    assert list(load("synthetic:poisson").columns) == ["value"]
    assert list(load("synthetic:scores").columns) == ["score", "label"]
    assert list(load("synthetic:linear").columns) == ["x", "y"]
    cancer = load("breast-cancer").columns
    assert len(cancer) == 31
    assert "worst_fractal_dimension" in cancer
    assert "label" in cancer
    assert not [name for name in cancer if " " in name]


@pytest.mark.parametrize(
    "spec",
    [
        *BUNDLED,
        "synthetic:poisson?lambda=0.5&bins=64&seed=9",
        "synthetic:linear?kind=nonlinear&n=5000",
        "synthetic:linear?kind=heteroscedastic",
    ],
)
def test_public_bounds_hold_the_data(spec: str) -> None:
    """Ranges are facts about the source, so that hardly any value is clipped."""
    data = load(spec)
    assert data.bounds.keys() == data.columns.keys()
    for name, (lower, upper) in data.bounds.items():
        outside = clipped_records(Mean(value=name, lower=lower, upper=upper), data.deal(1))
        assert outside == 0, f"{name} has {outside} values outside [{lower}, {upper}]"
    assert data.roles["value"] in data.columns


def test_synthetic_data_is_what_it_is_called() -> None:
    poisson = load("synthetic:poisson?lambda=3&bins=1024")
    counts = np.bincount(poisson.columns["value"].astype(int), minlength=1025)
    assert counts[0] == 0
    assert len(counts) == 1025
    assert counts[1:].mean() == pytest.approx(3, abs=6 * np.sqrt(3 / 1024))
    scores = load("synthetic:scores?n=500").columns
    assert len(scores["score"]) == 500
    assert set(scores["label"].tolist()) == {0.0, 1.0}
    same, other = load("synthetic:scores?n=500&seed=0"), load("synthetic:scores?n=500&seed=1")
    assert same.columns["score"].tolist() == scores["score"].tolist()
    assert other.columns["score"].tolist() != scores["score"].tolist()


@pytest.mark.parametrize(
    "spec",
    [
        "synthetic:scores?n=0",
        "synthetic:scores?n=-1",
        "synthetic:scores?n=ten",
        "synthetic:scores?n=²",
        "synthetic:scores?n=" + "9" * 5000,
        "synthetic:scores?n=",
        "synthetic:scores?seed=x",
        "synthetic:scores?other=1",
        "synthetic:scores?value=none",
        "synthetic:poisson?lambda=0",
        "synthetic:poisson?lambda=nan",
        "synthetic:poisson?lambda=inf",
        "synthetic:poisson?lambda=x",
        "synthetic:poisson?lambda=1e-12",
        "synthetic:poisson?bins=0",
        "synthetic:linear?kind=curly",
        "synthetic:nothing",
        "",
        "?",
    ],
    ids=lambda spec: spec[:40],
)
def test_bad_specs(spec: str) -> None:
    with pytest.raises(LocalError):
        load(spec)
