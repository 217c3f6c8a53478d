"""Mailboxes: everybody finds their own part, in order. The post: written, then told."""

import asyncio
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tallyroom.protocols.identity.certificates import Identity
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.protos import tally_pb2 as pb
from tallyroom.servers.aggregation_server import AggregationServer
from tallyroom.servers.message_service import MOST_WAITING, Mailboxes, MessageService
from tallyroom.storage.journal import Journal
from tallyroom.storage.ledger import Ledger
from tests.samples import a_message, a_query, a_submission


def query_to(*parties: int, body: bytes = b"question") -> Message:
    return a_message(Phase.QUERY, Role.COORDINATOR, Role.PARTY, receivers=parties, body=body)


def drained(queue: "asyncio.Queue[Message]") -> list[tuple[list[int], bytes]]:
    found = []
    while not queue.empty():
        message = queue.get_nowait()
        found.append((message.receivers.tolist(), message.rows()[0].tobytes()))
    return found


def test_a_message_is_split_among_those_that_it_is_addressed_to() -> None:
    boxes = Mailboxes()
    hosts = [Identity(Role.PARTY, 0, 2), Identity(Role.PARTY, 3, 3), Identity(Role.PARTY, 4, 9)]
    queues = [boxes.of(host) for host in hosts]
    server = boxes.of(Identity(Role.SERVER, 0, 0))
    boxes.deliver(query_to(0, 1, 2, 3, 4, 5))
    boxes.deliver(query_to(3, body=b"again"))
    assert drained(queues[0]) == [([0, 1, 2], b"question")]
    assert drained(queues[1]) == [([3], b"question"), ([3], b"again")]
    assert drained(queues[2]) == [([4, 5], b"question")]
    assert drained(server) == []


def test_rows_stay_with_their_receivers() -> None:
    boxes = Mailboxes()
    queues = [boxes.of(Identity(Role.PARTY, i, i)) for i in range(3)]
    body = np.arange(6, dtype=np.uint8).reshape(3, 2)
    message = a_message(Phase.QUERY, Role.COORDINATOR, Role.PARTY, receivers=(2, 0, 1), body=body)
    boxes.deliver(message)
    assert [drained(queue) for queue in queues] == [
        [([0], bytes([2, 3]))],
        [([1], bytes([4, 5]))],
        [([2], bytes([0, 1]))],
    ]


def test_a_party_that_never_reads_does_not_fill_the_memory() -> None:
    boxes = Mailboxes()
    lurker, coordinator = Identity(Role.PARTY, 0, 0), Identity(Role.COORDINATOR)
    waiting, heard = boxes.of(lurker), boxes.of(coordinator)
    for number in range(MOST_WAITING + 7):
        boxes.deliver(query_to(0, body=number.to_bytes(4, "little")))
        boxes.deliver(a_message(Phase.ROSTER, Role.SERVER, Role.COORDINATOR))
    assert heard.qsize() == MOST_WAITING + 7  # a run's own messages are never dropped
    newest = drained(waiting)
    assert len(newest) == MOST_WAITING
    assert newest[-1] == ([0], (MOST_WAITING + 6).to_bytes(4, "little"))


class Slow(AggregationServer):
    """Takes its time over a submission, as one that merges many shares does."""

    entered: threading.Event

    def handle(self, message: Message) -> Reply:
        if message.phase is Phase.SUBMIT:
            self.entered.set()
            time.sleep(0.2)
        return super().handle(message)


class Watched(Journal):
    """Notes when what was written is on disk."""

    events: list[str]

    async def commit(self) -> None:
        await super().commit()
        self.events.append("on disk")


def test_nothing_is_said_before_what_it_follows_from_is_on_disk(tmp_path: Path) -> None:
    """A server that is killed after it spoke must know what it spoke of."""
    query = a_query(parties=1)
    server = AggregationServer(0, Ledger(None), Randomness.from_seed(1, "server-0"))
    journal = Watched(tmp_path)
    journal.events = []

    async def carry(outcome: Reply) -> None:
        journal.events.extend(message.phase.label for message in outcome.messages)

    async def take() -> None:
        post = MessageService(server, Mailboxes(), carry, journal)
        asked = a_message(Phase.QUERY, Role.COORDINATOR, Role.SERVER, body=query.encode())
        for message in (asked, a_submission(0, query)):
            await post.deliver(message, message.encode())
        post.close()

    asyncio.run(take())
    assert journal.events == ["on disk", "on disk", "roster"]


