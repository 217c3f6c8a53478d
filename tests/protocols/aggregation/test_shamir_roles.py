"""Servers, parties and the collector of Shamir shares: who may vanish, and what is refused."""

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.aggregation.shamir import Shamir, ShamirCollector
from tallyroom.protocols.algebra.field import FIELD128
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import MAX_LENGTH
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.wire.machine import Continue, Done, Failed, Rejected
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tests.protocols.aggregation.rounds import Rounds
from tests.protocols.aggregation.shamir_samples import a_shared_query, some_vectors
from tests.samples import a_message, bitmap


@pytest.mark.parametrize("when", [Phase.SUBMIT, Phase.ROSTER, Phase.RELEASE, Phase.SHARE])
@pytest.mark.parametrize("gone", [(4,), (0, 2), (0, 1, 2)])
def test_servers_may_vanish_at_any_time_while_t_are_left(
    when: Phase, gone: tuple[int, ...]
) -> None:
    """3 of 5 open: with two gone the run goes on; with three it fails and names them."""
    order = [Phase.SUBMIT, Phase.ROSTER, Phase.RELEASE, Phase.SHARE]

    def vanish(message: Message) -> Iterable[Message]:
        to_server = message.receiver_role is Role.SERVER
        server = int((message.receivers if to_server else message.senders)[0])
        late = order.index(message.phase) >= order.index(when)
        return () if late and server in gone else (message,)

    vectors = some_vectors(4, 6)
    run = Rounds(Shamir(), a_shared_query(4, 6, 5), vectors, intercept=vanish)
    for server in run.servers:
        run.say(server, server.start())
    run.coordinator.start()
    for block in run.blocks.values():
        run.say(block, block.start())
    run.settle()
    assert run.total is None
    assert isinstance(run.coordinator, ShamirCollector)
    run.say(run.coordinator, run.coordinator.lose_servers(set(gone), "vanished"))
    run.settle()
    if len(gone) == 3:
        assert run.total is None
        assert run.failed is not None
        assert "server-0, server-1, server-2 vanished" in run.failed.reason
    else:
        assert run.total is not None
        assert run.total.vector.tolist() == vectors.sum(axis=0, dtype=np.uint64).tolist()


def test_parties_that_reached_only_some_servers_are_in_nobodys_sum() -> None:
    def lose(message: Message) -> Iterable[Message]:
        if message.phase is Phase.SUBMIT and int(message.receivers[0]) == 1:
            return (message.select(np.array([0, 2])),)
        return (message,)

    vectors = some_vectors(3, 4)
    run = Rounds(Shamir(), a_shared_query(3, 4, 3, min_parties=2), vectors, intercept=lose).run()
    assert run.total is not None
    assert run.total.contributors.tolist() == [0, 2]
    assert run.total.vector.tolist() == vectors[[0, 2]].sum(axis=0, dtype=np.uint64).tolist()


def past_the_modulus(body: NDArray[np.uint8]) -> NDArray[np.uint8]:
    changed = body.copy()
    changed[1, 16:32] = np.frombuffer(FIELD128.modulus.to_bytes(16, "little"), dtype=np.uint8)
    return changed


def test_elements_that_are_not_canonical_are_refused_and_their_sender_named() -> None:
    def tamper(message: Message) -> Iterable[Message]:
        if message.phase is Phase.SUBMIT and int(message.receivers[0]) == 2:
            return (replace(message, body=past_the_modulus(message.body)),)
        return (message,)

    vectors = some_vectors(3, 4)
    run = Rounds(Shamir(), a_shared_query(3, 4, 3, min_parties=2), vectors, intercept=tamper).run()
    assert [(r.sender, r.reason) for r in run.rejected] == [
        ("party-1", "a share with an element that is not below the modulus")
    ]
    assert run.total is not None
    assert run.total.contributors.tolist() == [0, 2]
    assert [party for party, _ in run.total.caught] == [1]
    assert run.total.vector.tolist() == vectors[[0, 2]].sum(axis=0, dtype=np.uint64).tolist()


