"""Errors of several methods at several ε: sizes, table rows and plotted lines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from tallyroom.simulation.reproduce.confidence import Mean
from tallyroom.simulation.reproduce.contract import Number
from tallyroom.simulation.reproduce.drawing import COLOURS, MARKERS


@dataclass(frozen=True)
class Sizes:
    points: int
    runs: int
    epsilons: tuple[str, ...]


def row_of(epsilon: float, means: Mapping[str, Mean]) -> dict[str, Number]:
    """Each method's mean error with both ends of its interval."""
    row: dict[str, Number] = {"epsilon": epsilon}
    for name, mean in means.items():
        row |= {name: mean.value, f"{name}_lower": mean.lower, f"{name}_upper": mean.upper}
    return row


def draw_lines(
    axes: Axes,
    epsilons: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    colours: Sequence[str] = COLOURS,
    markers: Sequence[str] = MARKERS,
) -> None:
    """Draws a line for each label."""
    for (label, values), colour, marker in zip(lines.items(), colours, markers, strict=False):
        axes.plot(epsilons, values, color=colour, marker=marker, ms=4, lw=1.2, label=label)
