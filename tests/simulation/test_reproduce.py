"""`tally reproduce`: small runs through the real command, and verdicts that can fail."""

import csv
import html
import json
import math
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import matplotlib.image
import pytest

from protocols.errors import LocalError
from simulation.reproduce import (
    ecdf_error,
    s0_communication,
    s0_inverse,
    s0_runtime,
    s0_smoothing,
)
from simulation.reproduce.confidence import Mean
from simulation.reproduce.contract import Outcome
from simulation.reproduce.registry import FIGURES

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
            for name in ("p1", "p2", "p5", "response", "response_36", "all", "total")
            for end in ("", "_lower", "_upper")
        ),
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
    "s2-fig2": ["curve", "way", "epsilon", "auc_error", "symmetric_difference"],
    "s2-fig3": ["curve", "way", "epsilon", "auc_error", "symmetric_difference"],
    "s2-fig4": [
        "n_epsilon",
        "paper",
        *(name + end for name in ("priroc", "priroc_fix") for end in ("", "_p", "_error")),
    ],
    "s2-fig7": [
        "n_epsilon",
        "paper",
        *(f"similarity_{kind}" for kind in ("I", "H", "H_deviation", "N")),
        *(f"I_{kind}" for kind in ("H", "H_deviation", "N")),
    ],
    "s2-table1": ["n", "way", "violation", "reading", "paper", "at_1", "at_8"],
    "s3-fig2": ["records", "digits", "success"],
    "s3-fig3": ["beta", "prevalence", "sensitivity"],
    "s3-fig4": ["metric", "size", "exact", "output"],
    "s3-fig6": ["panel", "x", "true", "low", "median", "high"],
    "s3-fig5": ["metric", "positives", "delta", "epsilon", "dp_error", "estimation_error"],
}


WORDS = ("way", "curve", "metric", "panel", "violation", "reading", "beta")
"""Columns that are no numbers, or infinite ones."""


