"""S0 Fig. 2 and Fig. 3: the effect of smoothing on the error of the noise.

Both plot ‖F̃ − F‖²/‖F̂ − F‖² (§6.3) for Eq. 3 with p = 1 and p = 2. The paper's curves, in which the
1-norm multiplies the error at small ε, appear only without the [0,1] box that Eq. 3 prints. The
verdict is about Eq. 3 as printed; that of the variant without the box stands beside it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np

from tallyroom.protocols.privacy.smoothing import smooth
from tallyroom.protocols.privacy.tree import Tree
from tallyroom.simulation.reproduce.confidence import CONFIDENCE, Mean
from tallyroom.simulation.reproduce.contract import Figure, Number, Outcome, Scale, write_table
from tallyroom.simulation.reproduce.drawing import (
    COLOURS,
    MARKERS,
    legend_below,
    level,
    log_axis,
    panels,
    save,
)
from tallyroom.simulation.reproduce.poisson import Points, tree_releases

NORMS = (1, 2)
RATE = 3.0  # λ of Fig. 2
EPSILON = Fraction(1)  # ε of Fig. 3
USEFUL = 0.2  # "for roughly ε > 0.2 its curve is below 1"
SMALL_EPSILON = 0.2  # where the 2-norm is said to win "especially"
MODERATE = (1.0, 30.0)  # λ where smoothing is said to help; from "large" on it is not
WITHOUT_BOX = "the same without the [0, 1] box of Eq. 3: only there do the paper's curves appear"
LARGE_EFFECT = 0.05  # an effect of less than this is "limited"


@dataclass(frozen=True)
class Sizes:
    points: int
    runs: int
    epsilons: tuple[str, ...]
    rates: tuple[float, ...]


SIZES = {
    Scale.PAPER: Sizes(
        1024,
        100,
        ("0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10", "20"),
        (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0),
    ),
    Scale.SMALL: Sizes(64, 6, ("0.02", "0.2", "1", "5"), (0.3, 3.0, 300.0)),
}


@dataclass(frozen=True)
class Ratios:
    """All runs at one ε and λ: the error ratio of each norm, with or without the box."""

    epsilon: float
    rate: float
    box: bool
    one: tuple[float, ...]
    two: tuple[float, ...]

    def mean(self, p: int) -> Mean:
        return Mean.of(self.one if p == 1 else self.two)

    @property
    def gap(self) -> Mean:
        """How far the 1-norm's ratio is above the 2-norm's: paired, because the noise is the
        same."""
        return Mean.of([a - b for a, b in zip(self.one, self.two, strict=True)])


def measure(points: int, runs: int, rate: float, epsilon: Fraction) -> list[Ratios]:
    """Measures without and with the box. Runs without any noise have no ratio and are left out."""
    levels = Tree(points).levels
    ratios: dict[tuple[bool, int], list[float]] = {
        (box, p): [] for box in (False, True) for p in NORMS
    }
    for release in tree_releases(points, rate, epsilon, runs):
        before = _squared(release.noisy - release.truth)
        if before == 0.0:
            continue
        for (box, p), kept in ratios.items():
            curve = smooth(release.noisy, p=p, levels=levels, box=box).curve
            kept.append(_squared(curve - release.truth) / before)
    return [
        Ratios(float(epsilon), rate, box, tuple(ratios[box, 1]), tuple(ratios[box, 2]))
        for box in (False, True)
    ]


def judge_epsilon(measured: Sequence[Ratios]) -> dict[str, bool]:
    """Fig. 2's claims (§6.3), on one variant of Eq. 3, in order of ε."""
    useful = [each for each in measured if each.epsilon >= USEFUL]
    small = [each for each in measured if each.epsilon <= SMALL_EPSILON]
    at_one = min(measured, key=lambda each: abs(np.log(each.epsilon)))
    return {
        f"2-norm ratio surely below 1 at every ε ≥ {USEFUL:g}": bool(useful)
        and all(each.mean(2).surely_below(1.0) for each in useful),
        f"2-norm ratio surely below the 1-norm's at every ε ≤ {SMALL_EPSILON:g}": bool(small)
        and all(each.gap.surely_above(0.0) for each in small),
        "the norms' gap is wider at the least ε than at ε = 1": measured[0].gap.lower
        > at_one.gap.upper,
        "the 2-norm's effect is smaller at the largest ε than at ε = 1": measured[-1].mean(2).lower
        > at_one.mean(2).upper,
    }


def judge_rate(measured: Sequence[Ratios], norms: Sequence[int] = NORMS) -> dict[str, bool]:
    """Fig. 3's claims (§6.3), on one variant of Eq. 3, in order of λ. The figure plots both norms,
    and the claim is about smoothing, not about one norm."""
    low, high = MODERATE
    moderate = [each for each in measured if low <= each.rate <= high]
    found: dict[str, bool] = {}
    for p in norms:
        last = measured[-1].mean(p).value
        found |= {
            f"{p}-norm ratio surely below 1 at every λ from {low:g} to {high:g}": bool(moderate)
            and all(each.mean(p).surely_below(1.0) for each in moderate),
            f"{p}-norm ratio within {LARGE_EFFECT:g} of 1 at the largest λ": abs(last - 1.0)
            <= LARGE_EFFECT,
        }
    return found


def ratios_in_words(measured: Sequence[Ratios], p: int, at: Sequence[float]) -> str:
    """The numbers behind a criterion, at the least and at the largest of the measured values."""
    means = [each.mean(p).value for each in measured]
    worst = max(range(len(means)), key=means.__getitem__)
    return (
        f"{means[0]:.3g} at {at[0]:g} … {means[-1]:.3g} at {at[-1]:g}, at most {means[worst]:.3g}"
    )


