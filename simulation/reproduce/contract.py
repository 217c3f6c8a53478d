"""What a reproduced figure is: a claim, a run that measures, and criteria that may fail."""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from tallyroom.protocols.errors import LocalError

Number = float | int | str
Row = Mapping[str, Number]


class Scale(StrEnum):
    """`PAPER` has the paper's sizes and runs; `SMALL` takes seconds and proves little."""

    PAPER = "paper"
    SMALL = "small"


@dataclass(frozen=True)
class Outcome:
    """`criteria` are what the claim comes to in numbers, in words, with whether each was met: the
    claim as the paper states it, by which it is judged. Where that is not what the paper must have
    computed, `ours` are the criteria of what we take it for, and `why` says what differs.
    `measured` is the number behind a criterion.
    """

    criteria: Mapping[str, bool]
    figures: Mapping[str, object]
    files: Sequence[Path]
    ours: Mapping[str, bool] = field(default_factory=dict)
    why: str = ""
    measured: Mapping[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        return _verdict(self.criteria)

    def verdict_at(self, scale: Scale) -> str:
        """Too few runs cannot refute a claim."""
        return _at(scale, self.verdict)

    def our_verdict_at(self, scale: Scale) -> str:
        return _at(scale, _verdict(self.ours))


def _verdict(criteria: Mapping[str, bool]) -> str:
    return "holds" if criteria and all(criteria.values()) else "fails"


def _at(scale: Scale, verdict: str) -> str:
    return "inconclusive" if scale is Scale.SMALL and verdict == "fails" else verdict


@dataclass(frozen=True)
class Figure:
    """`claim` is one sentence with the section it is from. `run` writes into an existing folder.

    A claim that fails is a result. `package` is an optional dependency that `run` cannot do
    without.
    """

    name: str
    claim: str
    run: Callable[[Path, Scale], Outcome]
    package: str | None = None

    def check(self) -> None:
        """Raises `LocalError` if the package it needs is not installed."""
        if self.package is not None and find_spec(self.package) is None:
            raise LocalError(f"{self.name} needs the package {self.package}")

    def document(self, outcome: Outcome, scale: Scale) -> dict[str, object]:
        """The object that `--json` prints."""
        figures = {"scale": str(scale), **outcome.figures, "criteria": dict(outcome.criteria)}
        if outcome.ours:
            figures |= {
                "our_criteria": dict(outcome.ours),
                "our_verdict": outcome.our_verdict_at(scale),
                "why_ours": outcome.why,
            }
        if outcome.measured:
            figures["measured"] = dict(outcome.measured)
        return {
            "schema": 1,
            "figure": self.name,
            "claim": self.claim,
            "verdict": outcome.verdict_at(scale),
            "figures": figures,
            "files": [str(path) for path in outcome.files],
        }


def write_table(path: Path, rows: Iterable[Row]) -> Path:
    """A CSV with the columns of the first row; the others must have the same."""
    rows = list(rows)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path
