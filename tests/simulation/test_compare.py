"""`tally compare`, which is also `tally run compare-aggregators`: one question, all aggregators."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tallyroom.protocols.aggregation import aggregator_named, aggregator_names
from tallyroom.simulation.comparison import TIME_HEADS
from tallyroom.simulation.reports.comparison_page import LOGARITHMIC_FROM, comparison_figure
from tallyroom.simulation.times import PARTS
from tests.conftest import Done, Tally

PARTIES = ("--parties", 12, "--seed", 4)


def compared(done: Done) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_installed_aggregator_answers_or_says_why_not(tally_here: Tally) -> None:
    words = ("run", "compare-aggregators", "--epsilon", 1, "--delta", 1e-6, *PARTIES, "--json")
    histograms = compared(tally_here(*words))
    assert histograms["statistic"] == "histogram"
    assert {"additive", "curator", "fss"} <= {
        row["aggregator"] for row in histograms["aggregators"]
    }
    found = compared(tally_here(*words, "--statistic", "mean"))
    answered = [row["aggregator"] for row in found["aggregators"]]
    unable = {row["aggregator"]: row["reason"] for row in found["unable"]}
    assert sorted([*answered, *unable]) == aggregator_names()
    assert {"additive", "curator"} <= set(answered)
    assert unable["fss"] == "fss compares values with thresholds: it cannot do mean"


def test_rows_are_those_of_single_runs(tally_here: Tally) -> None:
    options = ("--bins", 5, "--epsilon", 1, *PARTIES, "--json")
    both = ("--aggregator", "curator", "--aggregator", "additive")
    found = compared(tally_here("compare", "histogram", *both, *options))
    assert [row["aggregator"] for row in found["aggregators"]] == ["curator", "additive"]
    assert found["unable"] == []
    for row in found["aggregators"]:
        alone = compared(
            tally_here("run", "histogram", "--aggregator", row["aggregator"], *options)
        )
        assert row["rmse"] == alone["error"]["rmse"]
        assert row["max_error"] == alone["error"]["max"]
        assert row["servers"] == alone["federation"]["servers"]
        assert row["party_bytes"] == alone["communication"]["party_bytes"]["mean"]
        assert row["total_bytes"] == alone["communication"]["total_bytes"]
        assert row["rounds"] == alone["communication"]["rounds"]
        assert row["server_cpu_seconds"] > 0
        parts = sum(row[f"{name}_seconds"] for name in ("waiting", "network", "computing"))
        assert row["wall_seconds"] == pytest.approx(parts)
        kind = aggregator_named(row["aggregator"])
        assert row["behaviour"] == kind.threat_model(row["servers"]).behaviour
    deviations = [row["expected_rmse"] for row in found["aggregators"]]
    assert deviations[1] == pytest.approx(deviations[0] * 2**0.5)  # two servers add noise


def test_the_run_command_takes_the_statistic_as_an_option(tally_here: Tally) -> None:
    both = ("--aggregator", "fss", "--aggregator", "additive")
    words = ("run", "compare-aggregators", "--statistic", "ecdf", *both, "--thresholds", 4)
    found = compared(tally_here(*words, *PARTIES, "--json"))
    assert found["statistic"] == "ecdf"
    same = compared(tally_here("compare", "ecdf", *both, "--thresholds", 4, *PARTIES, "--json"))
    for document in (found, same):
        for row in document["aggregators"]:
            for time in ("server_cpu_seconds", *PARTS):
                del row[time]
    assert found == same


def test_a_table_for_people(tally_here: Tally) -> None:
    done = tally_here("compare", "mean", "--cheat", "3:malformed", *PARTIES, "--epsilon", "inf")
    lines = done.stdout.splitlines()
    assert lines[0].split("  ")[0] == "aggregator"
    for head in ("rmse", "expected", "bytes", "CPU", "rounds", "collude", "caught"):
        assert head in lines[0]
    at = lines[0].index("caught")
    blank = lines.index("")
    table = lines[:blank]
    times = lines[blank + 3 : lines.index("", blank + 3)]
    assert times[0].split() == list(TIME_HEADS)
    assert len(times) == len(table)
    for line in table[1:]:
        assert line[at:].startswith("party-3")
    assert max(map(len, table)) <= 80
    assert "additive: semi-honest" in done.stdout
    assert "fss could not answer: " in done.stdout
    shared = "tally: NOT PRIVATE: epsilon is inf, so no noise was added"
    assert done.stderr.splitlines().count(shared) == 1
    assert "party-3 was caught: " in done.stderr


def test_out_has_json_table_plot_and_page(tally_here: Tally, tmp_path: Path) -> None:
    words = ("compare", "mean", "--epsilon", 1, "--delta", 1e-6, *PARTIES)
    found = compared(tally_here(*words, "--out", "a/b", "--json"))
    folder = tmp_path / "work" / "a" / "b"
    names = {path.name for path in folder.iterdir()}
    files = {f"comparison.{kind}" for kind in ("json", "csv", "tex", "png", "html")}
    assert names == files | {"progress.json"}
    assert json.loads((folder / "comparison.json").read_text()) == found
    with (folder / "comparison.csv").open() as file:
        rows = {row["aggregator"]: row for row in csv.DictReader(file)}
    assert rows.keys() == set(aggregator_names())
    for row in found["aggregators"]:
        written = rows[row["aggregator"]]
        for key in ("rmse", "party_bytes", "server_cpu_seconds", "rounds", *PARTS):
            assert float(written[key]) == row[key]
    assert rows["fss"]["reason"].startswith("fss compares")
    assert (folder / "comparison.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    paper = (folder / "comparison.tex").read_text()
    assert paper.count(r"\begin{tabular}") == 2
    assert all(paper.count(f"\n{name} & ") == 2 for name in ("curator", "additive"))
    page = (folder / "comparison.html").read_text()
    assert page.count("data:image/png;base64,") == 1
    assert "Could not answer" in page
    for outside in ("http:", "https:", "<script", "<link", 'src="/', "url("):
        assert outside not in page


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("compare", "histogram", "--aggregator", "aditive"), "did you mean additive"),
        (("compare", "histogrm"), "did you mean histogram"),
        (("compare", "histogram", "--epsilon", "0"), "epsilon must be a positive number"),
        (("compare", "histogram", "--delta", "2"), "delta is a probability"),
        (("compare", "mean", "--statistic", "sum"), "--statistic goes with"),
        (("run", "mean", "--statistic", "sum"), "--statistic goes with"),
        (("run", "mean", "--aggregator", "fss", "--aggregator", "curator"), "one --aggregator"),
        (("compare", "mean", "--aggregator", "fss"), "it cannot do mean"),
        (
            (
                "compare",
                "histogram",
                "--servers",
                "1",
                "--aggregator",
                "fss",
                "--aggregator",
                "additive",
            ),
            "no aggregator can answer: fss: fss needs at least 2 servers, not 1; additive: ",
        ),
        (
            ("compare", "mean", "--coordinator", "x:1", "--identity", "x"),
            "aggregators are compared in simulations",
        ),
        (("compare", "compare-aggregators"), "no statistic 'compare-aggregators'"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_bad_comparisons(
    tally_here: Tally, tmp_path: Path, words: tuple[str, ...], reason: str
) -> None:
    done = tally_here(*words, "--out", "out", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert reason in done.stderr
    assert list((tmp_path / "work").iterdir()) == []


def test_scales_are_logarithmic_only_where_bars_would_vanish() -> None:
    from tallyroom.protocols.statistics.ecdf import Ecdf
    from tallyroom.simulation import Federation, Result
    from tallyroom.simulation.comparison import compare

    def answer(spec: str, time: int) -> Result:
        with Federation(parties=10, aggregator=spec, seed=1 + time) as federation:
            return federation.run(Ecdf(value="score", thresholds=4), 1)

    comparison = compare("ecdf", ["additive", "fss"], answer)
    ratio = comparison.rows[1].party_bytes / comparison.rows[0].party_bytes
    assert ratio > LOGARITHMIC_FROM
    error, size, _ = comparison_figure(comparison).axes
    assert (error.get_xscale(), size.get_xscale()) == ("linear", "log")
    assert [label.get_text() for label in error.get_yticklabels()] == ["additive", "fss"]


def test_processes_measure_their_servers(tally_here: Tally) -> None:
    both = ("--aggregator", "curator", "--aggregator", "additive")
    words = ("compare", "mean", *both, *PARTIES, "--hosts", 2, "--runtime", "processes", "--json")
    found = compared(tally_here(*words))
    assert found["federation"]["runtime"] == "processes"
    assert all(row["server_cpu_seconds"] > 0 for row in found["aggregators"])
