"""`tally run` and `tally compare`: questions put to a simulated federation, or to one that runs."""

import dataclasses
import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from tallyroom.parties.consent import read_policy
from tallyroom.parties.data import Dataset, load
from tallyroom.parties.models import scored
from tallyroom.parties.schema import bounds_of, merged, names_of, read_schema, schema_words
from tallyroom.protocols import studies
from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.records import deal
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.bounded import Clipped
from tallyroom.protocols.statistics.contract import Piloted
from tallyroom.protocols.statistics.grouped import Grouped
from tallyroom.protocols.studies.contract import Study
from tallyroom.simulation.command.by_statistic import (
    COMPARE,
    ChosenOptions,
    StatisticGroup,
    by_statistic,
    comparison_of,
    need_statistic,
    statistic_command,
)
from tallyroom.simulation.command.common import (
    CompareOptions,
    RunOptions,
    SimulationOptions,
    asking,
)
from tallyroom.simulation.command.compare import compare_aggregators
from tallyroom.simulation.command.messages import warn
from tallyroom.simulation.compared_programs import read_metered
from tallyroom.simulation.federation import DEFAULT_DATA, Federation, of_groups
from tallyroom.simulation.reports.terminal import (
    show_key,
    show_progress,
    show_result,
    show_study_key,
)
from tallyroom.simulation.result import Result
from tallyroom.simulation.watch import at_work, watched

CERTIFICATE = "certificate.json"


def run_statistic(chosen: ChosenOptions, options: RunOptions) -> None:
    if (options.coordinator is None) != (options.identity is None):
        raise LocalError("a running federation is asked with both --coordinator and --identity")
    if options.key and options.coordinator is None:
        raise LocalError("--key is for a running federation: give --coordinator")
    if options.out is not None:
        check_writable(options.out)
    if options.coordinator is None or options.identity is None:
        with keeping_proof(options.out):
            show(simulate(chosen, options), options.out, options.as_json)
        return
    spec = _aggregator_of(options)
    for each in dataclasses.fields(SimulationOptions):
        if getattr(options, each.name) not in (each.default, []):
            flag = each.name.replace("_", "-")
            raise LocalError(
                f"--{flag} is for simulations; --coordinator asks a running federation"
            )
    from tallyroom.simulation.deployment import Deployment

    question = _asked(chosen, None)
    deployment = Deployment(options.coordinator, options.identity, spec)
    about = about_run(question.name, spec, options)
    with keeping_proof(options.out):
        with (
            deployment as asked,
            show_progress() as shown,
            watched(options.out, about, shown) as report,
        ):
            result = asked.run(
                question,
                report=report,
                key=options.key,
                begun=lambda key, study: (show_study_key if study else show_key)(key),
                **asking(options),
            )
        if chosen.schema:
            result = dataclasses.replace(result, notes=(*result.notes, schema_words(chosen.schema)))
        show(result, options.out, options.as_json)


def simulate(chosen: ChosenOptions, options: RunOptions) -> "Result":
    """The answer of a simulated federation."""
    spec = _aggregator_of(options)
    question, dataset = asked_about(chosen, options)
    return simulated(question, dataset, spec, options)


def _aggregator_of(options: RunOptions) -> str:
    if len(options.aggregator or ()) > 1:
        raise LocalError("a run has one --aggregator; `tally compare` takes several")
    return options.aggregator[0] if options.aggregator else "additive"


def compare_statistic(chosen: ChosenOptions, options: CompareOptions) -> None:
    if not 1 <= options.repeat <= MOST_REPEATS:
        raise LocalError(f"--repeat is from 1 to {MOST_REPEATS}, not {options.repeat}")
    question, dataset = asked_about(chosen, options)
    with at_work(options.out):
        compare_aggregators(
            question.title if isinstance(question, Study) else question.name,
            options.aggregator,
            lambda spec, time: simulated(question, dataset, spec, _again(options, time)),
            options.out,
            options.as_json,
            options.repeat,
            read_metered(options.beside or ()),
        )


MOST_REPEATS = 1000


def _again(options: CompareOptions, time: int) -> CompareOptions:
    """The same with other noise: under a seed, with that of the next one."""
    if options.seed is None or not time:
        return options
    return dataclasses.replace(options, seed=options.seed + time)


def resume_question(key: str, coordinator: str | None, identity: Path | None) -> "Result":
    from tallyroom.simulation.deployment import Deployment

    if coordinator is None:
        raise LocalError("--resume is for a running federation: give --coordinator")
    if identity is None:
        raise LocalError("a running federation is asked with both --coordinator and --identity")
    with Deployment(coordinator, identity) as deployment, show_progress() as report:
        return deployment.resume(key, report)


