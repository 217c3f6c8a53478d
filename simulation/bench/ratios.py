"""`tally bench all`: one page with every ratio that the benchmarks measured, as a table and a plot.

A row's ratio is ours divided by the peer's, of rates or of times as its benchmark says. Here all
ratios are stated one way: how many times better ours is, and for a limit, which share of it we
reach. A peer that could not be run is named with the reason.
"""

import csv
import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tallyroom.simulation.bench.peers import adapters
from tallyroom.simulation.bench.peers.adapters import BY_KEY
from tallyroom.simulation.bench.row import Row


class RatioKind(StrEnum):
    SPEED = "speed"
    ERROR = "error"
    LIMIT = "limit"


@dataclass(frozen=True)
class Peer:
    """`key` is the peer's name in rows; `inverse` is set if the ratio is of times or errors, where
    less is better. `module` must be importable for it; `wanted` says what else it needs."""

    key: str
    name: str
    kind: RatioKind
    inverse: bool = False
    module: str = ""
    wanted: str = ""


PEERS = (
    Peer("sycret", "sycret (comparison keys)", RatioKind.SPEED, module="sycret"),
    Peer("cvxopt-sparse", "CVXOPT (smoothing)", RatioKind.SPEED, module="cvxopt"),
    Peer(
        "flower",
        "Flower SecAgg+ (masked sums)",
        RatioKind.SPEED,
        inverse=True,
        wanted="FLOWER_PYTHON does not name an interpreter that has flwr",
    ),
    Peer("vdaf-reference", "the VDAF draft's Python (Prio3)", RatioKind.SPEED, module="vdaf_poc"),
    Peer("emp", "EMP (garbling)", RatioKind.SPEED, wanted="no program `emp`, and EMP is not set"),
    Peer("mpyc", "MPyC (a sum of three parties)", RatioKind.SPEED, module="mpyc"),
    Peer("mpyc-compare", "MPyC (comparisons of three parties)", RatioKind.SPEED, module="mpyc"),
    Peer("dp-accounting", "dp-accounting (composition)", RatioKind.SPEED, module="dp_accounting"),
    Peer("pandas", "pandas (reading the file)", RatioKind.SPEED, inverse=True, module="pandas"),
    Peer("opendp-error", "OpenDP", RatioKind.ERROR, inverse=True, module="opendp.prelude"),
    Peer("diffprivlib-error", "diffprivlib", RatioKind.ERROR, inverse=True, module="diffprivlib"),
    Peer(
        "dp-accounting-epsilon",
        "dp-accounting (ε of a composition)",
        RatioKind.ERROR,
        inverse=True,
        module="dp_accounting",
    ),
    Peer("fedcurve", "fedcurve", RatioKind.ERROR, wanted="it is not on a package index"),
    Peer("aes-limit", "the CPU's AES limit", RatioKind.LIMIT, wanted="no native module"),
    Peer("loopback", "one TCP connection on the loopback", RatioKind.LIMIT),
    Peer("curator", "a trusted curator over the same gRPC", RatioKind.LIMIT, inverse=True),
    Peer("raw", "evaluating the same keys and nothing else", RatioKind.LIMIT, inverse=True),
    Peer("bare", "the same program without `tally meter`", RatioKind.LIMIT, inverse=True),
    Peer("sum", "adding up the same bytes", RatioKind.LIMIT, inverse=True),
)
KNOWN = {peer.key: peer for peer in PEERS}
HEADINGS = {
    RatioKind.SPEED: "Times faster than a peer at the same job",
    RatioKind.ERROR: "Times less error than a peer, at the same ε and adjacency",
    RatioKind.LIMIT: "Share of a limit",
}


@dataclass(frozen=True)
class Compared:
    """One ratio: `better` is how many times better ours is, or the share of a limit."""

    benchmark: str
    row: Row
    peer: Peer
    ratio: float

    @property
    def better(self) -> float:
        return 1 / self.ratio if self.peer.inverse else self.ratio


