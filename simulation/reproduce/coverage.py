"""How often 95 % intervals hold the answer that the records themselves have, on real columns.

Every statistic and study with an interval is asked in its default way with two servers, at several
ε and numbers of records, and answered in the clear (`simulation.in_the_clear`): only the noise and
the drawing of pairs differ from answer to answer. One that has no interval says why.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from tallyroom.protocols.errors import TallyError
from tallyroom.protocols.plans.interval import NOISE
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.drawing import QUIET
from tallyroom.protocols.statistics.estimates import Estimate, shape_of
from tallyroom.protocols.studies.contract import Study
from tallyroom.simulation.federation import Federation
from tallyroom.simulation.in_the_clear import ClearAnswer, InTheClear
from tallyroom.simulation.reproduce.contract import Figure, Outcome, Row, Scale, write_table
from tallyroom.simulation.reproduce.coverage_questions import TRUTH_OF, columns_of, questions
from tallyroom.simulation.reproduce.drawing import (
    COLOURS,
    MARKERS,
    legend_below,
    panels,
    save,
)
from tallyroom.simulation.statement import beside

LEAST, SURELY = 0.93, 3.29
"""The coverage that is asked for; and the standard deviations by which less of it is sure, once in
2,000 cells by chance."""
PARTIES = 50


@dataclass(frozen=True)
class Sizes:
    records: tuple[int, ...]
    epsilons: tuple[str, ...]
    runs: int


SIZES = {
    Scale.PAPER: Sizes((500, 5_000, 50_000), ("0.1", "1", "5"), 100),
    Scale.SMALL: Sizes((200,), ("1",), 2),
}


@dataclass(frozen=True)
class Cell:
    """Of `runs` answers to one question, each with `values` of them, the share that was held;
    `without` counts the answers that had no interval, by their reason."""

    question: str
    records: int
    epsilon: str
    runs: int
    held: float
    without: Counter[str]

    @property
    def reason(self) -> str:
        """Why most of the answers without an interval had none."""
        return self.without.most_common(1)[0][0] if self.without else ""

    def within(self, deviations: float = 1.96) -> tuple[float, float]:
        """Wilson's interval of the coverage. Values of one answer count as one."""
        if not self.runs:
            return math.nan, math.nan
        square = deviations**2
        middle = (self.held + square / (2 * self.runs)) / (1 + square / self.runs)
        spread = self.held * (1 - self.held) / self.runs + square / (4 * self.runs**2)
        half = deviations * math.sqrt(spread) / (1 + square / self.runs)
        return middle - half, middle + half

    @property
    def is_surely_short(self) -> bool:
        return self.runs > 0 and self.within(SURELY)[1] < LEAST

    @property
    def row(self) -> Row:
        low, high = self.within()
        return {
            "question": self.question,
            "records": self.records,
            "epsilon": self.epsilon,
            "runs": self.runs,
            "held": self.held if self.runs else "",
            "held_low": low if self.runs else "",
            "held_high": high if self.runs else "",
            "without": self.without.total(),
            "reason": self.reason,
        }


def held(answer: ClearAnswer, truth: Estimate) -> float | str:
    """The share of its values whose interval holds the truth, or why it has no interval."""
    interval = answer.intervals.get(NOISE)
    if interval is None:
        return "the answer has no noise"
    if interval.unknown:
        return interval.unknown
    values: Column = shape_of(beside(truth, answer.estimate)).values()
    told = ~np.isnan(values) & ~np.isnan(interval.low)
    if not told.any():
        return "no value is defined"
    inside = (interval.low <= values + _slack(values)) & (values - _slack(values) <= interval.high)
    return float(inside[told].mean())


def _slack(values: Column) -> Column:
    """What sums of doubles in another order may differ by."""
    slack: Column = 1e-9 * np.maximum(np.abs(values), 1e-9)
    return slack


def measure(
    name: str, question: Statistic | Study, columns: dict[str, Column], epsilon: str, runs: int
) -> Cell:
    federation = Federation(parties=PARTIES, data=columns)
    clear, without, shares = InTheClear(federation, {}), Counter[str](), []
    truth = TRUTH_OF.get(name, question).reference(federation.holdings)
    assert truth is not None
    for seed in range(runs):
        try:
            answer = clear.answer(question, Fraction(epsilon), seed)
        except TallyError as error:
            without[str(error.args[0])] += 1
            continue
        if answer is None:
            without["its noise cannot be drawn outside of its protocol"] += 1
            break
        found = held(answer, truth)
        if isinstance(found, str):
            without[found] += 1
        else:
            shares.append(found)
    share = float(np.mean(shares)) if shares else math.nan
    return Cell(name, federation.holdings.rows, epsilon, len(shares), share, without)


def judge(cells: Sequence[Cell]) -> dict[str, bool]:
    told = [cell for cell in cells if cell.runs]
    return {
        f"no question is held surely less often than in {LEAST:.0%} of runs": not any(
            cell.is_surely_short for cell in told
        ),
        f"the mean over all questions is at least {LEAST:.0%}": bool(
            told and np.mean([cell.held for cell in told]) >= LEAST
        ),
        "every answer without an interval says why": all(
            cell.reason for cell in cells if not cell.runs
        ),
    }


def run(folder: Path, scale: Scale) -> Outcome:
    sizes, cells = SIZES[scale], []
    for records in sizes.records:
        columns = columns_of(records, made_up=scale is Scale.SMALL)
        for name, (data, question) in questions().items():
            for epsilon in sizes.epsilons:
                cells.append(measure(name, question, columns[data], epsilon, sizes.runs))
    short = [
        f"{cell.question}, n = {cell.records}, ε = {cell.epsilon}: {cell.held:.0%}"
        for cell in cells
        if cell.is_surely_short
    ]
    seldom = {"held surely too seldom": "; ".join(short) or "none"}
    table = write_table(folder / "coverage.csv", [cell.row for cell in cells])
    return Outcome(
        judge(cells),
        {"runs": sizes.runs, "cells": len(cells)},
        [table, _draw(folder / "coverage.png", cells, sizes)],
        measured=seldom if scale is Scale.PAPER else {},
    )


def _draw(path: Path, cells: Sequence[Cell], sizes: Sizes) -> Path:
    told = [cell for cell in cells if cell.runs]
    names = list(dict.fromkeys(cell.question for cell in told))
    title = f"How often intervals of 95 % hold the truth, {sizes.runs} runs"
    panel_names = [f"n = {records:,}" for records in sizes.records]
    canvas, axes = panels(title, panel_names, height=2 + 0.22 * len(names))
    canvas.set_size_inches(4.2 * len(axes) + 3, 2 + 0.22 * len(names))
    for each, records in zip(axes, sizes.records, strict=True):
        for epsilon, colour, marker in zip(sizes.epsilons, COLOURS, MARKERS, strict=False):
            own = [cell for cell in told if (cell.records, cell.epsilon) == (records, epsilon)]
            places = [names.index(cell.question) for cell in own]
            label = f"ε = {epsilon}"
            each.plot([cell.held for cell in own], places, marker, color=colour, ms=4, label=label)
        each.axvline(0.95, color=QUIET, lw=1, zorder=0)
        each.set_xlabel("share of runs")
        each.set_yticks(range(len(names)), names, fontsize=7.5)
    axes[0].invert_yaxis()
    legend_below(canvas, axes, len(sizes.epsilons))
    return save(canvas, path)


FIGURE = Figure(
    "coverage",
    "docs/coverage.md: 95 % intervals of every statistic and study hold what the records "
    "themselves have in at least 93 % of runs, on real columns.",
    run,
)
