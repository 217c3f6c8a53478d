"""report.html: a single page that contains its figures."""

import base64
import html
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from tallyroom.protocols.statistics.estimates import shape_of
from tallyroom.simulation.reports.figures import communication_figure, estimate_figure
from tallyroom.simulation.reports.latex import latex
from tallyroom.simulation.reports.tables import counted, error_parts, spread, texts, words_of
from tallyroom.simulation.result import Result, version
from tallyroom.simulation.times import Times

MOST_ROWS = 32

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;
color:#1b2a41}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}img{max-width:100%}
table{border-collapse:collapse;width:100%;margin-bottom:1.2rem}
td,th{text-align:left;padding:.3rem .6rem;
border-bottom:1px solid #dde3ea;vertical-align:top}
td{overflow-wrap:anywhere}td.n,th.n{text-align:right;
font-variant-numeric:tabular-nums;overflow-wrap:normal}
.loud{background:#fdecdc;border-left:4px solid #e07a1f;
padding:.5rem 1rem}
.wide{overflow-x:auto}.wide td{overflow-wrap:normal}
"""


def write_paper(result: Result, folder: Path) -> Path:
    """Writes the table of the answer for a paper, at most `MOST_ROWS` rows of it."""
    path = folder / "estimate.tex"
    heads, rows = result.table()
    path.write_text(latex(heads, texts(spread(rows, MOST_ROWS))), encoding="utf-8")
    return path


def write_report(result: Result, folder: Path) -> list[Path]:
    """Writes the plots and the page; returns their paths."""
    plots = {
        "estimate.png": estimate_figure(result),
        "communication.png": communication_figure(result),
    }
    paths = []
    for name, figure in plots.items():
        figure.savefig(folder / name)
        paths.append(folder / name)
    page = folder / "report.html"
    page.write_text(_page(result, paths), encoding="utf-8")
    return [*paths, page]


def _page(result: Result, plots: list[Path]) -> str:
    federation = result.federation
    parties = counted(federation["parties"], "party", "parties")
    title = f"{result.statistic}: {parties}, {counted(federation['servers'], 'server', 'servers')}"
    notes = "".join(f'<p class="loud">{html.escape(note)}</p>' for note in result.notes)
    images = [image(path) for path in plots]
    answer: list[tuple[str, object]] = []
    if result.shape.scalar:
        answer.append(("estimate", result.summary()))
        if result.truth is not None:
            answer.append(("truth", str(shape_of(result.truth))))
    if (error := result.error) is not None:
        answer += [
            ("root mean square error", f"{error['rmse']:.4g}"),
            ("largest", f"{error['max']:.4g}"),
        ]
        answer += [(name, f"rmse {part['rmse']:.4g}") for name, part in error_parts(result)]
    caught = f"<h2>Caught</h2>{pairs(result.caught_by_name)}" if result.caught else ""
    times = result.seconds | {"CPU of the servers": result.server_cpu_seconds}
    times |= _parts(result.times)
    bill = result.bill
    phases = [(name, t.bytes, t.messages) for name, t in bill.by_phase().items()]
    links = [(name, t.bytes, t.messages) for name, t in bill.by_link().items()]
    total = bill.total
    messages = counted(total.messages, "message", "messages")
    rounds = counted(bill.rounds, "round", "rounds")
    body = f"""{notes}
{images[0]}
<h2>Answer</h2>{pairs(answer)}
{answer_table(result)}
<h2>Privacy</h2>{pairs(_in_words(result.privacy.as_json()))}
{_questions(result)}{caught}
<h2>Bill: {total.bytes:,} bytes, {messages}, {rounds}</h2>
{images[1]}
{_counts("phase", phases)}{_counts("link", links)}
<h2>Federation</h2>{pairs(_in_words(federation))}
<h2>Time</h2>{pairs((name, f"{spent:.3f} s") for name, spent in times.items())}
<h2>Where it is from</h2>{pairs(_origin(result))}"""
    return page(title, body)


def _parts(times: Times) -> dict[str, float]:
    """Where the time went, and what it would be on other networks."""
    parts = {words_of(name): each for name, each in (times.parts | times.of_roles).items()}
    return parts | {f"predicted, {where}": each for where, each in times.elsewhere.items()}


def _origin(result: Result) -> list[tuple[str, object]]:
    said = [*_in_words(result.data), ("tallyroom", version()), ("date", result.date)]
    return [*said, ("command", result.command)] if result.command else said


def _in_words(said: Mapping[str, object]) -> list[tuple[str, object]]:
    """The fields of a document, worded for people."""

    def words(value: object) -> str:
        if isinstance(value, Mapping):
            return "; ".join(f"{name}: {words(each)}" for name, each in value.items())
        if isinstance(value, list):
            return ", ".join(map(words, value))
        if isinstance(value, float):
            return f"{value:.12g}"
        return "none" if value is None else str(value)

    return [(name.replace("_", " "), words(value)) for name, value in said.items()]


def answer_table(result: Result, most: int = MOST_ROWS) -> str:
    """The answer with its intervals; if there are many rows, some of them, evenly spread."""
    heads, rows = result.table()
    if result.shape.scalar:
        return ""
    top = "".join(f'<th class="n">{html.escape(head)}</th>' for head in heads)
    body = "".join(
        "<tr>" + "".join(f'<td class="n">{html.escape(cell)}</td>' for cell in row) + "</tr>"
        for row in texts(spread(rows, most))
    )
    covered = f"<p>±: {html.escape(result.covered)}</p>" if result.covered else ""
    rest = f"<p>{most} of {len(rows)} rows; estimate.csv has all.</p>" if len(rows) > most else ""
    return f'<div class="wide"><table><tr>{top}</tr>{body}</table></div>{covered}{rest}'


def notebook_cell(result: Result) -> str:
    """The answer, its picture and its table, for a notebook."""
    buffer = io.BytesIO()
    estimate_figure(result).savefig(buffer, format="png", dpi=100)
    data = base64.b64encode(buffer.getvalue()).decode()
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in result.notes)
    total, rounds = result.bill.total, result.bill.rounds
    messages = counted(total.messages, "message", "messages")
    bill = f"{total.bytes:,} bytes, {messages}, {counted(rounds, 'round', 'rounds')}"
    return (
        f"<p><b>{html.escape(result.statistic)}</b>, {result.privacy.cost}: "
        f"{html.escape(result.summary())}</p>{notes}"
        f'<img alt="estimate" style="max-width:100%" src="data:image/png;base64,{data}">'
        f"{answer_table(result, 12)}<p>Bill: {bill}</p>"
        f"<p>{html.escape(' · '.join(result.origin()))}</p>"
    )


def _questions(result: Result) -> str:
    """The questions of a study, with the cost of each."""
    if not result.questions:
        return ""
    rows = []
    for number, each in enumerate(result.questions, 1):
        loss = each.privacy.loss
        size = "0" if each.reused else f"{loss.size:g}"
        words = f"{each.statistic}: {loss.letter} = {size}, {each.bill.total.bytes:,} bytes"
        rows.append((f"question {number}", words))
    return f"<h2>Questions</h2>{pairs(rows)}"


def image(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{path.stem}" src="data:image/png;base64,{data}">'


def page(title: str, body: str) -> str:
    """A self-contained page."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>Tallyroom: {html.escape(title)}</title><style>{_STYLE}</style></head><body>
<h1>{html.escape(title)}</h1>{body}
</body></html>
"""


def pairs(rows: Iterable[tuple[str, object]]) -> str:
    """A table with two columns: names and values."""
    cells = (
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>"
        for name, value in rows
    )
    return f"<table>{''.join(cells)}</table>"


def _counts(head: str, rows: Iterable[tuple[str, int, int]]) -> str:
    cells = (
        f"<tr><td>{html.escape(name)}</td>"
        f'<td class="n">{size:,}</td><td class="n">{count:,}</td></tr>'
        for name, size, count in rows
    )
    top = f'<tr><th>{head}</th><th class="n">bytes</th><th class="n">messages</th></tr>'
    return f"<table>{top}{''.join(cells)}</table>"