def compared(found: Iterable[tuple[str, Row]]) -> list[Compared]:
    """Ratios to peers and limits, by kind and peer. Ratios to other rows of ours are left out, and
    so is the pure Python twin, which exists to be read."""
    listed = [
        Compared(benchmark, row, KNOWN[key], ratio)
        for benchmark, row in found
        for key, ratio in row.ratios.items()
        if key in KNOWN and not row.name.endswith("-twin")
    ]
    places = {peer.key: place for place, peer in enumerate(PEERS)}
    return sorted(listed, key=lambda each: places[each.peer.key])


def missing(found: Sequence[Compared], among: Iterable[str] | None = None) -> list[tuple[str, str]]:
    """Lists peers without any ratio, with the reason; `among` names those to look for."""
    wanted = {peer.key for peer in PEERS} if among is None else set(among)
    wanted -= {each.peer.key for each in found}
    return [(peer.name, _reason(peer)) for peer in PEERS if peer.key in wanted]


def _reason(peer: Peer) -> str:
    if peer.key in BY_KEY:
        return adapters.missing(BY_KEY[peer.key]) or "its benchmark gave no ratio"
    if peer.module:
        try:
            importlib.import_module(peer.module)
        except ImportError as error:
            return f"it cannot be imported: {str(error).splitlines()[0]}"
    return peer.wanted or "its benchmark gave no ratio"


def write_page(
    found: Sequence[Compared], machine: dict[str, object], failed: Sequence[str], folder: Path
) -> list[Path]:
    """Writes `ratios.csv`, `ratios.md` and, unless it would be empty, `ratios.png`."""
    folder.mkdir(parents=True, exist_ok=True)
    table, page, plot = (folder / f"ratios.{end}" for end in ("csv", "md", "png"))
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["kind", "peer", "benchmark", "row", "rate", "unit", "ratio", "better"])
        for each in found:
            row = each.row
            words = [each.peer.kind, each.peer.key, each.benchmark, row.name, row.rate, row.unit]
            writer.writerow([*words, each.ratio, each.better])
    page.write_text(page_text(found, machine, failed))
    if not found:
        return [table, page]
    _draw(found, plot)
    return [table, page, plot]


def page_text(found: Sequence[Compared], machine: dict[str, object], failed: Sequence[str]) -> str:
    lines = ["# Beside peers and limits", ""]
    lines += [f"- {name}: {value}" for name, value in machine.items()]
    for kind, heading in HEADINGS.items():
        lines += ["", f"## {heading}", "", "| beside | what | ours | ratio |", "|---|---|---|---|"]
        lines += [
            f"| {each.peer.name} | {each.benchmark}: {each.row.name} "
            f"| {each.row.rate:,.4g} {each.row.unit} | {each.better:.3g} |"
            for each in found
            if each.peer.kind is kind
        ]
    lines += ["", "## Not compared", ""]
    lines += [f"- {name}: {reason}" for name, reason in missing(found)]
    lines += [f"- {reason}" for reason in failed]
    return "\n".join(lines) + "\n"


COLOURS = {RatioKind.SPEED: "tab:blue", RatioKind.ERROR: "tab:orange", RatioKind.LIMIT: "tab:grey"}


def _draw(found: Sequence[Compared], path: Path) -> None:
    """Draws a point per ratio, by peer, on one logarithmic axis; 1 is equal."""
    from matplotlib.figure import Figure

    peers = list(dict.fromkeys(each.peer for each in found))
    figure = Figure(figsize=(8, 1.2 + 0.4 * len(peers)), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for kind in RatioKind:
        chosen = [each for each in found if each.peer.kind is kind]
        if chosen:
            axes.scatter(
                [each.better for each in chosen],
                [peers.index(each.peer) for each in chosen],
                color=COLOURS[kind],
                alpha=0.7,
                label=HEADINGS[kind],
            )
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(peers)), [peer.name for peer in peers])
    axes.invert_yaxis()
    axes.set_xlabel("ours beside it: times better, or share of a limit")
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside lower center", fontsize="small")
    figure.savefig(path)
