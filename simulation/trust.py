"""The table of trust: what each installed aggregator promises, and what it costs."""

import dataclasses
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from protocols.aggregation import aggregator_named, aggregator_names
from protocols.aggregation.contract import Aggregator
from protocols.errors import LocalError

HEADS = ("aggregator", "may collude", "cheaters", "rounds", "a party sends", "offers", "options")
LEGEND = (
    "bytes that a party sends for a vector of L ring elements among n parties and m servers, "
    "k its records"
)


def promises() -> dict[str, dict[str, object]]:
    """All that aggregators state of themselves, with as many servers as they have by default.

    One that cannot be loaded has only its `error`.
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
    """Its options, with their defaults."""
    if not dataclasses.is_dataclass(aggregator):
        return {}
    return {field.name: field.default for field in dataclasses.fields(aggregator)}


def show_promises(rows: dict[str, dict[str, object]], console: Console) -> None:
    """A table on a terminal, the same aligned in plain text elsewhere; sentences below it."""
    able = {name: row for name, row in rows.items() if "error" not in row}
    cells = [tuple(_cells(name, row)) for name, row in able.items()]
    if console.is_terminal:
        table = Table(*HEADS, header_style="bold", box=None, pad_edge=False)
        for row in cells:
            table.add_row(*row)
        console.print(table)
    else:
        widths = [max(map(len, column)) for column in zip(HEADS, *cells, strict=True)]
        for line in (HEADS, *cells):
            padded = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
            print("  ".join(padded).rstrip())
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
    yield f"any {row['colluding']} of {row['servers']}" if row["colluding"] else "nobody"
    yield "caught" if row["catches"] else "not caught"
    yield str(row["rounds"])
    yield str(row["party_bytes"])
    yield ", ".join(offers) if isinstance(offers, list) else ""
    chosen = options.items() if isinstance(options, dict) else ()
    yield ", ".join(f"{key}={value}" for key, value in chosen) or "none"
