"""A keeper's folder: its version, its secret, and the bulk that is mapped and not loaded."""

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from protocols.errors import LocalError
from storage.store import VERSION, FileBulk, Store


def ids(*numbers: int) -> np.typing.NDArray[np.uint32]:
    return np.array(numbers, dtype=np.uint32)


@pytest.mark.parametrize("found", [str(VERSION + 1), "2.0", "", "-1", "two"])
def test_the_store_of_a_newer_program_is_refused_in_one_line(tmp_path: Path, found: str) -> None:
    Store(tmp_path).close()
    (tmp_path / "version").write_text(found + "\n")
    with pytest.raises(LocalError, match="newer Tallyroom") as refused:
        Store(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_folder_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(LocalError, match="as a store"):
        Store(tmp_path / "file")


def test_the_secret_is_kept_and_for_its_owner_alone(tmp_path: Path) -> None:
    drawn = [Store(tmp_path).randomness(None, "server-0").bytes(16) for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert (tmp_path / "secret.key").stat().st_mode & 0o777 == 0o600
    other = Store(tmp_path / "another")
    assert other.randomness(None, "server-0").bytes(16) != drawn[0]


def test_a_seeded_run_writes_no_secret(tmp_path: Path) -> None:
    Store(tmp_path).randomness(1, "server-0")
    assert not (tmp_path / "secret.key").exists()


def test_without_a_folder_nothing_stays() -> None:
    store = Store(None)
    folder = store.folder
    assert folder.exists()
    store.close()
    assert not folder.exists()


def test_blocks_come_back_in_order_and_mapped(tmp_path: Path) -> None:
    bulk = FileBulk(tmp_path / "run")
    assert list(bulk.blocks()) == []
    sent = [(ids(2, 0), np.arange(50, dtype=np.uint8)), (ids(1), np.arange(7, dtype=np.uint8))]
    for who, block in sent:
        bulk.append(who, block)
    for (who, block), (found_ids, found) in zip(sent, bulk.blocks(), strict=True):
        assert found_ids.tolist() == who.tolist()
        assert found.tolist() == block.tolist()
        assert isinstance(found, np.memmap)
        assert not found.flags.writeable
    bulk.clear()
    assert bulk.blocks() == []
    bulk.append(*sent[1])
    assert bulk.blocks()[0][1].tolist() == sent[1][1].tolist()


def test_bulk_of_an_earlier_life_is_not_read_again(tmp_path: Path) -> None:
    """It is rebuilt from the journal: what is there already would be counted twice."""
    first = Store(tmp_path).bulk(b"run-0001")
    first.append(ids(0), np.ones(9, dtype=np.uint8))
    again = Store(tmp_path).bulk(b"run-0001")
    again.append(ids(0), np.zeros(9, dtype=np.uint8))
    assert [block.tolist() for _, block in again.blocks()] == [[0] * 9]


def test_a_block_without_room_leaves_the_others_where_they_were(tmp_path: Path) -> None:
    """A part of a block that stayed in the file would shift all that come after it."""
    done = subprocess.run(
        [sys.executable, "-c", _SMALL_FILES, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


_SMALL_FILES = """
import resource, sys, numpy as np
from pathlib import Path
from storage.store import FileBulk

soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, hard))
bulk = FileBulk(Path(sys.argv[1]))
ids = np.array([0], dtype=np.uint32)
bulk.append(ids, np.full(15000, 1, dtype=np.uint8))
try:
    bulk.append(ids, np.full(15000, 2, dtype=np.uint8))
except OSError:
    pass
else:
    sys.exit("there was room")
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
bulk.append(ids, np.full(15000, 3, dtype=np.uint8))
found = [np.unique(block).tolist() for _, block in bulk.blocks()]
assert found == [[1], [3]], found
"""


def test_the_limit_that_these_tests_lean_on_is_there() -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
