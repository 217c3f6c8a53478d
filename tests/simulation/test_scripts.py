"""The script of misbehaving parties: what leaves them, row by row."""

from collections.abc import Iterable

import numpy as np
import pytest

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.simulation.misbehaviour import (
    HONEST,
    Cheat,
    Misbehaviour,
    Script,
    choose_silent,
    parse_cheats,
)
from tests.samples import a_message

PHASES = (Phase.KEYS, Phase.DEAL, Phase.SUBMIT, Phase.CHECK, Phase.UNMASK)


def said(phase: Phase, server: int = 0) -> Message:
    """Four parties, whose rows tell them apart."""
    rows = np.arange(4, dtype=np.uint8)[:, None] + np.zeros(6, dtype=np.uint8)
    return a_message(phase, Role.PARTY, Role.SERVER, (0, 1, 2, 3), (server,), rows)


def senders(messages: Iterable[Message]) -> list[int]:
    return sorted(party for message in messages for party in message.senders.tolist())


@pytest.mark.parametrize("after", range(len(PHASES) + 1))
def test_silent_parties_speak_in_so_many_phases_to_all_servers(after: int) -> None:
    script = Script(Misbehaviour(frozenset({1, 3}), after))
    for number, phase in enumerate(PHASES):
        for server in range(3):
            expected = [0, 1, 2, 3] if number < after else [0, 2]
            assert senders(script.play(said(phase, server))) == expected


def test_a_silent_party_may_repeat_what_it_said() -> None:
    """It was cut off, say: that is not another message."""
    script = Script(Misbehaviour(frozenset({1}), 2))
    for phase in (Phase.KEYS, Phase.KEYS, Phase.DEAL, Phase.KEYS):
        assert senders(script.play(said(phase))) == [0, 1, 2, 3]
    assert senders(script.play(said(Phase.SUBMIT))) == [0, 2, 3]


def test_each_party_is_counted_by_itself() -> None:
    """A party whose neighbours speak in a phase that it has no part in loses nothing by it."""
    script = Script(Misbehaviour(frozenset({1, 2}), 1))
    first = said(Phase.KEYS).select(np.array([0, 1]))
    assert senders(script.play(first)) == [0, 1]
    assert senders(script.play(said(Phase.DEAL))) == [0, 2, 3]


def test_malformed_submissions_are_cut_and_nothing_else_is() -> None:
    script = Script(Misbehaviour(cheats={2: Cheat.MALFORMED, 3: Cheat.OUT_OF_RANGE}))
    for phase in PHASES:
        parts = list(script.play(said(phase)))
        assert senders(parts) == [0, 1, 2, 3]
        rows = {
            single.senders[0]: single.body[0].tolist() for part in parts for single in part.split()
        }
        cut = 5 if phase is Phase.SUBMIT else 6
        assert rows == {0: [0] * 6, 1: [1] * 6, 2: [2] * cut, 3: [3] * 6}


def test_an_honest_message_is_left_as_it_is() -> None:
    message = said(Phase.SUBMIT)
    assert list(Script(HONEST).play(message)) == [message]
    other = Misbehaviour(frozenset({9}), cheats={8: Cheat.MALFORMED})
    assert list(Script(other).play(message)) == [message]


def test_who_never_speaks() -> None:
    assert Misbehaviour(frozenset({1, 2})).absent == {1, 2}
    assert Misbehaviour(frozenset({1, 2}), after=1).absent == frozenset()


def test_cheaters_do_not_drop_out() -> None:
    cheats = parse_cheats(["0:malformed", "4:out-of-range", "party-7:malformed"], 10)
    assert cheats == {0: Cheat.MALFORMED, 4: Cheat.OUT_OF_RANGE, 7: Cheat.MALFORMED}
    for seed in range(20):
        chosen = choose_silent(10, 0.6, seed, cheats)
        assert len(chosen) == 6
        assert not chosen & cheats.keys()
    with pytest.raises(LocalError, match="and 3 that cheat leaves none of 10 parties"):
        choose_silent(10, 0.7, 1, cheats)
