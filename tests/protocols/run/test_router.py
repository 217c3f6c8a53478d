"""The one router in memory: everybody gets what is for them, once, and nobody else does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.protocols.wire.router import Router
from tests.samples import a_message


def to_parties(*receivers: int, sender: Role = Role.COORDINATOR) -> Message:
    return a_message(Phase.QUERY, sender, Role.PARTY, receivers=receivers)


def a_router(chance: int | None = None) -> Router[str]:
    generator = None if chance is None else np.random.default_rng(chance)
    return Router(["server-0", "server-1"], "coordinator", generator)


def reached(router: Router[str], message: Message) -> dict[str, list[int]]:
    return {who: part.receivers.tolist() for who, part in router.receivers(message)}


def test_servers_and_the_coordinator_get_what_is_addressed_to_them() -> None:
    router = a_router()
    to_server = a_message(Phase.QUERY, Role.COORDINATOR, Role.SERVER, receivers=(1,))
    assert reached(router, to_server) == {"server-1": [1]}
    share = a_message(Phase.SHARE, Role.SERVER, Role.COORDINATOR)
    assert list(reached(router, share)) == ["coordinator"]


def test_each_block_gets_its_own_parties_part() -> None:
    router = a_router()
    router.join(np.array([0, 3], dtype=np.uint32), "even")
    router.join(np.array([1, 2], dtype=np.uint32), "odd")
    assert reached(router, to_parties(0, 1, 2, 3)) == {"even": [0, 3], "odd": [1, 2]}
    assert reached(router, to_parties(2)) == {"odd": [2]}


def test_what_the_coordinator_said_before_a_party_joined_waits_for_it() -> None:
    router = a_router()
    router.join(np.array([0], dtype=np.uint32), "first")
    assert reached(router, to_parties(0, 1)) == {"first": [0]}
    assert not router
    router.join(np.array([1], dtype=np.uint32), "second")
    assert router
    assert reached(router, router.next()) == {"second": [1]}


@pytest.mark.parametrize("sender", [Role.SERVER, Role.PARTY])
def test_what_others_said_is_lost(sender: Role) -> None:
    router = a_router()
    assert reached(router, to_parties(1, sender=sender)) == {}
    router.join(np.array([1], dtype=np.uint32), "late")
    assert not router


def test_messages_come_in_the_order_in_which_they_were_sent() -> None:
    router = a_router()
    router.send([to_parties(0), to_parties(1)])
    router.send([to_parties(2)])
    assert [router.next().receivers.tolist() for _ in range(3)] == [[0], [1], [2]]
    assert not router


@given(st.integers(0, 2**32), st.lists(st.sets(st.integers(0, 9), min_size=1), max_size=8))
def test_chance_loses_and_doubles_nothing(seed: int, sent: list[set[int]]) -> None:
    router = a_router(seed)
    router.send(to_parties(*sorted(each)) for each in sent)
    found: list[int] = []
    while router:
        found += router.next().receivers.tolist()
    assert sorted(found) == sorted(party for each in sent for party in each)
