"""A picture of whom an aggregator trusts, drawn from what it states about itself."""

import html

from tallyroom.protocols.aggregation.contract import ThreatModel

WIDTH, HEIGHT = 660, 250
BOX = 110
TOP = 56


def trust_picture(name: str, model: ThreatModel, servers: int) -> str:
    """Draws parties, servers and the analyst. The dashed line encloses those that may collude; a
    thick line marks a server that sees data in the clear."""
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" style="width:100%;color:inherit" '
        f'aria-label="{html.escape(in_words(name, model, servers))}">'
    ]
    cheats = "cheaters are caught" if model.catches else "must not cheat"
    parts += _box(10, 95, "parties", cheats)
    gap = min(HEIGHT - TOP, 64 * servers) // servers
    first = (HEIGHT - gap * servers) // 2
    together = model.colluding if servers > 1 else 0
    if together:
        depth = gap * together
        parts.append(
            f'<rect class="collude" x="242" y="{first - 2}" width="146" height="{depth}" rx="8" '
            'fill="none" stroke="currentColor" stroke-dasharray="6 4"/>'
            f'<text x="315" y="{first - 8}" text-anchor="middle" font-size="12" '
            'fill="currentColor">may collude</text>'
        )
    for at in range(servers):
        y = first + gap * at + 8
        parts.append(_arrow(130, 120, 255, y + 20))
        parts.append(_arrow(375, y + 20, 520, 120))
        parts += _box(260, y, f"server {at}", _seen(model), thick=model.exposes)
    parts += _box(525, 95, "analyst", "sees the answer")
    return "".join([*parts, "</svg>"])


def in_words(name: str, model: ThreatModel, servers: int) -> str:
    """The picture in words, for readers who do not see it."""
    who = f"any {model.colluding} of {servers}" if model.colluding else "no"
    return f"{name}: {who} servers may collude with the analyst; a server {_seen(model)}"


def _seen(model: ThreatModel) -> str:
    return "sees all data" if model.exposes else "sees no record"


def _box(x: int, y: int, name: str, below: str, thick: bool = False) -> list[str]:
    middle = x + BOX // 2
    return [
        f'<rect x="{x}" y="{y}" width="{BOX}" height="42" rx="6" fill="none" '
        f'stroke="currentColor" stroke-width="{4 if thick else 1}"/>',
        f'<text x="{middle}" y="{y + 18}" text-anchor="middle" fill="currentColor">{name}</text>',
        f'<text x="{middle}" y="{y + 34}" text-anchor="middle" font-size="11" '
        f'fill="currentColor">{below}</text>',
    ]


def _arrow(x1: int, y1: int, x2: int, y2: int) -> str:
    return (
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="currentColor" opacity=".5"/>'
        f'<circle cx="{x2}" cy="{y2}" r="3" fill="currentColor"/>'
    )
