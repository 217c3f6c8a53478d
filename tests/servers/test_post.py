"""Mailboxes: everybody finds their own part of a message, in order."""

import asyncio

import numpy as np

from protocols.identity import Identity
from protocols.messages import Message, Phase, Role
from servers.post import Mailboxes
from tests.samples import a_message


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
