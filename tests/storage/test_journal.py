"""The journal: what was acknowledged is there again, whatever the crash left of the rest."""

import asyncio
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tallyroom.protocols.errors import LocalError
from tallyroom.storage.journal import Journal, Kind, Record, read_records
from tallyroom.storage.mark import Mark

RUN, OTHER = b"run-0001", b"run-0002"
RECORDS: list[Record] = [
    (Kind.QUERY, b"what is asked"),
    (Kind.MESSAGE, bytes(range(40))),
    (Kind.EXPIRE, b""),
    (Kind.MESSAGE, b"the last of them"),
]


def written(folder: Path, records: list[Record], run: bytes = RUN) -> Path:
    journal = Journal(folder)
    for kind, data in records:
        journal.append(run, kind, data)
    journal.close()
    return folder / f"{run.hex()}.log"


def test_records_come_back_as_they_were_appended(tmp_path: Path) -> None:
    written(tmp_path, RECORDS)
    written(tmp_path, RECORDS[:1], OTHER)
    assert dict(Journal(tmp_path).runs()) == {RUN: RECORDS, OTHER: RECORDS[:1]}


def test_a_journal_that_is_opened_again_goes_on(tmp_path: Path) -> None:
    written(tmp_path, RECORDS[:2])
    assert read_records(written(tmp_path, RECORDS[2:])) == RECORDS


def test_a_tail_torn_at_any_byte_costs_the_last_record_alone(tmp_path: Path) -> None:
    path = written(tmp_path, RECORDS)
    whole = path.read_bytes()
    before = len(written(tmp_path, RECORDS[:-1], OTHER).read_bytes())
    for end in range(before, len(whole)):
        path.write_bytes(whole[:end])
        assert read_records(path) == RECORDS[:-1]
        assert path.stat().st_size == before, "what follows would be hidden behind the torn end"
    assert read_records(written(tmp_path, RECORDS[-1:])) == RECORDS


def test_a_flipped_bit_anywhere_in_the_last_record_drops_it(tmp_path: Path) -> None:
    path = written(tmp_path, RECORDS)
    whole = path.read_bytes()
    before = len(written(tmp_path, RECORDS[:-1], OTHER).read_bytes())
    for position in range(before, len(whole)):
        for bit in (0x80, 0x08):  # neither turns one kind of record into another
            path.write_bytes(
                whole[:position] + bytes([whole[position] ^ bit]) + whole[position + 1 :]
            )
            assert read_records(path) == RECORDS[:-1]