def tally(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    program = "from simulation.command.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=cwd,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """`tally reproduce all --small --json`, one object a line."""
    folder = tmp_path_factory.mktemp("all")
    done = tally("reproduce", "all", "--small", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    for document in documents:
        document["files"] = [folder / path for path in document["files"]]
    return {document["figure"]: document for document in documents}


class TestCommand:
    def test_runs_every_figure(self, everything: dict[str, dict[str, object]]) -> None:
        assert list(everything) == list(FIGURES) == list(COLUMNS)

    @pytest.mark.parametrize("name", COLUMNS)
    def test_document(self, everything: dict[str, dict[str, object]], name: str) -> None:
        document = everything[name]
        assert list(document) == ["schema", "figure", "claim", "verdict", "figures", "files"]
        assert document["schema"] == 1
        assert document["claim"] == FIGURES[name].claim
        figures = document["figures"]
        assert isinstance(figures, dict)
        assert figures["scale"] == "small"
        met = figures["criteria"].values()
        assert document["verdict"] == ("holds" if all(met) else "inconclusive")

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
            figures = document["figures"]
            assert isinstance(figures, dict)
            for criterion, met in figures["criteria"].items():
                row = f"<th>{'met' if met else 'not met'}</th><td>{html.escape(criterion)}</td>"
                assert row in text

    @pytest.mark.parametrize("name", ["s0-fig2", "s0-fig3", "s0-fig4"])
    def test_the_papers_own_criterion_decides_and_ours_stands_beside_it(
        self, everything: dict[str, dict[str, object]], name: str
    ) -> None:
        figures = everything[name]["figures"]
        assert isinstance(figures, dict)
        assert figures["our_criteria"]
        assert figures["our_verdict"] in ("holds", "inconclusive")
        assert figures["why_ours"]
        assert figures["measured"]

    def test_exact_communication_claims_hold_at_any_size(
        self, everything: dict[str, dict[str, object]]
    ) -> None:
        assert everything["s0-communication"]["verdict"] == "holds"

    def test_people_read_criteria_and_one_folder_holds_several(self, tmp_path: Path) -> None:
        done = tally("reproduce", "s0-fig3", "s0-fig4", "--small", "--out", "plots", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert FIGURES["s0-fig3"].claim in done.stdout
        assert "too few runs" in done.stdout
        assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == [
            *("s0-fig3.csv", "s0-fig3.png", "s0-fig4.csv", "s0-fig4.png")
        ]

    def test_unknown_figure_names_the_nearest_and_writes_nothing(self, tmp_path: Path) -> None:
        done = tally("reproduce", "s0-fig2", "s0-fig44", "--small", "--json", cwd=tmp_path)
        assert done.returncode == 2
        assert done.stdout == ""
        assert "s0-fig4" in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert not list(tmp_path.iterdir())

    def test_refuses_a_folder_that_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "plots").write_text("mine")
        done = tally("reproduce", "s0-fig3", "--small", "--out", "plots", cwd=tmp_path)
        assert done.returncode == 2
        assert (tmp_path / "plots").read_text() == "mine"

    def test_lists_figures(self, tmp_path: Path) -> None:
        done = tally("list", "figures", "--json", cwd=tmp_path)
        assert json.loads(done.stdout)["figures"] == {
            name: figure.claim for name, figure in FIGURES.items()
        }


def flipped(before: dict[str, bool], after: dict[str, bool]) -> list[int]:
    """Places of the criteria that were met and are not any more."""
    assert list(before) == list(after)
    assert all(before.values())
    return [place for place, name in enumerate(before) if not after[name]]


def near(value: float) -> tuple[float, ...]:
    """Runs with little spread around a mean."""
    return tuple(value + 0.001 * k for k in (-2, -1, 0, 1, 2))


def test_no_criteria_prove_nothing() -> None:
    assert Outcome({}, {}, []).verdict == "fails"
    assert Outcome({"a": True, "b": False}, {}, []).verdict == "fails"
    assert Outcome({"a": True}, {}, []).verdict == "holds"


def test_a_missing_package_is_told_before_anything_runs() -> None:
    figure = replace(FIGURES["s0-fig7"], package="no_such_solver")
    with pytest.raises(LocalError, match="s0-fig7 needs the package no_such_solver"):
        figure.check()


class TestSmoothing:
    # ε, the 1-norm's ratio, the 2-norm's: the shape of the paper's Fig. 2.
    PICTURE = ((0.01, 5.0, 1.4), (0.1, 3.0, 1.1), (0.2, 2.0, 0.9), (1.0, 0.9, 0.6), (10, 0.8, 0.8))

    def ratios(self, changes: dict[float, tuple[float, float]]) -> list[s0_smoothing.Ratios]:
        points = {epsilon: (one, two) for epsilon, one, two in self.PICTURE} | changes
        return [
            s0_smoothing.Ratios(epsilon, 3.0, False, near(one), near(two))
            for epsilon, (one, two) in points.items()
        ]

    @pytest.mark.parametrize(
        ("changes", "places"),
        [
            ({0.2: (2.0, 1.01)}, [0]),
            ({0.1: (1.0, 1.1)}, [1]),
            ({0.01: (1.5, 1.4)}, [2]),
            ({10: (0.5, 0.5)}, [3]),
        ],
    )
    def test_fig2_verdict_flips(
        self, changes: dict[float, tuple[float, float]], places: list[int]
    ) -> None:
        before = s0_smoothing.judge_epsilon(self.ratios({}))
        assert flipped(before, s0_smoothing.judge_epsilon(self.ratios(changes))) == places

    def test_wide_intervals_prove_nothing(self) -> None:
        [*_, last] = self.ratios({})
        noisy = replace(last, two=(0.1, 1.5))
        assert not s0_smoothing.judge_epsilon([*self.ratios({})[:-1], noisy])[
            "2-norm ratio surely below 1 at every ε ≥ 0.2"
        ]

    def test_fig2_crossing(self) -> None:
        found = s0_smoothing.crossing(self.ratios({}), 2)
        assert found is not None
        assert math.isclose(found, math.sqrt(0.1 * 0.2), rel_tol=1e-6)
        assert s0_smoothing.crossing(self.ratios({})[3:], 2) is None

    @pytest.mark.parametrize(
        ("rate", "two", "places"),
        [(3.0, 1.0, [0, 2]), (1000.0, 0.9, [1, 3]), (1000.0, 1.06, [1, 3])],
    )
    def test_fig3_verdict_flips(self, rate: float, two: float, places: list[int]) -> None:
        picture = {0.1: 1.3, 3.0: 0.6, 30.0: 0.8, 1000.0: 1.0}

        def judged(points: dict[float, float]) -> dict[str, bool]:
            return s0_smoothing.judge_rate(
                [
                    s0_smoothing.Ratios(1.0, rate, False, near(two), near(two))
                    for rate, two in points.items()
                ]
            )

        assert flipped(judged(picture), judged(picture | {rate: two})) == places

    def test_same_numbers_again(self) -> None:
        first, second = (s0_smoothing.measure(64, 3, 3.0, Fraction(1)) for _ in range(2))
        assert first == second


class TestInverse:
    def errors(self, epsilon: float, *values: float) -> s0_inverse.Errors:
        means = (Mean(value, 0.0) for value in values)
        return s0_inverse.Errors(epsilon, dict(zip(s0_inverse.ERRORS, means, strict=True)))

    @pytest.mark.parametrize(
        ("doctored", "places"),
        [
            ((1.0, 1e-2, 1e-3, 1e-3, 9e-4), [0]),
            ((1.0, 1e-2, 2e-2, 2e-2, 1.9e-3), [0, 1]),
            ((0.01, 9.0, 1e-1, 1e-1, 9e-2), []),  # outside the judged ε
            ((0.01, 9.0, 1e-0, 1e-1, 9e-2), [1]),
        ],
    )
    def test_verdict_flips(self, doctored: tuple[float, ...], places: list[int]) -> None:
        good = [self.errors(0.1, 3e-2, 1e-2, 1e-2, 5e-3), self.errors(10, 2e-6, 3e-6, 2e-6, 2e-6)]
        after = s0_inverse.judge([*good, self.errors(*doctored)])
        assert flipped(s0_inverse.judge(good), after) == places


class TestRuntime:
    def times(self, points: int, lp: float, qp: float) -> s0_runtime.Times:
        both = {"cvxopt_lp": near(lp), "cvxopt_qp": near(qp)}
        return s0_runtime.Times(points, both | {"ours_1": near(lp), "ours_2": near(qp)})

    def test_verdict_flips(self) -> None:
        good = [self.times(16, 2.0, 1.0), self.times(64, 9.0, 3.0)]
        assert flipped(s0_runtime.judge(good), s0_runtime.judge(good)) == []
        after = s0_runtime.judge([*good, self.times(256, 9.0, 9.5)])
        assert flipped(s0_runtime.judge(good), after) == [0]

    def test_exponent(self) -> None:
        line = [
            s0_runtime.Times(n, {"ours_1": (1e-6 * n**1.5,) * 3}) for n in (2, 4, 8, 16, 32, 64)
        ]
        assert math.isclose(s0_runtime.exponent(line, "ours_1"), 1.5)


class TestCommunication:
    def test_verdict_flips_by_a_byte(self) -> None:
        metered = [
            s0_communication.meter(way, n, thresholds)
            for way in ("pointwise", "keys")
            for n in (8, 16)
            for thresholds in (4, 16, 64)
        ]
        crossings: dict[int, int | None] = {8: 194, 16: 194}
        before = s0_communication.judge(metered, crossings)
        first, pointwise, keys = metered[0], metered[1], metered[8]
        doctored = [
            (0, replace(first, query=2 * first.query), [3]),
            (1, replace(pointwise, uploads=pointwise.uploads + 1), [0]),
            (8, replace(keys, uploads=keys.uploads + 1), [1]),
            (8, replace(keys, shares=keys.shares + 1), [2]),
        ]
        for place, changed, places in doctored:
            tried = [*metered[:place], changed, *metered[place + 1 :]]
            assert flipped(before, s0_communication.judge(tried, crossings)) == places
        after = s0_communication.judge(metered, crossings | {16: None})
        assert flipped(before, after) == [4]

    def test_pointwise_at_the_price_of_keys_is_not_linear(self) -> None:
        keys = [s0_communication.meter("keys", 8, thresholds) for thresholds in (4, 16)]
        flat = [replace(each, way="pointwise") for each in keys]
        judged = s0_communication.judge([*flat, *keys], {8: 194})
        assert [place for place, met in enumerate(judged.values()) if not met] == [0]

    def test_repeating_pays_for_every_question(self) -> None:
        once, thrice = (s0_communication.meter_repeated(8, count) for count in (1, 3))
        assert thrice.total == 3 * once.total

    def test_crossing(self) -> None:
        def keys(_: int) -> int:
            return 500

        assert s0_communication.crossing(lambda count: 100 + 8 * count, keys) == 51
        assert s0_communication.crossing(lambda count: 600, keys) == 1
        assert s0_communication.crossing(lambda count: 400, keys) is None


class TestEcdfError:
    def errors(self, tree: float, hierarchy: float, smoothed: float) -> list[ecdf_error.Errors]:
        squares = {
            "tree": tuple(tree * x for x in near(1.0)),
            "hierarchy": tuple(hierarchy * x for x in near(1.0)),
            "hierarchy_smoothed": tuple(smoothed * x for x in near(1.0)),
        }
        theory = {"tree": 8.0, "hierarchy": 1.0}
        return [ecdf_error.Errors(epsilon, squares, theory) for epsilon in (0.1, 1.0)]

    @pytest.mark.parametrize(
        ("measured", "places"),
        [
            ((6.9, 1.0, 0.9), [0, 1]),
            ((8.1, 1.0, 0.9), [1]),
            ((8.0, 0.9, 0.8), [2]),
            ((8.0, 1.0, 1.1), [3]),
        ],
    )
    def test_verdict_flips(self, measured: tuple[float, float, float], places: list[int]) -> None:
        before = ecdf_error.judge(self.errors(8.0, 1.0, 0.9))
        assert flipped(before, ecdf_error.judge(self.errors(*measured))) == places

    def test_theory_is_met_and_halved_noise_is_caught(self) -> None:
        """200 runs of N = 256, whose squared errors have a relative deviation below 0.6.

        Their mean has one of 0.042, so that 0.35 is 8 of them: more than the slightly heavy tail of
        squared Laplace sums needs for a right program to fail less than once in a million. Noise
        of half the scale, a quarter of the error, is 0.75 away.
        """
        errors = ecdf_error.measure(256, 200, Fraction(1))
        for name in ("tree", "hierarchy"):
            ratio = errors.mean(name).value / errors.theory[name]
            assert abs(ratio - 1) < 0.35
            assert abs(ratio / 4 - 1) > 0.35


class TestMean:
    def test_interval(self) -> None:
        """Student's t at 95 % with 4 degrees of freedom is 2.776."""
        mean = Mean.of([1.0, 2.0, 3.0, 4.0, 5.0], 0.95)
        assert mean.value == 3.0
        assert math.isclose(mean.half_width, 2.776445 * math.sqrt(2.5 / 5), rel_tol=1e-6)
        assert mean.covers(3.0)
        assert not mean.surely_below(3.1)
        assert mean.surely_below(5.0)
        assert mean.surely_above(1.0)

    def test_one_run_bounds_nothing(self) -> None:
        with pytest.raises(ValueError, match="two runs"):
            Mean.of([1.0])
