"""`tally ledger`: every spend in a ledger, the plain sums, and a tighter total."""

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.ledger import DEFAULT_CAP_DELTA, Totals
from tallyroom.protocols.privacy.loss import NO_LOSS, PrivacyLoss, parse_epsilon
from tallyroom.simulation.command.common import Json
from tallyroom.simulation.command.reconcile import names_of, reconcile
from tallyroom.simulation.command.restore import restore
from tallyroom.storage.ledger import Ledger

FILE = "ledger.sqlite"


@dataclass(frozen=True)
class LedgerReport:
    """`tight` is the ε of all spends at a total of `delta`, by optimal composition of their ε and
    δ; `adaptive` that of their ρ. `in_rho` is each receipt's loss in ρ."""

    rows: list[tuple[str, str, str, float, str]]
    totals: Totals
    delta: float
    tight: float
    adaptive: float
    in_rho: dict[str, PrivacyLoss]
    learnt: dict[str, Totals] = field(default_factory=dict)
    """What each analyst learnt, in a coordinator's ledger."""

    @property
    def rho(self) -> PrivacyLoss:
        """All with noise together in ρ."""
        return sum((loss for loss in self.in_rho.values() if loss.bounded), NO_LOSS)

    def as_json(self) -> dict[str, object]:
        noisy = self.totals.noisy
        return {
            "schema": 1,
            "spent": _plain(self.totals.epsilon(self.delta)),
            "spent_with_noise": _plain(Totals(noisy, 0).epsilon(self.delta)),
            **({} if noisy.rho is None else {"rho_with_noise": noisy.size}),
            "delta": float(noisy.delta),
            "releases_without_noise": self.totals.exact,
            "tight": {"epsilon": _plain(self.tight), "delta": self.delta},
            "adaptive": {
                "epsilon": _plain(self.adaptive),
                "delta": self.delta,
                "rho_with_noise": self.rho.size,
            },
            "analysts": {
                name: {"spent": _plain(told.epsilon(self.delta)), "delta": float(told.noisy.delta)}
                for name, told in self.learnt.items()
            },
            "spends": [
                {
                    "receipt": receipt,
                    "data": data,
                    **loss.encode(),
                    "in_rho": _plain(self.in_rho[receipt].size),
                    "written": written,
                }
                for receipt, data, loss, written in self.spends()
            ],
        }

    def spends(self) -> Iterator[tuple[str, str, PrivacyLoss, str]]:
        for receipt, data, text, delta, written in self.rows:
            yield receipt, data, PrivacyLoss.read(text, delta), written

    def lines(self) -> Iterator[str]:
        yield from self._spent()
        for name, told in self.learnt.items():
            size = f"{told.noisy.letter} {told.noisy.size:g}" if not told.exact else "ε ∞"
            yield f"learnt by {name}: {size}, δ {float(told.noisy.delta):.2g}"

    def _spent(self) -> Iterator[str]:
        for receipt, data, loss, written in self.spends():
            size = f"{loss.size:g}" if loss.bounded else "∞"
            size = f"{loss.letter} {size:<8} δ {float(loss.delta):<8.2g}"
            yield f"{written}  {size} {receipt}  {data}"
        exact, noisy = self.totals.exact, self.totals.noisy
        spent = f"{noisy.letter} {noisy.size:g}, δ {float(noisy.delta):.2g}"
        if exact:
            releases = "release" if exact == 1 else "releases"
            yield f"spent: ε ∞ ({exact} {releases} without noise); the others {spent}"
            return
        yield f"spent: {spent}"
        if math.isinf(self.tight):
            yield f"composed: the δ spent is above {self.delta:g}; give a larger --delta"
        else:
            yield (
                f"composed: ε {self.tight:.4g} at δ {self.delta:g}, if no question's ε was "
                "chosen by an earlier answer"
            )
        if not math.isinf(self.adaptive):
            yield (
                f"in rho: ρ {self.rho.size:.4g}, hence ε {self.adaptive:.4g} at δ {self.delta:g}, "
                "whoever chose the questions and when"
            )


def read_ledger(path: Path, delta: float) -> LedgerReport:
    """Reads a ledger, or the one in a folder. Raises `LocalError` if there is none."""
    if not 0 <= delta < 1:
        raise LocalError(f"--delta must be a probability from 0 to below 1, not {delta:g}")
    found = path / FILE if path.is_dir() else path
    if not found.is_file():
        raise LocalError(f"no ledger at {path}")
    ledger = Ledger(found)
    try:
        return LedgerReport(
            ledger.rows(),
            ledger.totals(),
            delta,
            ledger.tight(delta),
            ledger.adaptive(delta),
            ledger.in_rho(),
            {name: _learnt(ledger, name) for name in ledger.analysts()},
        )
    finally:
        ledger.close()


def _learnt(ledger: Ledger, analyst: str) -> Totals:
    return Totals.of(Counter(spend.loss for spend in ledger.learnt(analyst)))


def _plain(epsilon: float) -> float | str:
    return "inf" if math.isinf(epsilon) else epsilon


commands = typer.Typer()


@commands.command()
def ledger(
    paths: Annotated[
        list[Path],
        typer.Argument(help="ledger.sqlite of a server, a coordinator or a party, or its folder."),
    ],
    delta: Annotated[
        float, typer.Option(help="The total δ at which the tighter total is stated.")
    ] = DEFAULT_CAP_DELTA,
    compare: Annotated[
        bool,
        typer.Option("--reconcile", help="Show the releases that not all of the ledgers have."),
    ] = False,
    results: Annotated[
        list[Path] | None,
        typer.Option("--restore", help="Write what this result's receipts prove was released."),
    ] = None,
    missing: Annotated[
        str | None,
        typer.Option(help="With --restore: the epsilon of each release that nothing proves."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List what a ledger has spent, oldest first, with the plain sums and a tighter total; compare
    several ledgers: exit code 3 if they differ; or complete one that was restored from a copy."""
    if results or missing is not None:
        if len(paths) > 1:
            raise LocalError("--restore completes one ledger at a time")
        each = None if missing is None else PrivacyLoss.of(parse_epsilon(missing))
        print(restore(paths[0], results or [], each))
        return
    if compare:
        _compare(paths, delta, as_json)
        return
    if len(paths) > 1:
        raise LocalError("several ledgers are only compared: give --reconcile")
    report = read_ledger(paths[0], delta)
    if as_json:
        print(json.dumps(report.as_json(), allow_nan=False))
        return
    for line in report.lines():
        print(line)


def _compare(paths: list[Path], delta: float, as_json: bool) -> None:
    if len(paths) < 2:
        raise LocalError("--reconcile compares two ledgers or more")
    names = names_of(paths)
    reports = [read_ledger(path, delta) for path in paths]
    spent = [[(receipt, loss) for receipt, _, loss, _ in report.spends()] for report in reports]
    rows = reconcile(dict(zip(names, spent, strict=True)))
    if as_json:
        paid = [
            {"run": row.number, "paid": {k: v and v.encode() for k, v in row.paid.items()}}
            for row in rows
        ]
        print(json.dumps({"schema": 1, "ledgers": names, "disagreements": paid}))
    else:
        for row in rows:
            print(row.line())
        print(f"{len(names)} ledgers agree" if not rows else f"{len(rows)} releases differ")
    if rows:
        raise typer.Exit(3)
