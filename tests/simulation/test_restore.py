"""A ledger that lost releases is raised by what receipts prove, and serves again."""

import json
import shutil
from fractions import Fraction
from pathlib import Path

import pytest

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.ledger import ANYTHING
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.simulation import Federation
from tallyroom.simulation.command.restore import restore
from tallyroom.storage.store import Store


def releases(folder: Path) -> list[tuple[str, str]]:
    store = Store(folder)
    try:
        ledger = store.open_ledger(ANYTHING)
        rows = [(receipt, text) for receipt, _, text, _, _ in ledger.rows()]
        ledger.close()
        return rows
    finally:
        store.close()


@pytest.mark.timeout(120)
def test_an_older_copy_is_completed_from_results(tmp_path: Path) -> None:
    folder, kept = tmp_path / "stores", tmp_path / "older.sqlite"
    results = []
    with Federation(
        parties=3, data="synthetic:scores?n=12", runtime="processes", hosts=1, store=folder
    ) as federation:
        for number in range(3):
            result = federation.run(Mean(value="score"), Fraction(1, 4))
            results.append(tmp_path / f"{number}.json")
            results[-1].write_text(json.dumps(result.as_json()))
            if number == 0:
                shutil.copy(folder / "server-0" / "ledger.sqlite", kept)
    server = folder / "server-0"
    whole = releases(server)
    shutil.copy(kept, server / "ledger.sqlite")
    with pytest.raises(LocalError, match="3 were made from this store"):
        releases(server)
    forged = json.loads(results[1].read_text())
    forged["privacy"]["epsilon"] = 0.01
    (tmp_path / "forged.json").write_text(json.dumps(forged))
    with pytest.raises(LocalError, match="proves nothing"):
        restore(server, [results[1], tmp_path / "forged.json"], None)
    with pytest.raises(LocalError, match="3 were made from this store"):
        releases(server)
    assert "1 releases were written" in (said := restore(server, results[:2], None))
    assert "1 are still missing" in said
    assert "complete again" in restore(server, results, None)
    assert sorted(releases(server)) == sorted(whole)


def test_what_no_receipt_proves_is_charged_as_the_operator_says(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.open_ledger(ANYTHING).close()
    store.close()
    (tmp_path / "spent").write_text("2\n")
    with pytest.raises(LocalError, match="2 were made"):
        releases(tmp_path)
    assert "complete again" in restore(tmp_path, [], PrivacyLoss.of(3))
    assert [text for _, text in releases(tmp_path)] == ["3", "3"]
