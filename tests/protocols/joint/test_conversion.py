"""Totals from XOR shares of coded outputs, between two servers of which one may lie."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.garbling import session
from tallyroom.protocols.garbling.outputs import UncheckedIntegers
from tallyroom.protocols.joint.computation import Agree, BothWays, Program
from tallyroom.protocols.joint.conversion import convert
from tallyroom.protocols.kernels.codes import Code, MixedSignCode, RangeCode, TiedSignCode
from tallyroom.protocols.randomness import Randomness
from tests.protocols.joint.two_ends import BASES, Ends

CODES: dict[str, Code] = {
    "a bit": RangeCode(((0, 1),)),
    "a sign": RangeCode(((-1, 1),)),
    "a range": RangeCode(((0, 1_000_000),)),
    "all codes": RangeCode(((0, 255),)),
    "two ranges": RangeCode(((-7, 4), (2, 9))),
    "auc": MixedSignCode(),
    "tau-b": TiedSignCode(),
}
RNG = np.random.default_rng(1)


def halves(code: Code, pairs: int, seed: int = 0) -> tuple[Bytes, Bytes]:
    """XOR shares of random codes."""
    draw = np.random.default_rng(seed)
    first, second = draw.integers(0, 2, (2, pairs, code.wires), dtype=np.uint8)
    return first, second


def ends(code: Code, bits: tuple[Bytes, Bytes], seed: int = 1) -> Ends:
    return Ends(lambda index, _: convert(code, bits[index], index), seed, BASES)


def converted(code: Code, bits: tuple[Bytes, Bytes], seed: int = 1) -> list[int]:
    ours, theirs = ends(code, bits, seed).run()
    found: list[int] = signed(ours + theirs).tolist()
    return found


@pytest.mark.parametrize("pairs", [1, 7, 300])
@pytest.mark.parametrize("name", CODES)
def test_shares_add_up_to_the_totals_of_what_the_bits_stand_for(name: str, pairs: int) -> None:
    code = CODES[name]
    bits = halves(code, pairs)
    assert converted(code, bits) == code.values(bits[0] ^ bits[1]).sum(axis=0).tolist()


def test_many_pairs_go_in_parts_that_fit_a_message() -> None:
    code = RangeCode(((0, 1_000_000),))
    bits = halves(code, 9000)
    both = ends(code, bits)
    ours, theirs = both.run()
    assert signed(ours + theirs).tolist() == code.values(bits[0] ^ bits[1]).sum(axis=0).tolist()
    assert len(both.sent) > 9
    assert max(len(body) for body in both.sent) < 4 << 20


def test_shares_of_a_total_look_the_same_whatever_it_is() -> None:
    """Either server's share, over fresh transfers, has no bit that leans: each of 64 bits is set in
    half of 100 runs, within 6.5 standard deviations (a right program fails below 1 in 10^8)."""
    code = CODES["auc"]
    nothing = np.zeros((3, code.wires), dtype=np.uint8)
    shares = np.array([ends(code, (nothing, nothing), seed).run() for seed in range(100)])
    bits = np.unpackbits(np.ascontiguousarray(shares[:, :, 0]).astype("<u8").view(np.uint8), axis=1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 6.5 * 0.5 / np.sqrt(100)


# --- a server that weighs the other's bits ---


@dataclass(frozen=True, repr=False)
class Heavy(UncheckedIntegers):
    """Weights of a liar: the first wire of a word counts `factor` times as much. It says that it
    has the honest form."""

    factor: int = 1 << 40

    def __repr__(self) -> str:
        return repr(UncheckedIntegers(self.words))

    def weights(self, wires: int) -> Vector | None:
        honest = super().weights(wires)
        assert honest is not None
        return honest * np.uint64(self.factor)


def lying(program: Program, guess: int) -> Program:
    """Weighs its own garbling, and hopes that this adds up to so much."""
    asked = next(program)
    while True:
        if isinstance(asked, BothWays):
            asked = asked._replace(form=Heavy(asked.form.words))  # type: ignore[union-attr]
        if isinstance(asked, Agree):
            asked = Agree(asked.words - np.uint64(guess % 2**64))
        shares = yield asked
        try:
            asked = program.send(shares)
        except StopIteration as over:
            return over.value


def with_liar(liar: int, code: Code, bits: tuple[Bytes, Bytes], guess: int, seed: int) -> Ends:
    def programs(index: int, _: Randomness) -> Program:
        honest = convert(code, bits[index], index)
        return lying(honest, guess) if index == liar else honest

    return Ends(programs, seed, BASES)


def test_the_weights_work_where_nobody_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the comparison, a total would tell the other's bit: this is what it is for."""
    monkeypatch.setattr(session, "refuse", lambda *_: None)
    code = CODES["a bit"]
    for bit in (0, 1):
        bits = np.zeros((1, 1), dtype=np.uint8), np.full((1, 1), bit, dtype=np.uint8)
        ours, theirs = with_liar(0, code, bits, 0, seed=1).run()
        assert signed(ours + theirs).tolist() == [bit << 40]


