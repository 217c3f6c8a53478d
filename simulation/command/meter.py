"""`tally meter`: what a program of several processes costs, whoever wrote it."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from tallyroom.protocols.errors import LocalError
from tallyroom.simulation.command.common import Json
from tallyroom.simulation.command.messages import warn
from tallyroom.simulation.command.run import check_writable
from tallyroom.simulation.meter.box import Limits
from tallyroom.simulation.meter.conduct import Show, meter
from tallyroom.simulation.meter.program import Program, one_command, read_program, several
from tallyroom.simulation.meter.report import MeterReport

commands = typer.Typer()
SUFFIX = ".toml"


@commands.command("meter")
def meter_command(
    words: Annotated[
        list[str],
        typer.Argument(metavar="SPEC.toml | -- COMMAND…", help="See docs/laboratory.md."),
    ],
    network: Annotated[
        str | None,
        typer.Option(help="Emulate it between members, as `tally run --network`; needs root."),
    ] = None,
    members: Annotated[
        int | None,
        typer.Option(help="Start COMMAND so many times, each in a network namespace of its own."),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Stop it after so long.")] = 3600.0,
    processes: Annotated[int, typer.Option(help="The most processes at a time.")] = 1024,
    memory_mb: Annotated[int, typer.Option(help="The most memory of all processes.")] = 1 << 14,
    out: Annotated[Path | None, typer.Option(help="Folder for the result and its plots.")] = None,
    as_json: Json = False,
) -> None:
    """Bytes, rounds, CPU, memory and time of any program, by role."""
    if not (seconds > 0 and processes >= 1 and memory_mb >= 1):
        raise LocalError("--seconds, --processes and --memory-mb are positive numbers")
    limits = Limits(seconds, processes, memory_mb << 20)
    program = _program(words, network, members, limits)
    if out is not None:
        check_writable(out)
    metered = meter(program, _shown(program))
    for note in metered.notes:
        warn(note)
    report = MeterReport(metered, shlex.join(["tally", *sys.argv[1:]]))
    written = report.write(out) if out is not None else []
    if as_json:
        print(json.dumps(report.as_json(), allow_nan=False))
        return
    for name, value in report.lines():
        print(f"{name:<12}{value}")
    for path in written:
        print(f"{'written':<12}{path}")


def _program(words: list[str], network: str | None, members: int | None, limits: Limits) -> Program:
    if len(words) == 1 and words[0].endswith(SUFFIX):
        if members is not None:
            raise LocalError("--members goes with -- COMMAND; a SPEC.toml says it for each role")
        return read_program(Path(words[0]), network, limits)
    if members is not None:
        return several(words, members, network, limits)
    if network not in (None, "none"):
        raise LocalError(
            "processes of one command share a loopback, which has no delay: with --members N each "
            "has a line of its own, or write a SPEC.toml with a role for each"
        )
    return one_command(words, limits)


def _shown(program: Program) -> Show:
    """What members write goes to standard error, with their names where they are several."""
    alone = len(program.members) == 1

    def show(member: str, line: bytes) -> None:
        prefix = b"" if alone else member.encode() + b"| "
        sys.stderr.buffer.write(prefix + line + b"\n")
        sys.stderr.buffer.flush()

    return show
