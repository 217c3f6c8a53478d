"""Runs go on side by side: each in order, none twice, and all of what they spend is counted."""

import asyncio
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.machine import Machine
from tallyroom.protocols.wire.messages import NONCE_BYTES, Message, Phase, Role
from tallyroom.servers.aggregation_server import AggregationServer
from tallyroom.servers.cpu_shares import CpuShares
from tallyroom.servers.message_service import Mailboxes, MessageService
from tallyroom.servers.run_locks import RunLocks
from tallyroom.storage.bulk import FileBulk
from tallyroom.storage.journal import Journal, Kind
from tallyroom.storage.ledger import Ledger
from tests.samples import a_message, a_query, a_submission

SECONDS = 10.0


def query_of(number: int) -> Query:
    return replace(a_query(parties=1), nonce=number.to_bytes(NONCE_BYTES, "big"))


def asked(query: Query) -> Message:
    return a_message(Phase.QUERY, Role.COORDINATOR, Role.SERVER, body=query.encode(), run=query.run)


class Meeting(AggregationServer):
    """Submissions are added up only once those of two runs are here at the same time."""

    both: threading.Barrier

    def handle(self, message: Message) -> Reply:
        if message.phase is Phase.SUBMIT:
            self.both.wait(SECONDS)
        return super().handle(message)


def test_a_server_computes_for_two_runs_at_a_time(tmp_path: Path) -> None:
    queries = [query_of(1), query_of(2)]
    carried: list[Message] = []

    async def carry(outcome: Reply) -> None:
        carried.extend(outcome.messages)

    async def scenario() -> None:
        journal = Journal(tmp_path)
        server = Meeting(
            0,
            Ledger(None),
            Randomness.from_seed(1, "server-0"),
            lambda run: FileBulk(tmp_path, run, journal),
        )
        server.both = threading.Barrier(2)
        post = MessageService(server, Mailboxes(), carry, journal)
        for query in queries:
            await post.deliver(asked(query), asked(query).encode())
        parts = [a_submission(0, query) for query in queries]
        await asyncio.gather(*(post.deliver(part, part.encode()) for part in parts))
        assert post._cpu_seconds.keys() == {query.run for query in queries}
        post.close()

    asyncio.run(scenario())
    assert {message.run for message in carried} == {query.run for query in queries}
    assert all(message.phase is Phase.ROSTER for message in carried)
    assert {run: len(records) for run, records in Journal(tmp_path).runs()} == {
        query.run: 2 for query in queries
    }


class Considering(AggregationServer):
    """Looks at a question for a while."""

    def open(self, message: Message) -> Machine:
        time.sleep(0.02)
        return super().open(message)


def test_of_questions_under_one_number_that_come_at_once_one_begins(tmp_path: Path) -> None:
    """Two would draw one noise, and their difference would be without any."""
    same = [replace(query_of(7), deadline=30.0 + extra) for extra in range(20)]
    assert len({query.run for query in same}) == 20
    begun: list[Reply] = []

    async def carry(_: Reply) -> None:
        pass

    async def scenario() -> None:
        server = Considering(0, Ledger(None), Randomness.from_seed(1, "server-0"))
        post = MessageService(server, Mailboxes(), carry, Journal(tmp_path))
        messages = [asked(query) for query in same]
        outcomes = await asyncio.gather(*(post.deliver(each, each.encode()) for each in messages))
        begun.extend(outcome for outcome in outcomes if not outcome.refused)
        post.close()

    asyncio.run(scenario())
    assert len(begun) == 1


def test_a_submission_is_found_in_the_journal_while_other_runs_write(tmp_path: Path) -> None:
    """A block is looked for in its own run's record, whatever was written since."""

    async def scenario() -> None:
        journal = Journal(tmp_path)
        record = bytes(range(64))
        runs = [bytes([n]) * 8 for n in range(3)]
        for run in runs:
            journal.append(run, Kind.MESSAGE, record)
        for run in runs:
            block = np.frombuffer(record, np.uint8)[16:]
            path, start = journal.place_of(run, block) or (None, 0)
            assert path is not None
            assert path.read_bytes()[start:] == record[16:]
            assert path.stem == run.hex()
            journal.taken(run)
            assert journal.place_of(run, block) is None
        journal.close()

    asyncio.run(scenario())


def test_locks_exclude_runs_of_one_number_alone_and_end() -> None:
    events: list[str] = []

    async def hold(locks: RunLocks, run: bytes, name: str, until: asyncio.Event) -> None:
        async with locks.of(run):
            events.append(name)
            await until.wait()

    async def scenario() -> None:
        locks, go, on = RunLocks(), asyncio.Event(), asyncio.Event()
        number, other = bytes(NONCE_BYTES), b"\x01" * NONCE_BYTES
        tasks = [
            asyncio.create_task(hold(locks, number + b"a", "a", go)),
            asyncio.create_task(hold(locks, number + b"b", "b", on)),
            asyncio.create_task(hold(locks, other + b"a", "c", go)),
        ]
        await asyncio.sleep(0.02)
        assert events == ["a", "c"]
        go.set()
        await asyncio.sleep(0.02)
        assert events == ["a", "c", "b"]
        closing = asyncio.create_task(locks.close())
        await asyncio.sleep(0.02)
        assert not closing.done()
        on.set()
        await asyncio.wait_for(closing, SECONDS)
        late = asyncio.create_task(hold(locks, number, "late", go))
        await asyncio.sleep(0.02)
        late.cancel()
        await asyncio.gather(late, *tasks, return_exceptions=True)
        assert events == ["a", "c", "b"]
        assert not locks._locks

    asyncio.run(scenario())


def test_what_computations_took_adds_up_to_the_process() -> None:
    now = [0.0]
    shares = CpuShares(lambda: now[0])
    with shares.measured() as first:
        now[0] = 1.0  # alone
        with shares.measured() as second:
            now[0] = 3.0  # the two of them
        now[0] = 4.0  # alone again
    now[0] = 9.0  # nobody's
    with shares.measured() as third:
        now[0] = 9.5
    assert (first(), second(), third()) == pytest.approx((3.0, 1.0, 0.5))
