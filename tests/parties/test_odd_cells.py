"""Cells as people's tools write them: missing markers, dates, booleans, decimal commas, old
encodings, whole numbers beyond 2^53. The same rule for files, frames, models and parties."""

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from tallyroom.parties.data import held, load
from tallyroom.parties.frames import dataset_of
from tallyroom.parties.models import SEED, scored
from tallyroom.protocols.cells import BLANKS, encode_cells, is_blank, is_infinite, is_word
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.statistics.estimates import Counts
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.simulation.federation import Federation

MARKERS = ("", "NA", "NaN", "N/A", ".", "?", "-", "None", "null")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def mean_of(data: Any, upper: float = 1e6, **options: Any) -> float:
    with Federation(parties=2, data=data, **options) as federation:
        result = federation.run(Mean(value="v", lower=0, upper=upper), "inf")
    assert isinstance(result.estimate, float)
    return result.estimate


class TestMissing:
    @pytest.mark.parametrize("marker", MARKERS)
    def test_one_rule_for_files_frames_and_parties(self, folder: Path, marker: str) -> None:
        assert marker in BLANKS
        Path("m.csv").write_text(f"v,w\n1,a\n{marker},b\n4,c\n")
        frame = pd.DataFrame({"v": [1, marker, 4], "w": list("abc")}, dtype=object)
        for data in ("m.csv", frame, {"v": [1, marker, 4]}):
            with pytest.raises(LocalError, match="1 blank in 3 records"):
                mean_of(data)
        assert mean_of("m.csv?value=v&missing=drop") == pytest.approx(2.5, abs=1e-3)
        assert mean_of(frame, missing="drop") == pytest.approx(2.5, abs=1e-3)
        assert mean_of(frame, missing="1") == pytest.approx(2, abs=1e-3)
        assert held("m.csv").columns["v"].tobytes() == dataset_of(frame).columns["v"].tobytes()
        assert held("m.csv?missing=drop").columns["v"].tolist() == [1, 4]

    def test_names_are_not_missing(self, folder: Path) -> None:
        """A party used to drop every record of such a column, and then did not start."""
        Path("w.csv").write_text("w\na\nb\n?\nNone\n")
        assert held("w.csv?value=w&missing=drop").rows == 2
        asked = Histogram(value="w", categories="a,b")
        with Federation(parties=2, data="w.csv?missing=drop") as federation:
            estimate = federation.run(asked, "inf").estimate
        assert isinstance(estimate, Counts)
        assert estimate.y == [1, 1, 0]
        with pytest.raises(LocalError, match="'w' has 'a', not a number; categories=NAME,NAME"):
            load("w.csv?value=w&missing=drop")

    @pytest.mark.parametrize("marker", MARKERS)
    def test_a_label_that_is_missing_is_not_negative(self, folder: Path, marker: str) -> None:
        Path("l.csv").write_text(f"s,y\n1,yes\n2,{marker}\n3,no\n")
        with pytest.raises(LocalError, match="1 blank in 3 records"):
            load("l.csv?score=s&label=y&positive=yes").check(["s", "y"])
        found = load("l.csv?score=s&label=y&positive=yes&missing=drop")
        assert found.columns["y"].tolist() == [1, 0]

    def test_a_frame_takes_what_an_address_takes(self) -> None:
        with pytest.raises(LocalError, match="missing= takes refuse, drop or a number"):
            mean_of({"v": [1.0, 2.0]}, missing="maybe")


