"""One question put to several aggregators: what each answers, costs and promises."""

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tallyroom.protocols.aggregation import aggregator_named, aggregator_names
from tallyroom.protocols.errors import LocalError, RunFailed, TallyError
from tallyroom.protocols.statistics.estimates import plain
from tallyroom.simulation.compared_programs import ComparedProgram
from tallyroom.simulation.reports.latex import latex
from tallyroom.simulation.reports.trust import collusion
from tallyroom.simulation.result import SCHEMA, Result
from tallyroom.simulation.times import COLUMNS, NAMES, PARTS

HEADS = (
    "aggregator",
    "rmse",
    "expected",
    "bytes",
    "CPU ms",
    "rounds",
    "collude",
    "caught",
)
"""They fit 80 columns; the threat models are told below."""
LEGEND = (
    "rmse: error of the answer against the truth, and its spread if asked several times; expected: "
    "error of the noise alone; bytes: per party; CPU: of all servers together; collude: how many "
    "servers may; caught: parties that cheated and were found out"
)

TIME_HEADS = ("aggregator", "wall", "waiting", "network", "computing", "party", "server", "coord.")
TIMES = (*PARTS, *(f"{name}_computing_seconds" for name in NAMES.values()))
TIME_LEGEND = (
    "seconds of a run; wall = waiting, for those that did not answer, + network + computing; the "
    "computing of each role"
)

FIELDS = (
    "aggregator",
    "servers",
    "runs",
    "rmse",
    "rmse_spread",
    "max_error",
    "expected_rmse",
    "party_bytes",
    "total_bytes",
    "server_cpu_seconds",
    *COLUMNS,
    "rounds",
    "may_collude",
    "behaviour",
    "catches",
    "caught",
)


@dataclass(frozen=True)
class ComparedAggregator:
    """What came of one aggregator, by its spec. `others` are runs of the same question again."""

    aggregator: str
    result: Result
    others: tuple[Result, ...] = ()

    @property
    def rmses(self) -> list[float]:
        return [(each.error or {}).get("rmse", math.nan) for each in (self.result, *self.others)]

    @property
    def rmse(self) -> float:
        """The mean over all runs."""
        return float(np.mean(self.rmses))

    @property
    def rmse_spread(self) -> float | None:
        """Its standard deviation from run to run; None for a single one."""
        return float(np.std(self.rmses, ddof=1)) if self.others else None

    @property
    def expected_rmse(self) -> float | None:
        """What the noise alone makes of it on average; None where that is not known."""
        mean = float(np.mean(self.result.deviations**2))
        return math.sqrt(mean) if math.isfinite(mean) else None

    @property
    def party_bytes(self) -> float:
        return float(self.result.bill.party_bytes().mean())

    @property
    def server_cpu_seconds(self) -> float:
        return self.result.server_cpu_seconds

    @property
    def times(self) -> dict[str, float]:
        """Means over all runs, by column."""
        each = [run.times.parts | run.times.of_roles for run in (self.result, *self.others)]
        return {name: float(np.mean([one[name] for one in each])) for name in each[0]}

    def as_json(self) -> dict[str, object]:
        result, servers = self.result, self.result.federation["servers"]
        count = servers if isinstance(servers, int) else 1
        spec = self.aggregator if result.questions else str(result.federation["aggregator"])
        model = aggregator_named(spec).threat_model(count)
        return {
            "aggregator": self.aggregator,
            "servers": count,
            "runs": 1 + len(self.others),
            "rmse": plain(self.rmse),
            "rmse_spread": plain(self.rmse_spread),
            "max_error": plain((result.error or {}).get("max")),
            "expected_rmse": self.expected_rmse,
            "party_bytes": self.party_bytes,
            "total_bytes": result.bill.total.bytes,
            "server_cpu_seconds": result.server_cpu_seconds,
            **self.times,
            "rounds": result.bill.rounds,
            "may_collude": collusion(model, count),
            "behaviour": model.behaviour,
            "catches": model.catches,
            "caught": [party for party, _ in result.caught_by_name],
        }

    def cells(self) -> tuple[str, ...]:
        row = self.as_json()
        spread, expected = self.rmse_spread, self.expected_rmse
        caught = [party for party, _ in self.result.caught_by_name]
        return (
            self.aggregator,
            f"{self.rmse:.3g}" + ("" if spread is None else f" ± {spread:.1g}"),
            "unknown" if expected is None else f"{expected:.3g}",
            f"{self.party_bytes:,.0f}",
            f"{1000 * self.result.server_cpu_seconds:.3g}",
            str(row["rounds"]),
            str(row["may_collude"]).removeprefix("any "),
            f"{len(caught)} parties" if len(caught) > 1 else "".join(caught) or "nobody",
        )

    def time_cells(self) -> tuple[str, ...]:
        times = self.times
        return self.aggregator, *(f"{times[at]:.3g}" if at in times else "" for at in TIMES)

    @property
    def behaviour(self) -> str:
        return str(self.as_json()["behaviour"])


