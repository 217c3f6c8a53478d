"""What people see of an answer: intervals, tables, both errors, where it is from."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from tallyroom.protocols.statistics.drawing import SEVERAL
from tallyroom.protocols.statistics.ecdf import Ecdf, Quantile
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.simulation import Federation, Result
from tallyroom.simulation.reports.figures import communication_figure, estimate_figure
from tests.conftest import Tally


def answer(statistic: Any, epsilon: float | str = 1.0, **more: Any) -> Result:
    data = more.pop("data", "synthetic:scores?n=400")
    with Federation(parties=5, data=data, seed=3, **more) as federation:
        return federation.run(statistic, epsilon)


class TestIntervals:
    @pytest.mark.parametrize(
        "statistic",
        [
            "sum",
            "mean",
            "histogram",
            "ecdf",
            "quantile",
            "cumulative-histogram",
            "gini",
            "variance",
            "collision-entropy",
            "auc",
        ],
    )
    def test_every_statistic_has_one(self, statistic: str) -> None:
        result = answer(statistic)
        values = result.shape.values()
        assert result.interval is not None
        assert result.interval.low.shape == result.interval.high.shape == values.shape
        assert (result.interval.low <= values).all()
        assert (values <= result.interval.high).all()
        assert np.isfinite(result.deviations).all()
        json.dumps(result.as_json()["interval"], allow_nan=False)

    @pytest.mark.parametrize(
        ("statistic", "aggregator"),
        [
            ("histogram", "shuffle"),
            ("mean", "shuffle"),
            ("mean", "masking"),
            ("quantile-search", "fss"),
        ],
    )
    def test_so_has_every_aggregator(self, statistic: str, aggregator: str) -> None:
        with Federation(parties=5, aggregator=aggregator, seed=3) as federation:
            result = federation.run(statistic, 1.0, delta=1e-6 if aggregator == "shuffle" else 0.0)
        assert result.interval is not None
        assert (result.interval.low < result.interval.high).all()

    def test_without_noise_there_is_none(self) -> None:
        result = answer("mean", "inf")
        assert result.interval is None
        assert "interval" not in result.as_json()
        assert result.as_json()["intervals"]["noise"] is None  # type: ignore[index]

    def test_a_person_reads_it(self, tally_here: Tally) -> None:
        shown = tally_here("run", "mean", "--parties", 3).stdout
        assert " ± " in shown
        assert "(95 %: " in shown
        assert ", of the noise)" in shown

    def test_a_person_says_which_of_the_two_is_shown(self, tally_here: Tally) -> None:
        asked = (
            "run",
            "linear-regression",
            "--data",
            "synthetic:linear?kind=ideal",
            "--parties",
            3,
        )
        words = {"noise": "of the noise", "population": "of noise and sampling"}
        for covers, said in words.items():
            shown = tally_here(*asked, "--interval", covers).stdout
            assert f"95 % interval {said}" in shown
            found = json.loads(tally_here(*asked, "--interval", covers, "--json").stdout)
            assert found["interval"] == found["intervals"][covers]
            assert found["interval"]["covers"] == covers

    def test_one_that_nobody_can_tell_says_why(self) -> None:
        with Federation(parties=3, seed=3) as federation:
            result = federation.run(Mean(value="score"), 1.0, interval="population")
        assert "no interval: this release does not tell how much" in result.summary()

    def test_another_word_spends_nothing(self, tally_here: Tally) -> None:
        done = tally_here("run", "mean", "--interval", "sampling")
        assert done.returncode == 2
        assert "no interval 'sampling'; did you mean population?" in done.stderr
        assert not done.stdout

    def test_a_frame_says_what_it_covers(self) -> None:
        with Federation(parties=3, seed=3) as federation:
            frame = federation.run(Mean(value="score"), 1.0).to_frame()
        assert frame.attrs["interval"] == "95 % interval of the noise"


def test_two_errors_are_told_apart(tally_here: Tally, tmp_path: Path) -> None:
    """Raw values of 1 … 9 clipped to [0, 5]: the raw mean is 5, the clipped one is 35/9."""
    values = np.arange(1.0, 10.0)
    result = answer(Mean(lower=0, upper=5), 1e6, data={"value": values})
    assert result.method_error is not None
    assert result.noise_error is not None
    assert result.error is not None
    assert result.method_error["rmse"] == pytest.approx(5 - np.clip(values, 0, 5).mean())
    assert result.noise_error["rmse"] < 1e-3
    assert result.error["rmse"] == pytest.approx(result.method_error["rmse"], abs=1e-3)
    assert result.as_json()["method_error"] == result.method_error
    shown = tally_here("run", "mean", "--parties", 3).stdout
    assert "by the noise: rmse" in shown
    assert "by clipping and the grid: rmse" in shown


class TestTables:
    def test_the_bill_of_many_parties_has_one_row_for_them(self, tmp_path: Path) -> None:
        """Two thousand rows a phase are in nobody's way if nobody asked for them."""
        for parties in (20, 2000):
            with Federation(parties, data="synthetic:scores?n=2000", seed=1) as federation:
                result = federation.run(Mean(value="score"), 1.0)
            result.write(tmp_path)
            path = tmp_path / "communication.csv"
            assert path.stat().st_size < 20_000
            with path.open() as file:
                rows = list(csv.DictReader(file))
            assert sum(int(row["bytes"]) for row in rows) == result.bill.total.bytes
            assert sum(int(row["messages"]) for row in rows) == result.bill.total.messages
            named = {row["sender"] for row in rows}
            assert ("2000 parties" in named) == (parties == 2000) != ("party-7" in named)

    def test_a_curve_by_its_column(self, tmp_path: Path) -> None:
        result = answer(Ecdf(value="score", thresholds=20))
        result.write(str(tmp_path))
        with (tmp_path / "estimate.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert list(rows[0]) == ["score", "estimate", "±", "low", "high", "truth", "source"]
        assert "400 records" in rows[0]["source"]
        assert "ε = 1" in rows[0]["source"]
        assert {row["source"] for row in rows[1:]} == {""}
        assert len(rows) == 20
        assert [float(row["estimate"]) for row in rows] == result.shape.values().tolist()
        assert "score" in (tmp_path / "report.html").read_text()

    def test_bins_have_both_edges(self) -> None:
        heads, rows = answer(Histogram(value="score", bins=4)).table()
        assert heads == ["from", "to", "estimate", "±", "low", "high", "truth"]
        assert [row[:2] for row in rows] == [[0, 0.25], [0.25, 0.5], [0.5, 0.75], [0.75, 1.0]]

    def test_quantiles_have_their_names(self) -> None:
        heads, rows = answer(Quantile(value="score", quantile=(0.5, 0.9))).table()
        assert heads[:2] == ["quantile", "estimate"]
        assert [row[0] for row in rows] == [0.5, 0.9]

    def test_a_terminal_shows_some_of_many_rows(self, tally_here: Tally) -> None:
        shown = tally_here("run", "ecdf", "--parties", 3, "--thresholds", 40).stdout
        assert "12 of 40 rows; --out writes all" in shown
        assert shown.splitlines()[-2].split()[0] == "1"

    def test_counts_are_not_negative_on_request(self) -> None:
        loud = Histogram(value="score", bins=200)
        quiet = Histogram(value="score", bins=200, nonnegative=True)
        assert answer(loud, 0.1).shape.values().min() < 0
        assert answer(quiet, 0.1).shape.values().min() == 0


def test_where_it_is_from_is_in_every_output(tally_here: Tally, tmp_path: Path) -> None:
    words = ("mean", "--data", "synthetic:scores?n=100", "--parties", "3", "--out", "o")
    done = tally_here("run", *words, "--json")
    found = json.loads(done.stdout)
    spec = "'synthetic:scores?n=100'"
    assert found["command"] == f"tally run mean --data {spec} --parties 3 --out o --json"
    assert found["date"].endswith("+00:00")
    page = (tmp_path / "work" / "o" / "report.html").read_text()
    for said in ("synthetic:scores?n=100", found["version"], found["date"], "tally run mean"):
        assert said in page
    assert "100 records" in tally_here("run", *words).stdout


class TestNotebook:
    def test_a_table_and_a_plot(self) -> None:
        result = answer(Ecdf(value="score", thresholds=8))
        shown = result._repr_html_()
        assert f"Bill: {result.bill.total.bytes:,} bytes" in shown
        assert "data:image/png;base64," in shown
        assert "<table>" in shown
        assert len(repr(result)) < 300
        assert repr(answer("mean")).startswith("<mean: 0.4")

    def test_a_frame(self) -> None:
        result = answer(Histogram(value="score", bins=4))
        frame = result.to_frame()
        assert isinstance(frame, pd.DataFrame)
        assert frame["estimate"].tolist() == result.shape.values().tolist()

    def test_axes_that_are_there(self) -> None:
        figure = Figure()
        axes = figure.add_subplot()
        assert answer(Ecdf(value="score", thresholds=8)).plot(ax=axes) is figure
        assert axes.get_xlabel() == "score"
        assert axes.get_lines()

    def test_names_are_escaped(self) -> None:
        data = {"<b>": [1.0, 2.0, 3.0, 4.0, 5.0]}
        assert "<b>:" not in answer(Mean(value="<b>", lower=0, upper=9), data=data)._repr_html_()


class TestPlots:
    def test_without_noise_the_axis_has_a_width(self) -> None:
        """Estimate and truth lie 1e-12 apart: the axis used to be just as wide."""
        low, high = estimate_figure(answer("mean", "inf")).axes[0].get_xlim()
        assert high - low > 0.01

    def test_the_bill_has_our_colours_and_its_legend_beside_it(self) -> None:
        figure = communication_figure(answer("mean"))
        axes = figure.axes[0]
        assert axes.get_legend() is None
        assert len(figure.legends) == 1
        from matplotlib.colors import to_hex

        drawn = {to_hex(patch.get_facecolor()) for patch in axes.patches}
        assert drawn <= set(SEVERAL)


class TestOutputFolder:
    def test_a_link_to_nothing_and_a_long_name_are_refused_before_the_run(
        self, tally_here: Tally, tmp_path: Path
    ) -> None:
        (tmp_path / "work" / "link").symlink_to(tmp_path / "nowhere" / "x")
        for out in ("link", "link/below", "a" * 300, f"new/{'ü' * 200}"):
            done = tally_here("run", "mean", "--out", out, "--json")
            assert (done.returncode, done.stdout) == (2, "")
            assert len(done.stderr.splitlines()) == 1
            assert "cannot write to" in done.stderr

    @pytest.mark.parametrize("out", ["a[b", "[/b]", "x[red]y"])
    def test_brackets_are_no_markup(self, tally_here: Tally, out: str) -> None:
        done = tally_here("run", "mean", "--parties", 2, "--out", out)
        assert done.returncode == 0
        assert f"{out}/report.html" in done.stdout


def test_a_lie_among_shuffled_reports_is_cheap_and_nameless(tally_here: Tally) -> None:
    """It used to seal a thousand times its reports, which took 13 s."""
    words = ("--parties", 20, "--delta", 1e-6, "--cheat", "5:out-of-range", "--json")
    done = tally_here("run", "histogram", "--aggregator", "shuffle", *words)
    found = json.loads(done.stdout)
    assert "100 reports could not be used; their senders are unknown" in found["notes"]
    assert "caught" not in found
    assert found["communication"]["party_bytes"]["max"] < 20_000


def test_an_interrupt_while_it_loads_is_one_line() -> None:
    """The first import of the command itself raises it, as a key pressed in time does."""
    script = (
        "import sys, importlib.abc\n"
        "class Key(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'tallyroom.simulation.command.main': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Key())\n"
        "from tallyroom.simulation.command.start import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 130
    assert done.stderr == "tally: interrupted; nothing was started\n"


def test_an_interrupt_of_a_run_is_one_line() -> None:
    script = (
        "import sys\n"
        "from tallyroom.simulation.federation import Federation\n"
        "def pressed(*_, **__): raise KeyboardInterrupt\n"
        "Federation.run = pressed\n"
        "sys.argv = ['tally', 'run', 'mean', '--parties', '3']\n"
        "from tallyroom.simulation.command.start import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 130
    assert done.stderr == "tally: interrupted; nothing is left running\n"


@pytest.mark.parametrize("words", [(), ("-h",), ("--help",)])
def test_help_is_on_standard_output(tally_here: Tally, words: tuple[str, ...]) -> None:
    done = tally_here(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) > 10
    assert tally_here("--version").stdout.startswith("tallyroom ")


def test_gini_says_that_it_is_the_mean_difference(tally_here: Tally) -> None:
    assert "mean difference" in tally_here("run", "gini", "--help").stdout
    assert "coefficient" in tally_here("run", "gini-coefficient", "--help").stdout


def test_options_that_nobody_understood_are_told_otherwise(tally_here: Tally) -> None:
    """There was "How parties that meet do", and "Messages they send before; 0."."""
    for words in (("run", "auc"), ("run", "ecdf"), ("compare", "mean")):
        shown = " ".join(tally_here(*words, "--help").stdout.split())
        assert "that meet do" not in shown
        assert "send before; 0" not in shown


def test_a_small_run_refutes_nothing() -> None:
    from tallyroom.simulation.reproduce.contract import Outcome, Scale

    failed = Outcome({"it is so": False}, {}, [])
    assert failed.verdict_at(Scale.SMALL) == "inconclusive"
    assert failed.verdict_at(Scale.PAPER) == "fails"
    assert Outcome({"it is so": True}, {}, []).verdict_at(Scale.SMALL) == "inconclusive"


def test_repeats_have_a_mean_and_a_spread(tally_here: Tally) -> None:
    words = ("compare", "mean", "--aggregator", "curator", "--parties", 4, "--seed", 2)
    found = json.loads(tally_here(*words, "--repeat", 3, "--json").stdout)["aggregators"][0]
    alone = [
        json.loads(tally_here(*words[:-1], 2 + time, "--json").stdout)["aggregators"][0]["rmse"]
        for time in range(3)
    ]
    assert found["runs"] == 3
    assert found["rmse"] == pytest.approx(np.mean(alone))
    assert found["rmse_spread"] == pytest.approx(np.std(alone, ddof=1))
    shown = tally_here(*words, "--repeat", 3).stdout
    assert max(len(line) for line in shown.splitlines()[:2]) <= 80
    assert tally_here(*words, "--repeat", 0).returncode == 2


def test_a_table_can_be_read_back() -> None:
    """Names with commas and quotes survive the file."""
    buffer = io.StringIO()
    names = ["a, b", 'c "d"', "a, b", "e", "e"]
    result = answer(Histogram(value="n", categories='"a, b","c ""d"""'), "inf", data={"n": names})
    csv.writer(buffer).writerows(result.table()[1])
    rows = list(csv.reader(io.StringIO(buffer.getvalue())))
    assert [row[:2] for row in rows] == [["a, b", "2.0"], ['c "d"', "1.0"], ["other", "2.0"]]
