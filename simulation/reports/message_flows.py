"""Pages with the message flow of each aggregator and protocol, drawn from the messages that its
machines really sent, and a page about whom each aggregator trusts.

A histogram of four bins is asked of three parties in one process; the meter has every message.
"""

import html
from pathlib import Path

from tallyroom.protocols.aggregation import aggregators
from tallyroom.protocols.errors import TallyError
from tallyroom.protocols.wire.messages import Role
from tallyroom.simulation.federation import Federation
from tallyroom.simulation.reports.trust import promise
from tallyroom.simulation.reports.trust_picture import trust_picture
from tallyroom.simulation.result import Result

PARTIES = 3
STATISTICS = ("histogram", "ecdf")
PLACES = {Role.PARTY: 90, Role.SERVER: 330, Role.COORDINATOR: 570}
NAMES = {Role.PARTY: "party", Role.SERVER: "server", Role.COORDINATOR: "coordinator"}
ROW = 34


OTHERS = {
    "pairs": ("gini", "additive", None, "Pairs of parties", "pairs.md"),
    "joint-noise": (
        "mean",
        "additive",
        "joint",
        "Noise that two servers draw together",
        "together.md",
    ),
    "choices": ("mode", "additive", None, "A choice of two servers", "together.md"),
    "study": ("gini-coefficient", "additive", None, "A study of two questions", "studies.md"),
}
"""Protocols besides the aggregators: the question, the aggregator, where the noise is drawn, the
title, and the page that explains it."""


def asked(name: str) -> Result:
    """Raises `TallyError` if the aggregator answers none of the questions."""
    error: TallyError | None = None
    for statistic in STATISTICS:
        try:
            with Federation(PARTIES, aggregator=name, data="synthetic:scores?n=12") as federation:
                return federation.run(statistic, epsilon=1, delta=1e-6)
        except TallyError as refused:
            error = refused
    assert error is not None
    raise error


def flow(result: Result) -> list[tuple[Role, Role, str, int, int]]:
    """Sender, receiver, phase, bytes and messages of every kind of message, in order."""
    found: dict[tuple[int, Role, Role, str], tuple[int, int]] = {}
    for link, account in sorted(result.bill.accounts.items(), key=lambda each: each[0].round):
        key = (link.round, link.sender, link.receiver, link.phase.label)
        size, count = found.get(key, (0, 0))
        found[key] = size + int(account.bytes.sum()), count + int(account.messages.sum())
    return [(sender, to, phase, *cost) for (_, sender, to, phase), cost in found.items()]


def picture(name: str, steps: list[tuple[Role, Role, str, int, int]]) -> str:
    """A sequence diagram that is legible on light and dark pages."""
    height = 60 + ROW * len(steps)
    parts = [
        f'<svg viewBox="0 0 660 {height}" role="img" style="width:100%;color:inherit" '
        f'aria-label="Messages of {html.escape(name)}; the table below has the same">'
    ]
    for role, x in PLACES.items():
        parts.append(
            f'<text x="{x}" y="20" text-anchor="middle" fill="currentColor">{NAMES[role]}</text>'
            f'<line x1="{x}" y1="30" x2="{x}" y2="{height}" stroke="currentColor" opacity=".4"/>'
        )
    for at, (sender, receiver, phase, _, _) in enumerate(steps):
        y = 60 + ROW * at
        start, end = PLACES[sender], PLACES[receiver]
        if start == end:
            line = f"M{start} {y} h50 v12 h-44"
            middle, tip, back = start + 60, start + 4, 8
            y_tip, anchor = y + 12, "start"
        else:
            back = -8 if end > start else 8
            tip, y_tip, middle, anchor = end, y, (start + end) // 2, "middle"
            line = f"M{start} {y} H{end}"
        head = f"M{tip + back} {y_tip - 5} L{tip} {y_tip} L{tip + back} {y_tip + 5}"
        parts.append(
            f'<path d="{line} {head}" fill="none" stroke="currentColor"/>'
            f'<text x="{middle}" y="{y - 6}" text-anchor="{anchor}" font-size="13" '
            f'fill="currentColor">{phase}</text>'
        )
    return "".join([*parts, "</svg>"])


def page(name: str) -> str:
    aggregator = aggregators()[name]
    said = promise(aggregator)
    lines = [f"# {name}", "", str(said["summary"]), "", f"- Trust: {said['behaviour']}"]
    lines += [f"- Dropouts: {said['dropouts']}", f"- Seen: {said['reveals']}"]
    lines += [f"- A party sends: {said['party_bytes']} bytes", "", "## Messages", ""]
    try:
        result = asked(name)
    except TallyError as error:
        return "\n".join([*lines, f"Not drawn: {error}", ""])
    return "\n".join([*lines, *_messages(name, result)])


def other_page(name: str) -> str:
    """The page of a protocol that is not an aggregator."""
    statistic, aggregator, noise, title, explained = OTHERS[name]
    with Federation(PARTIES, aggregator=aggregator, data="synthetic:scores?n=12") as federation:
        result = federation.run(statistic, epsilon=100, noise=noise)
    lines = [f"# {title}", "", f"[What it is, and what it promises](../{explained})", ""]
    return "\n".join([*lines, "## Messages", "", *_messages(name, result)])


def _messages(name: str, result: Result) -> list[str]:
    steps = flow(result)
    return [
        f"A {result.statistic} of {PARTIES} parties, as this version's machines sent it.",
        "",
        "```{raw} html",
        picture(name, steps),
        "```",
        "",
        "| phase | from | to | messages | bytes |",
        "|---|---|---|---:|---:|",
        *(f"| {p} | {NAMES[s]} | {NAMES[r]} | {m} | {b:,} |" for s, r, p, b, m in steps),
        "",
    ]


def trust_page() -> str:
    """Every installed aggregator's promise, as a picture and in words."""
    lines = [
        "# Threat models",
        "",
        "Whom you must trust, for each aggregator with as many servers as it has by default.",
        "Within the dashed line: servers that may put together all they see, with the analyst too,",
        "and still learn no more than the answer. A thick line: a server that sees parties' data.",
        "",
    ]
    for name, aggregator in sorted(aggregators().items()):
        model = aggregator.threat_model(aggregator.servers)
        drawn = trust_picture(name, model, aggregator.servers)
        lines += [f"## {name}", "", "```{raw} html", drawn, "```", ""]
        lines += [f"- Trust: {model.behaviour}", f"- Dropouts: {model.dropouts}"]
        lines += [f"- Seen: {model.reveals}", f"- [Messages]({name}.md)", ""]
    return "\n".join(lines)


def write_flows(folder: Path) -> None:
    """Writes one page per installed aggregator and per other protocol, their index, and the page
    about trust."""
    folder.mkdir(exist_ok=True)
    pages = {name: page(name) for name in sorted(aggregators())}
    pages |= {name: other_page(name) for name in OTHERS}
    inside = "\n".join(pages)
    pages["index"] = (
        f"# Messages, protocol by protocol\n\n```{{toctree}}\n:maxdepth: 1\n\n{inside}\n```\n"
    )
    pages["trust"] = trust_page()
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
