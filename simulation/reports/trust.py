"""The table of trust: the promises and costs of each installed aggregator."""

import dataclasses
from collections.abc import Iterator

from tallyroom.protocols.aggregation import aggregator_named, aggregator_names
from tallyroom.protocols.aggregation.contract import Aggregator, ThreatModel
from tallyroom.protocols.errors import LocalError
from tallyroom.simulation.reports.terminal import show_table

HEADS = ("aggregator", "may collude", "cheaters", "rounds", "a party sends", "offers", "options")
LEGEND = (
    "bytes that a party with k records sends for a vector of L ring elements among n parties and "
    "m servers"
)


def promises() -> dict[str, dict[str, object]]:
    """Everything that aggregators state about themselves, with their default number of servers.

    An aggregator that cannot be loaded has only its `error`.
    """
    found: dict[str, dict[str, object]] = {}
    for name in aggregator_names():
        try:
            found[name] = promise(aggregator_named(name))
        except LocalError as error:
            found[name] = {"error": str(error)}
    return found


def promise(aggregator: Aggregator) -> dict[str, object]:
    model = aggregator.threat_model(aggregator.servers)
    return {
        "summary": (aggregator.__doc__ or "").strip().partition("\n")[0],
        "servers": aggregator.servers,
        "colluding": model.colluding,
        "may_collude": collusion(model, aggregator.servers),
        "behaviour": model.behaviour,
        "dropouts": model.dropouts,
        "reveals": model.reveals,
        "catches": model.catches,
        "rounds": aggregator.rounds,
        "stages": aggregator.stages,
        "party_bytes": aggregator.party_bytes,
        "offers": sorted(aggregator.offers),
        "options": options_of(aggregator),
    }


def options_of(aggregator: Aggregator) -> dict[str, object]:
    """The options of an aggregator, with their defaults."""
    if not dataclasses.is_dataclass(aggregator):
        return {}
    return {field.name: field.default for field in dataclasses.fields(aggregator)}


def collusion(model: ThreatModel, servers: int) -> str:
    """Who may collude, in a few words."""
    return f"any {model.colluding} of {servers}" if model.colluding else "nobody"


def show_promises(rows: dict[str, dict[str, object]]) -> None:
    """Prints a table, and sentences below it."""
    able = {name: row for name, row in rows.items() if "error" not in row}
    show_table(HEADS, [tuple(_cells(name, row)) for name, row in able.items()])
    print(f"\na party sends: {LEGEND}")
    for name, found in able.items():
        print(f"\n{name}: {found['summary']}")
        for label, words in (("trust", "behaviour"), ("dropouts", "dropouts"), ("seen", "reveals")):
            print(f"  {label:<9} {found[words]}")
    for name, found in rows.items():
        if "error" in found:
            print(f"\n{name}: {found['error']}")


def _cells(name: str, row: dict[str, object]) -> Iterator[str]:
    offers, options = row["offers"], row["options"]
    yield name
    yield str(row["may_collude"])
    yield "caught" if row["catches"] else "not caught"
    yield str(row["rounds"])
    yield str(row["party_bytes"])
    yield ", ".join(offers) if isinstance(offers, list) else ""
    chosen = options.items() if isinstance(options, dict) else ()
    yield ", ".join(f"{key}={value}" for key, value in chosen) or "none"
