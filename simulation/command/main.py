"""The command `tally`. Bad input gets one line and exit code 2; a run that cannot finish, 3."""

import gc
import importlib
import logging
import os
import sys
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException
from typer.main import get_group

from tallyroom.protocols.errors import (
    Interrupted,
    LocalError,
    RunFailed,
    TallyError,
    words_of_the_command,
)
from tallyroom.simulation.command.common import LightGroup
from tallyroom.simulation.command.messages import warn

COMMANDS = {
    "list": ("catalogue", "What there is to choose from."),
    "demo": ("laboratory", "A guided run on bundled data; a minute at most."),
    "bench": ("laboratory", "Measure beside peers and the limits of the hardware."),
    "reproduce": ("laboratory", "Reproduce figures of papers."),
    "ledger": ("ledger_report", "What a ledger says was spent."),
    "run": ("run", "Run one statistic or study."),
    "compare": ("run", "One statistic with several aggregators, side by side."),
    "plan": ("plan", "What it would cost and give, before any ε is spent."),
    "meter": ("meter", "Bytes, rounds, CPU, memory and time of any program, by role."),
    "sweep": ("sweep", "A grid of runs: resumable, in parallel, one tidy table."),
    "artifact": ("artifact", "Everything that repeats a result, bundled."),
    "server": ("server", "Run one server until it is stopped."),
    "coordinator": ("coordinator", "Run the coordinator until it is stopped."),
    "enrolment": ("coordinator", "Enrol parties until it is stopped."),
    "party": ("party", "Run one party until it is stopped."),
    "health": ("health", "Ask a process whether it serves: exit code 0 if so, 3 if not."),
    "enrol": ("enrol", "Make a federation, and say who is in it."),
    "verify": ("verify", "Check the receipts of a result."),
    "serve": ("serve", "A web page of runs, past and in progress."),
}
"""Every command with its file and what it says of itself in one line: help loads none of them."""
HIDDEN = {"ask": "ask"}
STYLE: dict[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


class CommandGroup(LightGroup):
    """Loads the file of a command when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        file = COMMANDS[cmd_name][0] if cmd_name in COMMANDS else HIDDEN.get(cmd_name)
        if file is None:
            return None
        loaded = typer.Typer(**STYLE)
        loaded.add_typer(_commands_of(file))
        return get_group(loaded).commands[cmd_name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


def _commands_of(file: str) -> typer.Typer:
    """Loads a file of commands. What modules are made of stays until the end: to look for garbage
    in it, again and again while it grows, is a tenth of the time that a short command takes."""
    gc.disable()
    try:
        found: typer.Typer = importlib.import_module(
            f"tallyroom.simulation.command.{file}"
        ).commands
    finally:
        gc.freeze()
        gc.enable()
    return found


app = typer.Typer(
    name="tally",
    cls=CommandGroup,
    help="Statistics over data that n parties will not show to anybody.",
    **STYLE,
)


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
