"""Parties that were started as real processes, over files with records that nothing can be made of:
they take part as all others do, those records alone count as is public, and nobody hears of them
but the one who started the party."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.deployed import Room, tally

RECORDS = 40
SCORES = np.linspace(0.02, 0.98, 2 * RECORDS)
LABELS = (np.arange(2 * RECORDS) % 3 == 0).astype(int)
JOBS = np.array(["nurse", "clerk", "cook"])[np.arange(2 * RECORDS) % 3]
SECRET = "unheard-of"


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """The last record of the first party has a word for its label, score and flag, and no job."""
    folder = tmp_path_factory.mktemp("any")
    specs = []
    for party in range(2):
        rows = [
            f"{SCORES[at]},{LABELS[at]},{JOBS[at]},{LABELS[at]:.1f}"
            for at in range(party * RECORDS, (party + 1) * RECORDS)
        ]
        if party == 0:
            rows[-1] = f"{SECRET},{SECRET},,{SECRET}"
        path = folder / f"ours-{party}.csv"
        path.write_text("\n".join(["score,label,job,flag", *rows]) + "\n")
        specs.append(["--data", f"csv:{path}"])
    made = Room(folder, data=specs)
    yield made
    made.stop()


EXACT = ("--epsilon", "inf", "--json")
UNIT = ("--lower", "0", "--upper", "1")


def test_one_label_turns_no_other(room: Room) -> None:
    """Its party's labels used to be names then, all of them, and none was positive."""
    curve = room.ask("run", "roc", "--score", "score", *UNIT, "--at", "0.5", *EXACT)
    labels, scores = LABELS.copy(), SCORES.copy()
    labels[RECORDS - 1], scores[RECORDS - 1] = 0, 0.0  # no positive label; the lower bound
    told = curve["estimate"]["score"]
    above = (scores > 0.5) & (labels == 1)
    assert told["true_positive_rate"][1] == pytest.approx(above.sum() / labels.sum())
    assert told["positives"] == labels.sum()
    assert told["negatives"] == len(labels) - labels.sum()


def test_names_that_are_numbers_are_counted_by_all(room: Room) -> None:
    found = room.ask("run", "histogram", "--value", "flag", "--categories", "0,1", *EXACT)
    others = np.delete(LABELS, RECORDS - 1)
    assert found["estimate"]["y"] == [np.sum(others == 0), np.sum(others == 1), 1]


def test_a_blank_name_is_another(room: Room) -> None:
    found = room.ask("run", "histogram", "--value", "job", "--categories", "nurse,clerk", *EXACT)
    others = np.delete(JOBS, RECORDS - 1)
    nurses, clerks = (int(np.sum(others == job)) for job in ("nurse", "clerk"))
    assert found["estimate"]["y"] == [nurses, clerks, len(JOBS) - nurses - clerks]


def test_what_is_no_number_is_the_lower_bound(room: Room) -> None:
    found = room.ask("run", "mean", "--value", "score", *UNIT, *EXACT)
    truth = np.delete(SCORES, RECORDS - 1).sum() / len(SCORES)
    assert found["estimate"] == pytest.approx(truth, abs=1e-6)
    assert found["federation"]["parties"] == 2


def test_only_its_operator_hears_how_many_and_nobody_what(room: Room) -> None:
    logs = {path.name: path.read_text() for path in Path(room.folder).glob("*.log")}
    assert not [name for name, text in logs.items() if SECRET in text]
    told = [name for name, text in logs.items() if "words in 40 records" in text]
    assert told == ["party-0.log"]


OF = (range(RECORDS), range(RECORDS, 2 * RECORDS))
"""The records of each party."""
GRADES = np.array(["low", "mid", "high"])[np.arange(2 * RECORDS) % 3]


@pytest.fixture(scope="module")
def strict_room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """Addresses say what labels and grades are. The first party has no positive label, and nothing
    but grades that are not in the order: words, blanks and numbers."""
    folder = tmp_path_factory.mktemp("strict")
    specs = []
    for party in range(2):
        path = folder / f"ours-{party}.csv"
        rows = [f"{SCORES[at]},{'yes' if LABELS[at] else 'no'},{GRADES[at]}" for at in OF[party]]
        if party == 0:
            odd = [SECRET, "", "7", "LOW"]
            rows = [f"{SCORES[at]},{SECRET},{odd[at % 4]}" for at in OF[party]]
        path.write_text("\n".join(["score,answer,grade", *rows]) + "\n")
        told = "score=score&label=answer&positive=yes&value=grade&order=low,mid,high"
        specs.append(["--data", f"csv:{path}?{told}"])
    made = Room(folder, data=specs)
    yield made
    made.stop()


def test_a_party_without_a_positive_label_takes_part(strict_room: Room) -> None:
    told = strict_room.ask(
        *("run", "roc", "--score", "score", "--label", "answer", *UNIT, "--at", "0.5", *EXACT)
    )
    assert told["federation"]["parties"] == 2
    found = told["estimate"]["score"]
    assert found["positives"] == LABELS[RECORDS:].sum()
    assert found["negatives"] == 2 * RECORDS - LABELS[RECORDS:].sum()


