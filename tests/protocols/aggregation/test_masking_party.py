"""A party of a masked sum, against its transition table and a hostile server."""

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.masking.keys import (
    KEYS_BYTES,
    SIGNED_KEYS_BYTES,
    KeyPair,
    keys_statement,
)
from tallyroom.protocols.aggregation.masking.party import PARTY_ACCEPTS, PartyState
from tallyroom.protocols.aggregation.signing import process_signer
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.certificates import Authority, Identity
from tallyroom.protocols.wire.machine import Continue, Done, Rejected
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tests.protocols.aggregation.halted import COUNT, SPOKEN, changed, party_in
from tests.protocols.aggregation.masking_samples import FULL, a_masked_query, some_vectors
from tests.protocols.aggregation.rounds import a_block
from tests.samples import a_message

FIELD = SIGNED_KEYS_BYTES
RUN = a_masked_query(COUNT).run


@pytest.mark.parametrize(("state", "phase", "role"), list(product(PartyState, Phase, Role)))
def test_a_party_takes_what_its_table_says_and_nothing_new_else(
    state: PartyState, phase: Phase, role: Role
) -> None:
    party = party_in(state)
    right = SPOKEN.get((phase, Role.SERVER)) or a_message(phase, role, Role.PARTY)
    step = party.receive(replace(right, sender_role=role, receiver_role=Role.PARTY))
    expected = PARTY_ACCEPTS.get((state, phase)) is role
    heard = [Phase.KEYS, Phase.DEAL, Phase.CHECK, Phase.UNMASK][: state - 1]
    if expected:
        assert isinstance(step, Continue | Done)
        assert len(step.messages) == 1
        assert set(party.states) == {PartyState(state + 1)}
    elif role is Role.SERVER and phase in heard:
        assert step == Continue(), "what was told before is heard again in silence"
        assert set(party.states) == {state}
    else:
        assert isinstance(step, Rejected)
        assert set(party.states) == {state}


def test_the_party_table_is_the_protocol() -> None:
    assert {
        (state, Phase[state.name]): Role.SERVER
        for state in PartyState
        if state is not PartyState.OVER
    } == PARTY_ACCEPTS


def keys_told(change: Callable[[NDArray[np.uint8]], object]) -> Message:
    return changed(SPOKEN[Phase.KEYS, Role.SERVER], change)


