"""`tally plan STATISTIC`: the cost and error of a question, before any ε is spent."""

import dataclasses
import json
import math
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from tallyroom.parties.data import load
from tallyroom.parties.dataset import Dataset
from tallyroom.protocols.aggregation import aggregator_named, aggregator_names
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.bounded import with_bounds
from tallyroom.protocols.statistics.contract import ReadBetweenThresholds
from tallyroom.simulation.command.by_statistic import (
    ChosenOptions,
    StatisticGroup,
    by_statistic,
    need_statistic,
    statistic_command,
)
from tallyroom.simulation.command.common import DATA, FEDERATION, CompareOptions, asking, option
from tallyroom.simulation.command.run import asked_about, federation_of
from tallyroom.simulation.federation import Federation
from tallyroom.simulation.planning.plan import Planned, Planning, least_epsilon, plan, search
from tallyroom.simulation.planning.rehearsal import MOST_PARTIES, Rehearsal, like, repeated
from tallyroom.simulation.planning.stand_in import stand_in
from tallyroom.simulation.planning.thresholds import LADDER, Thresholds
from tallyroom.simulation.reports.terminal import show_table

TARGET = "Target"
HEADS = (
    "aggregator",
    "ε",
    "error",
    "bytes",
    "server's",
    "rounds",
    "lan s",
    "wan s",
    "mobile s",
    "MB",
)
LEGEND = (
    "error: expected, against the truth (rmse); bytes: per party; server's: bytes of the busiest "
    "server; seconds: network and computing, on a LAN, a WAN and a mobile network; MB: memory of "
    "all roles in one process"
)


THRESHOLDS = "thresholds"
MORE = (THRESHOLDS, "between")
LEGEND_MORE = (
    "; thresholds: the best number found (--thresholds fixes it); between: the error of reading "
    "between them, which a target includes"
)