def asked_about(
    chosen: ChosenOptions, options: RunOptions | CompareOptions
) -> tuple["Statistic | Study", "Dataset"]:
    """The question and its data, with everything checked that can be before a run."""
    dataset = _data_of(chosen, options)
    question = _asked(chosen, dataset)
    # A missing cell decides a condition as any other does.
    needed = question.asked.columns if isinstance(question, Grouped) else question.columns
    dataset = dataset.about(needed)
    if chosen.schema:
        dataset = dataclasses.replace(dataset, notes=(*dataset.notes, schema_words(chosen.schema)))
    if options.out is not None:
        check_writable(options.out)
    return question, dataset


def _data_of(chosen: ChosenOptions, options: RunOptions | CompareOptions) -> "Dataset":
    """The data as it is, or what a model says of the half that it was not trained on."""

    if options.model is None:
        return load(options.data or DEFAULT_DATA, chosen.grouping)
    if not {"score", "label"} <= {each.name for each in chosen.kind.options() if each.role}:
        raise LocalError("--model goes with statistics of scores and labels, such as roc")
    if options.data is None:
        raise LocalError("--model needs a file to train on: --data FILE.csv?label=COLUMN")

    return scored(options.data, options.model)


def simulated(
    question: "Statistic | Study",
    dataset: "Dataset",
    spec: str,
    options: RunOptions | CompareOptions,
) -> "Result":
    how = asking(options)
    with federation_of(dataset, spec, options) as federation, show_progress() as shown:
        if options.out is None:
            return federation.run(question, report=shown, **how)
        about = about_run(question.name, spec, options) | {
            "servers": federation.servers,
            "trust": str(federation.settled(question).threat_model(federation.servers)),
            "party_sends": aggregator_named(spec).party_bytes,
            "predicted": federation.predicted_links(question),
        }
        with watched(options.out, about, shown) as report:
            return federation.run(question, report=report, **how)


def federation_of(
    dataset: "Dataset", spec: str, options: RunOptions | CompareOptions
) -> Federation:
    return Federation(
        parties=options.parties,
        servers=options.servers,
        aggregator=spec,
        runtime=options.runtime,
        data=dataset,
        hosts=options.hosts,
        seed=options.seed,
        cap=options.cap,
        dropout=options.dropout,
        drop_after=options.drop_after,
        cheats=options.cheat or (),
        peer=options.peer,
        policy=None if options.policy is None else read_policy(options.policy),
        cap_delta=options.cap_delta,
        network=options.network,
    )


def about_run(name: str, spec: str, options: RunOptions | CompareOptions) -> dict[str, object]:
    """What those who look on are told of the question."""
    return {
        "statistic": name,
        "aggregator": spec,
        "epsilon": options.granted,
        "delta": options.delta,
        "noise": options.noise,
        "noise_law": options.noise_law,
        "unit": options.unit,
        "deadline": options.deadline,
        "cap": options.cap,
        "cap_delta": options.cap_delta,
        "runtime": "deployed" if getattr(options, "coordinator", None) else options.runtime,
        "command": shlex.join(["tally", *sys.argv[1:]]),
    }


def _built(chosen: ChosenOptions, dataset: "Dataset | None") -> "Statistic | Study":
    """The statistic or study of the columns that play its roles, with the options given for it; a
    public schema tells what nobody gave."""

    roles = dataset.roles if dataset else {}
    schema = read_schema(chosen.schema) if chosen.schema else ()
    given: dict[str, Any] = dict(chosen.given)
    columns: dict[str, Any] = {}
    has_attributes = False
    for each in chosen.kind.options():
        has_attributes |= each.name == "attributes"
        if (column := roles.get(each.name)) is not None:
            columns[each.name] = (column,) if each.multiple else column
    if has_attributes:
        published = dataset.schema if dataset and not schema else schema
        given["attributes"] = merged(published, given.get("attributes", ()))
    built: Statistic | Study = chosen.kind.from_parameters(columns | given)
    built = built.with_names(names_of(schema))
    if schema and isinstance(built, Clipped | Study):
        return built.with_bounds(bounds_of(schema))
    return built


def _asked(chosen: ChosenOptions, dataset: "Dataset | None") -> "Statistic | Study":
    """What is asked: a statistic, a study, or a statistic whose bounds are to be found first."""

    built = _built(chosen, dataset)
    if isinstance(built, Study):
        return built
    if chosen.where or chosen.by:
        return _of_groups(chosen, built, dataset)
    if chosen.bounds_share is None:
        return with_pilot(built, chosen.pilot, dataset)
    if chosen.pilot is not None:
        raise LocalError("--pilot needs bounds that are known: give --lower and --upper")
    return studies.PrivateBounds(built, chosen.bounds_share, chosen.bounds_by)


