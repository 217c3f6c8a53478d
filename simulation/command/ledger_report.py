"""`tally ledger`: every spend of a keeper, the plain sums, and the tighter total beside them."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.caps import DEFAULT_CAP_DELTA
from tallyroom.protocols.privacy.ledger import Totals
from tallyroom.simulation.command.common import Json
from tallyroom.storage.ledger import Ledger

FILE = "ledger.sqlite"


@dataclass(frozen=True)
class LedgerReport:
    """`tight` is the ε of everything at a total of `delta`, by optimal composition."""

    rows: list[tuple[str, str, str, float, str]]
    totals: Totals
    delta: float
    tight: float

    def as_json(self) -> dict[str, object]:
        names = ("receipt", "data", "epsilon", "delta", "written")
        return {
            "schema": 1,
            "spent": _plain(self.totals.in_all),
            "spent_with_noise": float(self.totals.epsilon),
            "delta": float(self.totals.delta),
            "releases_without_noise": self.totals.exact,
            "tight": {"epsilon": _plain(self.tight), "delta": self.delta},
            "spends": [dict(zip(names, row, strict=True)) for row in self.rows],
        }

    def lines(self) -> Iterator[str]:
        for receipt, data, epsilon, delta, written in self.rows:
            shown = "∞" if epsilon == "inf" else f"{float(Fraction(epsilon)):g}"
            yield f"{written}  ε {shown:<8} δ {delta:<8.2g} {receipt}  {data}"
        totals = self.totals
        if totals.exact:
            releases = "release" if totals.exact == 1 else "releases"
            rest = f"; the others ε {float(totals.epsilon):g}, δ {float(totals.delta):.2g}"
            yield f"spent: ε ∞ ({totals.exact} {releases} without noise){rest}"
            return
        yield f"spent: ε {float(totals.epsilon):g}, δ {float(totals.delta):.2g}"
        if math.isinf(self.tight):
            yield f"composed: the δ that was spent is above {self.delta:g}; name a larger --delta"
        else:
            yield (
                f"composed: ε {self.tight:.4g} at δ {self.delta:g}, if no question's ε was "
                "chosen by an earlier answer"
            )


def read_ledger(path: Path, delta: float) -> LedgerReport:
    """Of a ledger, or of the folder that has it. Raises `LocalError` if there is none."""
    if not 0 <= delta < 1:
        raise LocalError(f"--delta is a probability from 0 to below 1, not {delta:g}")
    found = path / FILE if path.is_dir() else path
    if not found.is_file():
        raise LocalError(f"no ledger at {path}")
    ledger = Ledger(found, None)
    try:
        return LedgerReport(ledger.rows(), ledger.totals(), delta, ledger.tight(delta))
    finally:
        ledger.close()


def _plain(epsilon: float) -> float | str:
    return "inf" if math.isinf(epsilon) else epsilon


commands = typer.Typer()


@commands.command()
def ledger(
    path: Annotated[
        Path,
        typer.Argument(help="ledger.sqlite of a server, a coordinator or a party, or its folder."),
    ],
    delta: Annotated[
        float, typer.Option(help="The δ in all at which the tighter total is stated.")
    ] = DEFAULT_CAP_DELTA,
    as_json: Json = False,
) -> None:
    """What a ledger says was spent. Oldest first, with the plain sums and the tighter total."""
    report = read_ledger(path, delta)
    if as_json:
        print(json.dumps(report.as_json(), allow_nan=False))
        return
    for line in report.lines():
        print(line)
