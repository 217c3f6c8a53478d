"""Blanks, names, classes, delimiters: what is in files, and what becomes of it."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tallyroom.parties.data import BUNDLED, load
from tallyroom.parties.frames import dataset_of
from tallyroom.protocols.categories import OTHER, format_categories, parse_categories
from tallyroom.protocols.cells import encode_cells, is_blank, is_name, is_word
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.statistics.estimates import Counts
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.of_pairs import Auc
from tallyroom.protocols.statistics.planned import planned
from tallyroom.simulation.federation import Federation
from tests.conftest import Tally

WORK = ["Private", "State-gov", "Private", "Never", "Private", "x, y", "State-gov"]
AGES = [31.0, 42.0, 53.0, 24.0, 35.0, 46.0, 57.0]
RICH = ["<=50K", ">50K", "<=50K", "<=50K", ">50K", "<=50K", ">50K"]
FRAME = pd.DataFrame({"age": AGES, "work": WORK, "income": RICH})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("people.csv", index=False)
    frame = FRAME.assign(glucose=[70, np.nan, 80, 90, np.nan, 75, 85], site=list("aabbccd"))
    frame.to_csv("blanks.csv", index=False)
    return tmp_path


class TestBlanks:
    def test_a_column_with_blanks_is_there_and_says_how_many(self, folder: Path) -> None:
        """It used to be dropped, and then "no column 'glucose'"."""
        with Federation(parties=2, data="blanks.csv") as federation:
            mean = federation.run(Mean(value="age", lower=0, upper=99), "inf")
            assert mean.estimate == pytest.approx(np.mean(AGES), abs=1e-4)
            with pytest.raises(
                LocalError, match=r"'glucose' has 2 blanks in 7 records: .*missing=drop"
            ):
                federation.run(Mean(value="glucose", lower=0, upper=99), "inf")

    @pytest.mark.parametrize(
        ("missing", "mean", "note"),
        [
            ("drop", 80.0, "2 of 7 records lack 'glucose' and are left out; how many each"),
            ("0", 400 / 7, "2 of 7 records lack 'glucose' and count as 0 there"),
        ],
    )
    def test_they_are_dropped_or_filled_and_noted(
        self, folder: Path, missing: str, mean: float, note: str
    ) -> None:
        data = f"blanks.csv?value=glucose&missing={missing}"
        with Federation(parties=2, data=data) as federation:
            result = federation.run(Mean(value="glucose", lower=0, upper=99), "inf")
        assert result.estimate == pytest.approx(mean, abs=1e-4)
        assert any(each.startswith(note) for each in result.notes)

    def test_the_command_drops_by_the_column_that_is_asked_about(
        self, tally_here: Tally, tmp_path: Path
    ) -> None:
        file = tmp_path / "work" / "b.csv"
        file.write_text("age,glucose\n30,\n40,70\n,80\n50,90\n")
        words = ("--lower", 0, "--upper", 99, "--parties", 2, "--epsilon", "inf", "--json")
        for value, records in (("age", 3), ("glucose", 3)):
            done = tally_here(
                "run", "mean", "--data", "b.csv?missing=drop", "--value", value, *words
            )
            assert done.returncode == 0, done.stderr
            assert f'"records": {records}' in done.stdout
            assert f"1 of 4 records lack '{value}' and are left out" in done.stderr

    def test_a_party_left_without_records_is_told_of(self, folder: Path) -> None:
        Path("sites.csv").write_text("site,age\na,30\na,40\nb,\nb,\nc,50\n")
        data = load("sites.csv?value=age&party=site&missing=drop")
        assert data.deal(None).counts.tolist() == [2, 1]
        assert "parties left without a record, which take no part: 1" in data.notes[0]

    def test_nothing_left_is_refused(self, folder: Path) -> None:
        Path("none.csv").write_text("a,b\n,1\nNA,2\n")
        with pytest.raises(LocalError, match="dropping them leaves none"):
            load("none.csv?value=a&missing=drop")

    @pytest.mark.parametrize("way", ["maybe", "inf", "nan", "", "1_0"])
    def test_other_ways_are_refused(self, folder: Path, way: str) -> None:
        with pytest.raises(LocalError, match="missing= takes refuse, drop or a number"):
            load(f"blanks.csv?value=glucose&missing={way}")


class TestNames:
    CATEGORIES = "Private,State-gov"
    TRUE = (3.0, 2.0, 2.0)

    @pytest.mark.parametrize(
        ("data", "categories"),
        [
            ("people.csv?value=work&categories=Private,State-gov", ""),
            ("people.csv?value=work&categories=@words.txt", ""),
            ("people.csv", CATEGORIES),
            (FRAME, CATEGORIES),
            (FRAME.astype({"work": "category"}), CATEGORIES),
            ({"work": WORK}, CATEGORIES),
            ([FRAME[:3], FRAME[3:]], CATEGORIES),
        ],
        ids=["spec", "vocabulary", "option", "frame", "categorical", "lists", "parties"],
    )
    @pytest.mark.parametrize("aggregator", ["additive", "fss"])
    def test_a_histogram_counts_them(
        self, folder: Path, data: Any, categories: str, aggregator: str
    ) -> None:
        Path("words.txt").write_text("Private\nState-gov\n\n")
        with Federation(parties=None, data=data, aggregator=aggregator) as federation:
            result = federation.run(Histogram(value="work", categories=categories), "inf")
        assert isinstance(result.estimate, Counts)
        assert result.estimate.names == ["Private", "State-gov", OTHER]
        assert result.estimate.y == list(self.TRUE)
        assert result.truth == result.estimate
        known = Counter(work if work in ("Private", "State-gov") else OTHER for work in WORK)
        assert dict(known) == dict(zip(result.estimate.names, self.TRUE, strict=True))

    @pytest.mark.parametrize("statistic", [Mean, Histogram])
    def test_what_needs_numbers_refuses_them(self, folder: Path, statistic: Any) -> None:
        asked = statistic(value="work", lower=0, upper=1)
        for data, line in (("people.csv", "line 2: column 'work' has 'Private'"), (FRAME, "names")):
            with (
                Federation(parties=2, data=data) as federation,
                pytest.raises(LocalError, match=line),
            ):
                federation.run(asked, "inf")

    def test_numbers_are_names_by_their_value(self) -> None:
        asked = planned(Histogram(value="age", categories="31.00,a,042"))
        counted = asked.plan.encode(dataset_of(FRAME).deal(1))
        assert counted.tolist() == [[1, 0, 1, 5]]
        with pytest.raises(LocalError, match=r"'7' and '7\.0' are the same number"):
            Histogram(value="age", categories="7,a,7.0")

    def test_a_code_is_no_number_and_not_nothing(self) -> None:
        codes = encode_cells(["a", "", "b", "a"])
        assert np.isnan(codes).all()
        assert is_name(codes).tolist() == [True, False, True, True]
        assert is_blank(encode_cells(["NA", "", "0", "a"])).tolist() == [True, True, False, False]
        assert is_word(encode_cells(["NA", "", "0", "a"])).tolist() == [False, False, False, True]
        assert encode_cells([" 1", "1e0", "-0", "1e308"]).tolist() == [1, 1, 0, 1e308]
        assert not is_name(np.array([np.nan, -np.nan, np.inf, 0.0, 1.5])).any()
        bits = codes.view(np.uint64)
        assert bits[0] == bits[3] != bits[2]

    @pytest.mark.parametrize(
        "text", [",", "a,,b", "a,a", "other,a", '"a', "a," * 5000 + "a", "x" * 70000]
    )
    def test_bad_categories(self, text: str) -> None:
        with pytest.raises(LocalError):
            Histogram(categories=text)

    def test_categories_are_written_as_they_are_read(self) -> None:
        names = ("a", "b c", 'd "e"', "f, g", "ü")
        assert parse_categories(format_categories(names)) == names


class TestClasses:
    @pytest.mark.parametrize("positive", [">50K", "%3E50K"])
    def test_a_label_by_its_name(self, folder: Path, positive: str) -> None:
        data = load(f"people.csv?score=age&label=income&positive={positive}")
        assert data.columns["income"].tolist() == [0, 1, 0, 0, 1, 0, 1]
        with Federation(parties=2, data=data) as federation:
            asked = Auc(score="age", label="income", pairs_per_party="all")
            assert federation.run(asked, "inf").estimate == pytest.approx(2 / 3)

    def test_a_name_that_no_label_has(self, folder: Path) -> None:
        with pytest.raises(LocalError, match=r"no label in column 'income' '>60K'; did you mean"):
            load("people.csv?score=age&label=income&positive=>60K")

    def test_without_it_the_way_is_told(self, folder: Path) -> None:
        with pytest.raises(LocalError, match="positive=NAME"):
            load("people.csv?score=age&label=income")

    def test_ordered_names_are_numbers(self, folder: Path) -> None:
        Path("pain.csv").write_text("pain\nlow\nhigh\nmid\nlow\n")
        data = load("pain.csv?value=pain&order=low,mid,high")
        assert data.columns["pain"].tolist() == [1, 3, 2, 1]
        assert data.bounds["pain"] == (1, 3)
        with pytest.raises(LocalError, match="line 4: column 'pain' has 'mid', which is not in"):
            load("pain.csv?value=pain&order=low,high")


@pytest.mark.parametrize(
    ("delimiter", "option"),
    [(",", ""), (";", ""), ("\t", ""), ("|", ""), (":", "&sep=:"), ("\t", "&sep=tab")],
)
def test_delimiters_are_found_or_named(folder: Path, delimiter: str, option: str) -> None:
    FRAME.to_csv("other.csv", index=False, sep=delimiter)
    assert load(f"other.csv?value=age{option}").columns["age"].tolist() == AGES


@pytest.mark.parametrize("sep", ["", "ab", '"'])
def test_a_delimiter_is_one_character(folder: Path, sep: str) -> None:
    with pytest.raises(LocalError, match="sep= takes one character"):
        load(f"people.csv?value=age&sep={sep}")


class TestInPython:
    @pytest.fixture(autouse=True)
    def in_python(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tallyroom.protocols.errors._of_command", False)

    def test_as_people_write_it(self) -> None:
        from tallyroom import Ecdf, Quantile, Result, Roc

        assert Quantile(quantile=0.5).quantile == (0.5,)  # type: ignore[arg-type]
        assert Quantile(quantile=[0.1, 0.9]).quantile == (0.1, 0.9)  # type: ignore[arg-type]
        assert Roc(score="risk").score == ("risk",)  # type: ignore[arg-type]
        assert Ecdf(smooth=2, thresholds=np.int64(8)) == Ecdf(smooth="2", thresholds=8)  # type: ignore[arg-type]
        with Federation(parties=3, data=AGES) as federation:
            with pytest.raises(
                ValueError, match="give lower and upper, or PrivateBounds"
            ) as refused:
                federation.run("mean")
            assert "--" not in str(refused.value)
            assert isinstance(federation.run("collision-entropy"), Result)
        with Federation(parties=3) as federation:
            assert isinstance(federation.run("mean"), Result)
            assert isinstance(federation.run("auc").estimate, float)

    @pytest.mark.parametrize(
        ("build", "words"),
        [
            (lambda: Histogram(bins="many"), "bins cannot be 'many'"),  # type: ignore[arg-type]
            (lambda: Histogram(bins=0), "bins must be between 1 and"),
            (lambda: Mean(value=3.5), "value cannot be 3.5"),  # type: ignore[arg-type]
            (lambda: Federation(parties=3).run("maen"), "did you mean mean"),
            (lambda: Federation(parties=3).run(7), "7 is no statistic"),  # type: ignore[arg-type]
        ],
    )
    def test_a_value_error_in_the_words_of_python(self, build: Any, words: str) -> None:
        with pytest.raises(ValueError, match=words) as refused:
            build()
        assert "--" not in str(refused.value)


def test_bundled_sets_are_listed_with_their_bounds(tally_here: Tally) -> None:
    import json

    found = json.loads(tally_here("list", "data", "--json").stdout)["data"]
    assert found.keys() == BUNDLED.keys()
    assert found["breast-cancer"]["columns"]["mean_radius"] == [0, 30]
    shown = tally_here("list", "data").stdout
    assert "mean_radius" in shown
    assert "categories=" in shown
    assert "garble" in tally_here("list", "benchmarks").stdout
