"""Output for people at a terminal: results on standard output, all else on standard error."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tallyroom.protocols.statistics.estimates import shape_of
from tallyroom.simulation.reports.tables import counted, error_parts, spread, texts
from tallyroom.simulation.result import Result
from tallyroom.simulation.runtimes import Progress as RunProgress
from tallyroom.simulation.runtimes import Report, silent
from tallyroom.simulation.times import Times

MOST_ROWS = 12

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def show_study_key(key: str) -> None:
    """Like `show_key`. The coordinator knows the questions of a study, not the study itself."""
    err.print(
        f"a study under the key {key}; the same command with --key {key} continues it where it "
        "stopped, and neither asks nor pays for anything twice",
        markup=False,
    )


def show_key(key: str) -> None:
    """Shows the key at once, so that an analyst who is cut off can fetch the answer later."""
    err.print(f"asked under the key {key}; --resume {key} finds the answer again", markup=False)


@contextmanager
def show_progress() -> Iterator[Report]:
    """Shows parties, phase and bytes as they change; silent if stderr is not a terminal."""
    if not err.is_terminal:
        yield silent
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.fields[phase]:<8}"),
        BarColumn(bar_width=30),
        TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[what]}"),
        TextColumn("{task.fields[size]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("", total=1, phase="start", what="", size="")

        def report(progress: RunProgress) -> None:
            enrolling = progress.phase == "enrol"
            bar.update(
                task,
                total=progress.parties,
                completed=progress.enrolled if enrolling else progress.submissions,
                phase=" ".join(filter(None, (progress.question, progress.phase))),
                what="parties enrolled" if enrolling else "submissions",
                size=f"{progress.bytes:,} B" if progress.bytes else "",
            )

        yield report


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table on a terminal, and aligned plain text elsewhere."""
    console = Console(highlight=False)
    if console.is_terminal:
        table = Table(*heads, header_style="bold", box=None, pad_edge=False)
        for row in rows:
            table.add_row(*(escape(cell) for cell in row))
        console.print(table)
        return
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for line in (heads, *rows):
        padded = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())


def show_result(result: Result, written: list[Path]) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in result_lines(result):
        grid.add_row(name, value)
    for path in written:
        grid.add_row("written", escape(str(path)))
    Console(highlight=False).print(grid)
    if not result.shape.scalar:
        heads, rows = result.table()
        print()
        show_table(heads, texts(spread(rows, MOST_ROWS)))
        if len(rows) > MOST_ROWS:
            print(f"{MOST_ROWS} of {len(rows)} rows; --out writes all")


def result_lines(result: Result) -> Iterator[tuple[str, str]]:
    privacy, bill, federation = result.privacy, result.bill, result.federation
    shown = escape(result.summary())
    truth = ""
    if result.truth is not None and result.shape.scalar:
        truth = f"   (truth {shape_of(result.truth)})"
    yield result.statistic, f"[bold]{shown}[/bold]{truth}"
    if (error := result.error) is not None:
        yield "error", _error_words(error)
    for name, part in error_parts(result):
        yield "", f"{name}: {_error_words(part)}"
    if result.covered and not result.shape.scalar:
        yield "±", result.covered
    if result.data:
        yield "data", escape(", ".join(result.origin()))
    if grid := result.data.get("grid"):
        yield "grid", str(grid)
    loss = privacy.loss
    size = f"{loss.size:g}" if loss.bounded else "inf (NOT PRIVATE)"
    delta = f", δ = {privacy.delta:.2g}" if privacy.delta else ""
    yield "privacy", f"{loss.letter} = {size}{delta}; {privacy.mechanism}; noise: {privacy.noise}"
    yield "protected", escape(privacy.protects)
    if trust := federation.get("trust"):
        yield "trust", str(trust)
    yield "trust", escape(privacy.threat_model)
    yield (
        "federation",
        f"{counted(federation['parties'], 'party', 'parties')}, "
        f"{counted(federation['servers'], 'server', 'servers')}, "
        f"{federation['aggregator']}, {federation['runtime']}",
    )
    for number, asked in enumerate(result.questions, 1):
        loss = asked.privacy.loss
        yield (
            f"question {number}",
            f"{asked.statistic}, {loss.letter} = {0 if asked.reused else loss.size:g}, "
            f"{asked.bill.total.bytes:,} bytes",
        )
    for party, reason in result.caught_by_name:
        yield "caught", f"{party}: {reason}"
    yield (
        "bill",
        f"{bill.total.bytes:,} bytes, {counted(bill.total.messages, 'message', 'messages')}, "
        f"{counted(bill.rounds, 'round', 'rounds')}; "
        f"{bill.party_bytes().mean():,.0f} bytes per party",
    )
    for link, tally in bill.by_link().items():
        noun = "message" if tally.messages == 1 else "messages"
        yield "", f"{link:<22}{tally.bytes:>12,} bytes {tally.messages:>8,} {noun}"
    spent = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in result.seconds.items())
    yield "time", f"{spent}; CPU of the servers {result.server_cpu_seconds:.3g} s"
    yield from _time_lines(result.times)


def _time_lines(times: Times) -> Iterator[tuple[str, str]]:
    """Where the time of more than computing went."""
    if not (times.waiting or times.network):
        return
    parts = {"waiting": times.waiting, "network": times.network, "computing": times.computing}
    told = " + ".join(f"{name} {each:.2f} s" for name, each in parts.items() if each)
    yield "", f"{times.wall:.2f} s = {told}"
    if times.elsewhere:
        listed = ", ".join(f"{each:.2f} s ({name})" for name, each in times.elsewhere.items())
        yield "", f"on other networks, with nobody to wait for, about {listed}"


def _error_words(error: Mapping[str, float]) -> str:
    """The errors that every shape has, then those of its own."""
    own = {name: value for name, value in error.items() if name not in ("rmse", "max")}
    told = [f"rmse {error['rmse']:.4g}", f"largest {error['max']:.4g}"]
    return ", ".join(told + [f"{name.replace('_', ' ')} {own[name]:.4g}" for name in own])
