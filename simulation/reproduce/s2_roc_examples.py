"""S2 Fig. 1: private ROC curves by PriROC on SMS and TWITTER, at ε = 1 and 0.1.

TWITTER is made up, with S2's class sizes; it is no evidence about S2's own data. S2 draws one
random curve of each; the criteria are about the mean of 20.
"""

import itertools
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.statistics.classifier_estimates import area_between
from tallyroom.simulation.reproduce.classified import SEED, Scores, made_up, messages, tweets
from tallyroom.simulation.reproduce.contract import Figure, Number, Outcome, Scale, write_table
from tallyroom.simulation.reproduce.drawing import COLOURS, legend_below, panels, save
from tallyroom.simulation.reproduce.s2_roc import MECHANISMS, cells_of, judged, truth_of

Curve = NDArray[np.float64]
"""Points of false and true positive rates."""
NEAR = 0.1
"""The largest mean area between a private curve and the truth that tracks it "quite well"."""
EPSILONS = ("1", "0.1")
RUNS = {Scale.PAPER: 20, Scale.SMALL: 3}


@dataclass(frozen=True)
class Panel:
    data: str
    epsilon: str
    mechanism: str
    truth: Curve
    example: Curve
    area: float


def data_of(scale: Scale) -> dict[str, Scores]:
    if scale is Scale.SMALL:
        return {"sms": made_up(200, 0.86, 3.0), "twitter": made_up(200, 0.56, 1.2)}
    return {"sms": messages(), "twitter": tweets()}


def measure(data: dict[str, Scores], runs: int) -> list[Panel]:
    found = []
    for name, scores in data.items():
        cells = cells_of(scores)
        known = truth_of(cells)
        truth = np.stack([known.false_positive, known.true_positive])
        for epsilon, mechanism in itertools.product(EPSILONS, MECHANISMS):
            source = Randomness.from_seed(SEED, f"s2-fig1 {name} {mechanism} {epsilon}")
            drawn = [
                judged(mechanism, "PriROC", cells, Fraction(epsilon), source) for _ in range(runs)
            ]
            curves = [np.stack([each.false_positive, each.true_positive]) for each in drawn]
            areas = [area_between((x, y), (truth[0], truth[1])) for x, y in curves]
            area = float(np.mean(areas))
            found.append(Panel(name, epsilon, mechanism, truth, curves[0], area))
    return found


def judge(found: list[Panel], mechanism: str) -> dict[str, bool]:
    own = [each for each in found if each.mechanism == mechanism]
    area = {(each.data, each.epsilon): each.area for each in own}
    return {
        'S2: "The PriROC curves track the confidential ROC curves quite well for all datasets and '
        f'ε settings": mean area between them at most {NEAR:g}, everywhere': all(
            each <= NEAR for each in area.values()
        ),
        'S2: "the PriROC for TWITTER is more accurate than SMS": a lower mean area at both ε': all(
            area["twitter", epsilon] < area["sms", epsilon] for epsilon in EPSILONS
        ),
    }


def run(folder: Path, scale: Scale) -> Outcome:
    data = data_of(scale)
    found = measure(data, RUNS[scale])
    rows: list[dict[str, Number]] = [
        {
            "data": each.data,
            "epsilon": float(each.epsilon),
            "mechanism": each.mechanism,
            "curve": kind,
            "false_positive_rate": float(x),
            "true_positive_rate": float(y),
        }
        for each in found
        for kind, curve in (("truth", each.truth), ("private", each.example))
        for x, y in curve.T
    ]
    return Outcome(
        judge(found, "S2"),
        {
            "data": {name: scores.source for name, scores in data.items()},
            "runs": RUNS[scale],
            "symmetric_difference": {
                f"{each.data}, ε = {each.epsilon}, {each.mechanism}": each.area for each in found
            },
        },
        [write_table(folder / "s2-fig1.csv", rows), _draw(folder / "s2-fig1.png", found)],
        ours=judge(found, "ours"),
        why="The same claims about this project's PriROC, with fewer bins and HB.",
        measured={
            f"mean area on {each.data} at ε = {each.epsilon}, {each.mechanism}": f"{each.area:.3g}"
            for each in found
        },
    )


def _draw(path: Path, found: list[Panel]) -> Path:
    shown = [each for each in found if each.mechanism == "S2"]
    names = [f"{each.data.upper()}, ε = {each.epsilon}" for each in shown]
    canvas, axes = panels("S2 Fig. 1: one private ROC curve by PriROC", names, 4.0)
    canvas.set_size_inches(12.6, 4.0)
    by_panel = {(each.data, each.epsilon, each.mechanism): each for each in found}
    for each, panel in zip(axes, shown, strict=True):
        ours = by_panel[panel.data, panel.epsilon, "ours"]
        each.plot(*panel.truth, color="#000000", lw=1.2, label="truth")
        each.plot(*panel.example, color=COLOURS[1], lw=1.2, label="S2's PriROC")
        each.plot(*ours.example, color=COLOURS[2], lw=1.0, ls="--", label="ours")
        each.set_xlabel("false positive rate")
    axes[0].set_ylabel("true positive rate")
    legend_below(canvas, axes, 3)
    return save(canvas, path)


FIGURE = Figure(
    "s2-fig1",
    "S2 §3.3.1, Fig. 1: private ROC curves by PriROC track the true ones at ε = 1 and 0.1, on "
    "TWITTER more than on SMS.",
    run,
    stand_in="Made-up scores with the class sizes of TWITTER, which is not available: no evidence "
    "about S2's own data. SMS is S2's, with a model that is not private.",
)
