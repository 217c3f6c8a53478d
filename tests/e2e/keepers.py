"""What the coordinator and the servers keep on disk, and waiting for it to change."""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from tallyroom.protocols.privacy.ledger import DEFAULT_CAP_DELTA
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.run.policy import Policy

KEEPERS = ("coordinator", "server-0", "server-1")
PATIENCE = 30.0
ANY_LOSS = PrivacyLoss.of(None, DEFAULT_CAP_DELTA)
ANYTHING = Policy(per_question=ANY_LOSS, in_all=ANY_LOSS)


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.05)


def spends(folder: Path) -> list[int]:
    """How many there are in each ledger."""
    return [
        sqlite3.connect(folder / keeper / "ledger.sqlite")
        .execute("SELECT count(*) FROM spends")
        .fetchone()[0]
        for keeper in KEEPERS
    ]


def journals(folder: Path) -> list[Path]:
    return [path for keeper in KEEPERS for path in (folder / keeper / "runs").glob("*.log")]
