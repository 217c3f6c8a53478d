"""The journal: what was acknowledged is there again, whatever the crash left of the rest."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.journal import Journal, Kind, Record, read_records

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
    journal.forget(RUN)
    journal.close()
    again = Journal(tmp_path)
    assert [run for run, _ in again.runs()] == [OTHER]
    assert list(again.forgotten()) == [RUN]


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
