"""What machines keep of submissions: in order, in files without a name, and not in memory."""

import contextlib
import gc
import os
import resource
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np

from tallyroom.storage import bulk as bulk_module
from tallyroom.storage.bulk import FileBulk
from tallyroom.storage.journal import Journal, Kind


def ids(*numbers: int) -> np.typing.NDArray[np.uint32]:
    return np.array(numbers, dtype=np.uint32)


def test_blocks_come_back_in_order_and_mapped(tmp_path: Path) -> None:
    bulk = FileBulk(tmp_path)
    assert list(bulk.blocks()) == []
    sent = [(ids(2, 0), np.arange(50, dtype=np.uint8)), (ids(1), np.arange(7, dtype=np.uint8))]
    for who, block in sent:
        bulk.append(who, block)
    for (who, block), (found_ids, found) in zip(sent, bulk.blocks(), strict=True):
        assert found_ids.tolist() == who.tolist()
        assert found.tolist() == block.tolist()
        assert not found.flags.writeable
    bulk.clear()
    assert list(bulk.blocks()) == []
    bulk.append(*sent[1])
    assert next(bulk.blocks())[1].tolist() == sent[1][1].tolist()


RUN, OTHER = b"run-0001", b"run-0002"


def submission(number: int) -> tuple[bytes, np.typing.NDArray[np.uint8]]:
    """A message as a journal has it, and its body, with which it ends."""
    body = np.random.default_rng(number).integers(0, 256, 5000 + number, dtype=np.uint8)
    return b"header of any length"[: number + 1] + body.tobytes(), body


def test_what_the_journal_holds_is_not_written_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    bulk = FileBulk(tmp_path, RUN, journal)
    own = []
    for number in range(6):
        message, body = submission(number)
        begin = journal.append(RUN, Kind.MESSAGE, message)
        if number == 2:  # refused: another comes in its place
            journal.retract(RUN, begin)
            continue
        before = _nameless(tmp_path)
        if number == 4:  # one party of the batch was refused: what is kept is not what came
            body = body[:-7]
        bulk.append(ids(number), body)
        own.append(_nameless(tmp_path) - before)
    assert own == [0, 0, 0, 5004 - 7, 0]
    found = {int(who[0]): block.tolist() for who, block in bulk.blocks()}
    sent = {number: submission(number)[1].tolist() for number in (0, 1, 3, 4, 5)}
    assert found == sent | {4: sent[4][:-7]}
    assert list(found) == [0, 1, 3, 4, 5]


def test_another_run_is_not_taken_for_this_one(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    message, body = submission(1)
    journal.append(OTHER, Kind.MESSAGE, message)
    bulk = FileBulk(tmp_path, RUN, journal)
    bulk.append(ids(0), body)
    journal.drop(OTHER)
    ((_, block),) = bulk.blocks()
    assert block.tolist() == body.tolist()


def test_a_journal_that_is_read_again_is_pointed_into_again(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    for number in range(3):
        first.append(RUN, Kind.MESSAGE, submission(number)[0])
    first.close()
    (path,) = tmp_path.glob("*.log")
    with path.open("ab") as file:
        file.write(b"torn")
    again = Journal(tmp_path)
    bulk = FileBulk(tmp_path, RUN, again)
    for _, records in again.retold():
        for number, (_, data) in enumerate(records):
            assert data == submission(number)[0]
            bulk.append(ids(number), submission(number)[1])
    assert _nameless(tmp_path) == 0
    assert again.append(RUN, Kind.MESSAGE, submission(3)[0]) == path.stat().st_size - 5003 - 4 - 9
    bulk.append(ids(3), submission(3)[1])
    assert [block.tolist() for _, block in bulk.blocks()] == [
        submission(number)[1].tolist() for number in range(4)
    ]


def _nameless(folder: Path) -> int:
    """Bytes in files of this process that are in the folder and have no name there."""
    total = 0
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if path.startswith(str(folder)) and path.endswith("(deleted)"):
                total += os.stat(f"/proc/self/fd/{descriptor}").st_size
        except FileNotFoundError:
            continue
    return total


def test_a_block_without_room_leaves_the_others_where_they_were(tmp_path: Path) -> None:
    """A part of a block that stayed in the file would shift all that come after it."""
    done = subprocess.run(
        [sys.executable, "-c", _SMALL_FILES, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


_SMALL_FILES = """
import resource, sys, numpy as np
from pathlib import Path
from tallyroom.storage.bulk import FileBulk

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


def test_a_message_is_not_kept_in_memory_for_its_ids(tmp_path: Path) -> None:
    """Ids and body are views of one message of a megabyte, as they come from the wire."""
    bulk = FileBulk(tmp_path)
    tracemalloc.start()
    try:
        for _ in range(32):
            message = np.zeros(1 << 20, dtype=np.uint8)
            bulk.append(message[:4].view("<u4"), message[4:])
        del message
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1 << 20
    assert peak < 4 << 20


def test_blocks_behind_the_reader_leave_its_memory(tmp_path: Path) -> None:
    """In a process of its own, whose peak is its own: 96 MiB through a window of 16."""
    done = subprocess.run(
        [sys.executable, "-c", _ONE_PASS, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    grown = int(done.stdout)
    assert grown < 2 * bulk_module.WINDOW_BYTES


_ONE_PASS = """
import resource, sys, numpy as np
from pathlib import Path
from tallyroom.storage.bulk import FileBulk

bulk = FileBulk(Path(sys.argv[1]))
ids = np.array([0], dtype=np.uint32)
block = np.ones(1 << 20, dtype=np.uint8)
for _ in range(96):
    bulk.append(ids, block)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert sum(int(found.sum()) for _, found in bulk.blocks()) == 96 << 20
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_what_was_written_out_is_read_back(tmp_path: Path) -> None:
    """Past a few windows, with blocks that do not fit the pages, and one that is read twice."""
    bulk = FileBulk(tmp_path)
    sent = [np.full(700_001, number, dtype=np.uint8) for number in range(80)]
    for number, block in enumerate(sent):
        bulk.append(ids(number), block)
    blocks = list(bulk.blocks())
    for number, (who, found) in enumerate(blocks):
        assert who.tolist() == [number]
        assert len(found) == 700_001
        assert (found == number).all()
    bulk.clear()
    assert (blocks[0][1] == 0).all(), "a mapping outlives the file"


def test_nothing_is_left_in_the_folder_nor_open(tmp_path: Path) -> None:
    """Whether a run ends well, or is dropped: a server that runs for years has many of both."""
    for ends_well in (True, False) * 3:
        bulk = FileBulk(tmp_path)
        bulk.append(ids(0), np.ones(9, dtype=np.uint8))
        assert len(list(bulk.blocks())) == 1
        assert list(tmp_path.iterdir()) == []
        assert len(open_files_below(tmp_path)) == 1
        if ends_well:
            bulk.clear()
        del bulk
        gc.collect()
        assert open_files_below(tmp_path) == []


def open_files_below(folder: Path) -> list[str]:
    """Files of this process there, unnamed ones too: other tests' threads open and close theirs."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [name for name in found if name.startswith(str(folder))]
