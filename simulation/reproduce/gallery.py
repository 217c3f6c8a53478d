"""The gallery: one page with every reproduced figure, its claim and the verdict on it.

Everything on the page is computed from the outcomes of this run; no verdict is written by hand.
"""

import html
from collections.abc import Iterable, Mapping
from pathlib import Path

from tallyroom.simulation.reports.page import image, page, pairs
from tallyroom.simulation.reproduce.contract import Figure, Outcome, Scale

PAPERS = {
    "s0": "S0: Differentially Private Empirical Cumulative Distribution Functions",
    "s1": "S1: Private Protocols for U-Statistics in the Local Model and Beyond",
    "s2": "S2: Differentially Private Regression Diagnostics",
    "s3": "S3: Differential Privacy for Classifier Evaluation",
    "s4": "S4: Differentially Private Projected Histograms",
}
OURS = "Our own measurements"


def write_gallery(folder: Path, shown: Iterable[tuple[Figure, Outcome]], scale: Scale) -> Path:
    """Writes gallery.html, a self-contained page; returns its path."""
    shown = sorted(shown, key=lambda each: _order(each[0]))
    rows = [(figure.name, _verdicts(outcome, scale)) for figure, outcome in shown]
    small = (
        '<p class="loud">Small sizes: seconds for each, and too few runs to prove anything. '
        "<code>tally reproduce all --full</code> has the papers' sizes.</p>"
    )
    body = [small if scale is Scale.SMALL else "", "<h2>Verdicts</h2>", pairs(rows)]
    paper = ""
    for figure, outcome in shown:
        if (of := _paper(figure)) != paper:
            paper = of
            body.append(f"<h2>{html.escape(of)}</h2>")
        body.append(_entry(figure, outcome, scale))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "gallery.html"
    path.write_text(page("The papers' figures, reproduced", "".join(body)), encoding="utf-8")
    return path


def _verdicts(outcome: Outcome, scale: Scale) -> str:
    ours = f"; ours: {outcome.our_verdict_at(scale)}" if outcome.ours else ""
    return outcome.verdict_at(scale) + ours


def _paper(figure: Figure) -> str:
    return PAPERS.get(figure.name.partition("-")[0], OURS)


def _order(figure: Figure) -> tuple[int, int, str]:
    """Sorts by paper, ours last, then by figure number, figures without a number first."""
    name = figure.name.rstrip("0123456789")
    paper = [*PAPERS.values(), OURS].index(_paper(figure))
    return paper, int(figure.name[len(name) :] or 0), figure.name


def _entry(figure: Figure, outcome: Outcome, scale: Scale) -> str:
    name = html.escape(figure.name)
    plots = "".join(image(path) for path in outcome.files if path.suffix == ".png")
    size = " --full" if scale is Scale.PAPER else " --small"
    parts = [
        f'<h3 id="{name}">{name}: {outcome.verdict_at(scale)}</h3>',
        f"<p>{html.escape(figure.claim)}</p>{plots}",
        _criteria("The claim as the paper states it", outcome.criteria),
    ]
    if outcome.ours:
        words = f"Ours: {outcome.our_verdict_at(scale)}. {outcome.why}"
        parts.append(_criteria(words, outcome.ours))
    numbers = outcome.measured or {
        key.replace("_", " "): f"{value:.6g}" if isinstance(value, float) else str(value)
        for key, value in outcome.figures.items()
        if isinstance(value, int | float | str)
    }
    parts.append(f"<p>The numbers behind it:</p>{pairs(numbers.items())}")
    parts.append(f"<p><code>tally reproduce {name}{size}</code></p>")
    return "".join(parts)


def _criteria(title: str, criteria: Mapping[str, bool]) -> str:
    rows = [("met" if met else "not met", criterion) for criterion, met in criteria.items()]
    return f"<p>{html.escape(title)}:</p>{pairs(rows)}"
