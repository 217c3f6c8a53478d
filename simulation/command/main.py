"""The command `tally`. Bad input gets one line and exit code 2; a run that cannot finish, 3."""

import dataclasses
import json
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from parties.data import Dataset
from protocols.errors import Interrupted, LocalError, RunFailed, TallyError
from protocols.names import look_up
from protocols.privacy.ledger import DEFAULT_CAP_DELTA
from protocols.statistics import Statistic, statistic_named
from protocols.statistics.pairwise import Pairs
from simulation.command.ask import ask
from simulation.command.compare import compare_aggregators
from simulation.command.enrol import enrol
from simulation.command.processes import processes
from simulation.command.verify import verify_command
from simulation.reports.terminal import show_key, show_progress, show_result, warn
from simulation.result import Result

app = typer.Typer(
    name="tally",
    help="Statistics over data that n parties will not show to anybody.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

app.add_typer(processes)
app.add_typer(enrol)
app.add_typer(ask)
app.add_typer(verify_command)

COMPARE = "compare-aggregators"

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


@app.command("compare", help="One statistic with several aggregators, side by side.")
@app.command("run", help="Run one statistic, in a simulated federation or in one that is deployed.")
def run(
    context: typer.Context,
    statistic: Annotated[
        str, typer.Argument(help="See `tally list statistics`; or compare-aggregators.")
    ] = "",
    data: Annotated[str | None, typer.Option(help="csv:PATH?value=COL or a bundled set.")] = None,
    parties: Annotated[int | None, typer.Option(help="Number of parties; 20 if left out.")] = None,
    servers: Annotated[int | None, typer.Option(help="Number of servers.")] = None,
    aggregator: Annotated[
        list[str] | None,
        typer.Option(help="See `tally list aggregators`; additive. To compare: repeat; all."),
    ] = None,
    compared: Annotated[
        str | None, typer.Option("--statistic", help="Of `tally run compare-aggregators`.")
    ] = None,
    runtime: Annotated[str, typer.Option(help="See `tally list runtimes`.")] = "inprocess",
    hosts: Annotated[int | None, typer.Option(help="Processes that share the parties.")] = None,
    epsilon: Annotated[str, typer.Option(help="Privacy budget; inf adds no noise.")] = "1",
    delta: Annotated[float, typer.Option(help="The δ of mechanisms that need one.")] = 0.0,
    noise: Annotated[str | None, typer.Option(help="curator, each-server or parties.")] = None,
    unit: Annotated[str, typer.Option(help="What is protected: record or party.")] = "record",
    minimum: Annotated[
        int | None, typer.Option("--min-parties", help="Least number of contributors; all.")
    ] = None,
    dropout: Annotated[float, typer.Option(help="Fraction of the parties that fall silent.")] = 0.0,
    drop_after: Annotated[int, typer.Option(help="Messages they send before; 0.")] = 0,
    cheat: Annotated[
        list[str] | None,
        typer.Option(help="PARTY:KIND, out-of-range or malformed; repeat for more."),
    ] = None,
    deadline: Annotated[float, typer.Option(help="Seconds to wait for parties.")] = 30.0,
    peer: Annotated[
        str | None, typer.Option(help="How parties that meet do: direct or relay.")
    ] = None,
    cap: Annotated[str | None, typer.Option(help="The most epsilon servers release.")] = None,
    cap_delta: Annotated[float | None, typer.Option(help="The most delta servers release.")] = None,
    policy: Annotated[
        Path | None, typer.Option(help="TOML: what all simulated parties agree to; anything.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Reproducible, hence not private.")] = None,
    lower: Annotated[float | None, typer.Option(help="Public lower bound of values.")] = None,
    upper: Annotated[float | None, typer.Option(help="Public upper bound of values.")] = None,
    bins: Annotated[int | None, typer.Option(help="Bins of a histogram.")] = None,
    thresholds: Annotated[int | None, typer.Option(help="Points of a curve.")] = None,
    spacing: Annotated[str | None, typer.Option(help="Of thresholds: linear or log.")] = None,
    quantile: Annotated[list[float] | None, typer.Option(help="Which; repeat for more.")] = None,
    steps: Annotated[int | None, typer.Option(help="Times of a running sum.")] = None,
    at: Annotated[list[float] | None, typer.Option(help="Where to ask ecdf-points.")] = None,
    mechanism: Annotated[str | None, typer.Option(help="Of curves: hierarchy or tree.")] = None,
    smooth: Annotated[str | None, typer.Option(help="Of curves: none, 1 or 2.")] = None,
    box: Annotated[bool | None, typer.Option(help="Keep smoothed curves in [0, 1].")] = None,
    solver: Annotated[str | None, typer.Option(help="interior-point or cvxopt.")] = None,
    pairs: Annotated[
        str | None, typer.Option("--pairs-per-party", help="Of pairs: a number, all or auto.")
    ] = None,
    pilot: Annotated[
        str | None, typer.Option(help="Of pairs: PUBLIC data like it, to choose their number by.")
    ] = None,
    kernel: Annotated[str | None, typer.Option(help="Of pairwise: a name, or written out.")] = None,
    tau: Annotated[str | None, typer.Option(help="Of kendall-tau: a or b.")] = None,
    bits: Annotated[int | None, typer.Option(help="Of pairs: bits of a column.")] = None,
    value: Annotated[str | None, typer.Option(help="The column; the data set's own.")] = None,
    coordinator: Annotated[
        str | None,
        typer.Option(
            envvar="TALLY_COORDINATOR", help="host:port: ask a running federation, simulate none."
        ),
    ] = None,
    identity: Annotated[
        Path | None, typer.Option(envvar="TALLY_IDENTITY", help="The analyst's, for --coordinator.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="New noise, paid for, where a release would be reused.")
    ] = False,
    key: Annotated[
        str | None, typer.Option(help="Of a running federation: a name for the question.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option(help="KEY: the answer to what was asked under it before.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for result, plots and report.")] = None,
    as_json: Json = False,
) -> None:
    """Both commands: they take the same options. `tally run compare-aggregators` compares too."""
    from parties.consent import read_policy
    from parties.data import load
    from simulation.deployment import Deployment
    from simulation.federation import DEFAULT_DATA, Federation

    if (key or resume) and coordinator is None:
        raise LocalError("--key and --resume are of a running federation: give --coordinator")
    if resume and (statistic or key):
        raise LocalError("--resume KEY asks nothing new: leave the statistic and --key out")
    if not resume and not statistic:
        raise LocalError("which statistic? see `tally list statistics`")
    comparing = context.command.name == "compare"
    if not comparing and statistic == COMPARE:
        comparing, statistic = True, compared or "histogram"
    elif compared is not None:
        raise LocalError(f"--statistic goes with `tally run {COMPARE}`")
    if comparing and coordinator is not None:
        raise LocalError(
            "aggregators are compared in simulations; --coordinator asks a running one"
        )
    if not comparing and len(aggregator or ()) > 1:
        raise LocalError("a run has one --aggregator; `tally compare` takes several")
    if (coordinator is None) != (identity is None):
        raise LocalError("a running federation is asked with both --coordinator and --identity")
    simulated = {
        "data": data,
        "parties": parties,
        "servers": servers,
        "hosts": hosts,
        "cap": cap,
        "cap-delta": cap_delta,
        "policy": policy,
        "seed": seed,
        "dropout": dropout or None,
        "drop-after": drop_after or None,
        "cheat": cheat,
        "runtime": None if runtime == "inprocess" else runtime,
        "peer": peer,
    }
    if coordinator is not None:
        for name, given in simulated.items():
            if given is not None:
                raise LocalError(f"--{name} is of a simulation; --coordinator asks a running one")
    if resume and coordinator is not None and identity is not None:
        with Deployment(coordinator, identity) as deployment, show_progress() as report:
            show(deployment.resume(resume, report), out, as_json)
        return
    dataset = load(data or DEFAULT_DATA) if coordinator is None else None
    question = build_statistic(
        statistic,
        dataset.roles if dataset else {},
        {
            "value": value,
            "pairs_per_party": pairs,
            "kernel": kernel,
            "tau": tau,
            "bits": bits,
            "lower": lower,
            "upper": upper,
            "bins": bins,
            "thresholds": thresholds,
            "spacing": spacing,
            "quantile": quantile,
            "at": at,
            "steps": steps,
            "mechanism": mechanism,
            "smooth": smooth,
            "box": box,
            "solver": solver,
        },
    )
    if pilot is not None:
        question = with_pilot(question, load(pilot), dataset)
    agreed = read_policy(policy) if policy is not None else None
    if out is not None:
        check_writable(out)

    def answer(spec: str) -> Result:
        if coordinator is not None and identity is not None:
            with Deployment(coordinator, identity, spec) as asked, show_progress() as report:
                return asked.run(
                    question,
                    epsilon,
                    noise=noise,
                    unit=unit,
                    minimum=minimum,
                    deadline=deadline,
                    report=report,
                    delta=delta,
                    fresh=fresh,
                    key=key,
                    begun=show_key,
                )
        simulation = Federation(
            parties=parties,
            servers=servers,
            aggregator=spec,
            runtime=runtime,
            data=dataset or DEFAULT_DATA,
            hosts=hosts,
            seed=seed,
            cap=cap,
            dropout=dropout,
            drop_after=drop_after,
            cheats=cheat or (),
            peer=peer,
            policy=agreed,
            cap_delta=cap_delta,
        )
        with simulation as federation, show_progress() as report:
            return federation.run(
                question,
                epsilon,
                noise=noise,
                unit=unit,
                minimum=minimum,
                deadline=deadline,
                report=report,
                delta=delta,
                fresh=fresh,
            )

    if comparing:
        compare_aggregators(statistic, aggregator, answer, out, as_json)
        return
    show(answer(aggregator[0] if aggregator else "additive"), out, as_json)


def show(result: Result, out: Path | None, as_json: bool) -> None:
    for note in result.notes:
        warn(note)
    written = result.write(out) if out is not None else []
    if as_json:
        print(json.dumps(result.as_json(), allow_nan=False))
    else:
        show_result(result, written)


def build_statistic(name: str, roles: dict[str, str], options: dict[str, object]) -> Statistic:
    """The statistic of the columns that play its roles, with the options that were given.

    Raises `LocalError` on one it has not.
    """
    kind = statistic_named(name)
    known = {field.name for field in dataclasses.fields(kind)}
    columns = {role: column for role, column in roles.items() if role in known}
    given = {key: value for key, value in options.items() if value is not None}
    return kind.from_parameters(columns | given)


def with_pilot(statistic: Statistic, pilot: Dataset, dataset: Dataset | None) -> Statistic:
    """The statistic of pairs that knows how a kernel varies on public data."""
    if not isinstance(statistic, Pairs):
        raise LocalError(f"--pilot is of statistics of pairs, not of {statistic.name}")
    known = dataset.bounds if dataset else pilot.bounds
    lower, upper = known.get(statistic.bounded or "", (None, None))
    bounded = dataclasses.replace(
        statistic,
        lower=lower if statistic.lower is None else statistic.lower,
        upper=upper if statistic.upper is None else statistic.upper,
    )
    return dataclasses.replace(statistic, pilot=bounded.vary_as(pilot.deal(1)))


def check_writable(folder: Path) -> None:
    """Raises `LocalError` if files cannot be written there, before anything is run."""
    existing = folder
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise LocalError(f"cannot write to {folder}: {existing} is not a writable folder")


@app.command("list")
def list_things(
    what: Annotated[
        str, typer.Argument(help="aggregators, statistics, runtimes, networks or figures.")
    ],
    as_json: Json = False,
) -> None:
    """What there is to choose from."""
    from simulation.command.catalogue import CATALOGUES, describe_native
    from simulation.reports.trust import promises, show_promises

    rows = look_up("list", what, CATALOGUES)()
    if as_json:
        print(json.dumps({"schema": 1, what: rows}))
        return
    if what == "aggregators":
        show_promises(promises())
    else:
        width = max(len(name) for name in rows)
        for name, summary in rows.items():
            print(f"{name:<{width}}  {summary}")
    print(f"\nnative loops: {describe_native()}")


@app.command()
def demo() -> None:
    """A guided run on bundled data; a minute at most."""
    from simulation.demo import guided_run

    guided_run()


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help="A benchmark, or all.")],
    as_json: Json = False,
) -> None:
    """Measure beside peers and the limits of the hardware."""
    from simulation.bench.command import run_benchmarks

    run_benchmarks(name, as_json)


@app.command()
def reproduce(
    figures: Annotated[list[str], typer.Argument(help="See `tally list figures`; or all.")],
    out: Annotated[Path | None, typer.Option(help="Folder; reproduce/FIGURE if left out.")] = None,
    small: Annotated[bool, typer.Option("--small", help="Seconds, and proves little.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a figure.")] = False,
) -> None:
    """A paper's figure again, with a verdict on its claim."""
    from simulation.reproduce import command
    from simulation.reproduce.contract import Scale

    chosen = command.named(figures)
    for figure in chosen:
        check_writable(command.folder_of(figure, out))
    command.reproduce(chosen, out, Scale.SMALL if small else Scale.PAPER, as_json)


@app.command()
def ledger(
    path: Annotated[Path, typer.Argument(help="A keeper's ledger.sqlite, or the folder it is in.")],
    delta: Annotated[
        float, typer.Option(help="The δ in all at which the tighter total is stated.")
    ] = DEFAULT_CAP_DELTA,
    as_json: Json = False,
) -> None:
    """What has been spent, oldest first, with the plain sums and the tighter total."""
    from simulation.command.ledger_report import read_ledger

    report = read_ledger(path, delta)
    if as_json:
        print(json.dumps(report.as_json(), allow_nan=False))
        return
    for line in report.lines():
        print(line)


def main() -> None:
    """Maps errors to one line and an exit code, here and nowhere else."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what fails is said below, in one line
    logging.basicConfig(level=logging.ERROR, format="%(name)s: %(message)s")
    try:
        code = app(standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        warn("interrupted; nothing is left running")
        code = 130
    except Interrupted as error:
        warn(str(error))
        code = 130
    except TyperException as error:
        warn(error.format_message())
        code = 2
    except LocalError as error:
        warn(str(error))
        code = 2
    except RunFailed as error:
        warn(f"the run could not finish: {error}")
        code = 3
    except TallyError as error:
        warn(str(error))
        code = 3
    sys.exit(code or 0)
