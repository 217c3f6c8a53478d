"""`tally plan STATISTIC`: what a question would cost and give, before any ε is spent."""

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
from tallyroom.protocols.statistics.pilots import ReadBetweenThresholds
from tallyroom.protocols.studies.contract import Study
from tallyroom.simulation.command.by_statistic import (
    ChosenOptions,
    StatisticGroup,
    by_statistic,
    need_statistic,
    statistic_command,
)
from tallyroom.simulation.command.common import DATA, CompareOptions, option
from tallyroom.simulation.command.run import asked_about, simulated
from tallyroom.simulation.planning.plan import (
    Planned,
    Planning,
    Rehearse,
    least_epsilon,
    plan,
    search,
)
from tallyroom.simulation.planning.standin import MOST_PARTIES, MOST_RECORDS, stand_in
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
    "error: expected of the noise (rmse); bytes: per party; server's: bytes of the busiest server; "
    "seconds: network and computing, on a LAN, a WAN and a mobile network; MB: memory of all roles "
    "in one process"
)


THRESHOLDS = "thresholds"
MORE = (THRESHOLDS, "between")
LEGEND_MORE = (
    "; thresholds: how many were found to serve best (--thresholds fixes them); between: error of "
    "reading between them, which a target counts too"
)


@dataclass(frozen=True)
class PlanOptions(CompareOptions):
    """`tally plan`: nothing is asked of anybody."""

    target_error: Annotated[
        float | None,
        option(
            TARGET,
            "Find the least ε, and the thresholds, whose expected error (rmse) is at most this.",
        ),
    ] = None
    target_bytes: Annotated[
        float | None,
        option(TARGET, "Leave out what takes more bytes per party than this."),
    ] = None
    public: Annotated[
        str | None, option(DATA, "PUBLIC data like it to rehearse on; uniform values if left out.")
    ] = None


def plan_statistic(chosen: ChosenOptions, options: PlanOptions) -> None:
    for name in ("target_error", "target_bytes"):
        value = getattr(options, name)
        if value is not None and not (math.isfinite(value) and value > 0):
            raise LocalError(f"--{name.replace('_', '-')} is a positive number, not {value:g}")
    for name in ("out", "runtime", "repeat", "dropout", "cheat", "seed"):
        given = getattr(options, name)
        default = next(f.default for f in dataclasses.fields(options) if f.name == name)
        if given not in (default, []):
            raise LocalError(f"--{name} is for runs: a plan is rehearsed without it")
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
        print(f"{each.aggregator}: {each.mechanism}; δ {each.delta:g}; error by the {each.basis}")
    for spec, reason in unable:
        print(f"{spec} does not serve: {reason}")


def _cells(found: "Planned") -> tuple[str, ...]:
    return (
        found.aggregator,
        "inf" if found.epsilon is None else f"{found.epsilon:g}",
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
    """How one aggregator is planned: with targets, the number of thresholds is searched too where
    nobody said it and the question has some."""

    targets = options.target_error is not None or options.target_bytes is not None
    thresholds = _thresholds(chosen, options) if targets else None
    rehearse, share = rehearsal(chosen, options)

    def planned(spec: str) -> "Planned":
        error, most_bytes = options.target_error, options.target_bytes
        if thresholds is not None and error is not None:
            return thresholds.for_error(spec, error, most_bytes, share)
        if thresholds is not None and most_bytes is not None:
            return thresholds.for_bytes(spec, options.epsilon, most_bytes, share)
        if error is not None:
            return least_epsilon(rehearse, spec, error, share)
        return plan(rehearse, spec, options.epsilon, share)

    return planned


def _thresholds(chosen: ChosenOptions, options: PlanOptions) -> "Thresholds | None":
    known = any(each.name == THRESHOLDS for each in chosen.kind.options())
    if not known or THRESHOLDS in chosen.given:
        return None

    def having(count: int) -> ChosenOptions:
        return dataclasses.replace(chosen, given={**chosen.given, THRESHOLDS: count})

    @cache
    def hidden(count: int) -> float | None:
        question, records = _public(having(count), options)
        if not isinstance(question, Statistic):
            return None
        question = question.with_bounds(records.bounds)
        if not isinstance(question, ReadBetweenThresholds):
            return None
        return question.between_thresholds(question.reference(records.deal(options.parties)))

    if hidden(LADDER[0]) is None:
        return None
    return Thresholds(
        lambda count: rehearsal(having(count), options)[0], lambda count: hidden(count) or 0.0
    )


def _public(chosen: ChosenOptions, options: PlanOptions) -> "tuple[Statistic | Study, Dataset]":
    """The question, and public records in the place of those that it is about."""

    question, data = asked_about(chosen, options)
    if options.public is not None:
        return question, load(options.public).about(question.columns)
    rows = min(MOST_RECORDS, data.rows)
    return question, stand_in(data, dict(getattr(question, "column_bounds", {})), rows)


def rehearsal(chosen: ChosenOptions, options: PlanOptions) -> "tuple[Rehearse, float]":
    """What rehearses the question, and the share of the federation that it is rehearsed with."""

    question, data = asked_about(chosen, options)
    bounds = dict(getattr(question, "column_bounds", {}))
    public = None if options.public is None else load(options.public).about(question.columns)
    rows = data.rows
    parties = len(data.deal(options.parties).ids)
    share = min(1.0, MOST_PARTIES / parties, MOST_RECORDS / rows)
    if public is not None or data.owner is not None:
        share = 1.0

    def rehearse(spec: str, epsilon: float | str, seed: int, part: float) -> Any:
        number = max(1, round(parties * part)) if data.owner is None else options.parties
        records = (
            stand_in(data, bounds, max(number or 1, round(rows * part)))
            if public is None
            else public
        )
        how = dataclasses.replace(
            options, epsilon=str(epsilon), seed=seed, parties=number, min_parties=None
        )
        return simulated(question, records, spec, how)

    return rehearse, share


class PlanGroup(StatisticGroup):
    def build(self, name: str) -> TyperCommand:
        return statistic_command(name, PlanOptions, plan_statistic)


commands = by_statistic("plan", PlanGroup)


@commands.callback()
def choose_plan(context: typer.Context) -> None:
    """What it would cost and give, before any ε is spent."""
    need_statistic(context)