def whole_number(text: str) -> int:
    """Reads 100000000, and 1e8 too."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value.is_integer():
        raise typer.BadParameter(f"{text!r} is not a whole number")
    return int(value)


@dataclass(frozen=True)
class PlanOptions(CompareOptions):
    """`tally plan`: no party or server is asked."""

    target_error: Annotated[
        float | None,
        option(
            TARGET,
            "Find the least ε, and the thresholds, with an expected error (rmse) of at most this.",
        ),
    ] = None
    target_bytes: Annotated[
        float | None,
        option(TARGET, "Leave out aggregators that take more bytes per party than this."),
    ] = None
    parties: Annotated[
        int | None,
        option(
            FEDERATION,
            "Number of parties; 20 unless the data says. More than there are records, as 1e8, are "
            "planned on paper, with one record each.",
            parser=whole_number,
            metavar="<int>",
        ),
    ] = None
    public: Annotated[
        str | None, option(DATA, "PUBLIC data to rehearse on; if left out, uniform values.")
    ] = None


def plan_statistic(chosen: ChosenOptions, options: PlanOptions) -> None:
    if options.parties is not None and options.parties < 1:
        raise LocalError("a federation needs at least one party")
    for name in ("target_error", "target_bytes"):
        value = getattr(options, name)
        if value is not None and not (math.isfinite(value) and value > 0):
            raise LocalError(f"--{name.replace('_', '-')} must be a positive number, not {value:g}")
    for name in ("out", "runtime", "repeat", "beside", "dropout", "cheat", "seed"):
        given = getattr(options, name)
        default = next(f.default for f in dataclasses.fields(options) if f.name == name)
        if given not in (default, []):
            raise LocalError(f"--{name} applies to runs only: a plan is rehearsed without it")
    targets = options.target_error is not None or options.target_bytes is not None
    specs = options.aggregator or (aggregator_names() if targets else ["additive"])
    for spec in specs:
        aggregator_named(spec)
    planning = planning_of(chosen, options)
    by_epsilon = options.target_error is not None
    plans, unable = search(planning, specs, by_epsilon, options.target_bytes)
    if not plans:
        raise RunFailed("; ".join(f"{spec}: {reason}" for spec, reason in unable))
    if options.as_json:
        document = {
            "schema": 1,
            "statistic": chosen.kind.name,
            "plans": [each.as_json() for each in plans],
            "unable": [{"aggregator": spec, "reason": reason} for spec, reason in unable],
        }
        print(json.dumps(document, allow_nan=False))
        return
    searched = any(each.thresholds is not None for each in plans)
    heads, legend = (HEADS, LEGEND) if not searched else ((*HEADS, *MORE), LEGEND + LEGEND_MORE)
    show_table(heads, [_cells(each)[: len(heads)] for each in plans])
    print(f"\n{legend}\n")
    for each in plans:
        delta = float(each.loss.delta)
        print(f"{each.aggregator}: {each.mechanism}; δ {delta:g}; error by the {each.basis}")
    for spec, reason in unable:
        print(f"{spec} cannot be used: {reason}")


def _cells(found: "Planned") -> tuple[str, ...]:
    return (
        found.aggregator,
        f"{found.loss.size:g}",
        "unknown" if found.error is None else f"{found.error:.3g}",
        f"{found.party_bytes:,.0f}",
        f"{found.server_bytes:,.0f}",
        str(found.rounds),
        *(f"{seconds:.3g}" for seconds in found.seconds.values()),
        f"{found.memory / 1e6:.3g}",
        str(found.thresholds),
        f"{found.between:.3g}",
    )


def planning_of(chosen: ChosenOptions, options: PlanOptions) -> "Planning":
    """How one aggregator is planned. With a target, the number of thresholds is searched too,
    unless it was given or the question has none."""

    targets = options.target_error is not None or options.target_bytes is not None
    thresholds = _thresholds(chosen, options) if targets else None
    rehearse = rehearsal(chosen, options)

    def planned(spec: str) -> "Planned":
        error, most_bytes = options.target_error, options.target_bytes
        if thresholds is not None and error is not None:
            return thresholds.for_error(spec, error, most_bytes)
        if thresholds is not None and most_bytes is not None:
            return thresholds.for_bytes(spec, options.granted, most_bytes)
        if error is not None:
            return least_epsilon(rehearse, spec, error)
        return plan(rehearse, spec, options.granted)

    return planned


def _thresholds(chosen: ChosenOptions, options: PlanOptions) -> "Thresholds | None":
    known = any(each.name == THRESHOLDS for each in chosen.kind.options())
    if not known or THRESHOLDS in chosen.given:
        return None

    def having(count: int) -> ChosenOptions:
        return dataclasses.replace(chosen, given={**chosen.given, THRESHOLDS: count})

    @cache
    def hidden(count: int) -> float | None:
        asked = rehearsal(having(count), options)
        question, records = asked.question, asked.records
        if not isinstance(question, Statistic):
            return None
        question = with_bounds(question, records.bounds)
        if not isinstance(question, ReadBetweenThresholds):
            return None
        parties = options.parties if asked.on_paper is None else None
        return question.between_thresholds(question.reference(records.deal(parties)))

    if hidden(LADDER[0]) is None:
        return None

    def of_noise(count: int) -> Rehearsal:
        """What lies between thresholds is added to it."""
        return dataclasses.replace(rehearsal(having(count), options), against_truth=False)

    return Thresholds(of_noise, lambda count: hidden(count) or 0.0)


def rehearsal(chosen: ChosenOptions, options: PlanOptions) -> Rehearsal:
    """The question, about public records in place of the private ones."""
    question, data = asked_about(chosen, options)
    on_paper = options.parties if (options.parties or 0) > data.rows else None
    if on_paper is not None:
        data = repeated(data, max(MOST_PARTIES, data.rows))
    if options.public is None:
        records = stand_in(question, data)
    else:
        records = like(load(options.public).about(question.columns), data)

    def found(data: Dataset, spec: str, parties: int | None, seed: int) -> Federation:
        return federation_of(data, spec, dataclasses.replace(options, parties=parties, seed=seed))

    return Rehearsal(question, records, options.parties, found, asking(options), on_paper=on_paper)


class PlanGroup(StatisticGroup):
    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand:
        return statistic_command(cmd_name, PlanOptions, plan_statistic)


commands = by_statistic("plan", PlanGroup)


@commands.callback()
def choose_plan(context: typer.Context) -> None:
    """Plan a question: its cost and its error, before any ε is spent."""
    need_statistic(context)
