"""What a run gives back: the estimate, its error where the truth is known, privacy and the bill."""

import csv
import datetime as dt
import json
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.interval import COVERED, Interval
from tallyroom.protocols.run.promise import Promise
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import (
    Counts,
    Curve,
    Estimate,
    Shape,
    error_of,
    plain,
    shape_of,
)
from tallyroom.protocols.statistics.release import Intervals
from tallyroom.protocols.wire.messages import Role
from tallyroom.protocols.wire.meter import Bill
from tallyroom.simulation.machine import machine
from tallyroom.simulation.networks.network import network_of
from tallyroom.simulation.proof import Proof, interval_json, intervals_json
from tallyroom.simulation.times import Roles, Times

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_COLUMNS = 3
"""That the line below a picture names."""
MOST_BILL_ROWS = 1000
"""Of communication.csv by party; of more, parties are in one row."""
SCHEMA = 1

Caught = tuple[tuple[int, str], ...]


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


@lru_cache(maxsize=1)
def version() -> str:
    from importlib import metadata

    try:
        return metadata.version("tallyroom")
    except metadata.PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True, repr=False)
class Result:
    """`truth` is None where nobody knows it: in a deployment.

    `noiseless` is what the same computation gives without noise, clipped and rounded as it is; None
    where that is not known. `deviations` are the standard deviations of the noise in the values of
    the estimate; `foretold` says that they would be the same whatever had been released. `data`
    tells what was asked about: columns, records, bounds, and the grid.

    `notes` are what a user must be told: clipped values, dropouts, an answer that is not private.
    `unsmoothed` is the private curve that `estimate` was smoothed from, if it was; `deviations` are
    then of that one. `caught` are parties whose submissions were refused, with the reason;
    `refusals` parties that would not take part, with theirs.
    `server_cpu_seconds` is what all servers together computed, transport left out, and
    `prepare_cpu_seconds` how much of it did not depend on data; for `waiting_seconds` the run
    waited until deadlines for those that did not answer. `reused` says
    that an earlier release of the same data was given again, which costs nothing; `lost_pairs` are
    those that were to meet and are not in the estimate. `key` is what a deployed federation knows
    the question by. `proof` is what the servers signed for it. `style` is how a curve is drawn.
    `questions` are those of a study, in order: then privacy, bill and times are of them together,
    and each has its own proof; `study` is which one it is, with its parameters.
    `interval` is the one that is shown, of `intervals` by what they cover (`showing`): unless asked
    otherwise that of the noise, which is None where there is none. `command` is what gives
    the answer again, if a command gave it; `date` is when. `roles` are what each role's processes
    took, where they are on this machine.
    """

    statistic: str
    estimate: Estimate
    truth: Estimate | None
    privacy: Promise
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
    study: dict[str, object] = field(default_factory=dict)
    interval: Interval | None = None
    intervals: Intervals = field(default_factory=dict)
    date: str = field(default_factory=_now)
    command: str = ""
    prepare_cpu_seconds: float = 0.0
    waiting_seconds: float = 0.0
    foretold: bool = False
    roles: Roles = field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        """The estimate, with its error, table and picture."""
        return shape_of(self.estimate)

    def showing(self, covers: str) -> "Result":
        """The same, telling the interval of the noise or of the population (`COVERED`)."""
        return replace(self, interval=self.intervals[covers])

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
    def method_error(self) -> dict[str, float] | None:
        """What clipping, the grid or sampling of pairs did: the same computation without noise,
        against the truth."""
        return None if self.noiseless is None else error_of(self.noiseless, self.truth)

    @property
    def column(self) -> str:
        """The name of the column that it is about, where there is one."""
        columns = self.data.get("columns")
        return str(columns[0]) if isinstance(columns, list) and len(columns) == 1 else ""

    def origin(self) -> list[str]:
        """Where the answer is from: data, columns, bounds, records, who computed it and when."""
        data = self.data
        said = [str(data["name"])] if "name" in data else []
        columns, bounds = data.get("columns"), data.get("bounds")
        if isinstance(columns, list):
            more = len(columns) - MOST_COLUMNS
            others = [f"{more} other columns"] if more > 1 else columns[MOST_COLUMNS:]
            said.append(", ".join(map(str, [*columns[:MOST_COLUMNS], *others])))
        if "where" in data:
            said.append(f"where {data['where']}")
        if isinstance(bounds, list):
            said.append(f"[{bounds[0]:g}, {bounds[1]:g}]")
        if "records" in data:
            said.append(f"{data['records']:,} records")
        return [*said, f"tallyroom {version()}", self.date]

    def table(self) -> tuple[list[str], list[list[float | str]]]:
        """The estimate as a table, each value with its 95 % interval and its truth."""
        heads, rows = self.shape.table()
        across = self.style.across
        names = {"x": self.column if across == "value" and self.column else across}
        names |= {"y": "estimate", "value": "estimate", "count": "estimate"}
        if self.shape.scalar or isinstance(self.estimate, Curve | Counts):
            heads = [names.get(head, head) for head in heads]
        if self.shape.scalar:
            heads, rows = ["statistic", *heads], [[self.statistic, *rows[0]]]
        fitting = self._beside()
        rows = [[*row, *(found[at] for found in fitting.values())] for at, row in enumerate(rows)]
        return [*heads, *fitting], rows

    def _beside(self) -> dict[str, list[float]]:
        """What stands beside each row's value; where a row has several, beside each what it may be
        off by."""
        columns: dict[str, NDArray[np.float64]] = {}
        if self.interval is not None and not self.interval.unknown:
            columns = {
                "±": (self.interval.high - self.interval.low) / 2,
                "low": self.interval.low,
                "high": self.interval.high,
            }
        if self.truth is not None:
            columns["truth"] = shape_of(self.truth).values()
        found: dict[str, list[float]] = {}
        for head, numbers in columns.items():
            for name, each in self.shape.in_rows(numbers).items():
                if not name:
                    found[head] = each.tolist()
                elif head == "±":
                    found[f"± {name}"] = each.tolist()
        return found

    @property
    def times(self) -> Times:
        """Where the time went; of a study, of its questions together."""
        if self.questions:
            return Times.together(each.times for each in self.questions)
        name = str(self.federation.get("network", "none"))
        network = None if name == "none" or self.reused else network_of(name)
        return Times.of(self.bill, self.seconds, self.waiting_seconds, network, self.roles)

    @property
    def caught_by_name(self) -> list[tuple[str, str]]:
        return [(Role.PARTY.named(party), reason) for party, reason in self.caught]

    def as_json(self) -> dict[str, object]:
        """The object that `--json` prints. What there is none of is not there."""
        document: dict[str, object] = {
            "schema": SCHEMA,
            "statistic": self.statistic,
            "version": version(),
            "date": self.date,
            **({"command": self.command} if self.command else {}),
            "machine": machine(),
            **({"data": self.data} if self.data else {}),
            "estimate": plain(self.estimate),
        }
        if self.interval is not None:
            document["interval"] = interval_json(self.interval, self.shape.scalar)
        if self.intervals:
            document["intervals"] = intervals_json(self.intervals, self.shape.scalar)
        if self.truth is not None:
            document |= {"truth": plain(self.truth), "error": plain(self.error)}
        if self.noiseless is not None:
            document["noise_error"] = plain(self.noise_error)
        if self.method_error is not None:
            document["method_error"] = plain(self.method_error)
        document |= {
            "privacy": self.privacy.as_json(),
            "federation": self.federation,
            "communication": self.communication,
            "timing": {
                "total_seconds": sum(self.seconds.values()),
                "server_cpu_seconds": self.server_cpu_seconds,
                **(
                    {"prepare_cpu_seconds": self.prepare_cpu_seconds}
                    if self.prepare_cpu_seconds
                    else {}
                ),
                "phases": self.seconds,
                **self.times.as_json(),
            },
        }
        if self.roles:
            document["roles"] = self.roles
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
            document["study"] = self.study
            document["questions"] = [each._as_question() for each in self.questions]
        if self.notes:
            document["notes"] = list(self.notes)
        return document

    def _as_question(self) -> dict[str, object]:
        """As one of a study's: the whole of it, with what it cost at its head."""
        document = self.as_json()
        del document["schema"], document["machine"]
        cost = self.privacy.charged(self.reused) | {"bytes": self.bill.total.bytes}
        return {"statistic": self.statistic, **cost, **document}

    def plot(self, ax: "Axes | None" = None) -> "Figure":
        """The estimate beside the truth, as a matplotlib figure; or on axes that are there."""
        from tallyroom.simulation.reports.figures import draw_estimate, estimate_figure

        if ax is None:
            return estimate_figure(self)
        draw_estimate(self, ax)
        figure = ax.get_figure(root=True)
        assert figure is not None
        return figure

    def to_frame(self) -> "pandas.DataFrame":
        """The table as a pandas data frame; its `attrs["interval"]` says what ± covers. Raises
        `LocalError` where pandas is not installed."""
        try:
            import pandas
        except ImportError:
            raise LocalError("a data frame needs the package pandas") from None
        heads, rows = self.table()
        frame = pandas.DataFrame(rows, columns=heads)
        frame.attrs["interval"] = self.covered
        return frame

    @property
    def covered(self) -> str:
        """What the interval covers, in words; empty where there is none."""
        if self.interval is None or self.interval.unknown:
            return ""
        return f"95 % interval of {COVERED[self.interval.covers]}"

    def __repr__(self) -> str:
        return f"<{self.statistic}: {self.summary()}>"

    def summary(self) -> str:
        """The answer in a line, with its interval and what that covers."""
        shown = str(self.shape)
        if self.interval is not None and self.interval.unknown:
            return f"{shown} (no interval: {self.interval.unknown})"
        if self.shape.scalar and self.interval is not None:
            low, high = float(self.interval.low[0]), float(self.interval.high[0])
            beside = self.interval.without
            covered = COVERED[self.interval.covers]
            only = f"; of {covered} alone, not of {beside}" if beside else f", of {covered}"
            if np.isfinite(high - low):  # of what is chosen, nobody knows
                shown += f" ± {(high - low) / 2:.2g} (95 %: {low:.6g} to {high:.6g}{only})"
        return shown

    def _repr_html_(self) -> str:
        """In a notebook: the answer, its picture, and its table."""
        from tallyroom.simulation.reports.page import notebook_cell

        return notebook_cell(self)

    def write(self, folder: Path | str) -> list[Path]:
        """Writes result.json, estimate.csv and .tex, communication.csv, plots and report.html;
        returns their paths."""
        from tallyroom.simulation.reports.page import write_paper, write_report

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        document = folder / "result.json"
        document.write_text(json.dumps(self.as_json(), indent=1, allow_nan=False) + "\n")
        table = folder / "communication.csv"
        with table.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["phase", "round", "sender", "receiver", "bytes", "messages"])
            parties = list(self.bill.rows())
            few = len(parties) <= MOST_BILL_ROWS
            writer.writerows(parties if few else self.bill.rows_of_roles())
        answer = folder / "estimate.csv"
        with answer.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            heads, rows = self.table()
            writer.writerow([*heads, "source"])
            loss = self.privacy.loss
            cost = f"{loss.letter} = {loss.as_json()[loss.measure]}"
            source = " · ".join([*self.origin(), cost, *filter(None, [self.covered])])
            writer.writerows([*row, source if not at else ""] for at, row in enumerate(rows))
        return [document, answer, table, write_paper(self, folder), *write_report(self, folder)]
