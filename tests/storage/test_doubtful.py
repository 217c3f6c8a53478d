"""What is doubtful stays shut: a ledger that forgot, a store of another process, a torn start."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tallyroom.parties.consent import Consent
from tallyroom.protocols.errors import LocalError, NotWritten
from tallyroom.protocols.privacy.ledger import Filter
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.run.policy import DEPLOYED
from tallyroom.protocols.wire.machine import Spend
from tallyroom.storage.journal import Journal
from tallyroom.storage.store import Store

CAP = Filter(PrivacyLoss.of(2))


def spend(name: str) -> Spend:
    return Spend("data", name, PrivacyLoss.of(1))


@contextmanager
def opened(folder: Path) -> Iterator[Store]:
    store = Store(folder)
    try:
        yield store
    finally:
        store.close()


def served(folder: Path, *names: str) -> None:
    with opened(folder) as store:
        ledger = store.open_ledger(CAP)
        store.randomness(None, "server-0")
        for name in names:
            ledger.record([spend(name)])
        ledger.close()


def empty(folder: Path) -> None:
    (folder / "ledger.sqlite").write_bytes(b"")


def remove(folder: Path) -> None:
    (folder / "ledger.sqlite").unlink()


def forget(folder: Path) -> None:
    """An older copy takes its place."""
    shutil.copy(folder / "older.sqlite", folder / "ledger.sqlite")


@pytest.mark.parametrize("harm", [empty, remove, forget])
def test_a_ledger_that_lost_releases_is_refused(tmp_path: Path, harm: object) -> None:
    served(tmp_path, "one")
    shutil.copy(tmp_path / "ledger.sqlite", tmp_path / "older.sqlite")
    served(tmp_path, "two")
    assert callable(harm)
    harm(tmp_path)
    before = (tmp_path / "ledger.sqlite").exists() and (tmp_path / "ledger.sqlite").stat().st_size
    with opened(tmp_path) as store:
        for _ in range(2):  # refusing does not make it good
            with pytest.raises(LocalError, match=r"2 were made from this store.*--restore"):
                store.open_ledger(CAP)
    now = (tmp_path / "ledger.sqlite").exists() and (tmp_path / "ledger.sqlite").stat().st_size
    assert now == before


def test_a_store_of_before_the_count_keeps_its_ledger_and_misses_a_lost_one(tmp_path: Path) -> None:
    served(tmp_path, "one")
    (tmp_path / "spent").unlink()
    served(tmp_path)
    assert (tmp_path / "spent").read_text() == "1\n"
    (tmp_path / "spent").unlink()
    remove(tmp_path)
    with opened(tmp_path) as store, pytest.raises(LocalError, match="is gone"):
        store.open_ledger(CAP)


def test_a_store_that_lost_its_secret_too_was_used(tmp_path: Path) -> None:
    served(tmp_path, "one")
    Journal(tmp_path / "runs").begin(b"")
    for name in ("spent", "secret.key", "ledger.sqlite"):
        (tmp_path / name).unlink()
    with opened(tmp_path) as store, pytest.raises(LocalError, match="is gone"):
        store.open_ledger(CAP)


def test_runs_are_not_resumed_with_another_secret(tmp_path: Path) -> None:
    """They would release the same sums again, under other noise that nobody pays for."""
    served(tmp_path)
    secret = tmp_path / "secret.key"
    before = secret.read_bytes()
    begun = tmp_path / "runs" / f"{bytes(36).hex()}.log"
    begun.write_bytes(b"")
    secret.unlink()
    with opened(tmp_path) as store:
        with pytest.raises(LocalError, match=r"is gone, and runs were begun with it"):
            store.randomness(None, "server-0")
        assert not secret.exists()
        begun.unlink()
        store.randomness(None, "server-0")
    assert secret.read_bytes() != before


def test_a_party_refuses_a_ledger_that_lost_releases(tmp_path: Path) -> None:
    consent = Consent(DEPLOYED, tmp_path)
    consent.ledger.record([spend("one")])
    consent.close()
    remove(tmp_path)
    with pytest.raises(LocalError, match="1 were made from this store"):
        Consent(DEPLOYED, tmp_path)


def test_a_release_waits_for_its_count(tmp_path: Path) -> None:
    """The ledger has it already: tried again, it is charged once."""
    with opened(tmp_path) as store:
        ledger = store.open_ledger(CAP)
        (tmp_path / "spent.partial").mkdir()
        with pytest.raises(NotWritten):
            ledger.record([spend("one")])
        (tmp_path / "spent.partial").rmdir()
        ledger.record([spend("one")])
        assert len(ledger.rows()) == 1
        assert (tmp_path / "spent").read_text() == "1\n"
        ledger.close()


def test_the_second_process_on_a_store_touches_nothing(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tallyroom.storage.store import Store\n"
        "try: Store(Path(sys.argv[1]))\n"
        "except Exception as error: print(error)"
    )
    with opened(tmp_path):
        (tmp_path / "version").unlink()
        before = sorted(os.listdir(tmp_path))
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "another process is using the store" in done.stdout
        assert sorted(os.listdir(tmp_path)) == before
    Store(tmp_path).close()  # it is free again


CRAMPED = """
import resource, sys
from pathlib import Path
from tallyroom.protocols.privacy.ledger import ANYTHING
from tallyroom.storage.store import Store

room = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
store = Store(Path(sys.argv[1]))
store.open_ledger(ANYTHING)
store.randomness(None, "server-0")
"""


@pytest.mark.parametrize("room", [0, 1, 15, 5000])
def test_a_full_disk_at_the_first_start_bricks_nothing(tmp_path: Path, room: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRAMPED, str(tmp_path), str(room)], capture_output=True, check=False
    )
    assert done.returncode
    served(tmp_path, "one")
    with opened(tmp_path) as store:
        ledger = store.open_ledger(CAP)
        assert len(ledger.rows()) == 1
        ledger.close()
