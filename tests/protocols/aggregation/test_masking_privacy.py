"""What a server of a masked sum can and cannot make of what it sees, also if it lies."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from tallyroom.fss.prg import expand_seeds
from tallyroom.protocols.aggregation.masking.aggregator import Masking
from tallyroom.protocols.aggregation.masking.graph import given
from tallyroom.protocols.aggregation.masking.keys import confirm
from tallyroom.protocols.aggregation.masking.party import MaskingParty, PartyState
from tallyroom.protocols.aggregation.masking.removal import held_shares
from tallyroom.protocols.algebra.field import FIELD128
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.algebra.sharing import open_secrets
from tallyroom.protocols.wire.machine import Continue, Done, Rejected
from tallyroom.protocols.wire.messages import Message, Phase, Role, address, body_of
from tests.goodness import ALPHA, uniform_bytes_p
from tests.protocols.aggregation.masking_samples import FULL, a_masked_query, some_vectors
from tests.protocols.aggregation.rounds import Rounds, a_block, leaving
from tests.samples import bitmap

TOP = 2**64 - 1


def bodies_of(run: Rounds, phase: Phase) -> NDArray[np.uint8]:
    """What parties sent in one phase, by party."""
    rows = {
        int(single.senders[0]): single.body[0]
        for message in run.sent
        if message.phase is phase and message.sender_role is Role.PARTY
        for single in message.split()
    }
    return np.stack([rows[i] for i in sorted(rows)])


@pytest.mark.parametrize("value", [0, TOP])
def test_one_mask_that_is_left_hides_a_vector(value: int) -> None:
    """Parties 1 and 2 of 4 are on the server's side: fewer than the threshold, 3. It opens all
    self-masks, as it may, and takes off what these two know. The mask between 0 and 3 is left on
    both: n = 2^15 bytes each, ALPHA."""
    length = 1 << 12
    query = a_masked_query(4, length)
    vectors = np.full((4, length), value, dtype=np.uint64)
    run = Rounds(FULL, query, vectors, blocks=4).run()
    assert run.total is not None
    machines = [run.blocks[i,] for i in range(4)]
    parties = [machine for machine in machines if isinstance(machine, MaskingParty)]
    bare = []
    for party in (0, 3):
        masked = bodies_of(run, Phase.SUBMIT)[party].view("<u8")
        masked = masked - expand_seeds(parties[party]._own_seeds, length)[0]
        for friend in (1, 2):
            slot = int(np.flatnonzero(parties[friend]._neighbours[0] == party)[0])
            mask = expand_seeds(parties[friend]._mask_seeds[:, slot], length)[0]
            masked = masked - mask if party < friend else masked + mask
        bare.append(masked)
        assert uniform_bytes_p(masked.tobytes()) > ALPHA
    assert (bare[0] + bare[1]).tolist() == (vectors[0] + vectors[3]).tolist()


@pytest.mark.parametrize("neighbours", ["0", "20"])
def test_what_is_sealed_and_what_is_submitted_looks_uniform(neighbours: str) -> None:
    """DEAL and SUBMIT of 40 parties with equal vectors: n > 2^15 bytes each, ALPHA."""
    query = a_masked_query(40, 256)
    for value in (0, TOP):
        vectors = np.full((40, 256), value, dtype=np.uint64)
        run = Rounds(Masking(neighbours=neighbours), query, vectors).run()
        for phase in (Phase.DEAL, Phase.SUBMIT):
            bodies = bodies_of(run, phase)
            assert uniform_bytes_p(bodies.tobytes()) > ALPHA
            assert len(np.unique(bodies, axis=0)) == 40


def test_a_party_gives_one_kind_of_share_and_it_is_the_right_one() -> None:
    """Whoever submitted has its self-mask opened, whoever did not its key; never both."""
    query = a_masked_query(6)
    run = Rounds(FULL, query, some_vectors(6), blocks=6, intercept=leaving({2: Phase.SUBMIT}))
    run.run()
    said = np.zeros((6, 6 * 16), dtype=np.uint8)
    said[[0, 1, 3, 4, 5]] = bodies_of(run, Phase.UNMASK)
    plan = FULL.graph(query)
    shares, held = held_shares(plan, said)
    for party in range(6):
        machine = run.blocks[party,]
        assert isinstance(machine, MaskingParty)
        secrets = FIELD128.encode(machine._terms[0, :, 0]).reshape(2, 16)
        here = np.flatnonzero(held[party])
        holders = np.append(party, plan.neighbours[party])
        for five in (here[:5], here[-5:]):
            values = FIELD128.decode(shares[party, five].reshape(-1))
            opened = FIELD128.encode(open_secrets(holders[five], values)[None])
            assert opened.tobytes() == secrets[int(party == 2)].tobytes()
        if party == 2:
            assert len(here) == 5, "who left has given no share of anything"


@dataclass
class Parties:
    """Parties one by one, all of whom submitted, in the hands of a server that may lie."""

    machines: list[MaskingParty]
    aggregator: Masking

    @classmethod
    def that_submitted(cls, count: int, aggregator: Masking = FULL) -> "Parties":
        query, vectors = a_masked_query(count), some_vectors(count)

        def stop(message: Message) -> tuple[Message, ...]:
            return () if message.phase is Phase.CHECK else (message,)

        run = Rounds(aggregator, query, vectors, blocks=count, intercept=stop)
        for machine in run.servers:
            run.say(machine, machine.start())
        for machine in run.blocks.values():
            run.say(machine, machine.start())
        run.settle()
        machines = [machine for machine in run.blocks.values() if isinstance(machine, MaskingParty)]
        assert all(machine.states == [PartyState.CHECK] for machine in machines)
        return cls(machines, aggregator)

    def tell(self, phase: Phase, party: int, body: bytes) -> Message | Rejected:
        message = Message(
            b"run-0001", phase, Role.SERVER, Role.PARTY, address(0), address(party), body_of(body)
        )
        step = self.machines[party].receive(message)
        if isinstance(step, Rejected):
            return step
        assert isinstance(step, Continue | Done)
        (answer,) = step.messages
        return answer

    def unmask(self, views: dict[int, list[int]]) -> dict[int, NDArray[np.uint8]]:
        """Each party is told its own view of who submitted; confirmations are relayed as they are.
        The shares that those gave who gave any, by party: its own first, then its neighbours'."""
        count = len(self.machines)
        plan = self.aggregator.graph(a_masked_query(count))
        confirmed = np.zeros((count, plan.degree * 16), dtype=np.uint8)
        for party, members in views.items():
            answer = self.tell(Phase.CHECK, party, bitmap(count, members))
            if isinstance(answer, Message):
                confirmed[party] = answer.body[0]
        relayed = plan.relayed(confirmed)
        answers = {p: self.tell(Phase.UNMASK, p, relayed[p].tobytes()) for p in views}
        return {
            party: answer.body[0].reshape(-1, 16)
            for party, answer in answers.items()
            if isinstance(answer, Message)
        }


