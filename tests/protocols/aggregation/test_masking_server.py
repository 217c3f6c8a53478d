"""The server of a masked sum, against its transition table and hostile parties."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.aggregation.masking.keys import KEYS_BYTES, KeyPair
from tallyroom.protocols.aggregation.masking.server import (
    STAGE_ACCEPTS,
    MaskingServer,
    Stage,
)
from tallyroom.protocols.aggregation.signing import process_signer
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.wire.machine import Continue, Failed, Rejected
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tests.protocols.aggregation.halted import (
    COUNT,
    PARTY_PHASES,
    SPOKEN,
    Halted,
    changed,
    server_at,
)
from tests.protocols.aggregation.masking_samples import FULL, a_masked_query, some_vectors, sum_over
from tests.samples import a_message, bitmap


@pytest.mark.parametrize(("stage", "phase", "role"), list(product(Stage, Phase, Role)))
def test_a_server_takes_what_its_table_says_and_nothing_else(
    stage: Stage, phase: Phase, role: Role
) -> None:
    server = server_at(stage)
    if phase is Phase.EXCUSE:
        right = a_message(phase, Role.COORDINATOR, Role.SERVER, body=bytes(1))
    else:
        spoken = SPOKEN.get((phase, Role.PARTY)) or SPOKEN.get((phase, Role.COORDINATOR))
        right = spoken or a_message(phase, role, Role.SERVER)
    step = server.receive(replace(right, sender_role=role))
    if STAGE_ACCEPTS.get((stage, phase)) is role:
        assert isinstance(step, Continue)
    else:
        assert isinstance(step, Rejected)
        assert server.stage is stage


def test_the_server_table_is_the_protocol() -> None:
    expected = {(stage, Phase.EXCUSE): Role.COORDINATOR for stage in Stage}
    for i, stage in enumerate(Stage):
        for phase in PARTY_PHASES[: i + 1]:
            expected[stage, phase] = Role.PARTY
    expected[Stage.OPEN, Phase.RELEASE] = Role.COORDINATOR
    assert expected == STAGE_ACCEPTS


def flip(body: NDArray[np.uint8]) -> None:
    body[0, 0] ^= 1


@pytest.mark.parametrize("phase", PARTY_PHASES)
def test_what_a_party_says_again_is_heard_once_and_contradictions_are_refused(phase: Phase) -> None:
    run = Halted(lambda m: m.phase is phase and m.sender_role is Role.PARTY)
    (message,) = run.held
    first, rest = message.select(slice(0, 1)), message.select(slice(1, None))
    assert run.server.receive(first) == Continue()
    assert run.server.receive(first) == Continue(repeated=True)
    refused = run.server.receive(changed(first, flip))
    assert isinstance(refused, Rejected)
    assert refused.sender == "party-0"
    mixed = run.server.receive(message)
    assert isinstance(mixed, Rejected), "a batch in which some spoke before is taken one by one"
    step = run.server.receive(rest)
    assert isinstance(step, Continue)
    assert step.messages
    assert run.server.receive(message) == Continue(repeated=True), (
        "nor does it hurt when the stage is past"
    )


@pytest.mark.parametrize("phase", PARTY_PHASES)
@pytest.mark.parametrize("name", ["truncated", "too long", "empty", "unknown party", "twice"])
def test_malformed_messages_leave_no_trace(phase: Phase, name: str) -> None:
    """The run goes on as if they had never come, and ends in the same sum."""
    run = Halted(lambda m: m.phase is phase and m.sender_role is Role.PARTY)
    (message,) = run.held
    bad = {
        "truncated": replace(message, body=message.body[:, :-1]),
        "too long": replace(message, body=np.repeat(message.body, 2, axis=1)),
        "empty": replace(message, body=message.body[:, :0]),
        "unknown party": replace(message, senders=message.senders + np.uint32(1)),
        "twice": replace(message, senders=message.senders // np.uint32(2)),
    }[name]
    assert isinstance(run.server.receive(bad), Rejected)
    run.let_go()
    run.say(run.server, run.server.receive(message))
    run.settle()
    assert run.total is not None
    assert run.total.vector.tolist() == sum_over(some_vectors(COUNT), [0, 1, 2, 3])


def low_key(body: NDArray[np.uint8]) -> None:
    body[0, :32] = 0


def low_mask_key(body: NDArray[np.uint8]) -> None:
    body[0, 32:64] = 0
    body[0, 32] = 1


def borrowed_key(body: NDArray[np.uint8]) -> None:
    body[0] = body[1]


def one_key_twice(body: NDArray[np.uint8]) -> None:
    body[0, 32:64] = body[0, :32]


def no_shares(body: NDArray[np.uint8]) -> None:
    body[0, :48] = 0


def not_in_the_field(body: NDArray[np.uint8]) -> None:
    body[0, 16:32] = 255


def not_signed(body: NDArray[np.uint8]) -> None:
    body[0, KEYS_BYTES:] = 0


def signed_keys_changed(body: NDArray[np.uint8]) -> None:
    body[0, :32] = np.frombuffer(KeyPair(bytes(range(32))).public, dtype=np.uint8)


def anothers_proof(body: NDArray[np.uint8]) -> None:
    body[0, KEYS_BYTES:] = body[1, KEYS_BYTES:]


BAD_BODIES: dict[str, tuple[Phase, Callable[[NDArray[np.uint8]], None], str]] = {
    "an all-zero key": (Phase.KEYS, low_key, "low order"),
    "a key of low order": (Phase.KEYS, low_mask_key, "low order"),
    "another's key": (Phase.KEYS, borrowed_key, "already in use"),
    "the same key for both": (Phase.KEYS, one_key_twice, "already in use"),
    "keys that nobody signed": (Phase.KEYS, not_signed, "not issued by this federation"),
    "keys that it did not sign": (Phase.KEYS, signed_keys_changed, "signature is invalid"),
    "keys that another signed": (Phase.KEYS, anothers_proof, "signature is invalid"),
    "no shares for a neighbour": (Phase.DEAL, no_shares, "every neighbour"),
    "a share past the modulus": (Phase.UNMASK, not_in_the_field, "not an element of the field"),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_bad_bodies_are_refused_and_named(name: str) -> None:
    phase, change, reason = BAD_BODIES[name]
    run = Halted(lambda m: m.phase is phase and m.sender_role is Role.PARTY)
    (message,) = run.held
    bad = changed(message, change)
    for other in bad.select(slice(1, None)).split():
        run.say(run.server, run.server.receive(other))
    refused = run.server.receive(bad.select(slice(0, 1)))
    assert isinstance(refused, Rejected)
    assert refused.sender == "party-0"
    assert reason in refused.reason
    run.let_go()
    run.settle()
    run.finish()
    assert run.total is not None, "the other three go on without it"
    in_sum = [0, 1, 2, 3] if phase is Phase.UNMASK else [1, 2, 3]
    assert run.total.vector.tolist() == sum_over(some_vectors(COUNT), in_sum)
    assert [party for party, _ in run.total.caught] == [0]


def test_shares_for_a_party_that_is_not_there_are_refused() -> None:
    run = Halted(lambda m: m.phase is Phase.DEAL and m.sender_role is Role.PARTY)
    server = MaskingServer(
        FULL.graph(run.query), run.query, 0, Randomness(bytes(16)), Memory(), process_signer()
    )
    keys = SPOKEN[Phase.KEYS, Role.PARTY].select(slice(0, 3))
    server.receive(keys)
    server.expire()
    refused = server.receive(run.held[0].select(slice(0, 1)))
    assert isinstance(refused, Rejected)
    assert "nobody else" in refused.reason


def test_who_comes_too_late_is_refused_and_left_out() -> None:
    run = Halted(lambda m: m.phase is Phase.DEAL and m.sender_role is Role.PARTY)
    (message,) = run.held
    run.let_go()
    run.say(run.server, run.server.receive(message.select(slice(0, 3))))
    run.say(run.server, run.server.expire())
    late = run.server.receive(message.select(slice(3, None)))
    assert isinstance(late, Rejected)
    assert "too late" in late.reason
    run.settle()
    assert run.total is not None
    assert run.total.contributors.tolist() == [0, 1, 2]


@pytest.mark.parametrize("stage", list(Stage)[:-1])
def test_excused_parties_are_not_waited_for_at_this_stage_or_later(stage: Stage) -> None:
    """Nothing expires: excuses alone move the run on."""
    run = Halted(lambda m: m.phase is stage.phase and m.sender_role is Role.PARTY)
    (message,) = run.held
    run.let_go()
    run.say(run.server, run.server.receive(message.select(np.array([0, 1, 3]))))
    run.settle()
    assert run.total is None
    excuse = a_message(Phase.EXCUSE, Role.COORDINATOR, Role.SERVER, body=bitmap(COUNT, [2]))
    run.say(run.server, run.server.receive(excuse))
    run.settle()
    assert run.total is not None
    kept = [0, 1, 2, 3] if stage in (Stage.CHECK, Stage.UNMASK) else [0, 1, 3]
    assert run.total.contributors.tolist() == kept


@pytest.mark.parametrize("body", [b"\x01", bytes(2), b""])
def test_bad_excuses_are_refused(body: bytes) -> None:
    server = server_at(Stage.SUBMIT)
    bad = a_message(Phase.EXCUSE, Role.COORDINATOR, Role.SERVER, body=body)
    assert isinstance(server.receive(bad), Rejected)
    assert server.stage is Stage.SUBMIT


def test_every_stage_has_a_deadline_of_its_own() -> None:
    server = server_at(Stage.SUBMIT)
    step = server.receive(SPOKEN[Phase.SUBMIT, Role.PARTY])
    assert isinstance(step, Continue)
    assert step.deadline == a_masked_query(COUNT).deadline
    assert server_at(Stage.OPEN).expire() == Continue()


def release(members: list[int]) -> Message:
    body = bitmap(COUNT, members)
    return a_message(Phase.RELEASE, Role.COORDINATOR, Role.SERVER, body=body)


def test_a_release_is_over_exactly_those_in_the_sum_and_once() -> None:
    server = server_at(Stage.OPEN)
    refused = server.receive(release([0, 1, 2]))
    assert isinstance(refused, Rejected)
    assert "is still masked" in refused.reason
    first, second = (server.receive(release([0, 1, 2, 3])) for _ in range(2))
    assert isinstance(first, Continue)
    assert isinstance(second, Continue)
    assert first.messages[0].encode() == second.messages[0].encode()
    assert first.spends == second.spends
    assert isinstance(server.receive(release([0, 1, 2])), Rejected)


def test_nothing_is_released_of_a_sum_that_cannot_be_opened() -> None:
    server = server_at(Stage.UNMASK)
    step = server.expire()
    assert step == Failed(
        "only 0 of 4 parties gave shares, which leaves 0 of 4 holders of a secret where 3 are "
        "needed; missing: party-0, party-1, party-2, party-3"
    )
    assert isinstance(server.receive(release([0, 1, 2, 3])), Rejected)


def test_a_party_that_sent_no_keys_deals_no_shares() -> None:
    """Its neighbours know nothing of it: it would only be in the way of those who did."""
    query = a_masked_query(COUNT)
    server = MaskingServer(
        FULL.graph(query), query, 0, Randomness(bytes(16)), Memory(), process_signer()
    )
    server.receive(SPOKEN[Phase.KEYS, Role.PARTY].select(slice(0, 3)))
    server.expire()
    dealt = SPOKEN[Phase.DEAL, Role.PARTY].select(slice(3, None))
    refused = server.receive(dealt)
    assert isinstance(refused, Rejected)
    assert "too late" in refused.reason


def test_an_excuse_that_comes_after_the_roster_changes_nothing() -> None:
    server = server_at(Stage.OPEN)
    body = bitmap(COUNT, [0, 1, 2])
    excuse = a_message(Phase.EXCUSE, Role.COORDINATOR, Role.SERVER, body=body)
    assert server.receive(excuse) == Continue()
    assert isinstance(server.receive(release([0, 1, 2, 3])), Continue)


def test_a_server_that_is_told_the_same_again_after_a_restart_says_the_same() -> None:
    query = a_masked_query(COUNT)
    told = [SPOKEN[phase, Role.PARTY] for phase in PARTY_PHASES]
    said = []
    for parts in (1, 3):
        server = MaskingServer(
            FULL.graph(query), query, 0, Randomness(bytes(16)), Memory(), process_signer()
        )
        steps = [
            server.receive(message.select(rows))
            for message in told
            for rows in np.array_split(np.arange(COUNT), parts)
        ]
        steps.append(server.receive(release([0, 1, 2, 3])))
        assert all(isinstance(step, Continue) for step in steps)
        said.append([m.encode() for s in steps if isinstance(s, Continue) for m in s.messages])
    assert said[0] == said[1]
    assert len(said[0]) == 6
