"""S0 §4: the bytes of a curve, by asking every party at every threshold or by keys.

Metered in real runs, message by message. Pointwise (§4.1) here sends all of B in one round, which
is cheaper than repeating the aggregation for every threshold as S0 does; that is metered as well.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.simulation.federation import Federation
from tallyroom.simulation.reproduce.contract import Figure, Number, Outcome, Scale, write_table
from tallyroom.simulation.reproduce.drawing import COLOURS, legend_below, log_axis, panels, save

SEED = 4
AGGREGATORS = {"pointwise": "additive", "keys": "fss?domain=fine&verified=no"}
# With three or more servers the keys are of another kind, whose length grows with |B|.
MORE_SERVERS = "fss"
# The query is JSON: it gets longer with log n and log |B|.
MOST_TEXT_GROWTH = 16
LAST = 1 << 14


@dataclass(frozen=True)
class Sizes:
    parties: tuple[int, ...]
    thresholds: tuple[int, ...]
    repeated: tuple[int, ...]


SIZES = {
    Scale.PAPER: Sizes((250, 1000, 4000), tuple(2**k for k in range(11)), (1, 4, 16, 64)),
    Scale.SMALL: Sizes((20, 40), (4, 64, 512), (1, 3)),
}


@dataclass(frozen=True)
class MeteredRun:
    """Bytes of one run (of |B| runs, if repeated), by phase.

    `uploads` are bytes from parties to servers, `shares` those from servers to the asking side.
    """

    way: str
    parties: int
    servers: int
    thresholds: int
    query: int
    uploads: int
    shares: int
    total: int

    def row(self) -> dict[str, Number]:
        return dict(self.__dict__)


def meter(way: str, parties: int, thresholds: int, servers: int = 2) -> MeteredRun:
    """Meters one curve of `thresholds` points from parties with one record each."""
    aggregator = AGGREGATORS[way] if servers == 2 else MORE_SERVERS
    with _federation(aggregator, parties, servers) as federation:
        return _ask(federation, way, parties, servers, thresholds)


def meter_repeated(parties: int, thresholds: int) -> MeteredRun:
    """S0 §4.1 to the letter: the aggregation is repeated for each threshold."""
    runs = []
    for _ in range(thresholds):  # a new federation each time: one that has the curve asks nobody
        with _federation("additive", parties, 2) as federation:
            runs.append(_ask(federation, "repeated", parties, 2, 1))
    return MeteredRun(
        way="repeated",
        parties=parties,
        servers=2,
        thresholds=thresholds,
        query=sum(run.query for run in runs),
        uploads=sum(run.uploads for run in runs),
        shares=sum(run.shares for run in runs),
        total=sum(run.total for run in runs),
    )


def crossing(pointwise: Callable[[int], int], keys: Callable[[int], int]) -> int | None:
    """The least |B| at which pointwise costs more in total, by bisection on real runs, or None."""
    low, high = 0, 1
    while pointwise(high) <= keys(high):
        low, high = high, 2 * high
        if high > LAST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        if pointwise(middle) > keys(middle):
            high = middle
        else:
            low = middle
    return high


def judge(metered: Sequence[MeteredRun], crossings: dict[int, int | None]) -> dict[str, bool]:
    """Checks exact identities between counted bytes, without statistics."""
    pointwise = [each for each in metered if each.way == "pointwise"]
    keys = [each for each in metered if each.way == "keys"]
    growth = max(_growth(pointwise), _growth(keys))
    return {
        "pointwise: parties send exactly n·(a + b·|B|) bytes, b > 0": _grows(
            [(each.thresholds, each.uploads / each.parties) for each in pointwise]
        ),
        "keys: parties send exactly n·k bytes, whatever |B| is": _constant(
            [each.uploads / each.parties for each in keys]
        ),
        "keys: servers answer with exactly m·(a + b·|B|) bytes, whatever n is": _grows(
            [(each.thresholds, each.shares / each.servers) for each in keys]
        ),
        f"the query's own text differs by at most {MOST_TEXT_GROWTH} bytes": growth
        <= MOST_TEXT_GROWTH,
        "keys cost less in all from some |B| on, at every n": bool(crossings)
        and all(found is not None for found in crossings.values()),
    }


def _growth(metered: Sequence[MeteredRun]) -> float:
    """By how many bytes queries that name the same aggregator differ in length."""
    text = [each.query / (each.parties + each.servers) for each in metered]
    return max(text) - min(text)


def _grows(points: Sequence[tuple[int, float]]) -> bool:
    """Whether (|B|, bytes) lie on one rising line exactly, and equal |B| mean equal bytes."""
    line = sorted(set(points))
    if len({thresholds for thresholds, _ in line}) != len(line) or len(line) < 2:
        return False
    slopes = {(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(line)}
    return len(slopes) == 1 and slopes.pop() > 0


def _constant(values: Sequence[float]) -> bool:
    return len(set(values)) == 1


def run(folder: Path, scale: Scale) -> Outcome:
    sizes = SIZES[scale]
    metered = [
        meter(way, n, thresholds)
        for way in AGGREGATORS
        for n in sizes.parties
        for thresholds in sizes.thresholds
    ]
    repeated = [meter_repeated(sizes.parties[0], count) for count in sizes.repeated]
    three = [meter("keys", sizes.parties[0], count, servers=3) for count in sizes.thresholds]
    crossings = {
        n: crossing(partial(_total, "pointwise", n), partial(_total, "keys", n))
        for n in sizes.parties
    }
    first, last = (meter("pointwise", sizes.parties[0], count) for count in sizes.thresholds[-2:])
    key = next(each for each in metered if each.way == "keys")
    n = sizes.parties[0]
    return Outcome(
        judge(metered, crossings),
        {
            "parties": list(sizes.parties),
            "servers": 2,
            "thresholds": list(sizes.thresholds),
            "crossing_thresholds": {str(n): found for n, found in crossings.items()},
            "key_bytes_per_party": key.uploads / key.parties,
            "pointwise_bytes_per_party_and_threshold": (last.uploads - first.uploads)
            / (n * (last.thresholds - first.thresholds)),
            "repeated_bytes_per_party_and_threshold": repeated[-1].total
            / (n * repeated[-1].thresholds),
            "pointwise_over_keys_at_largest_thresholds": {
                str(n): _saving(metered, n, sizes.thresholds[-1]) for n in sizes.parties
            },
            "three_servers_key_bytes_per_party": {
                str(each.thresholds): each.uploads / each.parties for each in three
            },
            "three_servers_keys_constant": _constant([each.uploads for each in three]),
        },
        [
            write_table(
                folder / "s0-communication.csv",
                [each.row() for each in (*metered, *repeated, *three)],
            ),
            _draw(folder / "s0-communication.png", metered, repeated, crossings),
        ],
    )


def _federation(aggregator: str, parties: int, servers: int) -> Federation:
    """Uses few hosts: parties in a block are billed as each would be alone."""
    return Federation(
        parties=parties,
        servers=servers,
        aggregator=aggregator,
        data=f"synthetic:scores?n={parties}",
        hosts=2,
        seed=SEED,
    )


def _ask(
    federation: Federation, way: str, parties: int, servers: int, thresholds: int
) -> MeteredRun:
    """Asks with S0's own mechanism, which publishes |B| counts; the hierarchy publishes its
    nodes."""
    question = Ecdf(value="score", thresholds=thresholds, strategy="tree")
    bill = federation.run(question, 1.0).bill
    phases = bill.by_phase()
    return MeteredRun(
        way,
        parties,
        servers,
        thresholds,
        phases["query"].bytes,
        phases["submit"].bytes,
        phases["share"].bytes,
        bill.total.bytes,
    )


def _total(way: str, parties: int, thresholds: int) -> int:
    return meter(way, parties, thresholds).total


def _saving(metered: Sequence[MeteredRun], parties: int, thresholds: int) -> float:
    """The bytes of pointwise divided by those of keys."""
    at = {
        each.way: each.total
        for each in metered
        if each.parties == parties and each.thresholds == thresholds
    }
    return at["pointwise"] / at["keys"]


def _draw(
    path: Path,
    metered: Sequence[MeteredRun],
    repeated: Sequence[MeteredRun],
    crossings: dict[int, int | None],
) -> Path:
    canvas, (axes,) = panels("S0 §4: metered bytes of one curve, m = 2 servers", [""])
    canvas.set_size_inches(7.2, 5.0)
    for (n, found), colour in zip(crossings.items(), COLOURS, strict=False):
        for way, style in (("pointwise", "-"), ("keys", "--")):
            line = [each for each in metered if each.way == way and each.parties == n]
            axes.plot(
                [each.thresholds for each in line],
                [each.total for each in line],
                color=colour,
                ls=style,
                lw=1.4,
                label=f"{way}, n = {n:,}",
            )
        if found is not None:
            totals = [each for each in metered if each.way == "keys" and each.parties == n]
            at = float(np.interp(found, [t.thresholds for t in totals], [t.total for t in totals]))
            axes.plot([found], [at], "o", color=colour, ms=6, mfc="white", zorder=3)
            axes.annotate(
                f"|B| = {found}",
                (found, at),
                xytext=(-4, 7),
                textcoords="offset points",
                fontsize=8.5,
                ha="right",
            )
    axes.plot(
        [each.thresholds for each in repeated],
        [each.total for each in repeated],
        color=COLOURS[0],
        ls=":",
        lw=1.4,
        label=f"repeated, n = {repeated[0].parties:,}",
    )
    log_axis(axes, "x", "thresholds |B|")
    log_axis(axes, "y", "bytes in all")
    legend_below(canvas, [axes], 4)
    return save(canvas, path)


FIGURE = Figure(
    "s0-communication",
    "S0 §4: evaluating a curve of n parties at |B| points costs O(n·|B|) bytes pointwise and "
    "O(n + m·|B|) with function secret sharing, which pays except for small |B| (at m = 2).",
    run,
)