def test_a_server_that_shows_different_sets_never_gets_both_kinds_of_share() -> None:
    """All 2^4 ways to tell each of 4 parties that party 0 submitted, or that it did not."""
    everyone, without = [0, 1, 2, 3], [1, 2, 3]
    ready = 0
    for told in product([True, False], repeat=4):
        parties = Parties.that_submitted(4)
        views = {p: everyone if told[p] else without for p in range(4)}
        given_by = parties.unmask(views)
        kinds = {told[p] for p in given_by}
        assert len(kinds) <= 1, "all who answered were told the same"
        ready += len(given_by) >= 3
    # Told alike are all, all but one, or 1, 2 and 3 without party 0, whatever that is told.
    assert ready == 1 + 4 + 2


def test_a_party_that_is_alone_with_its_set_refuses_and_the_rest_is_no_use_against_it() -> None:
    parties = Parties.that_submitted(6)
    everyone = list(range(6))
    given_by = parties.unmask({p: everyone if p else [0, 1, 2, 3, 4] for p in range(6)})
    assert sorted(given_by) == [1, 2, 3, 4, 5]
    again = parties.tell(Phase.UNMASK, 0, bytes(5 * 16))
    assert isinstance(again, Rejected)
    assert "were told of the same submissions" in again.reason


def test_a_second_different_question_is_refused_at_every_point() -> None:
    """Before, between and after its answers: a party's first view of a stage is its only one."""
    parties = Parties.that_submitted(4)
    everyone, without = bitmap(4, [0, 1, 2, 3]), bitmap(4, [0, 1, 3])
    first = parties.tell(Phase.CHECK, 0, everyone)
    assert isinstance(first, Message)
    assert isinstance(parties.tell(Phase.CHECK, 0, without), Rejected)
    views = {p: [0, 1, 2, 3] for p in (1, 2, 3)}
    plan = FULL.graph(a_masked_query(4))
    confirmed = np.zeros((4, 48), dtype=np.uint8)
    for party in views:
        answer = parties.tell(Phase.CHECK, party, everyone)
        assert isinstance(answer, Message)
        confirmed[party] = answer.body[0]
    relayed = plan.relayed(confirmed)
    assert isinstance(parties.tell(Phase.UNMASK, 0, relayed[0].tobytes()), Message)
    for phase, body in (
        (Phase.CHECK, without),
        (Phase.UNMASK, bytes(48)),
        (Phase.DEAL, bytes(144)),
    ):
        assert isinstance(parties.tell(phase, 0, body), Rejected)


