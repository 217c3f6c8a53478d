"""What a party of the shuffle model takes, and answers."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tallyroom.protocols.aggregation.shuffle.roles import PARTY_ACCEPTS, SealingState, ShuffleParty
from tallyroom.protocols.wire.machine import Continue, Done, Rejected
from tallyroom.protocols.wire.messages import Phase, Role
from tests.protocols.aggregation.shuffle_run import (
    PARTIES,
    a_collector,
    a_party,
    a_query,
    key_of,
    some_holdings,
)


@pytest.mark.parametrize("state", SealingState)
def test_a_party_takes_what_its_table_says_and_nothing_else(state: SealingState) -> None:
    query = a_query()
    good = key_of(a_collector(query))
    party = a_party(query, some_holdings())
    assert isinstance(party, ShuffleParty)
    if state is SealingState.TOLD:
        assert isinstance(party.receive(good.select(np.array([0]))), Continue)
    assert party.state is state
    for phase, role in product(Phase, Role):
        if PARTY_ACCEPTS.get((state, phase)) is not role:
            message = replace(good, phase=phase, sender_role=role)
            assert isinstance(party.receive(message), Rejected), (phase, role)
            assert party.state is state
    assert isinstance(party.receive(good), Done)
    assert set(PARTY_ACCEPTS.values()) == {Role.COORDINATOR}


def test_a_party_refuses_keys_that_are_none() -> None:
    query = a_query()
    good = key_of(a_collector(query))
    party = a_party(query, some_holdings())
    bodies = [bytes(32), bytes(31), bytes(33), b"", (1).to_bytes(32, "little")]
    wrong = [replace(good, body=np.frombuffer(b, np.uint8).reshape(1, -1)) for b in bodies]
    several = np.repeat(good.body, PARTIES, axis=0)
    several[2, 0] ^= 1
    wrong.append(replace(good, body=several))
    for message in wrong:
        assert isinstance(party.receive(message), Rejected)
    assert isinstance(party.receive(good), Done)


def test_a_party_answers_one_key_once() -> None:
    query = a_query()
    good = key_of(a_collector(query))
    other = replace(good, body=good.body ^ np.uint8(4))
    party = a_party(query, some_holdings())
    some = good.select(np.array([0, 2]))
    step = party.receive(some)
    assert isinstance(step, Continue)
    assert sorted(int(i) for m in step.messages for i in m.senders) == [0, 2]
    assert party.receive(some) == Continue()
    refusal = party.receive(other)
    assert isinstance(refusal, Rejected)
    assert refusal.reason == "a second public key"
    rest = party.receive(good)
    assert isinstance(rest, Done)
    assert sorted(int(i) for m in rest.messages for i in m.senders) == [1, 3, 4, 5]
    assert party.expire() == Done()
