"""Raises a ledger that lost releases by what receipts prove: `tally ledger STORE --restore`."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tallyroom.protocols.errors import LocalError, TallyError
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.wire.machine import Spend
from tallyroom.simulation.proof import MALFORMED, parse
from tallyroom.simulation.verification import verify
from tallyroom.storage.ledger import Ledger
from tallyroom.storage.lock import StoreLock
from tallyroom.storage.served import Served

MISSING = "lost without a receipt"


def restore(store: Path, results: Sequence[Path], missing: PrivacyLoss | None) -> str:
    """Writes the releases of these results into the ledger of a store that nobody uses, and
    `missing` for each one that no receipt proves. Returns what was done, in one line.

    Raises `LocalError` on a result that does not hold, and writes nothing then.
    """
    if not store.is_dir():
        raise LocalError(f"{store} is not the folder of a store")
    of_station = (store / "runs").is_dir()
    spends = [spend for path in results for spend in _proved(path, of_station)]
    lock = StoreLock(store)
    ledger = Ledger(store / "ledger.sqlite")
    try:
        before = len(ledger.rows())
        ledger.record(spends)
        found = len(ledger.rows())
        due = (Served(store).count or 0) - found
        if missing is not None and due > 0:
            ledger.record([Spend(MISSING, f"lost {found + n}", missing) for n in range(due)])
            due = 0
        done = f"{found - before} releases were written from {len(results)} results"
        if due > 0:
            return f"{done}; {due} are still missing: add results, or --missing EPSILON for each"
        return f"{done}; the ledger is complete again, as far as this store knows"
    finally:
        ledger.close()
        lock.release()


def _proved(path: Path, of_station: bool) -> Iterator[Spend]:
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        verify(document)
        for each in document.get("questions", [document]):
            proof, receipts = parse(each)
            query = proof.evidence.asked_query
            receipt = query.run.hex() if of_station else query.stream
            for loss in {found.loss for found in receipts if not found.loss.nothing}:
                yield replace(query.spend, receipt=receipt, loss=loss)
    except (OSError, TallyError, *MALFORMED) as error:
        raise LocalError(f"{path} proves nothing: {error}") from None
