"""`tally demo`: a guided run that says what it does as it does it."""

import shutil
import sys
from pathlib import Path

from tallyroom.protocols.statistics.moments import Mean
from tallyroom.simulation.federation import Federation
from tallyroom.simulation.reports.terminal import out, show_progress, show_result

PARTIES, SERVERS, EPSILON = 20, 2, 1.0


def guided_run() -> None:
    out.rule("[bold]Tallyroom: a statistic of data that nobody shows")
    out.print(
        f"\n{PARTIES} hospitals each hold records of breast tumours. They want to know the mean "
        "radius\nof all of them together, and none of them will show a record to anybody.\n"
    )
    with Federation(
        parties=PARTIES, servers=SERVERS, runtime="processes", data="breast-cancer"
    ) as federation:
        out.print(
            f"[bold]1.[/bold] Starting {PARTIES} party processes, {SERVERS} servers and a "
            "coordinator on this machine.\n   Each gets a certificate; every connection is mutual "
            "TLS, and who you are is what it says."
        )
        federation.start()
        out.print(
            "[bold]2.[/bold] Each party clips its values to a public range, adds them up as an "
            "integer mod 2^64,\n   and splits that in two: one server gets a random seed, the "
            "other the sum minus what the\n   seed expands to. Either half alone is a uniformly "
            "random number."
        )
        out.print(
            "[bold]3.[/bold] Each server adds up its halves, writes the ε it is about to spend in "
            "its ledger, and adds\n   discrete Laplace noise of its own. Neither needs to trust "
            "the other for the answer to be private."
        )
        with show_progress() as report:
            result = federation.run(Mean(value="mean_radius"), EPSILON, report=report)
        out.print(
            "[bold]4.[/bold] The coordinator adds the two noisy halves: the masks cancel, the "
            "noise stays.\n"
        )
        show_result(result, [])
    assert result.interval is not None
    half = float(result.interval.high[0] - result.interval.low[0]) / 2
    out.print(
        "\nThe truth is shown because this is a simulation. What the analyst of a real federation "
        f"sees is\nthe estimate, and what privacy cost: about ±{half:.2g} at 95 %.\n"
    )
    out.print("Next, then open report/report.html:")
    for words in ("run histogram --runtime processes --out report", "list aggregators"):
        out.print(f"  [bold]{_command()} {words}[/bold]", soft_wrap=True)


def _command() -> str:
    """How this command is typed here: by its name, or by its path if the shell does not find it."""
    typed = Path(sys.argv[0])
    if typed.name != "tally" or shutil.which("tally") is not None:
        return "tally"
    here = Path.cwd()
    return str(typed.relative_to(here) if typed.is_relative_to(here) else typed)
