"""Choices and pairs that two servers compute both ways: right answers, and liars that end the run
or change nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.garbling import outputs
from tallyroom.protocols.garbling.outputs import UncheckedBits
from tallyroom.protocols.joint.above_threshold import FirstAbove
from tallyroom.protocols.joint.both_ways import both_ways
from tallyroom.protocols.joint.choice import Choice
from tallyroom.protocols.joint.computation import Agree, BothWays, Program
from tallyroom.protocols.randomness import Randomness
from tests.protocols.joint.two_ends import BASES, Ends, shared

COUNTS = np.array([3, 9, 1, 9, 4], dtype=np.int64)
RULES: dict[str, Choice | FirstAbove] = {
    "the largest": Choice(5, 26),
    "three of them": Choice(5, 26, picks=3),
    "the first above": FirstAbove(5, 26, thresholds=(4,)),
}
Change = Callable[[Any], Any]


def ends(
    rule: Choice | FirstAbove, liar: int | None = None, change: Change = lambda asked: asked
) -> Ends:
    shares = shared(COUNTS)

    def programs(index: int, _: Randomness) -> Program:
        honest = both_ways(rule.program(index, shares[index], None, rule.width(0)), index)
        return changed(honest, change) if index == liar else honest

    return Ends(programs, 1, BASES)


def changed(program: Program, change: Change) -> Program:
    asked = next(program)
    while True:
        found = yield change(asked)
        try:
            asked = program.send(found)
        except StopIteration as over:
            return over.value


def chosen(both: Ends) -> list[int]:
    ours, theirs = both.run()
    found: list[int] = signed(np.asarray(ours + theirs, dtype=np.uint64)).tolist()
    return found


@pytest.mark.parametrize("name", RULES)
def test_what_is_chosen_is_what_it_is_in_the_clear(name: str) -> None:
    assert chosen(ends(RULES[name])) == RULES[name].in_clear(COUNTS).tolist()


def test_everything_is_compared_before_anything_is_revealed() -> None:
    """Of three picks, two are revealed; before each of them, and at the end, both agree."""
    asked: list[str] = []

    def seen(task: Any) -> Any:
        asked.append(type(task).__name__)
        return task

    ends(RULES["three of them"], 0, seen).run()
    order = [name for name in asked if name != "BothWays"]
    assert order == ["Agree", "Reveal", "Agree", "Reveal", "Agree"]
    assert "Task" not in asked


def other_inputs(asked: Any) -> Any:
    """All bits of this end are 1: the same both ways. It is its own share that it changes."""
    return asked._replace(bits=np.ones_like(asked.bits)) if isinstance(asked, BothWays) else asked


@pytest.mark.parametrize("liar", [0, 1])
@pytest.mark.parametrize("name", RULES)
def test_a_garbler_of_another_circuit_ends_the_run(name: str, liar: int) -> None:
    """It turns all output bits of what it garbles around."""

    class Turned(UncheckedBits):
        def __repr__(self) -> str:
            return repr(UncheckedBits())

    honest = outputs.seal

    def turned(output: Any, *given: Any) -> Any:
        sealed = honest(output, *given)
        if isinstance(output, Turned):
            sealed = sealed._replace(shares=sealed.shares ^ np.uint64(1))
        return sealed

    def lie(asked: Any) -> Any:
        if isinstance(asked, BothWays) and isinstance(asked.form, UncheckedBits):
            return asked._replace(form=Turned())
        return asked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outputs, "seal", turned)
        with pytest.raises(PeerError, match="came out differently"):
            ends(RULES[name], liar, lie).run()


@pytest.mark.parametrize("liar", [0, 1])
def test_a_server_that_says_other_words_when_both_agree_ends_the_run(liar: int) -> None:
    def lie(asked: Any) -> Any:
        return Agree(asked.words + np.uint64(1)) if isinstance(asked, Agree) else asked

    with pytest.raises(PeerError, match="came out differently"):
        ends(RULES["the largest"], liar, lie).run()


@pytest.mark.parametrize("liar", [0, 1])
def test_a_server_may_lie_about_its_share_and_no_more(liar: int) -> None:
    """The rest is one of the five."""
    (found,) = chosen(ends(RULES["the largest"], liar, other_inputs))
    assert 0 <= found < 8


def test_no_share_of_what_is_chosen_leans() -> None:
    """Either end's share over 100 runs has both values of every bit."""
    both = np.array([ends_of_seed(seed) for seed in range(40)], dtype=np.uint64)
    bits = np.unpackbits(np.ascontiguousarray(both).view(np.uint8), axis=1)
    assert bits.any(axis=0).all()
    assert not bits.all(axis=0).any()


def ends_of_seed(seed: int) -> list[int]:
    shares = shared(COUNTS, seed)

    def programs(index: int, _: Randomness) -> Program:
        rule = RULES["the largest"]
        return both_ways(rule.program(index, shares[index], None, rule.width(0)), index)

    found: list[Vector] = list(Ends(programs, seed, BASES).run())
    return [int(each[0]) for each in found]
