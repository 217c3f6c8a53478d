"""`tally reproduce`: small runs of every figure through the real command."""

import csv
import html
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import pytest

from tallyroom.protocols.errors import LocalError
from tallyroom.simulation.reproduce.registry import BUNDLED as FIGURES
from tests.conftest import Tally
from tests.once import once

CALIBRATION = [
    *("data", "way", "epsilon", "relative_mse", "lower", "upper"),
    *("deviation_of_squares", "deviation_of_statistic"),
    "relative_mse_without_that_noise",
]
PRIROC = [
    *("curve", "mechanism", "way", "epsilon", "auc_error", "symmetric_difference"),
    *("medians", "midpoints"),
]
OURS = (
    *("s0-fig2", "s0-fig3", "s0-fig4", "s0-direct"),
    *("s1-fig4", "s1-protocols"),
    *("s2-fig1", "s2-fig2", "s2-fig3", "s2-fig4", "s2-fig6"),
    *("s2-fig7", "s2-fig8", "s2-fig9", "s2-table1"),
    "s3-fig5",
)
"""Figures that judge something else beside the paper's own mechanism."""
COLUMNS = {
    "s0-fig2": ["epsilon", "lambda", "p", "box", "ratio", "lower", "upper", "runs"],
    "s0-fig3": ["epsilon", "lambda", "p", "box", "ratio", "lower", "upper", "runs"],
    "s0-fig4": [
        "epsilon",
        *(
            name + end
            for name in ("forward", "inverse", "inverse_smoothed", "inverse_smoothed_box")
            for end in ("", "_lower", "_upper")
        ),
    ],
    "s0-fig7": [
        "thresholds",
        "runs",
        *(
            name + end
            for name in ("cvxopt_lp", "cvxopt_qp", "ours_1", "ours_2")
            for end in ("_seconds", "_least", "_most")
        ),
    ],
    "s0-communication": [
        *("way", "parties", "servers", "thresholds", "query", "uploads", "shares", "total")
    ],
    "ecdf-error": [
        "epsilon",
        *(
            name + end
            for name in ("tree", "hierarchy", "hierarchy_smoothed")
            for end in ("", "_lower", "_upper")
        ),
        "tree_theory",
        "hierarchy_theory",
    ],
    "s1-fig3": ["epsilon", "d", "error", "error_lower", "error_upper", "rmse", "theorem_3"],
    "s1-fig4": [
        "epsilon",
        *(
            name + end
            for name in (
                *("p1", "p2", "p5", "response", "response_25"),
                *("all", "all_tight", "total"),
            )
            for end in ("", "_lower", "_upper")
        ),
    ],
    "s1-protocols": ["protocol", "epsilon", "d", "error", "error_lower", "error_upper"],
    "s0-table1": [
        *("data", "instances_printed", "instances", "positive_printed", "positive"),
        *("features_printed", "features"),
    ],
    "s0-fig1": ["curve", "false_positive_rate", "true_positive_rate"],
    "s0-fig5": [
        "epsilon",
        *(
            name + end
            for name in ("tree_1", "tree_2", "hierarchy")
            for end in ("", "_lower", "_upper")
        ),
    ],
    "s0-fig8": ["curve", "false_positive_rate", "true_positive_rate"],
    "s0-fig9": ["curve", "false_positive_rate", "true_positive_rate"],
    "s0-fig6": CALIBRATION,
    "s0-fig10": CALIBRATION,
    "s0-direct": ["protocol", "epsilon", "relative_mse", "median_square"],
    "s2-fig1": [
        "data",
        "epsilon",
        "mechanism",
        "curve",
        "false_positive_rate",
        "true_positive_rate",
    ],
    "s2-fig2": PRIROC,
    "s2-fig3": PRIROC,
    "s2-fig4": [
        "n_epsilon",
        "paper",
        *(
            mechanism + name + end
            for mechanism in ("", "our_")
            for name in ("priroc", "priroc_fix")
            for end in ("", "_p", "_error")
        ),
    ],
    "s2-fig7": [
        *("n_epsilon", "mechanism", "paper"),
        *(f"similarity_{kind}" for kind in ("I", "H", "N")),
        *("I_H", "I_N"),
    ],
    "s2-table1": ["n", "mechanism", "way", "violation", "reading", "paper", "at_1", "at_4"],
    "s2-fig5": ["data", "fan", "bend", "slope"],
    "s2-fig6": ["data", "mechanism", "epsilon", "run", "fan", "bend", "slope"],
    "s2-fig8": ["run", "raw", "S2_1", "S2_0.1", "ours_1", "ours_0.1"],
    "s2-fig9": ["outcome", "mechanism", "way", "fan", "bend", "slope"],
    "s3-fig1": ["curve", "false_positive_rate", "true_positive_rate"],
    "s3-fig2": ["records", "digits", "success"],
    "s3-fig3": ["beta", "prevalence", "sensitivity"],
    "s3-fig4": ["metric", "size", "exact", "output"],
    "s3-fig6": ["panel", "x", "true", "low", "median", "high"],
    "s3-fig5": [
        *("data", "metric", "noise", "positives", "delta", "epsilon"),
        *("dp_error", "estimation_error"),
    ],
    "s4-fig1": ["data", "model", "fold", "area"],
    "s4-fig2": ["data", "varied", "at", "estimated", "area"],
    "coverage": [
        *("question", "records", "epsilon", "runs", "held", "held_low", "held_high"),
        *("without", "reason"),
    ],
}

