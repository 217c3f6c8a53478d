"""A keeper's folder: its version, its secret, and what stays of it."""

import sqlite3
from pathlib import Path

import pytest

from tallyroom.protocols.errors import LocalError
from tallyroom.storage.ledger import Ledger
from tallyroom.storage.store import VERSION, Store


@pytest.mark.parametrize("found", [str(VERSION + 1), "2.0", "", "-1", "two"])
def test_the_store_of_a_newer_program_is_refused_in_one_line(tmp_path: Path, found: str) -> None:
    Store(tmp_path).close()
    (tmp_path / "version").write_text(found + "\n")
    with pytest.raises(LocalError, match="newer Tallyroom") as refused:
        Store(tmp_path)
    assert "\n" not in str(refused.value)


def test_foreign_bytes_in_the_place_of_ours_are_one_line(tmp_path: Path) -> None:
    """Whoever put them there, and whether they are text or not."""
    store = Store(tmp_path)
    (tmp_path / "secret.key").write_bytes(b"short")
    with pytest.raises(LocalError, match=r"secret\.key is not a secret of 16 bytes"):
        store.randomness(None, "server-0")
    with sqlite3.connect(tmp_path / "ledger.sqlite") as other:
        other.execute("PRAGMA user_version = 1")
        other.execute("CREATE TABLE spends (name TEXT)")
    with pytest.raises(LocalError, match="cannot open the ledger"):
        Ledger(store.ledger)
    store.close()
    (tmp_path / "version").write_bytes(b"\xff\xfe" * 50)
    with pytest.raises(LocalError, match="newer Tallyroom") as refused:
        Store(tmp_path)
    assert len(str(refused.value).splitlines()) == 1


def test_a_folder_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(LocalError, match="as a store"):
        Store(tmp_path / "file")


def test_the_secret_is_kept_and_for_its_owner_alone(tmp_path: Path) -> None:
    drawn = []
    for _ in range(2):
        store = Store(tmp_path)
        drawn.append(store.randomness(None, "server-0").bytes(16))
        store.close()
    assert drawn[0] == drawn[1]
    assert (tmp_path / "secret.key").stat().st_mode & 0o777 == 0o600
    other = Store(tmp_path / "another")
    assert other.randomness(None, "server-0").bytes(16) != drawn[0]


def test_a_store_is_closed_to_others(tmp_path: Path) -> None:
    """Also one that was made beforehand, and left open."""
    folder = tmp_path / "store"
    folder.mkdir()
    folder.chmod(0o755)
    Store(folder).close()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_seeded_run_writes_no_secret(tmp_path: Path) -> None:
    Store(tmp_path).randomness(1, "server-0")
    assert not (tmp_path / "secret.key").exists()


def test_without_a_folder_nothing_stays() -> None:
    store = Store(None)
    folder = store.folder
    assert folder.exists()
    store.close()
    assert not folder.exists()
