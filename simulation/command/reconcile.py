"""Whether several keepers wrote down the same releases: `tally ledger … --reconcile`.

A release is known by the number of its run, which every keeper's receipt has: stations write the
name of the run, parties what they draw for it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.wire.messages import NONCE_BYTES

Spends = Iterable[tuple[str, PrivacyLoss]]
"""Receipt and loss of each."""
_NUMBER = re.compile(rf"(?:run )?([0-9a-f]{{{2 * NONCE_BYTES}}})")


@dataclass(frozen=True)
class Disagreement:
    """A release that not every keeper has, or not at the same price: each keeper's is in `paid`,
    None where it has none."""

    number: str
    paid: dict[str, PrivacyLoss | None]

    def line(self) -> str:
        said = (f"{name} {'nothing' if loss is None else loss}" for name, loss in self.paid.items())
        return f"run {self.number}: {', '.join(said)}"


def reconcile(ledgers: Mapping[str, Spends]) -> list[Disagreement]:
    """Every disagreement, in the order of the runs' numbers, which is that of their times."""
    paid = {name: dict(_releases(spends)) for name, spends in ledgers.items()}
    numbers = sorted({number for each in paid.values() for number in each})
    rows = (Disagreement(n, {name: each.get(n) for name, each in paid.items()}) for n in numbers)
    return [row for row in rows if len(set(row.paid.values())) > 1]


def names_of(paths: Sequence[Path]) -> list[str]:
    """What to call each ledger: its folder, or its path where two folders are named alike."""
    short = [(path if path.is_dir() else path.parent).resolve().name for path in paths]
    return [
        name if short.count(name) == 1 else str(path)
        for name, path in zip(short, paths, strict=True)
    ]


def _releases(spends: Spends) -> Iterator[tuple[str, PrivacyLoss]]:
    for receipt, loss in spends:
        if (found := _NUMBER.match(receipt)) is not None:
            yield found[1], loss