WORDS = (
    "way",
    "mechanism",
    "noise",
    "curve",
    "metric",
    "panel",
    "violation",
    "reading",
    "beta",
    "data",
    "model",
    "varied",
    "outcome",
    "protocol",
    *("question", "held", "held_low", "held_high", "reason"),
)
"""Columns that are no numbers, infinite ones, or empty where there is no interval."""


def tally_elsewhere(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    program = "from tallyroom.simulation.command.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=cwd,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """`tally reproduce all --small --json`, one object a line."""

    def make(folder: Path) -> None:
        done = tally_elsewhere("reproduce", "all", "--small", "--json", cwd=folder)
        assert done.returncode == 0, done.stderr
        (folder / "documents.jsonl").write_text(done.stdout)

    folder = once(tmp_path_factory, "reproduced", make)
    lines = (folder / "documents.jsonl").read_text().splitlines()
    documents = [json.loads(line) for line in lines]
    for document in documents:
        name = document["figure"]
        kept = (folder / "reproduce" / name / f"{name}.json").read_text()
        assert json.loads(kept) == document
    for document in documents:
        document["files"] = [folder / path for path in document["files"]]
    return {document["figure"]: document for document in documents}


class TestCommand:
    def test_runs_every_figure(self, everything: dict[str, dict[str, object]]) -> None:
        assert list(everything) == list(FIGURES) == list(COLUMNS)

    @pytest.mark.parametrize("name", COLUMNS)
    def test_document(self, everything: dict[str, dict[str, object]], name: str) -> None:
        document = everything[name]
        ours = ["ours"] if name in OURS else []
        stand_in = ["stand_in"] if FIGURES[name].stand_in else []
        told = ["verdict", *ours, *stand_in, "seconds"]
        assert list(document) == ["schema", "figure", "claim", *told, "figures", "files"]
        assert document.get("stand_in", "") == FIGURES[name].stand_in
        assert document["schema"] == 1
        assert document["claim"] == FIGURES[name].claim
        figures = document["figures"]
        assert isinstance(figures, dict)
        assert figures["scale"] == "small"
        assert figures["criteria"]
        assert document["verdict"] == "inconclusive"

    @pytest.mark.parametrize("name", COLUMNS)
    def test_files(self, everything: dict[str, dict[str, object]], name: str) -> None:
        files = everything[name]["files"]
        assert isinstance(files, list)
        table, picture = files
        assert (table.parent.name, table.name, picture.name) == (name, f"{name}.csv", f"{name}.png")
        with table.open(newline="") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
        assert reader.fieldnames == COLUMNS[name]
        assert len(rows) >= 3
        for row in rows:
            numbers = [float(value) for key, value in row.items() if key not in WORDS]
            assert all(math.isfinite(number) for number in numbers)
        pixels = matplotlib.image.imread(picture)
        assert pixels.shape[0] > 500
        assert pixels.shape[1] > 800
        assert pixels.std() > 0.05

    def test_the_gallery_shows_every_figure_with_its_verdict(
        self, everything: dict[str, dict[str, object]]
    ) -> None:
        files = everything["s0-fig2"]["files"]
        assert isinstance(files, list)
        text = (files[0].parent.parent / "gallery.html").read_text()
        assert text.count("<img ") == len(FIGURES)
        for name, document in everything.items():
            assert f'<h3 id="{name}">{name}: {document["verdict"]}</h3>' in text
            assert html.escape(FIGURES[name].claim) in text
            assert html.escape(FIGURES[name].stand_in) in text
            figures = document["figures"]
            assert isinstance(figures, dict)
            for criterion, met in figures["criteria"].items():
                row = f"<th>{'met' if met else 'not met'}</th><td>{html.escape(criterion)}</td>"
                assert row in text

    @pytest.mark.parametrize("name", OURS)
    def test_the_papers_own_criterion_decides_and_ours_stands_beside_it(
        self, everything: dict[str, dict[str, object]], name: str
    ) -> None:
        figures = everything[name]["figures"]
        assert isinstance(figures, dict)
        assert figures["our_criteria"]
        ours = everything[name]["ours"]
        assert isinstance(ours, dict)
        assert ours["verdict"] == "inconclusive"
        assert ours["claim"]

    def test_exact_communication_claims_are_met_at_any_size(
        self, everything: dict[str, dict[str, object]]
    ) -> None:
        figures = everything["s0-communication"]["figures"]
        assert isinstance(figures, dict)
        assert all(figures["criteria"].values())

    def test_people_read_criteria_and_one_folder_holds_several(self, tally_here: Tally) -> None:
        done = tally_here("reproduce", "s0-fig3", "s0-fig4", "--small", "--out", "plots")
        assert done.returncode == 0, done.stderr
        assert FIGURES["s0-fig3"].claim in done.stdout
        assert "too few runs" in done.stdout
        assert sorted(path.name for path in Path("plots").iterdir()) == [
            *("s0-fig3.csv", "s0-fig3.json", "s0-fig3.png"),
            *("s0-fig4.csv", "s0-fig4.json", "s0-fig4.png"),
        ]

    def test_unknown_figure_names_the_nearest_and_writes_nothing(self, tally_here: Tally) -> None:
        done = tally_here("reproduce", "s0-fig2", "s0-fig44", "--small", "--json")
        assert done.returncode == 2
        assert done.stdout == ""
        assert "s0-fig4" in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert not list(Path().iterdir())

    def test_refuses_a_folder_that_is_a_file(self, tally_here: Tally) -> None:
        Path("plots").write_text("mine")
        done = tally_here("reproduce", "s0-fig3", "--small", "--out", "plots")
        assert done.returncode == 2
        assert Path("plots").read_text() == "mine"

    def test_lists_figures(self, tally_here: Tally) -> None:
        done = tally_here("list", "figures", "--json")
        assert json.loads(done.stdout)["figures"] == {
            name: figure.claim for name, figure in FIGURES.items()
        }


def test_a_missing_package_is_told_before_anything_runs() -> None:
    figure = replace(FIGURES["s0-fig7"], package="no_such_solver")
    with pytest.raises(LocalError, match="s0-fig7 needs the package no_such_solver"):
        figure.check()