def test_a_grade_that_is_not_in_the_order_is_the_lowest(strict_room: Room) -> None:
    told = strict_room.ask(
        *("run", "histogram", "--value", "grade", "--lower", "0.5", "--upper", "3.5"),
        *("--bins", "3", *EXACT),
    )
    known = [int(np.sum(GRADES[RECORDS:] == grade)) for grade in ("low", "mid", "high")]
    assert told["estimate"]["y"] == [known[0] + RECORDS, *known[1:]]


def test_nobody_but_its_operator_hears_of_records_that_fit_nothing(strict_room: Room) -> None:
    logs = {path.name: path.read_text() for path in Path(strict_room.folder).glob("*.log")}
    assert not [name for name, text in logs.items() if SECRET in text]
    assert [name for name, text in logs.items() if "'grade' has" in text] == ["party-0.log"]


DAYS = np.arange(2 * RECORDS)
CITY = "unheard-of Köln"


@pytest.fixture(scope="module")
def odd_room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """Files in Latin-1 with decimal commas, dates and booleans. The first party's first eight
    records have missing markers, and its ninth has nothing but words and a number that no double
    holds."""
    folder = tmp_path_factory.mktemp("odd")
    specs = []
    for party in range(2):
        rows = [
            f"{SCORES[at]}".replace(".", ",")
            + f";{np.datetime64('2020-01-01') + int(DAYS[at])};{bool(LABELS[at])};Köln;5"
            for at in OF[party]
        ]
        if party == 0:
            markers = ("NA", "NaN", "N/A", ".", "?", "-", "None", "null")
            rows[: len(markers)] = [";".join([marker] * 5) for marker in markers]
            rows[len(markers)] = f"{SECRET};2020-02-30;{SECRET};{CITY};9007199254740993"
        path = folder / f"ours-{party}.csv"
        path.write_text("\n".join(["score;day;flag;city;id", *rows]), encoding="latin-1")
        specs.append(["--data", f"csv:{path}?decimal=comma&encoding=latin-1"])
    made = Room(folder, data=specs)
    yield made
    made.stop()


ODD = 9
"""How many records of the first party have nothing to count."""


def test_files_as_people_have_them_are_counted(odd_room: Room) -> None:
    mean = odd_room.ask("run", "mean", "--value", "score", *UNIT, *EXACT)
    assert mean["estimate"] == pytest.approx(SCORES[ODD:].sum() / len(SCORES), abs=1e-6)
    first = (np.datetime64("2020-01-01") - np.datetime64("1970-01-01")).astype(int)
    days = odd_room.ask(
        *("run", "mean", "--value", "day", "--lower", str(first), "--upper", str(first + 99)),
        *EXACT,
    )
    truth = first + DAYS[ODD:].sum() / len(DAYS)  # what is no date counts as the lower bound
    assert days["estimate"] == pytest.approx(truth, abs=1e-6)
    flags = odd_room.ask(
        "run", "histogram", "--value", "flag", "--categories", "True,False", *EXACT
    )
    positives = int(LABELS[ODD:].sum())
    assert flags["estimate"]["y"] == [positives, len(LABELS) - ODD - positives, ODD]
    cities = odd_room.ask("run", "histogram", "--value", "city", "--categories", "Köln,-", *EXACT)
    assert cities["estimate"]["y"] == [2 * RECORDS - ODD, 1, ODD - 1]


def test_no_log_has_a_cell_of_such_files(odd_room: Room) -> None:
    logs = {path.name: path.read_text() for path in Path(odd_room.folder).glob("*.log")}
    assert not [name for name, text in logs.items() if SECRET in text or "9007199" in text]
    assert [name for name, text in logs.items() if "8 blanks" in text] == ["party-0.log"]


def test_a_question_about_no_column_is_told_none_that_there_is(odd_room: Room) -> None:
    """In a file without a header, the names of the columns are the cells of a record."""
    analyst = ("--identity", str(odd_room.folder / "fed" / "analyst"))
    asked = ("run", "mean", "--value", "nothing", *UNIT, *EXACT, "--deadline", "3")
    assert tally(*asked, "--coordinator", odd_room.coordinator, *analyst).returncode == 3
    logs = [path.read_text() for path in Path(odd_room.folder).glob("*.log")]
    assert any("no column 'nothing'" in text for text in logs)
    assert not any("city" in text.replace("column 'city' has", "") for text in logs)


@pytest.mark.parametrize("query", ["?value=age", "", "?party=age"])
def test_a_party_without_a_header_repeats_no_cell(tmp_path: Path, query: str) -> None:
    path = tmp_path / "ours.csv"
    path.write_text(f"31,{SECRET},{SECRET}\n32,cook,5\n")
    options = ("--identity", tmp_path / "none", "--coordinator", "127.0.0.1:1", "--insecure")
    done = tally("party", *map(str, options), "--data", f"csv:{path}{query}")
    assert done.returncode == 2
    assert SECRET not in done.stdout + done.stderr
    assert "31" not in done.stderr.replace(str(tmp_path), "")
