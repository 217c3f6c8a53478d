"""The message loop: everybody gets what is for them, once, and nobody else does."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.protocols.aggregation.exchange import MachineLoop
from tallyroom.protocols.wire.loop import InMemory, Job, JobKind, Reply
from tallyroom.protocols.wire.machine import Done, Failed, Rejected, SpeaksOnce, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tests.samples import a_message


def to_parties(*receivers: int, sender: Role = Role.COORDINATOR) -> Message:
    return a_message(Phase.QUERY, sender, Role.PARTY, receivers=receivers)


class Names(InMemory[str]):
    """Roles that only say who they are. `done` is who did what."""

    def __init__(self) -> None:
        super().__init__(["server-0", "server-1"], "coordinator")
        self.done: list[tuple[str, JobKind, list[int]]] = []

    def perform(self, job: Job[str]) -> Reply:
        receivers = [] if job.message is None else job.message.receivers.tolist()
        self.done.append((job.node, job.kind, receivers))
        return Reply(job.run)

    def reached(self, message: Message) -> dict[str, list[int]]:
        self.send(message)
        return self.heard()

    def heard(self) -> dict[str, list[int]]:
        self.done.clear()
        while self.busy:
            self.carry_on(b"run")
        return {who: receivers for who, _, receivers in self.done}


def test_servers_and_the_coordinator_get_what_is_addressed_to_them() -> None:
    loop = Names()
    to_server = a_message(Phase.QUERY, Role.COORDINATOR, Role.SERVER, receivers=(1,))
    assert loop.reached(to_server) == {"server-1": [1]}
    share = a_message(Phase.SHARE, Role.SERVER, Role.COORDINATOR)
    assert list(loop.reached(share)) == ["coordinator"]


def test_each_block_gets_its_own_parties_part() -> None:
    loop = Names()
    loop.enter(np.array([0, 3], dtype=np.uint32), "even")
    loop.enter(np.array([1, 2], dtype=np.uint32), "odd")
    assert loop.reached(to_parties(0, 1, 2, 3)) == {"even": [0, 3], "odd": [1, 2]}
    assert loop.reached(to_parties(2)) == {"odd": [2]}


def test_what_was_said_before_a_party_entered_waits_for_it() -> None:
    for sender in (Role.COORDINATOR, Role.SERVER, Role.PARTY):
        loop = Names()
        loop.enter(np.array([0], dtype=np.uint32), "first")
        assert loop.reached(to_parties(0, 1, sender=sender)) == {"first": [0]}
        assert not loop.busy
        loop.enter(np.array([1], dtype=np.uint32), "second")
        assert loop.heard() == {"second": [1]}


def test_messages_come_in_the_order_in_which_they_were_sent() -> None:
    loop = Names()
    loop.enter(np.arange(3, dtype=np.uint32), "all")
    for party in (2, 0, 1):
        loop.send(to_parties(party))
    loop.heard()
    assert [receivers for _, _, receivers in loop.done] == [[2], [0], [1]]


def test_what_is_changed_on_its_way_arrives_changed() -> None:
    loop = Names()
    loop.enter(np.arange(3, dtype=np.uint32), "all")
    loop.on_way = lambda m: () if m.receivers.tolist() == [0] else (m, to_parties(2))
    loop.take("coordinator", Reply(b"run", [to_parties(0), to_parties(1)]))
    loop.heard()
    assert [receivers for _, _, receivers in loop.done] == [[1], [2]]


def test_deadlines_pass_for_parties_then_servers_then_the_coordinator() -> None:
    """And from the first again once somebody spoke."""
    loop = Names()
    loop.enter(np.array([0], dtype=np.uint32), "party")
    waits = []
    for _ in range(5):
        loop.carry_on(b"run")
        loop.heard()
        waits.append([(who, task) for who, task, _ in loop.done])
        if len(waits) == 3:
            loop.take("server-0", Reply(b"run"))
        if len(waits) == 4:
            loop.take("server-0", Reply(b"run", [to_parties(0)]))
            loop.heard()
    gone = JobKind.EXPIRE
    parties, servers = [("party", gone)], [("server-0", gone), ("server-1", gone)]
    assert waits == [parties, servers, [("coordinator", gone)], parties, parties]


def test_blocks_go_on_one_by_one_when_nobody_else_has_anything_to_do() -> None:
    loop = Names()
    for name in ("a", "b"):
        loop.take(name, Reply(b"run", more=True))
    loop.carry_on(b"run")
    loop.heard()
    assert [(who, task) for who, task, _ in loop.done] == [("a", JobKind.PROCEED)]


def test_a_run_ends_with_the_coordinator_or_where_a_station_is_refused() -> None:
    over, no = Done(), Rejected("somebody", "no")
    asked = a_message(Phase.QUERY, Role.COORDINATOR, Role.SERVER, receivers=(1,))
    among = a_message(Phase.SHARE, Role.SERVER, Role.SERVER, receivers=(1,))
    submitted = a_message(Phase.SUBMIT, Role.PARTY, Role.SERVER, receivers=(1,))
    for who, message, reply, expected in (
        ("server-1", submitted, Reply(b"", finished=over), None),
        ("coordinator", submitted, Reply(b"", finished=over), over),
        ("server-1", submitted, Reply(b"", refused=[no]), None),
        ("server-1", asked, Reply(b"", refused=[no]), Failed("server-1 refused: no")),
        ("server-1", among, Reply(b"", refused=[no]), Failed("server-1 refused somebody: no")),
    ):
        loop = Names()
        loop.take(who, reply, Job(who, JobKind.HEAR, b"", message))
        assert loop.finished == expected


class Listening(SpeaksOnce):
    """A machine that only listens."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    def start(self) -> Step:
        return Done()

    def receive(self, message: Message) -> Step:
        self.heard += message.receivers.tolist()
        return Done(object())


@given(st.integers(0, 2**32), st.lists(st.sets(st.integers(0, 9), min_size=1), max_size=8))
def test_chance_loses_and_doubles_nothing(seed: int, sent: list[set[int]]) -> None:
    loop = MachineLoop([], Listening(), chance=seed)
    host = Listening()
    loop.enter(np.arange(10, dtype=np.uint32), host)
    for each in sent:
        message = a_message(Phase.PAIR, Role.PARTY, Role.PARTY, receivers=tuple(sorted(each)))
        loop.send(message)
    while loop.busy:
        loop._over.clear()
        loop.carry_on(b"")
    assert sorted(host.heard) == sorted(party for each in sent for party in each)
