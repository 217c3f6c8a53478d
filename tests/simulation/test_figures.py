"""Plots of a run: what is drawn is what was computed."""

from dataclasses import replace
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.privacy.smoothing import smooth
from tallyroom.protocols.statistics import Curve, Statistic
from tallyroom.protocols.statistics.coefficients import Coefficients
from tallyroom.protocols.statistics.drawing import Beside
from tallyroom.protocols.statistics.ecdf import CumulativeHistogram, Ecdf, Quantile
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.simulation import Federation, Result


def answer(statistic: Statistic, epsilon: float | str = 1.0) -> Result:
    with Federation(parties=5, data="synthetic:scores?n=200", seed=1) as federation:
        return federation.run(statistic, epsilon)


def lines(figure: Figure) -> dict[str, Line2D]:
    found = figure.axes[0].get_lines()
    return {str(line.get_label()): line for line in found}


def heights(line: Line2D) -> list[float]:
    return [float(y) for y in np.asarray(line.get_ydata())]


def curve(estimate: object) -> Curve:
    assert isinstance(estimate, Curve)
    return estimate


def legend(figure: Figure) -> list[str]:
    shown = figure.axes[0].get_legend()
    assert shown is not None
    return [text.get_text() for text in shown.get_texts()]


class TestDistribution:
    @pytest.mark.parametrize("strategy", ["hierarchy", "tree"])
    def test_truth_private_curve_and_band(self, strategy: str) -> None:
        kind = Ecdf(value="score", thresholds=16, strategy=strategy, smooth="none")
        result = answer(kind)
        figure = result.plot()
        drawn = lines(figure)
        assert heights(drawn["truth"]) == curve(result.truth).y
        assert heights(drawn["private"]) == curve(result.estimate).y
        assert "smoothed" not in drawn
        [band] = figure.axes[0].collections
        assert isinstance(band, PolyCollection)
        corners = np.asarray(band.get_paths()[0].vertices)[:, 1]
        assert result.interval is not None
        assert np.isclose(corners.max(), result.interval.high.max())
        assert np.isclose(corners.min(), result.interval.low.min())
        assert (result.interval.low <= curve(result.estimate).y).all()

    @pytest.mark.parametrize(("strategy", "norm"), [("hierarchy", "2"), ("tree", "1")])
    def test_smoothed_curve_beside_the_one_it_came_from(self, strategy: str, norm: str) -> None:
        fine = Ecdf(value="score", thresholds=16, strategy=strategy, smooth=norm)
        result = answer(fine, 0.5)
        assert result.unsmoothed is not None
        drawn = lines(result.plot())
        assert heights(drawn["smoothed"]) == curve(result.estimate).y
        assert heights(drawn["private"]) == curve(result.unsmoothed).y
        assert curve(result.estimate).y != curve(result.unsmoothed).y
        assert (np.diff(curve(result.estimate).y) >= 0).all()
        assert "unsmoothed" not in result.as_json()

    def test_smoothing_starts_from_the_curve_that_is_drawn(self) -> None:
        fine = Ecdf(value="score", thresholds=16, strategy="tree", smooth="2")
        result = answer(fine, 0.5)
        assert result.unsmoothed is not None
        again = smooth(np.array(curve(result.unsmoothed).y), p=2, levels=4).curve
        assert np.allclose(again, curve(result.estimate).y)

    def test_without_noise_there_is_no_band(self) -> None:
        result = answer(Ecdf(value="score", thresholds=16, smooth="2"), "inf")
        assert result.unsmoothed is None
        figure = result.plot()
        assert legend(figure) == ["truth", "without noise"]
        assert not figure.axes[0].collections

    def test_logarithmic_grid(self) -> None:
        fine = Ecdf(value="score", thresholds=16, lower=0.01, upper=1.0, spacing="log")
        assert answer(fine).plot().axes[0].get_xscale() == "log"
        assert answer(Ecdf(value="score", thresholds=16)).plot().axes[0].get_xscale() == "linear"


