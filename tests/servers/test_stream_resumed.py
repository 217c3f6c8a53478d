"""A server that is killed amid a stream knows what it released, however its batches came in."""

import asyncio
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.messages import Message, Phase
from tallyroom.servers.aggregation_server import AggregationServer
from tallyroom.servers.message_service import Mailboxes, MessageService
from tallyroom.storage.journal import Journal
from tallyroom.storage.ledger import Ledger
from tests.protocols.aggregation.streams import ALL, ask, asked, batches, opening, said


def a_post(folder: Path) -> MessageService:
    """A server's post as a restart finds it, its journal replayed."""

    async def carry(_: Reply) -> None: ...

    server = AggregationServer(0, Ledger(None), Randomness.from_seed(1, "server-0"))
    post = MessageService(server, Mailboxes(), carry, Journal(folder))
    assert post.journal is not None
    for run, records in post.journal.retold():
        assert not any(reply.refused for reply in post.replay(run, records))
    return post


def delivered(folder: Path, messages: Iterable[Message]) -> list[Reply]:
    async def deliver() -> list[Reply]:
        post = a_post(folder)
        replies = [await post.deliver(message, message.encode()) for message in messages]
        post.close()
        return replies

    return asyncio.run(deliver())


def begun(query: Query) -> list[Message]:
    """All that parties submit, which is ahead of what is asked, and the opening."""
    return [said(query, Phase.QUERY, query.encode()), *batches(query), opening(query)]


def shares(replies: list[Reply]) -> list[bytes]:
    """Without the receipts in front of them."""
    said = (message for reply in replies for message in reply.messages)
    return [each.body[0].tobytes() for each in said if each.phase is Phase.SHARE]


def test_no_batch_is_released_over_other_parties_after_a_restart(tmp_path: Path) -> None:
    """Its noise would be the same: the difference would be one party's batch in the clear."""
    query = asked(Fraction(1))
    first = delivered(tmp_path, [*begun(query), ask(query, 0), ask(query, 1), ask(query, 2)])
    assert not any(reply.refused for reply in first)
    for batch in range(3):
        (reply,) = delivered(tmp_path, [ask(query, batch, ALL[1:])])
        assert f"a second release of batch {batch + 1}" in reply.refused[0].reason
    again = delivered(tmp_path, [ask(query, 2)])
    assert shares(again) == shares(first)[-1:]
    assert len(shares(delivered(tmp_path, [ask(query, 3)]))) == 1


def test_a_question_that_is_repeated_is_written_once(tmp_path: Path) -> None:
    query = asked(Fraction(1))
    replies = delivered(tmp_path, [*begun(query), *[ask(query, 0)] * 5])
    assert len(set(shares(replies))) == 1
    assert len(shares(replies)) == 5
    ((_, records),) = Journal(tmp_path).runs()
    assert len(records) == len(begun(query)) + 1