def test_a_retracted_record_leaves_no_trace(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.retract(RUN, journal.append(RUN, Kind.MESSAGE, b"never mind"))
    assert list(tmp_path.iterdir()) == []
    journal.append(RUN, Kind.QUERY, b"asked")
    journal.retract(RUN, journal.append(RUN, Kind.MESSAGE, b"never mind"))
    journal.append(RUN, Kind.EXPIRE, b"")
    journal.close()
    assert dict(Journal(tmp_path).runs()) == {RUN: [(Kind.QUERY, b"asked"), (Kind.EXPIRE, b"")]}


def test_a_forgotten_run_is_gone_and_its_name_is_not(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for run in (RUN, OTHER):
        journal.append(run, Kind.QUERY, b"asked")
    asyncio.run(journal.forget(RUN))
    journal.close()
    again = Journal(tmp_path)
    assert [run for run, _ in again.runs()] == [OTHER]
    assert list(again.forgotten()) == [RUN]


def test_a_crash_amid_forgetting_leaves_a_run_forgotten(tmp_path: Path) -> None:
    """Its name is written, its records are still there; then the name alone is torn."""
    path = written(tmp_path, RECORDS)
    whole = path.read_bytes()
    journal = Journal(tmp_path)
    asyncio.run(journal.forget(RUN))
    journal.close()
    path.write_bytes(whole)
    assert list(Journal(tmp_path).runs()) == []
    assert not path.exists()
    path.write_bytes(whole)
    os.truncate(tmp_path / "over", (tmp_path / "over").stat().st_size - 1)
    assert list(Journal(tmp_path).forgotten()) == []
    assert [run for run, _ in Journal(tmp_path).runs()] == [RUN]


def test_a_name_is_on_disk_before_the_records_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, RECORDS)
    synced: list[bool] = []
    real = os.fsync

    def sync(descriptor: int) -> None:
        synced.append(path.exists())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    asyncio.run(Journal(tmp_path).forget(RUN))
    assert synced == [True, True]  # the file of names, and its own name in the folder
    assert not path.exists()


@pytest.mark.parametrize("begun", [0, 1])
def test_records_taken_back_again_and_again_leave_the_others_whole(
    tmp_path: Path, begun: int
) -> None:
    journal = Journal(tmp_path)
    kept = RECORDS[:begun]
    for kind, data in kept:
        journal.append(RUN, kind, data)
    for number in range(5):
        for size in (3, 50, 1):
            journal.retract(RUN, journal.append(RUN, Kind.MESSAGE, bytes(size)))
        kept = [*kept, (Kind.MESSAGE, bytes([number]) * 7)]
        journal.append(RUN, *kept[-1])
    journal.close()
    assert read_records(tmp_path / f"{RUN.hex()}.log") == kept


def test_a_full_disk_costs_what_does_not_fit_and_nothing_else(tmp_path: Path) -> None:
    """A part of a record fits each time, and is cut off."""
    journal = Journal(tmp_path)
    journal.append(RUN, *RECORDS[0])
    path = tmp_path / f"{RUN.hex()}.log"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, before[1]))
    try:
        for run in (RUN, RUN, OTHER):
            with pytest.raises(OSError, match="too large"):
                journal.append(run, Kind.MESSAGE, bytes(100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    for kind, data in RECORDS[1:]:
        journal.append(RUN, kind, data)
    journal.close()
    assert dict(Journal(tmp_path).runs()) == {RUN: RECORDS}


def test_few_files_are_open_however_many_runs_there_are(tmp_path: Path) -> None:
    journal = Journal(tmp_path, most_open=4)
    before = len(os.listdir("/proc/self/fd"))
    runs = [number.to_bytes(8, "little") for number in range(50)]
    for kind, data in RECORDS:
        for run in runs:
            journal.append(run, kind, data)
    assert len(os.listdir("/proc/self/fd")) <= before + 4
    asyncio.run(journal.commit())
    journal.close()
    assert dict(Journal(tmp_path).runs()) == dict.fromkeys(runs, RECORDS)


def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    calls = []
    real = os.fsync

    def count(descriptor: int) -> None:
        calls.append(descriptor)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", count)
    return lambda: len(calls)


def test_many_commits_share_few_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = counted(monkeypatch)

    async def commit_all() -> None:
        journal = Journal(tmp_path)

        async def one(number: int) -> None:
            journal.append(RUN, Kind.MESSAGE, number.to_bytes(4, "little"))
            await journal.commit()

        await asyncio.gather(*(one(number) for number in range(200)))
        journal.close()

    asyncio.run(commit_all())
    assert len(read_records(tmp_path / f"{RUN.hex()}.log")) == 200
    assert 2 <= syncs() <= 6  # the file's and its folder's, for a batch or two


def test_a_commit_covers_what_came_while_another_was_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that is being synced does not count for a record that came too late for it."""
    syncs = counted(monkeypatch)

    async def overlap() -> None:
        journal = Journal(tmp_path)
        journal.append(RUN, Kind.MESSAGE, b"first")
        first = asyncio.ensure_future(journal.commit())
        while not syncs():
            await asyncio.sleep(0)
        before = syncs()
        journal.append(OTHER, Kind.MESSAGE, b"second")
        await journal.commit()
        assert syncs() > before
        await first
        journal.close()

    asyncio.run(overlap())


def test_a_question_to_a_stored_tree_takes_the_place_of_the_last(tmp_path: Path) -> None:
    """Also after a restart; other records stay, and one that is taken back takes no other along."""
    written(tmp_path, RECORDS[:2])
    journal = Journal(tmp_path)
    assert dict(journal.runs()) == {RUN: RECORDS[:2]}
    for data in (b"first", b"second, and longer"):
        journal.append(RUN, Kind.ASK, data)
        assert read_records(tmp_path / f"{RUN.hex()}.log") == [*RECORDS[:2], (Kind.ASK, data)]
    journal.close()
    again = Journal(tmp_path)
    assert dict(again.runs()) == {RUN: [*RECORDS[:2], (Kind.ASK, b"second, and longer")]}
    again.append(RUN, Kind.ASK, b"third")
    again.append(RUN, Kind.EXPIRE, b"")
    begin = again.append(RUN, Kind.ASK, b"fourth")
    again.retract(RUN, begin)
    expected = [*RECORDS[:2], (Kind.ASK, b"third"), (Kind.EXPIRE, b"")]
    again.append(RUN, Kind.ASK, b"fifth")
    assert read_records(tmp_path / f"{RUN.hex()}.log") == [*expected, (Kind.ASK, b"fifth")]


def test_names_of_runs_that_are_over_are_bounded(tmp_path: Path) -> None:
    """The newest stay, also where the journal is opened anew in between."""
    names = [index.to_bytes(8, "big") for index in range(1, 60)]

    async def forget() -> None:
        journal = Journal(tmp_path, most_over=8)
        for count, name in enumerate(names, 1):
            journal.append(name, Kind.QUERY, b"asked")
            await journal.forget(name)
            kept = list(journal.forgotten())
            assert kept == names[:count][-len(kept) :]
            assert min(count, 8) <= len(kept) <= 17
            if count % 13 == 0:
                journal.close()
                journal = Journal(tmp_path, most_over=8)
        journal.close()

    asyncio.run(forget())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mark", "over"]


def test_what_is_not_named_any_more_is_below_the_mark(tmp_path: Path) -> None:
    """Also if the process is killed while the names are shortened, and whatever their order."""
    numbers = [*range(40, 0, -1), *range(41, 60)]

    Journal(tmp_path).begin(b"")

    async def forget() -> None:
        for value in numbers:
            journal = Journal(tmp_path, most_over=4)
            await journal.forget(value.to_bytes(8, "big") + bytes(20))
            journal.close()
            kept = {name[:8] for name in journal.forgotten()}
            assert len(kept) <= 9
            mark = Journal(tmp_path).begin(b"")
            for earlier in numbers[: numbers.index(value) + 1]:
                name = earlier.to_bytes(8, "big")
                assert name in kept or name <= mark

    asyncio.run(forget())


def test_the_mark_is_on_disk_before_the_names_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forget(count: int) -> None:
        journal = Journal(tmp_path, most_over=2)
        for value in range(count):
            await journal.forget(value.to_bytes(8, "big"))

    asyncio.run(forget(4))
    monkeypatch.setattr(Mark, "write", _fails)
    with pytest.raises(OSError, match="killed"):
        asyncio.run(forget(1))
    assert len(list(Journal(tmp_path).forgotten())) == 4


def _fails(*_: object) -> None:
    raise OSError("killed")


def test_the_same_name_again_and_again_fills_nothing(tmp_path: Path) -> None:
    async def forget() -> None:
        journal = Journal(tmp_path, most_over=2)
        for _ in range(9):
            await journal.forget(RUN)
        journal.close()

    asyncio.run(forget())
    assert set(Journal(tmp_path).forgotten()) == {RUN}
    assert not (tmp_path / "mark").exists()


def test_a_journal_without_a_mark_is_of_no_use_before_it_is_given_one(tmp_path: Path) -> None:
    """What an earlier version left, or a copy that left runs out."""
    (tmp_path / "over").write_text(f"{RUN.hex()}\n")
    assert Journal(tmp_path).begin(bytes(7) + b"9") == bytes(7) + b"9"
    assert list(Journal(tmp_path).forgotten()) == []
    assert Journal(tmp_path).begin(bytes(7) + b"1") == bytes(7) + b"9"
    (tmp_path / "mark").write_text("no mark")
    with pytest.raises(LocalError, match="not the mark"):
        Journal(tmp_path)


@pytest.mark.parametrize("name", ["notes.log", "ABCD.log", "abc.log", "ab cd.log"])
def test_a_foreign_file_is_named_and_left_alone(tmp_path: Path, name: str) -> None:
    written(tmp_path, RECORDS)
    (tmp_path / name).write_text("mine")
    with pytest.raises(LocalError, match=f"{name} is not a file of this store"):
        list(Journal(tmp_path).runs())
    assert (tmp_path / name).read_text() == "mine"


def test_a_damaged_journal_is_said_aloud_and_a_torn_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(tmp_path)
    for data in (b"first", b"second"):
        journal.append(RUN, Kind.MESSAGE, data)
    journal.close()
    (path,) = tmp_path.glob("*.log")
    whole = path.read_bytes()
    path.write_bytes(whole[:-2])
    assert [data for _, data in read_records(path)] == [b"first"]
    assert not caplog.records
    path.write_bytes(whole.replace(b"first", b"f1rst"))
    assert read_records(path) == []
    assert "is damaged" in caplog.text