@dataclass(frozen=True)
class AggregatorComparison:
    """`unable` are aggregators that could not answer, with the reason; `programs` stand beside."""

    statistic: str
    rows: list[ComparedAggregator]
    unable: list[tuple[str, str]]
    programs: tuple[ComparedProgram, ...] = ()

    @property
    def everything(self) -> "list[ComparedAggregator | ComparedProgram]":
        """Aggregators, and programs of others that were metered."""
        return [*self.rows, *self.programs]

    @property
    def title(self) -> str:
        result = self.rows[0].result
        return f"{self.statistic}, {result.privacy.cost}, {result.federation['parties']} parties"

    def notes(self) -> Iterator[str]:
        """What must be told: once if it is so for all, else by aggregator."""
        of_all = set.intersection(*(set(row.result.notes) for row in self.rows))
        yield from (note for note in self.rows[0].result.notes if note in of_all)
        for row in self.rows:
            for note in row.result.notes:
                if note not in of_all:
                    yield f"{row.aggregator}: {note}"

    def as_json(self) -> dict[str, object]:
        """The object that `--json` prints."""
        result = self.rows[0].result
        loss = result.privacy.loss
        shared = ("parties", "runtime", "network", "seed")
        return {
            "schema": SCHEMA,
            "statistic": self.statistic,
            loss.measure: loss.as_json()[loss.measure],
            "federation": {key: result.federation[key] for key in shared},
            "aggregators": [row.as_json() for row in self.rows],
            **({"programs": [row.as_json() for row in self.programs]} if self.programs else {}),
            "unable": [{"aggregator": name, "reason": reason} for name, reason in self.unable],
            "notes": list(self.notes()),
        }

    def write(self, folder: Path) -> list[Path]:
        """Writes comparison.json, .csv, .tex, .png and .html; returns their paths."""
        from tallyroom.simulation.reports.comparison_page import comparison_figure, comparison_page

        folder.mkdir(parents=True, exist_ok=True)
        kinds = ("json", "csv", "tex", "png", "html")
        paths = [folder / f"comparison.{kind}" for kind in kinds]
        document, table, paper, plot, page = paths
        document.write_text(json.dumps(self.as_json(), indent=1, allow_nan=False) + "\n")
        with table.open("w", newline="") as file:
            writer = csv.DictWriter(file, [*FIELDS, "reason"], lineterminator="\n")
            writer.writeheader()
            for row in self.everything:
                found = row.as_json()
                writer.writerow(found | {"caught": " ".join(map(str, _list(found["caught"])))})
            writer.writerows({"aggregator": name, "reason": why} for name, why in self.unable)
        rows = [row.cells() for row in self.everything]
        timed = [row.time_cells() for row in self.rows]
        paper.write_text(latex(HEADS, rows) + "\n" + latex(TIME_HEADS, timed), encoding="utf-8")
        comparison_figure(self).savefig(plot)
        page.write_text(comparison_page(self, plot), encoding="utf-8")
        return paths


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def compare(
    statistic: str,
    specs: Iterable[str] | None,
    answer: Callable[[str, int], Result],
    repeat: int = 1,
) -> AggregatorComparison:
    """Has each aggregator answer `repeat` times; without `specs`, all that are installed.

    Raises `LocalError` for a spec that is wrong, and what is in the way if none can answer.
    """
    if specs is None:
        chosen = aggregator_names()
    else:
        chosen = list(dict.fromkeys(specs))
        for spec in chosen:
            aggregator_named(spec)
    rows: list[ComparedAggregator] = []
    errors: dict[str, TallyError] = {}
    for spec in chosen:
        try:
            first, *others = (answer(spec, time) for time in range(repeat))
            rows.append(ComparedAggregator(spec, first, tuple(others)))
        except TallyError as error:
            errors[spec] = error
    if not rows:
        raise _in_the_way(errors)
    return AggregatorComparison(
        statistic, rows, [(spec, str(error)) for spec, error in errors.items()]
    )


def _in_the_way(errors: dict[str, TallyError]) -> TallyError:
    reasons = {str(error) for error in errors.values()}
    first = next(iter(errors.values()))
    if len(reasons) == 1:
        return first
    all_of_them = "; ".join(f"{spec}: {error}" for spec, error in errors.items())
    kind = LocalError if all(isinstance(e, LocalError) for e in errors.values()) else RunFailed
    return kind(f"no aggregator can answer: {all_of_them}")