def signed_by_one(keys: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """As party-1 would say it if it were on the server's side."""
    proof = process_signer().prove(keys_statement(RUN, 1, keys.tobytes()))
    return np.frombuffer(keys.tobytes() + proof, dtype=np.uint8)


def own_key(body: NDArray[np.uint8]) -> None:
    own = SPOKEN[Phase.KEYS, Role.PARTY].body[0, :KEYS_BYTES]
    body[0, 0:FIELD] = signed_by_one(own)


def same_keys(body: NDArray[np.uint8]) -> None:
    body[0, 0:FIELD] = signed_by_one(body[0, FIELD : FIELD + KEYS_BYTES])


def too_few(body: NDArray[np.uint8]) -> None:
    body[0, 0 : 2 * FIELD] = 0


def weak_key(body: NDArray[np.uint8]) -> None:
    body[0, 32:64] = 0
    body[0, 32] = 1
    body[0, 0:FIELD] = signed_by_one(body[0, 0:KEYS_BYTES])


def servers_key(body: NDArray[np.uint8]) -> None:
    """The oldest attack: a key of the server's own in the place of party-1's."""
    body[0, 0:32] = np.frombuffer(KeyPair(bytes(range(32))).public, dtype=np.uint8)


def unsigned(body: NDArray[np.uint8]) -> None:
    body[0, KEYS_BYTES:FIELD] = 0


def of_another_run(body: NDArray[np.uint8]) -> None:
    keys = body[0, 0:KEYS_BYTES].tobytes()
    proof = process_signer().prove(keys_statement(b"yesterday", 1, keys))
    body[0, KEYS_BYTES:FIELD] = np.frombuffer(proof, dtype=np.uint8)


def by_another_authority(body: NDArray[np.uint8]) -> None:
    """Who holds no key of the party authority makes vouchers that are worth nothing."""
    begin, day = dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.timedelta(days=1)
    authority = Authority.create("room", begin, day)
    issued = authority.issue(Identity(Role.PARTY, 1, 1), begin, day)
    keys = body[0, 0:KEYS_BYTES].tobytes()
    proof = issued.signer().prove(keys_statement(RUN, 1, keys))
    body[0, KEYS_BYTES:FIELD] = np.frombuffer(proof, dtype=np.uint8)


def one_for_another(body: NDArray[np.uint8]) -> None:
    """What party-2 signed of itself, as party-1's."""
    body[0, 0:FIELD] = body[0, FIELD : 2 * FIELD]


BAD_KEYS: dict[str, tuple[Callable[[NDArray[np.uint8]], None], str]] = {
    "its own key as another's": (own_key, "the same public key is given twice"),
    "two neighbours with one key": (same_keys, "the same public key is given twice"),
    "too few neighbours": (too_few, "only 2 of 4 holders sent keys, and 3 are needed"),
    "a key of the server's": (servers_key, "party-1 are not its own: its signature is invalid"),
    "a key that nobody signed": (unsigned, "party-1 are not its own"),
    "keys of another run": (of_another_run, "its signature is invalid"),
    "another authority's word": (by_another_authority, "not issued by this federation"),
    "another party's keys": (one_for_another, "party-1 are not its own"),
    "a key of low order": (weak_key, "nothing can be agreed with the key of party-1"),
}


@pytest.mark.parametrize("name", BAD_KEYS)
def test_a_party_refuses_bad_keys_and_takes_good_ones_afterwards(name: str) -> None:
    change, reason = BAD_KEYS[name]
    party = party_in(PartyState.KEYS)
    refused = party.receive(keys_told(change))
    assert isinstance(refused, Rejected)
    assert reason in refused.reason
    step = party.receive(SPOKEN[Phase.KEYS, Role.SERVER])
    assert isinstance(step, Continue)
    assert step.messages[0].encode() == SPOKEN[Phase.DEAL, Role.PARTY].encode()


@pytest.mark.parametrize("state", list(PartyState)[:-1])
def test_a_party_refuses_what_has_another_size_sender_or_receiver(state: PartyState) -> None:
    right = SPOKEN[Phase[state.name], Role.SERVER]
    wrong = [
        replace(right, body=right.body[:, :-1]),
        replace(right, body=np.repeat(right.body, 2, axis=1)),
        replace(right, body=right.body[:, :0]),
        replace(right, senders=right.senders + np.uint32(1)),
        replace(right, receivers=right.receivers + np.uint32(1)),
        replace(right, receivers=right.receivers // np.uint32(2)),
    ]
    party = party_in(state)
    for message in wrong:
        assert isinstance(party.receive(message), Rejected)
    assert set(party.states) == {state}
    assert isinstance(party.receive(right), Continue | Done)


def test_shares_from_a_party_without_keys_are_refused() -> None:
    party = party_in(PartyState.KEYS)

    def without_three(body: NDArray[np.uint8]) -> None:
        body[:3, 2 * FIELD :] = 0

    party.receive(keys_told(without_three).select(slice(0, 3)))
    refused = party.receive(SPOKEN[Phase.DEAL, Role.SERVER].select(slice(0, 1)))
    assert isinstance(refused, Rejected)
    assert "sent no keys" in refused.reason


def test_members_that_never_dealt_are_refused() -> None:
    party = party_in(PartyState.DEAL)

    def without_three(body: NDArray[np.uint8]) -> None:
        body[:3, 96:] = 0

    dealt = changed(SPOKEN[Phase.DEAL, Role.SERVER], without_three).select(slice(0, 3))
    assert isinstance(party.receive(dealt), Continue)
    refused = party.receive(SPOKEN[Phase.CHECK, Role.SERVER].select(slice(0, 3)))
    assert isinstance(refused, Rejected)
    assert "dealt no shares" in refused.reason


def test_a_restarted_party_says_the_same_and_hears_everything_again() -> None:
    heard = [SPOKEN[phase, Role.SERVER] for phase in (Phase.KEYS, Phase.DEAL, Phase.CHECK)]
    answers = []
    for _ in range(2):
        party = a_block(
            FULL, a_masked_query(COUNT), np.arange(4, dtype=np.uint32), some_vectors(COUNT)
        )
        steps = [party.start(), *(party.receive(message) for message in heard)]
        answers.append([s.messages[0].encode() for s in steps if isinstance(s, Continue)])
    assert answers[0] == answers[1]
    assert len(answers[0]) == 4


def test_a_deadline_is_the_servers_and_not_a_partys() -> None:
    for state in PartyState:
        party = party_in(state)
        assert party.expire() == Continue()
        assert set(party.states) == {state}


def test_a_party_knows_how_many_there_are() -> None:
    with pytest.raises(LocalError, match="only 4 parties"):
        a_block(FULL, a_masked_query(COUNT), np.array([4], dtype=np.uint32), some_vectors(1))
