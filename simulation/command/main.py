"""The command `tally`. Bad input gets one line and exit code 2; a run that cannot finish, 3."""

import json
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from protocols.errors import (
    Interrupted,
    LocalError,
    RunFailed,
    TallyError,
    words_of_the_command,
)
from protocols.privacy.caps import DEFAULT_CAP_DELTA
from simulation.command.ask import ask
from simulation.command.enrol import enrol
from simulation.command.light import LightGroup
from simulation.command.messages import warn
from simulation.command.plan import plan
from simulation.command.processes import processes
from simulation.command.run import check_writable, compare, run
from simulation.command.serve import serve_command
from simulation.command.sweep import sweep
from simulation.command.verify import verify_command

app = typer.Typer(
    name="tally",
    cls=LightGroup,
    help="Statistics over data that n parties will not show to anybody.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(run)
app.add_typer(compare)
app.add_typer(plan)
app.add_typer(sweep)
app.add_typer(processes)
app.add_typer(enrol)
app.add_typer(ask)
app.add_typer(verify_command)
app.add_typer(serve_command)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"tallyroom {version('tallyroom')}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show it and exit."),
    ] = False,
) -> None:
    """Statistics over data that n parties will not show to anybody."""


@app.command("list")
def list_things(
    what: Annotated[
        str,
        typer.Argument(
            help="aggregators, statistics, studies, data, runtimes, networks, figures, benchmarks."
        ),
    ],
    as_json: Json = False,
) -> None:
    """What there is to choose from."""
    from protocols.names import look_up
    from simulation.command.catalogue import CATALOGUES, describe_native, show_data
    from simulation.reports.trust import promises, show_promises

    rows = look_up("list", what, CATALOGUES)()
    if as_json:
        print(json.dumps({"schema": 1, what: rows}))
        return
    if what == "aggregators":
        show_promises(promises())
    elif what == "data":
        show_data(rows)
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
    out: Annotated[Path, typer.Option(help="Folder for the page of `all`.")] = Path("bench"),
    as_json: Json = False,
) -> None:
    """Measure beside peers and the limits of the hardware."""
    from simulation.bench.command import run_benchmarks

    run_benchmarks(name, as_json, out)


@app.command()
def reproduce(
    figures: Annotated[list[str], typer.Argument(help="See `tally list figures`; or all.")],
    out: Annotated[Path | None, typer.Option(help="Folder; reproduce/FIGURE if left out.")] = None,
    small: Annotated[
        bool | None,
        typer.Option(
            "--small/--full",
            help="Seconds, which prove little, or the paper's sizes. [default: small for all]",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per figure.")
    ] = False,
) -> None:
    """Reproduce figures of papers. Each gets a verdict on its claim; `all` makes a page of them."""
    from simulation.reproduce import command
    from simulation.reproduce.contract import Scale

    chosen = command.named(figures)
    for figure in chosen:
        check_writable(command.folder_of(figure, out))
    every = "all" in figures
    scale = Scale.SMALL if (every if small is None else small) else Scale.PAPER
    command.reproduce(chosen, out, scale, as_json, gallery=every)


@app.command()
def ledger(
    path: Annotated[
        Path,
        typer.Argument(help="ledger.sqlite of a server, a coordinator or a party, or its folder."),
    ],
    delta: Annotated[
        float, typer.Option(help="The δ in all at which the tighter total is stated.")
    ] = DEFAULT_CAP_DELTA,
    as_json: Json = False,
) -> None:
    """What a ledger says was spent. Oldest first, with the plain sums and the tighter total."""
    from simulation.command.ledger_report import read_ledger

    report = read_ledger(path, delta)
    if as_json:
        print(json.dumps(report.as_json(), allow_nan=False))
        return
    for line in report.lines():
        print(line)


INTERRUPTED = 130


def main() -> None:
    """Maps errors to one line and an exit code, here and nowhere else."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what fails is said below, in one line
    logging.basicConfig(level=logging.ERROR, format="%(name)s: %(message)s")
    with words_of_the_command():
        code = _run()
    sys.exit(code)


def _run() -> int:
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="tally", standalone_mode=False)
        if code == INTERRUPTED:  # typer turns the key into this, without a word
            warn("interrupted; nothing is left running")
    except (typer.Abort, KeyboardInterrupt):
        warn("interrupted; nothing is left running")
        code = INTERRUPTED
    except Interrupted as error:
        warn(str(error))
        code = INTERRUPTED
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
    return code or 0
