"""What a run gives back: the estimate, its error where the truth is known, privacy and the bill."""

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from protocols.run.messages import Role
from protocols.run.meter import Bill
from protocols.statistics.drawing import Style
from protocols.statistics.estimates import Estimate, Shape, error_of, plain, shape_of
from simulation.proof import Proof

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = 1

Caught = tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Privacy:
    """`epsilon` None means that no noise was added: the answer is not private."""

    epsilon: float | None
    delta: float
    mechanism: str
    noise: str
    threat_model: str

    def as_json(self) -> dict[str, object]:
        epsilon = "inf" if self.epsilon is None else self.epsilon
        return {**self.__dict__, "epsilon": epsilon}


@dataclass(frozen=True)
class Result:
    """`truth` is None where nobody knows it: in a deployment.

    `noiseless` is what the same computation gives without noise, clipped and rounded as it is; None
    where that is not known. `deviations` are the standard deviations of the noise in the values of
    the estimate. `data` tells what was asked about: columns, records, bounds, and the grid.

    `notes` are what a user must be told: clipped values, dropouts, an answer that is not private.
    `unsmoothed` is the private curve that `estimate` was smoothed from, if it was; `deviations` are
    then of that one. `caught` are parties whose submissions were refused, with the reason;
    `refusals` parties that would not take part, with theirs.
    `server_cpu_seconds` is what all servers together computed, transport left out. `reused` says
    that an earlier release of the same data was given again, which costs nothing; `lost_pairs` are
    those that were to meet and are not in the estimate. `key` is what a deployed federation knows
    the question by. `proof` is what the servers signed for it. `style` is how a curve is drawn.
    `questions` are those of a study, in order: then privacy, bill and times are of them together,
    and each has its own proof.
    """

    statistic: str
    estimate: Estimate
    truth: Estimate | None
    privacy: Privacy
    federation: dict[str, object]
    bill: Bill
    seconds: dict[str, float]
    deviations: NDArray[np.float64]
    notes: tuple[str, ...] = field(default=())
    unsmoothed: Estimate | None = None
    caught: Caught = ()
    server_cpu_seconds: float = 0.0
    refusals: Caught = ()
    noiseless: Estimate | None = None
    data: dict[str, object] = field(default_factory=dict)
    reused: bool = False
    lost_pairs: int = 0
    key: str = ""
    proof: Proof | None = None
    style: Style = field(default_factory=Style)
    questions: "tuple[Result, ...]" = ()

    @property
    def shape(self) -> Shape:
        """The estimate, with its error, table and picture."""
        return shape_of(self.estimate)

    @property
    def communication(self) -> dict[str, object]:
        return self.bill.as_json()

    @property
    def error(self) -> dict[str, float] | None:
        """Against the truth; None where that is not known."""
        return error_of(self.estimate, self.truth)

    @property
    def noise_error(self) -> dict[str, float] | None:
        """What the noise alone did: against the same computation without it."""
        return error_of(self.estimate, self.noiseless)

    @property
    def caught_by_name(self) -> list[tuple[str, str]]:
        return [(Role.PARTY.named(party), reason) for party, reason in self.caught]

    def as_json(self) -> dict[str, object]:
        """The object that `--json` prints. What there is none of is not there."""
        document: dict[str, object] = {
            "schema": SCHEMA,
            "statistic": self.statistic,
            **({"data": self.data} if self.data else {}),
            "estimate": plain(self.estimate),
        }
        if self.truth is not None:
            document |= {"truth": plain(self.truth), "error": plain(self.error)}
        if self.noiseless is not None:
            document["noise_error"] = plain(self.noise_error)
        document |= {
            "privacy": self.privacy.as_json(),
            "federation": self.federation,
            "communication": self.communication,
            "timing": {
                "total_seconds": sum(self.seconds.values()),
                "server_cpu_seconds": self.server_cpu_seconds,
                "phases": self.seconds,
            },
        }
        if self.caught:
            document["caught"] = [
                {"party": party, "reason": reason} for party, reason in self.caught_by_name
            ]
        if self.refusals:
            document["refusals"] = [
                {"party": Role.PARTY.named(party), "reason": reason}
                for party, reason in self.refusals
            ]
        if self.reused:
            document["reused"] = True
        if self.lost_pairs:
            document["lost_pairs"] = self.lost_pairs
        if self.key:
            document["key"] = self.key
        if self.proof is not None:
            document["receipts"] = self.proof.as_json()
        if self.questions:
            document["questions"] = [each._as_question() for each in self.questions]
        if self.notes:
            document["notes"] = list(self.notes)
        return document

    def _as_question(self) -> dict[str, object]:
        """As one of a study's: the whole of it, with what it cost at its head."""
        document = self.as_json()
        del document["schema"]
        spent = 0.0 if self.reused else self.privacy.as_json()["epsilon"]
        cost = {"epsilon": spent, "delta": self.privacy.delta, "bytes": self.bill.total.bytes}
        return {"statistic": self.statistic, **cost, **document}

    def plot(self) -> "Figure":
        """The estimate beside the truth, as a matplotlib figure."""
        from simulation.reports.figures import estimate_figure

        return estimate_figure(self)

    def write(self, folder: Path) -> list[Path]:
        """Writes result.json, communication.csv, PNG plots and report.html; returns their paths."""
        from simulation.reports.page import write_report

        folder.mkdir(parents=True, exist_ok=True)
        document = folder / "result.json"
        document.write_text(json.dumps(self.as_json(), indent=1, allow_nan=False) + "\n")
        table = folder / "communication.csv"
        with table.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["phase", "round", "sender", "receiver", "bytes", "messages"])
            writer.writerows(self.bill.rows())
        return [document, table, *write_report(self, folder)]
