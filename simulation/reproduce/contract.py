"""The contract of a reproduced figure: a claim, a run that measures, and criteria that may fail."""

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
    """`PAPER` has the paper's sizes and number of runs; `SMALL` takes seconds and proves little."""

    PAPER = "paper"
    SMALL = "small"


@dataclass(frozen=True)
class Outcome:
    """`criteria` states the claim in numbers, in words, with whether each criterion was met. It is
    the claim as the paper states it, judged on the paper's own mechanism, and decides the verdict.

    `ours` has criteria for something else: this project's mechanism, or what we think the paper
    must have computed. `why` says which, and how it differs. `measured` has the number behind a
    criterion.
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
        """A small run has too few repetitions to show that a claim holds, or that it fails."""
        return _at(scale, self.verdict)

    def our_verdict_at(self, scale: Scale) -> str:
        return _at(scale, _verdict(self.ours))


def _verdict(criteria: Mapping[str, bool]) -> str:
    return "holds" if criteria and all(criteria.values()) else "fails"


def _at(scale: Scale, verdict: str) -> str:
    return "inconclusive" if scale is Scale.SMALL else verdict


@dataclass(frozen=True)
class Figure:
    """`claim` is one sentence with the section that it comes from. `run` writes into an existing
    folder.

    A failed claim is a result. `package` is an optional dependency that `run` needs. `stand_in`
    says which data of the paper could not be had, and what takes its place.
    """

    name: str
    claim: str
    run: Callable[[Path, Scale], Outcome]
    package: str | None = None
    stand_in: str = ""

    def check(self) -> None:
        """Raises `LocalError` if the required package is not installed."""
        if self.package is not None and find_spec(self.package) is None:
            raise LocalError(f"{self.name} needs the package {self.package}")

    def document(
        self, outcome: Outcome, scale: Scale, seconds: float | None = None
    ) -> dict[str, object]:
        """The object that `--json` prints. `seconds` is how long the run took."""
        figures = {"scale": str(scale), **outcome.figures, "criteria": dict(outcome.criteria)}
        ours: dict[str, object] = {}
        if outcome.ours:
            figures["our_criteria"] = dict(outcome.ours)
            ours = {"ours": {"claim": outcome.why, "verdict": outcome.our_verdict_at(scale)}}
        if outcome.measured:
            figures["measured"] = dict(outcome.measured)
        return {
            "schema": 1,
            "figure": self.name,
            "claim": self.claim,
            "verdict": outcome.verdict_at(scale),
            **ours,
            **({"stand_in": self.stand_in} if self.stand_in else {}),
            **({} if seconds is None else {"seconds": round(seconds, 1)}),
            "figures": figures,
            "files": [str(path) for path in outcome.files],
        }


def write_table(path: Path, rows: Iterable[Row]) -> Path:
    """Writes a CSV with the columns of the first row; the other rows must have the same columns."""
    rows = list(rows)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path