@pytest.mark.parametrize("width", [0, 15, 48, 63, 65, 128])
def test_shares_of_another_width_are_refused(width: int) -> None:
    query = a_shared_query(3, 4, 3)
    server = Shamir().server(query, 0, Randomness(bytes(16)), Memory())
    body = np.zeros((1, width), dtype=np.uint8)
    step = server.receive(a_message(Phase.SUBMIT, Role.PARTY, Role.SERVER, (2,), body=body))
    assert isinstance(step, Rejected)
    assert step.sender == "party-2"
    collector = Shamir().collector(query, np.ones(3, dtype=np.int64), Randomness(bytes(16)))
    collector.start()
    for i in range(3):
        collector.receive(
            a_message(Phase.ROSTER, Role.SERVER, Role.COORDINATOR, (i,), body=bitmap(3, [0, 1, 2]))
        )
    step = collector.receive(a_message(Phase.SHARE, Role.SERVER, Role.COORDINATOR, (1,), body=body))
    assert isinstance(step, Rejected)
    assert step.sender == "server-1"


def test_a_servers_share_that_is_not_of_the_field_is_refused() -> None:
    query = a_shared_query(3, 4, 3)
    collector = Shamir().collector(query, np.ones(3, dtype=np.int64), Randomness(bytes(16)))
    collector.start()
    for i in range(3):
        collector.receive(
            a_message(Phase.ROSTER, Role.SERVER, Role.COORDINATOR, (i,), body=bitmap(3, [0, 1, 2]))
        )
    for body in (b"\xff" * 64, bytes(64)):
        step = collector.receive(
            a_message(Phase.SHARE, Role.SERVER, Role.COORDINATOR, (1,), body=body)
        )
        assert isinstance(step, Rejected if any(body) else Continue)


def test_there_is_one_release_and_the_same_is_answered_again() -> None:
    query, vectors = a_shared_query(3, 4, 3, min_parties=2), some_vectors(3, 4)
    run = Rounds(Shamir(), query, vectors).run()
    for server in run.servers:
        other = a_message(Phase.RELEASE, Role.COORDINATOR, Role.SERVER, body=bitmap(3, [0, 1]))
        assert isinstance(server.receive(other), Rejected)
        same = a_message(Phase.RELEASE, Role.COORDINATOR, Role.SERVER, body=bitmap(3, [0, 1, 2]))
        step = server.receive(same)
        assert isinstance(step, Continue)
        assert step.spends == (query.spend,)


@pytest.mark.parametrize("noise", [Placement.EACH_SERVER, Placement.CURATOR])
def test_servers_cannot_add_noise(noise: Placement) -> None:
    query = a_shared_query(4, 4, 3, epsilon=Fraction(1), noise=noise)
    with pytest.raises(LocalError, match="noise parties"):
        Shamir().check(query)
    Shamir().check(replace(query, epsilon=None))


@pytest.mark.parametrize(
    ("spec", "servers", "reason"),
    [
        ("shamir", 1, "at least 2 servers"),
        ("shamir?threshold=2", 4, "with 4 servers the threshold is 3 to 4, not 2"),
        ("shamir?threshold=5", 4, "3 to 4, not 5"),
        ("shamir?threshold=3&pack=3", 4, "pack is 1 to 2"),
        ("shamir?pack=0", 4, "pack is 1 to 2"),
        ("shamir?pack=9", 4, "pack is 1 to 3"),
    ],
)
def test_options_that_cannot_be_are_refused(spec: str, servers: int, reason: str) -> None:
    with pytest.raises(LocalError, match=reason):
        aggregator_named(spec).check(a_shared_query(4, 4, servers))


def test_a_party_is_done_when_it_has_spoken() -> None:
    run = Rounds(Shamir(), a_shared_query(3, 2, 3), some_vectors(3, 2))
    (block,) = run.blocks.values()
    step = block.start()
    assert isinstance(step, Done)
    assert [int(message.receivers[0]) for message in step.messages] == [0, 1, 2]


def test_a_share_fits_a_message() -> None:
    """Sixteen bytes an element are twice those of the ring; packed, half of that."""
    query = a_shared_query(4, MAX_LENGTH, 3)
    with pytest.raises(LocalError, match=f"a vector of {MAX_LENGTH} in {16 * MAX_LENGTH} bytes"):
        Shamir().check(query)
    Shamir(threshold=3, pack=2).check(query)
    Shamir().check(a_shared_query(4, MAX_LENGTH // 2, 3))


def test_servers_that_are_not_needed_can_be_spared_one_by_one() -> None:
    collector = Shamir(threshold=3).collector(
        a_shared_query(4, 4, 5), np.ones(4, dtype=np.int64), Randomness.from_seed(1, "c")
    )
    assert isinstance(collector, ShamirCollector)
    collector.start()
    for server in (4, 0):
        assert collector.can_spare
        assert isinstance(collector.lose_servers({server}, "is gone"), Continue)
    assert not collector.can_spare
    assert isinstance(collector.lose_servers({2}, "is gone"), Failed)
