"""What the coordinator and the servers keep on disk, and waiting for it to change."""

import math
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from tallyroom.protocols.run.policy import Policy

KEEPERS = ("coordinator", "server-0", "server-1")
PATIENCE = 30.0
ANYTHING = Policy(epsilon_per_question=math.inf, epsilon_in_all=math.inf)


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