@pytest.mark.parametrize("liar", [0, 1])
def test_a_server_that_weighs_is_caught_unless_it_guesses_the_sum(liar: int) -> None:
    """It guesses one bit of the other: it is right about half of the time, and then the total is
    what it guessed and tells it nothing more. Clopper-Pearson at 1 − 10^-6 over 100 runs."""
    code, runs, caught = CODES["a bit"], 100, 0
    for seed in range(runs):
        bit = int(RNG.integers(2))
        bits = [np.zeros((1, 1), dtype=np.uint8), np.zeros((1, 1), dtype=np.uint8)]
        bits[1 - liar][:] = bit
        expected = (1 << 40) - 1 if RNG.integers(2) else 0
        both = with_liar(liar, code, (bits[0], bits[1]), expected, seed)
        right = expected == bit * ((1 << 40) - 1)
        if right:
            both.run()
            continue
        with pytest.raises(PeerError, match=session.DISAGREE):
            both.run()
        assert not both.ends[1 - liar].done
        assert len(both.sent) % 2 == 0  # the garbler's hash is the last word: nothing is confirmed
        caught += 1
    low = beta.ppf(5e-7, caught, runs - caught + 1)
    high = beta.ppf(1 - 5e-7, caught + 1, runs - caught)
    assert low < 0.5 < high


def test_a_server_that_lies_about_its_bits_moves_a_pair_by_the_reach_at_most() -> None:
    for code in CODES.values():
        honest = halves(code, 1)
        for seed in range(5):
            other = np.random.default_rng(seed).integers(0, 2, (1, code.wires), dtype=np.uint8)
            first, second = (converted(code, (bits, honest[1])) for bits in (honest[0], other))
            assert np.abs(np.subtract(first, second)).sum() <= code.reach


# --- messages that are changed ---


def changed(at: int, place: float) -> Any:
    def change(number: int, body: Bytes) -> Bytes:
        if number == at:
            body[int(place * (len(body) - 1))] ^= 1
        return body

    return change


@pytest.mark.parametrize("place", [0.3, 0.6, 1.0])
def test_whatever_is_changed_on_the_way_is_refused(place: float) -> None:
    code = CODES["auc"]
    bits = halves(code, 5)
    both = ends(code, bits)
    both.run()
    for at, body in enumerate(both.sent):
        if len(body) <= 4:  # a step, and nothing to say
            continue
        # Bases of its own: whoever is caught with other choices is not met again.
        spoiled = Ends(lambda index, _: convert(code, bits[index], index))
        with pytest.raises(PeerError):
            spoiled.run(changed(at, max(place, 4.5 / len(body))))
        assert not (spoiled.ends[0].done and spoiled.ends[1].done)


def test_an_answer_where_there_is_none_is_refused() -> None:
    code = CODES["a bit"]
    bits = halves(code, 2)
    honest = ends(code, bits)
    honest.run()
    for at, body in enumerate(honest.sent):
        if len(body) == 4:

            def longer(number: int, said: Bytes, at: int = at) -> Bytes:
                return np.append(said, np.uint8(1)) if number == at else said

            with pytest.raises(PeerError, match="nothing to say"):
                ends(code, bits).run(longer)