LIES: dict[str, tuple[bytes, str]] = {
    "without the party itself": (bitmap(4, [1, 2, 3]), "not among those said to have submitted"),
    "too few for a threshold": (bitmap(4, [0, 1]), "only 2 of 4 holders submitted, and 3 are"),
    "fewer than the minimum": (bitmap(4, []), "fewer than 1 parties"),
    "padding bits": (b"\xff", "not a bitmap"),
    "too long": (bitmap(4, [0, 1, 2, 3]) + b"\0", "not a bitmap"),
    "empty": (b"", "not a bitmap"),
}


@pytest.mark.parametrize("name", LIES)
def test_sets_that_cannot_be_are_refused_and_a_right_one_is_still_taken(name: str) -> None:
    body, reason = LIES[name]
    parties = Parties.that_submitted(4)
    refused = parties.tell(Phase.CHECK, 0, body)
    assert isinstance(refused, Rejected)
    assert reason in refused.reason
    assert isinstance(parties.tell(Phase.CHECK, 0, bitmap(4, [0, 1, 2, 3])), Message)


def test_parties_keep_to_the_minimum_whatever_the_server_says() -> None:
    query, vectors = a_masked_query(5, min_parties=5), some_vectors(5)
    lied = []

    def lie(message: Message) -> tuple[Message, ...]:
        if message.phase is Phase.CHECK and message.sender_role is Role.SERVER:
            lied.append(message)
            return (replace(message, body=body_of(bitmap(5, [0, 1, 2, 3]))),)
        return (message,)

    run = Rounds(FULL, query, vectors, intercept=lie).run()
    assert lied
    assert run.total is None
    assert {r.reason for r in run.rejected} == {"fewer than 5 parties submitted"}


def forged(change: Callable[[NDArray[np.uint8]], None]) -> dict[int, NDArray[np.uint8]]:
    """What four parties give if their confirmations are changed on the way to party 0."""
    parties = Parties.that_submitted(4)
    plan = FULL.graph(a_masked_query(4))
    confirmed = np.zeros((4, 48), dtype=np.uint8)
    for party in range(4):
        answer = parties.tell(Phase.CHECK, party, bitmap(4, [0, 1, 2, 3]))
        assert isinstance(answer, Message)
        confirmed[party] = answer.body[0]
    fields = plan.relayed(confirmed)[0].reshape(3, 16).copy()
    change(fields)
    answer = parties.tell(Phase.UNMASK, 0, fields.tobytes())
    return {0: answer.body[0]} if isinstance(answer, Message) else {}