def crossing(measured: Sequence[Ratios], p: int) -> float | None:
    """The ε at which the ratio last falls through 1, interpolated on a log scale."""
    found = None
    for a, b in pairwise(measured):
        above, below = a.mean(p).value - 1.0, b.mean(p).value - 1.0
        if above > 0.0 >= below:
            share = above / (above - below)
            found = float(np.exp(np.log(a.epsilon) * (1 - share) + np.log(b.epsilon) * share))
    return found


def run_epsilon(folder: Path, scale: Scale) -> Outcome:
    sizes = SIZES[scale]
    measured = [
        ratios
        for epsilon in sizes.epsilons
        for ratios in measure(sizes.points, sizes.runs, RATE, Fraction(epsilon))
    ]
    free = [each for each in measured if not each.box]
    boxed = [each for each in measured if each.box]
    canvas = f"S0 Fig. 2: error after smoothing / before, λ = {RATE:g}, N = {sizes.points}"
    at = [each.epsilon for each in free]
    return Outcome(
        judge_epsilon(boxed),
        {
            "thresholds": sizes.points,
            "runs": sizes.runs,
            "rate": RATE,
            "epsilon_where_2_norm_falls_below_1": crossing(free, 2),
            "epsilon_where_1_norm_falls_below_1": crossing(free, 1),
            **_summaries(free, boxed, at),
        },
        [
            write_table(folder / "s0-fig2.csv", _rows(measured)),
            _draw(folder / "s0-fig2.png", canvas, free, boxed, "ε", at),
        ],
        judge_epsilon(free),
        WITHOUT_BOX,
        _measured(free, boxed, at),
    )


def run_rate(folder: Path, scale: Scale) -> Outcome:
    sizes = SIZES[scale]
    measured = [
        ratios
        for rate in sizes.rates
        for ratios in measure(sizes.points, sizes.runs, rate, EPSILON)
    ]
    free = [each for each in measured if not each.box]
    boxed = [each for each in measured if each.box]
    canvas = f"S0 Fig. 3: error after smoothing / before, ε = {EPSILON}, N = {sizes.points}"
    at = [each.rate for each in free]
    return Outcome(
        judge_rate(boxed),
        {
            "thresholds": sizes.points,
            "runs": sizes.runs,
            "epsilon": float(EPSILON),
            **_summaries(free, boxed, at),
        },
        [
            write_table(folder / "s0-fig3.csv", _rows(measured)),
            _draw(folder / "s0-fig3.png", canvas, free, boxed, "λ", at),
        ],
        judge_rate(free, (2,)),
        f"{WITHOUT_BOX}; and of the 2-norm alone, which the paper recommends",
        _measured(free, boxed, at),
    )


def _measured(
    free: Sequence[Ratios], boxed: Sequence[Ratios], at: Sequence[float]
) -> dict[str, str]:
    return {
        f"ratio of the {p}-norm, {name}": ratios_in_words(variant, p, at)
        for name, variant in (("with the box", boxed), ("without it", free))
        for p in NORMS
    }


def _squared(difference: Points) -> float:
    return float(difference @ difference)


def _summaries(
    free: Sequence[Ratios], boxed: Sequence[Ratios], at: Sequence[float]
) -> dict[str, object]:
    return {
        f"ratio_{p}_norm_{name}": {
            f"{x:g}": round(each.mean(p).value, 4) for x, each in zip(at, variant, strict=True)
        }
        for name, variant in (("without_box", free), ("with_box", boxed))
        for p in (2, 1)
    }


def _rows(measured: Iterable[Ratios]) -> Iterable[dict[str, Number]]:
    for each in measured:
        for p in NORMS:
            mean = each.mean(p)
            yield {
                "epsilon": each.epsilon,
                "lambda": each.rate,
                "p": p,
                "box": int(each.box),
                "ratio": mean.value,
                "lower": mean.lower,
                "upper": mean.upper,
                "runs": len(each.one),
            }


def _draw(
    path: Path,
    title: str,
    free: Sequence[Ratios],
    boxed: Sequence[Ratios],
    symbol: str,
    at: Sequence[float],
) -> Path:
    canvas, axes = panels(title, ["Eq. 3 as printed, with its box", "without the [0, 1] box"])
    for panel, measured in zip(axes, (boxed, free), strict=True):
        for p in NORMS:
            means = [each.mean(p) for each in measured]
            panel.errorbar(
                at,
                [mean.value for mean in means],
                yerr=[mean.half_width for mean in means],
                color=COLOURS[p - 1],
                marker=MARKERS[p - 1],
                ms=4,
                lw=1.2,
                capsize=2,
                label=f"{p}-norm, mean and its {CONFIDENCE:.1%} interval",
            )
        log_axis(panel, "x", symbol)
        level(panel, 1.0, "no effect")
    log_axis(axes[0], "y", "ratio of squared errors", (1.0, 2.0, 5.0))
    legend_below(canvas, axes, 2)
    return save(canvas, path)


FIG2 = Figure(
    "s0-fig2",
    "S0 §6.3, Fig. 2: 2-norm smoothing outperforms 1-norm smoothing, above all at small ε; for "
    "roughly ε > 0.2 it reduces the error of the noise, and its effect fades as ε grows.",
    run_epsilon,
)
FIG3 = Figure(
    "s0-fig3",
    "S0 §6.3, Fig. 3: at ε = 1 smoothing reduces the error of the noise for moderate λ and has "
    "little effect for large λ.",
    run_rate,
)
