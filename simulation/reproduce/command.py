"""Reproduces figures by name and reports the verdicts on their claims."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from tallyroom.simulation.reports.terminal import err, out
from tallyroom.simulation.reproduce.contract import Figure, Outcome, Scale
from tallyroom.simulation.reproduce.gallery import write_gallery
from tallyroom.simulation.reproduce.registry import figure_named, loadable

FOLDER = Path("reproduce")


def named(names: Sequence[str]) -> list[Figure]:
    """Returns the figures asked for, each once.

    Raises `LocalError` on a figure that is unknown or cannot be run here, before any runs.
    """
    if "all" in names:
        figures, broken = loadable()
        for why in broken:
            err.print(f"left out: {why}", markup=False)
    else:
        figures = [figure_named(name) for name in dict.fromkeys(names)]
    for figure in figures:
        figure.check()
    return figures


def folder_of(figure: Figure, chosen: Path | None) -> Path:
    """The default is a folder per figure; file names begin with the figure's, so several figures
    may share a chosen folder."""
    return FOLDER / figure.name if chosen is None else chosen


def reproduce(
    figures: Sequence[Figure],
    chosen: Path | None,
    scale: Scale,
    as_json: bool,
    gallery: bool = False,
) -> None:
    """Prints one JSON object per line, or a few lines for people. A failed claim is not an error.

    A `gallery` is one page with all figures, from the file NAME.json that each leaves in its
    folder.
    """
    for figure in figures:
        if err.is_terminal:
            err.print(f"[dim]{figure.name} …[/dim]")
        folder = folder_of(figure, chosen)
        folder.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        outcome = figure.run(folder, scale)
        document = figure.document(outcome, scale, time.monotonic() - started)
        text = json.dumps(document, allow_nan=False)
        (folder / f"{figure.name}.json").write_text(text + "\n", encoding="utf-8")
        if as_json:
            print(text, flush=True)
        else:
            _show(figure, outcome, scale)
    if gallery:
        folders = [folder_of(figure, chosen) for figure in figures]
        page = write_gallery(FOLDER if chosen is None else chosen, figures, folders)
        if not as_json:
            out.print(f"the gallery: {page}", markup=False)


def _show(figure: Figure, outcome: Outcome, scale: Scale) -> None:
    small = " (small: too few runs to prove anything)" if scale is Scale.SMALL else ""
    out.print(f"[bold]{figure.name}[/bold]  {outcome.verdict_at(scale)}{small}")
    out.print(f"  {figure.claim}", markup=False)
    for criterion, met in outcome.criteria.items():
        out.print(f"  {'yes' if met else 'no ':<4}{criterion}", markup=False)
    if outcome.ours:
        out.print(f"  ours: {outcome.our_verdict_at(scale)}. {outcome.why}", markup=False)
        for criterion, met in outcome.ours.items():
            out.print(f"    {'yes' if met else 'no ':<4}{criterion}", markup=False)
    for name, words in outcome.measured.items():
        out.print(f"  {name}: {words}", markup=False)
    for name, value in outcome.figures.items():
        if isinstance(value, int | float | str):
            shown = f"{value:.6g}" if isinstance(value, float) else str(value)
            out.print(f"  {name.replace('_', ' ')}: {shown}", markup=False)
    if figure.stand_in:
        out.print(f"  stand-in: {figure.stand_in}", markup=False)
    for path in outcome.files:
        out.print(f"  written {path}", markup=False)