def test_confirmations_cannot_be_made_up_or_moved() -> None:
    def nothing(fields: NDArray[np.uint8]) -> None:
        pass

    def one_bad(fields: NDArray[np.uint8]) -> None:
        fields[0, 0] ^= 1

    def two_bad(fields: NDArray[np.uint8]) -> None:
        fields[:2, 0] ^= 1

    def all_of_one(fields: NDArray[np.uint8]) -> None:
        fields[:] = fields[0]

    def rotated(fields: NDArray[np.uint8]) -> None:
        fields[:] = np.roll(fields, 1, axis=0)

    assert [bool(forged(c)) for c in (nothing, one_bad, two_bad, all_of_one, rotated)] == [
        True, True, False, False, False,
    ]  # fmt: skip


def test_only_those_in_the_set_count_as_having_confirmed_it() -> None:
    """Party 3, which is left out of the set, confirms it to party 0 all the same."""
    parties = Parties.that_submitted(4, Masking(neighbours="0", threshold=3))
    said = bitmap(4, [0, 1, 2])
    confirmed = np.zeros((3, 16), dtype=np.uint8)
    for party in (0, 1, 2):
        answer = parties.tell(Phase.CHECK, party, said)
        assert isinstance(answer, Message)
        if party == 1:
            confirmed[0] = answer.body[0].reshape(3, 16)[0]
    key = parties.machines[3]._confirm_keys[0][0]
    confirmed[2] = np.frombuffer(confirm(key, 3, said), dtype=np.uint8)
    refused = parties.tell(Phase.UNMASK, 0, confirmed.tobytes())
    assert isinstance(refused, Rejected)
    assert "only 2 of 4 holders" in refused.reason


def test_a_seal_that_was_tampered_with_costs_its_share_alone() -> None:
    """With 3 of 4 holders needed: one broken seal a dealer is borne, two end the run."""
    vectors, query = some_vectors(4), a_masked_query(4)
    for broken, opens in ((1, True), (2, False)):

        def tamper(message: Message, broken: int = broken) -> tuple[Message, ...]:
            if message.phase is not Phase.DEAL or message.sender_role is not Role.PARTY:
                return (message,)
            body = message.body.copy()
            body[0, : 48 * broken : 48] ^= 1  # party 0's seals for parties 1 and 2
            return (replace(message, body=body),)

        run = Rounds(FULL, query, vectors, intercept=tamper).run()
        if opens:
            assert run.total is not None
            expected: Vector = vectors.sum(axis=0, dtype=np.uint64)
            assert run.total.vector.tolist() == expected.tolist()
        else:
            assert run.failed is not None
            assert "leaves 2 of 4 holders of a secret where 3 are needed" in run.failed.reason


def test_shares_that_do_not_fit_a_key_are_noticed() -> None:
    """A holder lies about the key of a party that left: no sum is released."""

    def tamper(message: Message) -> tuple[Message, ...]:
        kept = list(leaving({3: Phase.SUBMIT})(message))
        if message.phase is Phase.UNMASK and message.sender_role is Role.PARTY:
            body = kept[0].body.copy()
            body[0, 3 * 16] ^= 1  # party 0's share for its third neighbour
            kept = [replace(kept[0], body=body)]
        return tuple(kept)

    run = Rounds(FULL, a_masked_query(4), some_vectors(4), intercept=tamper).run()
    assert run.total is None
    assert run.spends == []
    assert run.failed is not None
    assert "do not open to that key" in run.failed.reason


def test_no_secret_shows() -> None:
    query = a_masked_query(3)
    block = a_block(FULL, query, np.arange(3, dtype=np.uint32), some_vectors(3))
    assert repr(block) == "<MaskingParty of 3>"


def test_zero_fields_are_nobodys() -> None:
    fields = np.zeros((2, 3, 16), dtype=np.uint8)
    fields[1, 2, 15] = 1
    assert given(fields).tolist() == [[False] * 3, [False, False, True]]