def _of_groups(
    chosen: ChosenOptions, statistic: "Statistic", dataset: "Dataset | None"
) -> "Statistic":
    if chosen.bounds_share is not None:
        raise LocalError("--bounds private is of all records: give --lower and --upper")
    schema = names_of(read_schema(chosen.schema)) if chosen.schema else {}
    piloted = with_pilot(statistic, chosen.pilot, dataset)
    return of_groups(piloted, chosen.where, chosen.by, schema | dict(chosen.groups), dataset)


def with_pilot(statistic: "Statistic", pilot: str | None, dataset: "Dataset | None") -> "Statistic":
    """The statistic with what it plans by: public data that is named, or the public part of its own
    where that helps."""

    if not isinstance(statistic, Piloted):
        return statistic
    if pilot is None and dataset and dataset.public and statistic.open_to_pilot:
        return statistic.planned_by(deal(dataset.public, 1), dataset.bounds)
    if pilot is None:
        return statistic
    public = load(pilot).about(statistic.columns)
    known = dataset.bounds if dataset else public.bounds
    return statistic.planned_by(public.deal(1), known)


def show(result: "Result", out: Path | None, as_json: bool) -> None:
    for note in result.notes:
        warn(note)
    result = dataclasses.replace(result, command=shlex.join(["tally", *sys.argv[1:]]))
    written = result.write(out) if out is not None else []
    if as_json:
        print(json.dumps(result.as_json(), allow_nan=False))
    else:
        show_result(result, written)


@contextmanager
def keeping_proof(folder: Path | None) -> Iterator[None]:
    """Shows that there is work on the folder, if there is one, and writes down the certificate of a
    cheat, if a run fails with one."""
    try:
        if folder is None:
            yield
        else:
            with at_work(folder):
                yield
    except RunFailed as error:
        if error.proof is None:
            raise
        if folder is None:
            raise RunFailed(f"{error}; --out FOLDER keeps the certificate that proves it") from None
        file = folder / CERTIFICATE
        file.write_bytes(error.proof)
        raise RunFailed(f"{error}; the certificate that proves it is {file}") from None


def check_writable(folder: Path) -> None:
    """Raises `LocalError` if files cannot be written there, before anything is run."""
    try:
        existing = folder
        while not os.path.lexists(existing):
            existing = existing.parent
        longest = os.pathconf(existing, "PC_NAME_MAX") if existing.exists() else 0
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LocalError(f"cannot write to {str(folder)[:60]}: {reason}") from None
    if any(len(os.fsencode(part)) > longest > 0 for part in folder.parts):
        raise LocalError(f"cannot write to {str(folder)[:60]}…: the name is too long")
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise LocalError(f"cannot write to {folder}: {existing} is not a writable folder")


class RunGroup(StatisticGroup):
    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand:
        return statistic_command(cmd_name, RunOptions, run_statistic)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str, TyperCommand, list[str]]:
        if args[0] != COMPARE:
            return super().resolve_command(ctx, args)
        name, rest = comparison_of(args[1:])
        return name, statistic_command(name, CompareOptions, compare_statistic), rest


class CompareGroup(StatisticGroup):
    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand:
        return statistic_command(cmd_name, CompareOptions, compare_statistic)


run = by_statistic("run", RunGroup)
compare = by_statistic("compare", CompareGroup)


@run.callback()
def choose_run(
    context: typer.Context,
    resume: Annotated[
        str | None,
        typer.Option(help="KEY: no new question, but the answer to the one asked under it."),
    ] = None,
    coordinator: Annotated[
        str | None,
        typer.Option(envvar="TALLY_COORDINATOR", help="host:port, for --resume."),
    ] = None,
    identity: Annotated[
        Path | None,
        typer.Option(envvar="TALLY_IDENTITY", help="The analyst's folder, for --resume."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the result, for --resume.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, for --resume.")
    ] = False,
) -> None:
    """Run one statistic or study. In a simulated federation, or in one that is deployed."""
    if context.invoked_subcommand is None and resume is not None:
        show(resume_question(resume, coordinator, identity), out, as_json)
        return
    need_statistic(context)
    if resume is not None:
        raise LocalError("--resume KEY asks nothing new: leave the statistic out")
    for name in ("coordinator", "identity", "out", "as_json"):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            flag = "json" if name == "as_json" else name
            rest = f"{context.invoked_subcommand} --{flag} …"
            raise LocalError(f"options come after the statistic: `tally run {rest}`")


@compare.callback()
def choose_comparison(context: typer.Context) -> None:
    """One statistic with several aggregators, side by side."""
    need_statistic(context)


commands = typer.Typer()
commands.add_typer(run)
commands.add_typer(compare)
