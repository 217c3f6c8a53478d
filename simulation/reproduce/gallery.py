"""The gallery: one page with every reproduced figure, its claim and the verdict on it.

Everything on the page is computed from the documents that figures left in their folders; no verdict
is written by hand.
"""

import base64
import html
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallyroom.simulation.reports.page import page, pairs
from tallyroom.simulation.reproduce.contract import Figure, Scale

PAPERS = {
    "s0": "S0: Differentially Private Empirical Cumulative Distribution Functions",
    "s1": "S1: Private Protocols for U-Statistics in the Local Model and Beyond",
    "s2": "S2: Differentially Private Regression Diagnostics",
    "s3": "S3: Differential Privacy for Classifier Evaluation",
    "s4": "S4: Differentially Private Projected Histograms",
}
OURS = "Our own measurements"
COLOURS = 256
"""Of an embedded picture: a third of the bytes, and no difference that can be seen."""
REPEATED = {
    "runs": "runs",
    "repeats": "runs",
    "folds": "folds",
    "draws": "draws per fold",
    "records": "records",
}


@dataclass(frozen=True)
class Shown:
    """A figure with the document that its run left."""

    figure: Figure
    folder: Path
    document: Mapping[str, Any]

    @classmethod
    def of(cls, figure: Figure, folder: Path) -> "Shown":
        text = (folder / f"{figure.name}.json").read_text(encoding="utf-8")
        return cls(figure, folder, json.loads(text))

    @property
    def small(self) -> bool:
        return bool(self.document["figures"]["scale"] == Scale.SMALL)

    @property
    def verdicts(self) -> str:
        ours = self.document.get("ours")
        return str(self.document["verdict"]) + (f"; ours: {ours['verdict']}" if ours else "")


def write_gallery(folder: Path, figures: Sequence[Figure], folders: Sequence[Path]) -> Path:
    """Writes gallery.html, a self-contained page; returns its path."""
    both = zip(figures, folders, strict=True)
    shown = sorted((Shown.of(*each) for each in both), key=lambda each: _order(each.figure))
    rows = [(each.figure.name, each.verdicts) for each in shown]
    small = (
        '<p class="loud">Small sizes: seconds for each, and too few runs to prove anything. '
        "<code>tally reproduce all --full</code> has the papers' sizes.</p>"
    )
    body = [small if any(each.small for each in shown) else "", "<h2>Verdicts</h2>", pairs(rows)]
    paper = ""
    for each in shown:
        if (of := _paper(each.figure)) != paper:
            paper = of
            body.append(f"<h2>{html.escape(of)}</h2>")
        body.append(_entry(each))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "gallery.html"
    path.write_text(page("The papers' figures, reproduced", "".join(body)), encoding="utf-8")
    return path


def _paper(figure: Figure) -> str:
    return PAPERS.get(figure.name.partition("-")[0], OURS)


def _order(figure: Figure) -> tuple[int, int, str]:
    """Sorts by paper, ours last, then by figure number, figures without a number first."""
    name = figure.name.rstrip("0123456789")
    paper = [*PAPERS.values(), OURS].index(_paper(figure))
    return paper, int(figure.name[len(name) :] or 0), figure.name


def _entry(shown: Shown) -> str:
    document, name = shown.document, html.escape(shown.figure.name)
    figures = document["figures"]
    pictures = [Path(path).name for path in document["files"] if path.endswith(".png")]
    parts = [
        f'<h3 id="{name}">{name}: {document["verdict"]}</h3>',
        f"<p>{html.escape(document['claim'])}</p>",
        *(_picture(shown.folder / picture) for picture in pictures),
        _criteria("The claim as the paper states it", figures["criteria"]),
    ]
    if ours := document.get("ours"):
        words = f"Ours: {ours['verdict']}. {ours['claim']}"
        parts.append(_criteria(words, figures["our_criteria"]))
    numbers = figures.get("measured") or {
        key.replace("_", " "): f"{value:.6g}" if isinstance(value, float) else str(value)
        for key, value in figures.items()
        if isinstance(value, int | float | str) and key not in {*REPEATED, "data", "scale"}
    }
    parts.append(f"<p>How it was measured:</p>{pairs(_measured(shown))}")
    if numbers:
        parts.append(f"<p>The numbers behind it:</p>{pairs(numbers.items())}")
    size = " --small" if shown.small else " --full"
    parts.append(f"<p><code>tally reproduce {name}{size}</code></p>")
    return "".join(parts)


def _measured(shown: Shown) -> list[tuple[str, object]]:
    """The data, with what stands in for the paper's, how often it was run, and for how long."""
    figures = shown.document["figures"]
    data = figures.get("data")
    if isinstance(data, Mapping):
        data = "; ".join(f"{key}: {value}" for key, value in data.items())
    rows: list[tuple[str, object]] = [("data", data)] if data else []
    if stand_in := shown.document.get("stand_in"):
        rows.append(("stand-in", stand_in))
    for key, word in REPEATED.items():
        if isinstance(many := figures.get(key), int):
            rows.append((word, f"{many:,}"))
    if (seconds := shown.document.get("seconds")) is not None:
        rows.append(("seconds", f"{seconds:,.0f}"))
    return rows


def _criteria(title: str, criteria: Mapping[str, bool]) -> str:
    rows = [("met" if met else "not met", criterion) for criterion, met in criteria.items()]
    return f"<p>{html.escape(title)}:</p>{pairs(rows)}"


def _picture(path: Path) -> str:
    from PIL import Image

    small = io.BytesIO()
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(COLOURS).save(small, "PNG", optimize=True)
    data = base64.b64encode(small.getvalue()).decode()
    return f'<img alt="{path.stem}" src="data:image/png;base64,{data}">'
