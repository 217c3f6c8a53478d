"""What a host does with its parties' messages: loops, waits, gives up."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from tallyroom.parties import dispatcher
from tallyroom.parties.block import PartyBlock
from tallyroom.parties.dispatcher import Dispatcher
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.machine import Continue, Done, Machine, Rejected, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.protocols.wire.meter import Direction
from tests.samples import RUN, a_message, holdings_of

HERE, ELSEWHERE = (0, 1), (2, 3)
HEADER = 54


class Echo:
    """Told to pair, party 0 speaks to 1, which is here, and to 2 and 3; answers get answers until
    the third. At its deadline it says so to a server."""

    def __init__(self, patience: float | None) -> None:
        self.heard: list[Message] = []
        self._patience = patience

    def start(self) -> Step:
        return Continue(deadline=self._patience)

    def receive(self, message: Message) -> Step:
        if message.body.tobytes() == b"bad!":
            return Rejected(message.sender, "bad")
        self.heard.append(message)
        if message.phase is Phase.PAIRING:
            return Continue((pair((0, 0, 0), (1, 2, 3)),), deadline=self._patience)
        if len(self.heard) > 3:
            submission = a_message(Phase.SUBMIT, Role.PARTY, Role.SERVER, HERE)
            return Done(messages=(submission,))
        return Continue((pair(tuple(message.receivers), tuple(message.senders)),))

    def expire(self) -> Step:
        return Done(messages=(a_message(Phase.PAIRED, Role.PARTY, Role.COORDINATOR),))


def pair(
    senders: tuple[int, ...], receivers: tuple[int, ...], round_: int = 0, body: bytes = b"word"
) -> Message:
    rows = np.frombuffer(body * len(senders), dtype=np.uint8).reshape(len(senders), -1)
    return a_message(Phase.PAIR, Role.PARTY, Role.PARTY, senders, receivers, rows, round_=round_)


def told(phase: Phase, round_: int = 1) -> Message:
    return a_message(phase, Role.COORDINATOR, Role.PARTY, receivers=HERE, round_=round_)


class Block(PartyBlock):
    def __init__(self, patience: float | None = None) -> None:
        super().__init__(holdings_of([0.1, 0.2], 2), Randomness.from_seed(1, "parties"))
        self.machine = Echo(patience)

    def open(self, message: Message) -> Machine:
        return self.machine


class Host:
    def __init__(self, patience: float | None = None) -> None:
        self.block = Block(patience)
        self.posted: list[Message] = []
        self.carried: list[Reply] = []
        self.dispatcher = Dispatcher(self.block, self.posted.append, self.carried.append)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(10):
            await scenario()

    asyncio.run(bounded())


def links(messages: list[Message]) -> list[tuple[list[int], list[int], int]]:
    return [(m.senders.tolist(), m.receivers.tolist(), m.round) for m in messages]


def test_parties_of_one_host_hear_each_other_in_memory_and_are_metered_the_same() -> None:
    async def scenario() -> None:
        host = Host()
        await host.dispatcher.tell(told(Phase.QUERY))
        assert (await host.dispatcher.tell(told(Phase.PAIRING, 2))).messages == []
        # 0 to 1 (round 3), 1 back to 0 (4), 0 back to 1 (5): the third, and the end.
        assert links(host.posted) == [([0, 0], [2, 3], 3)]
        while not (submitted := [m for outcome in host.carried for m in outcome.messages]):
            await asyncio.sleep(0.001)
        assert [m.phase for m in submitted] == [Phase.SUBMIT]
        assert submitted[0].senders.tolist() == list(HERE)
        accounts = host.block.meters[RUN].between_parties().accounts
        sent = {k.round: a for (way, k), a in accounts.items() if way is Direction.SENT}
        got = {k.round: a for (way, k), a in accounts.items() if way is Direction.RECEIVED}
        assert {r: a.messages.tolist() for r, a in sent.items()} == {3: [3], 4: [0, 1], 5: [1]}
        assert {r: a.messages.tolist() for r, a in got.items()} == {3: [0, 1], 4: [1], 5: [0, 1]}
        assert sent[3].bytes.tolist() == [3 * (HEADER + 4)]

    run(scenario)


def test_a_message_that_overtook_its_run_waits_for_it() -> None:
    async def scenario() -> None:
        host = Host()
        early = pair((2,), (0,), 3)
        assert (await host.dispatcher.hear(early)).refused == []
        assert host.block.machine.heard == []
        await host.dispatcher.tell(told(Phase.QUERY))
        assert host.block.machine.heard == []  # round 3 is not for one that heard round 1
        await host.dispatcher.tell(told(Phase.PAIRING, 2))
        while early not in host.block.machine.heard:
            await asyncio.sleep(0.001)

    run(scenario)


def test_a_message_in_time_is_told_at_once_and_a_bad_one_is_refused() -> None:
    async def scenario() -> None:
        host = Host()
        await host.dispatcher.tell(told(Phase.QUERY))
        outcome = await host.dispatcher.hear(pair((2,), (0,), 2))
        assert links(host.posted) == [([0], [2], 3)]
        assert not outcome.refused
        assert not outcome.messages
        outcome = await host.dispatcher.hear(pair((2,), (0,), 2, b"bad!"))
        assert [refusal.reason for refusal in outcome.refused] == ["bad"]

    run(scenario)


def test_one_party_leaves_room_for_what_others_said_early() -> None:
    async def scenario() -> None:
        host = Host()
        large = pair((2,), (0,), 3, bytes(dispatcher.MOST_EARLY_OF_ONE // 2))
        await host.dispatcher.hear(large)
        with pytest.raises(BufferError):
            await host.dispatcher.hear(large)
        await host.dispatcher.hear(pair((3,), (0,), 3))
        most = dispatcher.MOST_EARLY_OF_ONE // dispatcher.LEAST_EARLY_BYTES
        for _ in range(most - 1):
            await host.dispatcher.hear(pair((3,), (0,), 3))
        with pytest.raises(BufferError):
            await host.dispatcher.hear(pair((3,), (0,), 3))

    run(scenario)


def test_what_waits_is_bounded_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        host = Host()
        monkeypatch.setattr(dispatcher, "MOST_EARLY_BYTES", 3 * dispatcher.LEAST_EARLY_BYTES)
        for _ in range(3):
            await host.dispatcher.hear(pair((2,), (0,), 3))
        with pytest.raises(BufferError):
            await host.dispatcher.hear(pair((3,), (0,), 3))
        monkeypatch.setattr(dispatcher, "EARLY_SECONDS", 0.0)
        await asyncio.sleep(0.01)
        await host.dispatcher.hear(pair((3,), (0,), 3))
        await host.dispatcher.tell(told(Phase.QUERY))
        await host.dispatcher.tell(told(Phase.PAIRING, 2))
        while not host.carried:
            await asyncio.sleep(0.001)
        peers = [m.sender for m in host.block.machine.heard if m.senders[0] in ELSEWHERE]
        assert peers == ["party-3"]

    run(scenario)


def test_a_deadline_expires_the_run_and_what_it_says_is_carried() -> None:
    async def scenario() -> None:
        host = Host(patience=0.02)
        await host.dispatcher.tell(told(Phase.QUERY))
        assert host.dispatcher.ends(RUN) > 0
        while not host.carried:
            await asyncio.sleep(0.01)
        assert [m.phase for m in host.carried[0].messages] == [Phase.PAIRED]
        assert not host.block.is_open(RUN)
        assert host.dispatcher.ends(RUN) == 0

    run(scenario)


def test_a_new_deadline_replaces_the_old_and_the_end_of_a_run_both() -> None:
    async def scenario() -> None:
        host = Host(patience=0.2)
        await host.dispatcher.tell(told(Phase.QUERY))
        first = host.dispatcher.ends(RUN)
        await host.dispatcher.hear(pair((2,), (0,), 2, b"bad!"))
        assert host.dispatcher.ends(RUN) == first  # what is refused gains no time
        machine = host.block.machine
        machine.receive = lambda message: Continue(deadline=60.0)  # type: ignore[method-assign]
        await host.dispatcher.tell(told(Phase.PAIRING, 2))
        assert host.dispatcher.ends(RUN) > first + 30
        await asyncio.sleep(0.3)
        assert host.carried == []
        machine.receive = lambda message: Done()  # type: ignore[method-assign]
        await host.dispatcher.tell(told(Phase.KEYS, 3))
        assert host.dispatcher.ends(RUN) == 0
        host.dispatcher.close()

    run(scenario)


def test_what_was_told_is_carried_on_when_the_caller_hangs_up() -> None:
    async def scenario() -> None:
        host = Host()
        await host.dispatcher.tell(told(Phase.QUERY))
        call = asyncio.create_task(host.dispatcher.hear(pair((2,), (0,), 2)))
        await asyncio.sleep(0)
        call.cancel()
        while not host.posted:
            await asyncio.sleep(0.01)
        assert links(host.posted) == [([0], [2], 3)]

    run(scenario)
