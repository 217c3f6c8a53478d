"""What `tally run` prints and writes."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.statistics import offered
from tallyroom.protocols.statistics.option import OTHERS, SURVIVAL, TOPICS
from tallyroom.protocols.studies import studies
from tallyroom.simulation.command.catalogue import CATALOGUES
from tallyroom.simulation.reports.tables import counted
from tallyroom.simulation.times import PARTS
from tests.conftest import Tally

TOP = {
    "machine",
    "roles",
    "schema",
    "statistic",
    "estimate",
    "truth",
    "error",
    "privacy",
    "federation",
    "communication",
    "timing",
    "data",
    "noise_error",
    "receipts",
    "version",
    "date",
    "command",
    "interval",
    "intervals",
    "method_error",
}


def document(tally: Tally, *words: object) -> dict[str, Any]:
    done = tally("run", *words, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n")
    assert len(done.stdout.splitlines()) == 1
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_object_has_exactly_the_designed_keys(tally_here: Tally) -> None:
    found = document(tally_here, "mean", "--parties", "5")
    assert found.keys() == TOP
    assert found["error"].keys() == found["noise_error"].keys() == {"rmse", "max"}
    assert found["data"].keys() == {"name", "columns", "records", "bounds", "grid", "grid_step"}
    promised = {"epsilon", "delta", "mechanism", "noise", "protects", "threat_model"}
    assert found["privacy"].keys() == promised
    assert found["federation"] == {
        "parties": 5,
        "servers": 2,
        "aggregator": "additive",
        "runtime": "inprocess",
        "network": "none",
        "seed": None,
    }
    bill = found["communication"]
    assert bill.keys() == {"total_bytes", "messages", "rounds", "party_bytes", "phases", "links"}
    assert bill["party_bytes"].keys() == {"mean", "max"}
    for part in (*bill["phases"].values(), *bill["links"].values()):
        assert part.keys() == {"bytes", "messages"}
    whole = {"total_seconds", "server_cpu_seconds", "phases"}
    assert found["timing"].keys() == {*whole, *PARTS}
    assert 0 < found["timing"]["server_cpu_seconds"] < 10
    assert (found["schema"], found["statistic"]) == (1, "mean")
    assert (found["privacy"]["epsilon"], found["privacy"]["delta"]) == (1.0, 0.0)
    assert found["privacy"]["noise"] == "each-server"
    assert found["error"]["rmse"] == pytest.approx(abs(found["estimate"] - found["truth"]))


def test_notes_only_when_there_is_something_to_say(tally_here: Tally) -> None:
    assert "notes" not in document(tally_here, "mean")
    assert "reproducible" in document(tally_here, "mean", "--seed", "7")["notes"][0]


def test_one_seed_gives_one_answer_in_both_runtimes(tally_here: Tally) -> None:
    words = [
        "mean",
        "--data",
        "breast-cancer",
        "--parties",
        "6",
        "--servers",
        "3",
        "--epsilon",
        "1",
        "--seed",
        "7",
    ]
    here, there = (document(tally_here, *words, "--runtime", r) for r in ("inprocess", "processes"))
    assert here["estimate"] == there["estimate"]
    assert here["communication"] == there["communication"]
    assert there["timing"]["server_cpu_seconds"] > 0
    assert here["estimate"] != here["truth"]


def test_a_histogram_without_noise_is_numpys(tally_here: Tally) -> None:
    found = document(tally_here, "histogram", "--bins", "12", "--epsilon", "inf")
    from tallyroom.parties.data import load

    values = load("synthetic:scores?n=2000").columns["score"]
    counts, edges = np.histogram(values, bins=12, range=(0.0, 1.0))
    assert found["estimate"]["y"] == counts.tolist()
    assert found["estimate"]["x"] == pytest.approx(edges[:-1].tolist())
    assert found["truth"] == found["estimate"]
    assert found["error"] == {"rmse": 0.0, "max": 0.0}
    assert found["privacy"]["epsilon"] == "inf"


def test_no_noise_is_said_loudly(tally_here: Tally) -> None:
    done = tally_here("run", "mean", "--epsilon", "inf", "--json")
    assert "NOT PRIVATE" in done.stderr
    assert "NOT PRIVATE" in " ".join(json.loads(done.stdout)["notes"])
    plain = tally_here("run", "mean", "--epsilon", "inf")
    assert "NOT PRIVATE" in plain.stdout
    assert "NOT PRIVATE" in plain.stderr


def test_values_outside_the_bounds_are_clipped_and_counted(
    tally_here: Tally, tmp_path: Path
) -> None:
    (tmp_path / "work" / "ages.csv").write_text("age\n-5\n0\n10\n20\n30\n100\n")
    words = [
        "--data",
        "csv:ages.csv?value=age",
        "--lower",
        "0",
        "--upper",
        "30",
        "--parties",
        "3",
        "--epsilon",
        "inf",
    ]
    done = tally_here("run", "sum", *words, "--json")
    found = json.loads(done.stdout)
    assert found["estimate"] == pytest.approx(0 + 0 + 10 + 20 + 30 + 30, abs=1e-6)
    assert "2 of 6 values lay outside [0, 30] and were clipped" in found["notes"]
    assert "2 of 6 values lay outside" in done.stderr


@pytest.mark.parametrize("epsilon", ["1e-3", "10000", "1e9"])
@pytest.mark.parametrize("noise", ["curator", "each-server", "parties"])
def test_every_epsilon_in_range_has_an_answer(tally_here: Tally, epsilon: str, noise: str) -> None:
    found = document(
        tally_here, "histogram", "--epsilon", epsilon, "--noise", noise, "--parties", "4"
    )
    exact = found["estimate"]["y"] == found["truth"]["y"]
    assert exact is (epsilon != "1e-3")
    assert found["privacy"]["delta"] == 0


def test_out_has_everything_and_the_table_adds_up(tally_here: Tally, tmp_path: Path) -> None:
    found = document(tally_here, "histogram", "--parties", "4", "--out", "a/b")
    folder = tmp_path / "work" / "a" / "b"
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "result.json",
        "progress.json",
        "communication.csv",
        "estimate.csv",
        "estimate.tex",
        "estimate.png",
        "communication.png",
        "report.html",
    }
    assert json.loads((folder / "result.json").read_text()) == found
    with (folder / "communication.csv").open() as file:
        rows = list(csv.DictReader(file))
    bill = found["communication"]
    assert sum(int(row["bytes"]) for row in rows) == bill["total_bytes"]
    assert sum(int(row["messages"]) for row in rows) == bill["messages"]
    assert max(int(row["round"]) for row in rows) == bill["rounds"]
    for phase, part in bill["phases"].items():
        assert sum(int(row["bytes"]) for row in rows if row["phase"] == phase) == part["bytes"]
    of_party = [r for r in rows if "party-2" in (r["sender"], r["receiver"])]
    assert sum(int(row["bytes"]) for row in of_party) == bill["party_bytes"]["max"]
    for name in ("estimate.png", "communication.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    for outside in ("http:", "https:", "<script", "<link", 'src="/', "url("):
        assert outside not in page
    assert "ε" in page or "epsilon" in page


def test_a_person_sees_result_error_privacy_and_bill(tally_here: Tally) -> None:
    done = tally_here("run", "mean", "--parties", "3")
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("mean", "truth", "error", "privacy", "ε = 1", "bill", "bytes", "party->server"):
        assert word in done.stdout


@pytest.mark.parametrize("what", ["aggregators", "statistics", "runtimes", "networks"])
def test_lists(tally_here: Tally, what: str) -> None:
    done = tally_here("list", what, "--json")
    found = json.loads(done.stdout)
    assert found.keys() == {"schema", what}
    expected = {"aggregators": "additive", "statistics": "mean", "runtimes": "processes"}
    assert expected.get(what, "none") in found[what]
    first = 1 if what in ("aggregators", "statistics") else 0  # below a head
    assert tally_here("list", what).stdout.splitlines()[first].split()[0] in found[what]


def test_statistics_are_listed_by_what_people_look_for(tally_here: Tally) -> None:
    """Each once, below a topic; studies too."""
    lines = tally_here("list", "statistics").stdout.splitlines()
    heads = [line for line in lines if line in TOPICS]
    assert heads == [topic for topic in TOPICS if topic in heads]
    named = [line.split()[0] for line in lines if line.startswith("  ")]
    assert sorted(named) == sorted({*offered(), *studies()})
    survival = lines[lines.index(SURVIVAL) + 1 :]
    assert {line.split()[0] for line in survival[:2]} == {"kaplan-meier", "nelson-aalen"}
    assert OTHERS not in heads


def test_list_without_a_word_lists_the_lists(tally_here: Tally) -> None:
    """Each of them, by a name that can be listed in turn."""
    done = tally_here("list")
    assert done.returncode == 0
    names = [line.split()[0] for line in done.stdout.split("\n\n")[0].splitlines()]
    assert set(names) == set(CATALOGUES) - {"lists"}
    assert json.loads(tally_here("list", "--json").stdout)["lists"].keys() == set(names)


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 parties"), (1, "1 party"), (2000, "2,000 parties")]
)
def test_numbers_agree_with_their_nouns(number: int, words: str) -> None:
    assert counted(number, "party", "parties") == words


def test_one_of_a_kind_is_printed_in_the_singular(tally_here: Tally) -> None:
    done = tally_here("run", "mean", "--parties", "1", "--aggregator", "curator", "--seed", "1")
    assert "1 party, 1 server" in done.stdout
    assert not re.search(r"\b1 (parties|servers|messages|rounds)\b", done.stdout)


def test_a_ledger_is_shown(tally_here: Tally, tmp_path: Path) -> None:
    from fractions import Fraction

    from tallyroom.protocols.privacy.loss import UNBOUNDED, PrivacyLoss
    from tallyroom.protocols.wire.machine import Spend
    from tallyroom.storage.ledger import Ledger

    ledger = Ledger(tmp_path / "work" / "l.sqlite")
    quarter = Spend("d", "r", PrivacyLoss.of(Fraction(1, 4)))
    ledger.record([quarter, Spend("d", "s", UNBOUNDED)])
    ledger.close()
    curves = Ledger(tmp_path / "work" / "curves.sqlite")
    curve = (PrivacyLoss.of(Fraction(1, 10)), PrivacyLoss.concentrated(Fraction(1, 1200)))
    curves.record([Spend("d", str(number), *curve) for number in range(100)])
    curves.close()
    shown = tally_here("ledger", "curves.sqlite", "--delta", "1e-6").stdout
    assert "in rho: ρ 0.08333, hence ε 1.94 at δ 1e-06, whoever chose the questions" in shown
    found = json.loads(tally_here("ledger", "curves.sqlite", "--json", "--delta", "1e-6").stdout)
    assert 1.93 < found["adaptive"]["epsilon"] < 1.95
    assert found["spends"][0]["in_rho"] == float(Fraction(1, 1200))
    found = json.loads(tally_here("ledger", "l.sqlite", "--json").stdout)
    assert (found["spent"], found["spent_with_noise"]) == ("inf", 0.25)
    assert found["releases_without_noise"] == 1
    assert found["tight"]["epsilon"] == "inf"
    shown = tally_here("ledger", "l.sqlite").stdout
    assert "spent: ε ∞ (1 release without noise); the others ε 0.25" in shown
    assert [row["epsilon"] for row in found["spends"]] == ["1/4", "inf"]