class TestModels:
    ROWS = 200

    @pytest.fixture
    def columns(self) -> tuple[Any, Any, Any]:
        rng = np.random.default_rng(5)
        x, z = rng.normal(3, 2, self.ROWS), rng.normal(size=self.ROWS)
        return x, z, (x - 3 + z + rng.logistic(size=self.ROWS) > 0).astype(int)

    def written(self, columns: tuple[Any, Any, Any], marker: str) -> tuple[Any, Any]:
        """Every ninth x is missing; returns which, and which records are held out."""
        x, z, y = columns
        gone = np.arange(self.ROWS) % 9 == 0
        cells = [marker if no else repr(float(each)) for each, no in zip(x, gone, strict=True)]
        lines = [f"{a},{b},{c}" for a, b, c in zip(cells, z, y, strict=True)]
        Path("m.csv").write_text("\n".join(["x,z,y", *lines]) + "\n")
        order = np.random.default_rng(SEED).permutation(self.ROWS)
        training = np.zeros(self.ROWS, dtype=bool)
        training[order[: self.ROWS // 2]] = True
        return gone, training

    @pytest.mark.parametrize("marker", MARKERS)
    def test_numbers_stay_numbers(
        self, folder: Path, columns: tuple[Any, Any, Any], marker: str
    ) -> None:
        """R's NA used to turn the column into one feature per number."""
        gone, training = self.written(columns, marker)
        x, z, y = columns
        with pytest.raises(LocalError, match=r"23 of 200 records lack 'x': .*missing=drop"):
            scored("m.csv?label=y", "logistic")
        for missing, kept, instead in (
            ("drop", ~gone, 0.0),
            ("mean", np.ones_like(gone), x[training & ~gone].mean()),
            ("7", np.ones_like(gone), 7.0),
        ):
            known = x[training & ~gone]
            scaled = (np.where(gone, instead, x) - known.mean()) / known.std()
            others = (z - z[training & kept].mean()) / z[training & kept].std()
            inputs = np.stack([scaled, others], axis=1)
            fitted = LogisticRegression(max_iter=1000).fit(
                inputs[training & kept], y[training & kept]
            )
            found = scored(f"m.csv?label=y&missing={missing}", "logistic")
            truth = fitted.predict_proba(inputs[~training & kept])[:, 1]
            np.testing.assert_allclose(found.columns["score"], truth, atol=1e-6)
            assert found.notes[1].startswith("23 of 200 records lack 'x' and ")

    def test_a_blank_name_is_one_value_however_it_is_written(self, folder: Path) -> None:
        lines = [f"{'ab?'[at % 3]},{at % 7},{at * at % 2}" for at in range(60)]
        Path("one.csv").write_text("\n".join(["w,x,y", *lines]))
        mixed = [line.replace("?", ["NA", "?", ""][at % 3 - 1]) for at, line in enumerate(lines)]
        Path("two.csv").write_text("\n".join(["w,x,y", *mixed]))
        one, two = (scored(f"{name}.csv?label=y", "logistic") for name in ("one", "two"))
        np.testing.assert_allclose(one.columns["score"], two.columns["score"], atol=1e-9)
        assert scored("one.csv?label=y&missing=drop", "logistic").rows < one.rows

    def test_a_missing_label_is_dropped_or_refused(self, folder: Path) -> None:
        lines = [f"{at * 37 % 11},{'NA' if at % 10 == 0 else at % 2}" for at in range(60)]
        Path("l.csv").write_text("\n".join(["x,y", *lines]))
        with pytest.raises(LocalError, match="6 of 60 records lack 'y'"):
            scored("l.csv?label=y", "logistic")
        found = scored("l.csv?label=y&missing=drop", "logistic", whole=True)
        assert found.rows == 54
        assert found.columns["label"].mean() == pytest.approx(30 / 54)

    def test_the_same_reader_as_for_other_questions(self, folder: Path) -> None:
        lines = [f"{at * 37 % 11},{at * 17 % 5 / 2},{at * at % 3 % 2}" for at in range(60)]
        Path("one.csv").write_text("\n".join(["x,wö,y", *lines]))
        european = [line.replace(",", ";").replace(".", ",") for line in lines]
        Path("two.csv").write_text("\n".join(["x;wö;y", *european]), encoding="latin-1")
        one = scored("one.csv?label=y", "logistic")
        two = scored("two.csv?label=y&decimal=comma&encoding=latin-1", "logistic")
        assert (one.columns["score"] == two.columns["score"]).all()
        with pytest.raises(LocalError, match="encoding=latin-1"):
            scored("two.csv?label=y", "logistic")


class TestFiles:
    def test_decimal_commas(self, folder: Path) -> None:
        Path("c.csv").write_text("v;w\n1,5;a\n2,25;b\n-3e-1;c\n")
        with pytest.raises(LocalError, match="'1,5', not a number; decimal=comma"):
            load("c.csv?value=v")
        for way in ("comma", ","):
            found = load(f"c.csv?value=v&decimal={way}").columns["v"]
            assert found.tolist() == pd.read_csv("c.csv", sep=";", decimal=",")["v"].tolist()
        assert held("c.csv?value=v&decimal=comma").columns["v"].tolist() == [1.5, 2.25, -0.3]
        Path("t.csv").write_text("v;w\n1.500;a\n")  # 1500, or 1.5: nobody can tell
        with pytest.raises(LocalError, match=r"'1\.500', not a number"):
            load("t.csv?value=v&decimal=comma")
        with pytest.raises(LocalError, match="decimal= takes comma or point, not 'dot'"):
            load("c.csv?value=v&decimal=dot")

    @pytest.mark.parametrize("encoding", ["latin-1", "windows-1252", "cp1252", "Latin-1"])
    def test_older_encodings(self, folder: Path, encoding: str) -> None:
        Path("l.csv").write_bytes("größe,stadt\n1,Köln\n2,Bonn\n".encode("latin-1"))
        with pytest.raises(LocalError, match="not UTF-8; encoding=latin-1"):
            load("l.csv")
        for read in (load, held):
            found = read(f"l.csv?encoding={encoding}").columns
            assert found["größe"].tolist() == [1, 2]
            assert found["stadt"].tobytes() == encode_cells(["Köln", "Bonn"]).tobytes()
        with pytest.raises(LocalError, match="no encoding 'ebcdic'"):
            load("l.csv?encoding=ebcdic")

    def test_dates_are_days(self, folder: Path) -> None:
        texts = ["2020-02-29", "1969-12-31", "2020-02-29 12:00", "2020-02-29T12:30:15.5+02:00"]
        Path("d.csv").write_text("\n".join(["v", *texts]))
        stamps = pd.to_datetime(texts, utc=True, format="ISO8601")
        truth = ((stamps - pd.Timestamp(0, tz="UTC")) / pd.Timedelta("1D")).tolist()
        assert load("d.csv?value=v").columns["v"].tolist() == pytest.approx(truth, abs=1e-9)
        assert is_word(encode_cells(["2020-02-30", "2020-W05-1", "29.02.2020"])).all()

    def test_booleans_are_0_and_1(self, folder: Path) -> None:
        Path("b.csv").write_text("v\nTrue\nfalse\nTRUE\n")
        assert load("b.csv?value=v").columns["v"].tolist() == [1, 0, 1]
        counts = Histogram(value="v", categories="true,false")
        for data in ("b.csv", pd.DataFrame({"v": [True, False, True]})):
            with Federation(parties=2, data=data) as federation:
                estimate = federation.run(counts, "inf").estimate
            assert isinstance(estimate, Counts)
            assert estimate.y == [2, 1, 0]

    def test_whole_numbers_that_doubles_round(self, folder: Path) -> None:
        big = 2**53
        Path("i.csv").write_text(f"v\n{big}\n{big + 1}\n")
        with pytest.raises(LocalError, match=f"line 3: column 'v' has '{big + 1}', a whole number"):
            load("i.csv?value=v")
        assert held("i.csv?value=v").rows == 2  # a party takes part with what a double holds
        Path("i.csv").write_text(f"v\n{big}\n{big + 2}\n")
        assert load("i.csv?value=v").columns["v"].tolist() == [big, big + 2]

    @given(st.integers(-(2**64), 2**64))
    def test_rounding_is_found_exactly_where_it_is(self, number: int) -> None:
        from tallyroom.protocols.cells import is_rounded

        assert is_rounded(str(number)) == (int(float(number)) != number)

    @given(st.datetimes(), st.integers(-1439, 1439))
    def test_any_date_is_what_its_object_is(self, moment: dt.datetime, minutes: int) -> None:
        zoned = moment.replace(tzinfo=dt.timezone(dt.timedelta(minutes=minutes)))
        for each in (moment, zoned, moment.date()):
            coded = dataset_of({"v": [each, None]}).columns["v"]
            assert coded[:1].tobytes() == encode_cells([str(each)]).tobytes()
            assert math.isnan(coded[1])


class TestFrames:
    def test_masked_cells_are_missing(self) -> None:
        masked = np.ma.MaskedArray([1.0, 2.0, 1000.0], mask=[False, False, True])
        whole = np.ma.MaskedArray([1, 2, 1000], mask=[False, False, True])
        for data in (masked, {"v": whole}, {"v": [1.0, 2.0, np.ma.masked]}):
            found = dataset_of(data)
            [column] = found.columns.values()
            assert column[:2].tolist() == [1, 2]
            assert is_blank(column).tolist() == [False, False, True]
        assert mean_of({"v": whole}, missing="drop") == pytest.approx(1.5, abs=1e-3)
        records: Any = np.ma.MaskedArray(
            np.array([(1, 2.0), (3, 4.0)], dtype=[("a", int), ("b", float)])
        )
        records["b"][0] = np.ma.masked
        found = dataset_of(records)
        assert is_blank(found.columns["b"]).tolist() == [True, False]
        assert found.columns["a"].tolist() == [1, 3]

    @pytest.mark.parametrize(
        "values",
        [
            [Decimal("1.5"), Decimal("2.5")],
            pd.to_timedelta([1.5, 2.5], unit="D"),
            [dt.timedelta(hours=36), dt.timedelta(hours=60)],
            np.array([36, 60], dtype="m8[h]"),
            pd.to_datetime(["1970-01-02 12:00", "1970-01-03 12:00"]),
            pd.to_datetime(["1970-01-02 12:00", "1970-01-03 12:00"]).tz_localize("UTC"),
            [dt.datetime(1970, 1, 2, 12), dt.datetime(1970, 1, 3, 12)],
            ["1970-01-02 12:00", "1970-01-03 12:00"],
        ],
        ids=["decimal", "timedelta", "spans", "hours", "dates", "zoned", "moments", "texts"],
    )
    def test_what_stands_for_a_number_is_one(self, values: Any) -> None:
        assert mean_of({"v": values}) == pytest.approx(2, abs=1e-3)
        assert mean_of(pd.DataFrame({"v": values})) == pytest.approx(2, abs=1e-3)
        if isinstance(values, list) and not isinstance(values[0], str):
            assert dataset_of(values).columns["value"].tolist() == [1.5, 2.5]

    def test_infinities_are_called_that(self) -> None:
        for values in (np.array([1.0, np.inf]), [1.0, -math.inf], [Decimal("Infinity"), 1]):
            with pytest.raises(LocalError, match="'v' has 1 infinite values in 2 records"):
                mean_of({"v": values})
        assert is_infinite(encode_cells(["inf", "-Infinity", "1e308", "NA", "info"])).tolist() == [
            *(True, True, False, False, False)
        ]

    def test_whole_numbers_that_doubles_round(self) -> None:
        big = 2**53
        for values in (
            np.array([big, big + 1]),
            [big, big + 1],
            [0.5, -big - 1],
            pd.Series([big + 1, None], dtype="Int64"),
            [str(big + 1), "1"],
        ):
            with pytest.raises(
                LocalError, match=r"'v' of the data has a whole number beyond 2\^53"
            ):
                mean_of({"v": values}, missing="0")
        assert dataset_of({"v": [big, big + 2, 1e300, 2**60]}).why == {}

    def test_categories_that_doubles_do_not_tell_apart(self) -> None:
        with pytest.raises(LocalError, match=r"'9007199254740992' is beyond 2\^53"):
            Histogram(value="v", categories=f"{2**53},5")
        assert Histogram(value="v", categories=f"{2**53 - 1},5").categories

    def test_bounds_that_doubles_do_not_tell_apart(self) -> None:
        with pytest.raises(LocalError, match="are the same as doubles"):
            Mean(value="v", lower=2**53, upper=2**53 + 1)
