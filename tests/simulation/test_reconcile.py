"""Where the ledgers of several keepers differ, by run."""

import json
from fractions import Fraction
from pathlib import Path

from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.wire.machine import Spend
from tallyroom.storage.ledger import Ledger
from tests.e2e.deployed import tally
from tests.samples import a_query

RUNS = [a_query(nonce=bytes([n]) * 8, epsilon=Fraction(1)) for n in range(3)]


def keeper(folder: Path, *receipts: tuple[str, int]) -> str:
    folder.mkdir()
    ledger = Ledger(folder / "ledger.sqlite")
    ledger.record([Spend("data", name, PrivacyLoss.of(epsilon)) for name, epsilon in receipts])
    ledger.close()
    return str(folder)


def test_ledgers_that_differ_are_shown_by_run(tmp_path: Path) -> None:
    first, second, third = (query.run.hex() for query in RUNS)
    alike = [
        keeper(tmp_path / "server-0", (first, 1), (second, 1)),
        keeper(tmp_path / "party-0", (RUNS[0].stream, 1), (RUNS[1].stream, 1)),
    ]
    done = tally("ledger", *alike, "--reconcile")
    assert (done.returncode, done.stdout) == (0, "2 ledgers agree\n")
    other = keeper(tmp_path / "server-1", (first, 1), (second, 2), (third, 1))
    done = tally("ledger", *alike, other, "--reconcile", "--json")
    assert done.returncode == 3
    rows = {row["run"]: row["paid"] for row in json.loads(done.stdout)["disagreements"]}
    assert rows.keys() == {second[:16], third[:16]}
    assert rows[third[:16]]["server-0"] is rows[third[:16]]["party-0"] is None
    assert rows[second[:16]]["server-1"] != rows[second[:16]]["server-0"]


def test_one_ledger_is_not_compared(tmp_path: Path) -> None:
    alone = keeper(tmp_path / "server-0")
    assert tally("ledger", alone, "--reconcile").returncode == 2
    assert tally("ledger", alone, alone).returncode == 2
