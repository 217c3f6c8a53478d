"""A party in pairs takes what its table says, in every state and from every role, and no more."""

from dataclasses import replace
from itertools import product

import pytest

from tallyroom.protocols.pairwise.roles.party import PAIRWISE_ACCEPTS, PairwiseState
from tallyroom.protocols.wire.machine import Continue, Done, Rejected
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tests.protocols.pairwise.lone import Lone
from tests.samples import a_message


@pytest.fixture(scope="module")
def opening() -> Message:
    return Lone().opening()


@pytest.mark.parametrize(("state", "phase", "role"), list(product(PairwiseState, Phase, Role)))
def test_a_party_in_pairs_takes_what_its_table_says_and_nothing_else(
    state: PairwiseState, phase: Phase, role: Role, opening: Message
) -> None:
    lone = Lone()
    told = {Phase.PAIRING: lone.meeting(1), Phase.PAIR: opening}.get(phase)
    if told is None:
        told = a_message(phase, role, Role.PARTY, receivers=(1,), body=b"\0", run=lone.query.run)
    if state is PairwiseState.OVER:
        assert isinstance(lone.garbler.expire(), Done)
    step = lone.garbler.receive(replace(told, sender_role=role))
    taken = PAIRWISE_ACCEPTS.get((state, phase)) is role
    assert isinstance(step, Continue if taken else Rejected)


def test_the_table_is_this() -> None:
    assert {
        (PairwiseState.MEETING, Phase.PAIRING): Role.COORDINATOR,
        (PairwiseState.MEETING, Phase.PAIR): Role.PARTY,
    } == PAIRWISE_ACCEPTS