def test_a_caller_that_hangs_up_does_not_take_the_answer_with_it(tmp_path: Path) -> None:
    """The last submission closes the roster: were it lost, the run would wait for ever."""
    query = a_query(parties=1)
    server = Slow(0, Ledger(None), Randomness.from_seed(1, "server-0"))
    server.entered = threading.Event()
    carried: list[Message] = []

    async def carry(outcome: Reply) -> None:
        carried.extend(outcome.messages)

    async def hang_up() -> None:
        journal = Journal(tmp_path)
        post = MessageService(server, Mailboxes(), carry, journal)
        asked = a_message(Phase.QUERY, Role.COORDINATOR, Role.SERVER, body=query.encode())
        await post.deliver(asked, asked.encode())
        message = a_submission(0, query)
        call = asyncio.ensure_future(post.deliver(message, message.encode()))
        while not server.entered.is_set():
            await asyncio.sleep(0.01)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        async with asyncio.timeout(10):
            while not carried:
                await asyncio.sleep(0.01)
        journal.close()

    asyncio.run(hang_up())
    assert [message.phase for message in carried] == [Phase.ROSTER]
    ((_, records),) = Journal(tmp_path).runs()
    assert len(records) == 2


def test_what_is_refused_is_not_written(tmp_path: Path) -> None:
    server = AggregationServer(0, Ledger(None), Randomness.from_seed(1, "server-0"))

    async def carry(outcome: Reply) -> None:
        pass

    async def refuse() -> None:
        post = MessageService(server, Mailboxes(), carry, Journal(tmp_path))
        unknown = a_submission(0, a_query())
        outcome = await post.deliver(unknown, unknown.encode())
        assert "unknown" in outcome.refused[0].reason
        forged = a_message(Phase.QUERY, Role.PARTY, Role.SERVER, body=a_query().encode())
        outcome = await post.deliver(forged, forged.encode())
        assert "only the coordinator asks" in outcome.refused[0].reason
        assert post._cpu_seconds == {}  # nor is the time it took kept, by whatever run it names

    asyncio.run(refuse())
    assert list(tmp_path.iterdir()) == []


class HangsUp:
    """A call that is cancelled before it is greeted."""

    async def send_initial_metadata(self, _: object) -> None:
        raise asyncio.CancelledError


def test_who_hangs_up_before_he_is_greeted_may_listen_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def caller(_: object) -> Identity:
        return Identity(Role.COORDINATOR)

    async def carry(_: Reply) -> None:
        pass

    async def scenario() -> None:
        server = AggregationServer(0, Ledger(None), Randomness(bytes(16)))
        post = MessageService(server, Mailboxes(), carry, None)
        stream = post.Receive(pb.Subscription(), HangsUp())  # type: ignore[arg-type]
        with pytest.raises(asyncio.CancelledError):
            await anext(stream)
        assert not post.subscribers

    monkeypatch.setattr("tallyroom.servers.message_service.caller", caller)
    asyncio.run(scenario())


def test_what_is_said_again_is_written_once(tmp_path: Path) -> None:
    """A party that repeats itself must not fill the disk."""
    query = a_query(parties=3)
    server = AggregationServer(0, Ledger(None), Randomness.from_seed(1, "server-0"))
    sizes = []

    async def carry(outcome: Reply) -> None:
        pass

    async def repeat() -> None:
        journal = Journal(tmp_path)
        post = MessageService(server, Mailboxes(), carry, journal)
        asked = a_message(
            Phase.QUERY, Role.COORDINATOR, Role.SERVER, body=query.encode(), run=query.run
        )
        await post.deliver(asked, asked.encode())
        for party in (0, 0, 0, 1, 0):
            message = a_submission(party, query)
            assert not (await post.deliver(message, message.encode())).refused
            sizes.append(sum(path.stat().st_size for path in tmp_path.glob("*.log")))
        journal.close()

    asyncio.run(repeat())
    assert sizes[0] == sizes[1] == sizes[2] < sizes[3] == sizes[4]
    ((_, records),) = Journal(tmp_path).runs()
    assert len(records) == 3