class TestQuantiles:
    def test_each_on_the_axis_in_order(self) -> None:
        result = answer(Quantile(value="score", quantile=(0.9, 0.1, 0.5)))
        figure = result.plot()
        axes = figure.axes[0]
        assert [text.get_text() for text in axes.get_xticklabels()] == ["0.1", "0.5", "0.9"]
        high, low, middle = curve(result.estimate).y
        [container] = axes.containers
        assert isinstance(container, ErrorbarContainer)
        assert heights(container.lines[0]) == [low, middle, high]
        assert container.has_yerr
        assert legend(figure) == ["truth", "private, 95 % interval of the noise"]

    def test_one_is_a_number_with_its_interval(self) -> None:
        result = answer(Quantile(value="score"))
        figure = result.plot()
        [container] = figure.axes[0].containers
        assert isinstance(container, ErrorbarContainer)
        assert container.has_xerr
        assert figure.axes[0].get_xlabel() == "quantile of score"


class TestHistograms:
    def test_bars_where_the_deviation_is_known(self) -> None:
        plain, cumulative = (
            answer(kind).plot()
            for kind in (
                Histogram(value="score", bins=8),
                CumulativeHistogram(value="score", thresholds=8),
            )
        )
        assert legend(plain) == ["truth", "private, 95 % interval of the noise"]
        assert legend(cumulative) == legend(plain)

    def test_logarithmic_bins_have_their_own_widths(self) -> None:
        kind = CumulativeHistogram(
            value="score", thresholds=4, lower=0.0625, upper=1.0, spacing="log"
        )
        axes = answer(kind).plot().axes[0]
        widths = [patch.get_bbox().width for patch in axes.patches if isinstance(patch, Rectangle)]
        assert np.allclose(widths, [0.0625, 0.125, 0.25, 0.5])
        assert axes.get_xscale() == "log"

    @pytest.mark.parametrize("bins", [1, 2])
    def test_few_bins(self, bins: int) -> None:
        assert len(answer(CumulativeHistogram(value="score", thresholds=bins)).plot().axes) == 1


@pytest.mark.parametrize(
    "kind",
    [
        Ecdf(value="score", thresholds=32, smooth="2"),
        Quantile(value="score", quantile=(0.25, 0.75)),
        Quantile(value="score"),
        CumulativeHistogram(value="score", thresholds=8),
    ],
    ids=lambda kind: f"{kind.name}-{len(getattr(kind, 'quantile', ()))}",
)
def test_written_files(kind: Statistic, tmp_path: Path) -> None:
    written = answer(kind).write(tmp_path)
    assert {path.name for path in written} >= {"estimate.png", "communication.png", "report.html"}
    pixels = matplotlib.image.imread(tmp_path / "estimate.png")
    assert pixels.std() > 0.05


@pytest.mark.parametrize(
    ("covers", "noisy", "said"),
    [
        ("population", True, "private, 95 % interval of noise and sampling"),
        ("noise", True, "private, 95 % interval of the noise"),
        ("", True, "private"),
        ("", False, "without noise, 95 % interval of sampling"),
    ],
)
def test_bars_of_coefficients_say_what_they_are_of(covers: str, noisy: bool, said: str) -> None:
    values = np.array([1.0, 2.0])
    around = Interval.around(values, np.array([0.1, 0.2]), 1.96, (-9.0, 9.0))
    told = replace(around, covers=covers) if covers else None
    figure = Figure()
    axes = figure.add_subplot()
    drawn = Coefficients("y", ["intercept", "x"], values.tolist(), [0.3, 0.4])
    drawn.draw(axes, drawn, Beside(interval=told, noisy=noisy))
    assert axes.get_legend_handles_labels()[1] == [said, "fit to the raw records"]
    for line in axes.child_axes:
        (marked,) = line.containers
        assert isinstance(marked, ErrorbarContainer)
        assert marked.has_xerr == (bool(covers) or not noisy)
