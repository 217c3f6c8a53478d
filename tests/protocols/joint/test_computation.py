"""Two servers compute together: right shares, views that tell nothing, and no wrong byte taken."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.algebra.field import FIELD64, FIELD128, Field
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.garbling.batch import NUMBER_BYTES, BatchShape
from tallyroom.protocols.garbling.outputs import IntegerShares, OutputShares, UncheckedIntegers
from tallyroom.protocols.joint.computation import BothWays, Name, Program, Task
from tallyroom.protocols.joint.noise import draw_noise
from tallyroom.protocols.joint.noise_circuit import JointLaplace
from tallyroom.protocols.randomness import Randomness
from tests.goodness import ALPHA, discrete_laplace_pmf, fits, uniform_bytes_p
from tests.protocols.garbling.circuits import greater
from tests.protocols.joint.two_ends import BASES, NAME, Ends

Programs = Callable[[int, Randomness], Program]

SCALE = Fraction(2)
NOISE = JointLaplace.spending(SCALE, Fraction(1), 2.0**-40, 1024)


def drawing(count: int, field: Field | None = None, noise: JointLaplace = NOISE) -> Programs:
    def program(index: int, randomness: Randomness) -> Program:
        return draw_noise(noise, count, randomness, index, field)

    return program


SPOKEN = [0, 1, 2, 3, 4, 6, 7, 8]
"""Of ten messages, the two between say nothing."""


def noises(ours: NDArray[np.uint64], theirs: NDArray[np.uint64]) -> NDArray[np.int64]:
    return (ours + theirs).view(np.int64)


def test_noise_is_discrete_laplace_and_each_share_uniform() -> None:
    """n = 3000, alpha 1e-9 each."""
    cheap = JointLaplace(SCALE, 6, 24)  # within 2^-18 of the law: n = 3000 cannot tell
    ends = Ends(drawing(3000, noise=cheap))
    ours, theirs = ends.run()
    found = noises(ours, theirs)
    support = np.arange(-40, 41)
    assert fits(found, support, discrete_laplace_pmf(support, float(SCALE))) > ALPHA
    assert uniform_bytes_p(ours.tobytes()) > ALPHA
    assert uniform_bytes_p(theirs.tobytes()) > ALPHA


def test_halved_noise_would_be_seen() -> None:
    cheap = JointLaplace(SCALE / 2, 6, 24)
    found = noises(*Ends(drawing(3000, noise=cheap)).run())
    support = np.arange(-40, 41)
    assert fits(found, support, discrete_laplace_pmf(support, float(SCALE))) < ALPHA


@pytest.mark.parametrize("field", [FIELD64, FIELD128], ids=repr)
def test_noise_in_a_field_is_the_same_noise(field: Field) -> None:
    expected = noises(*Ends(drawing(40)).run())
    ours, theirs = Ends(drawing(40, field)).run()
    values = field.to_ints(field.add(ours, theirs))
    half = field.modulus // 2
    assert [int(v) - field.modulus * (v > half) for v in values] == expected.tolist()
    assert field.canonical(ours).all()
    assert field.canonical(theirs).all()
    assert len(np.unique(ours[..., 0])) == 40


def test_base_transfers_are_made_once_and_runs_are_independent() -> None:
    first = Ends(drawing(30))
    a = noises(*first.run())
    names = (Name(b"another run", "a program"),) * 2
    second = Ends(drawing(30), seed=2, bases=first.bases, names=names)
    b = noises(*second.run())
    assert [bases.made for bases in first.bases] == [2, 2]  # one for each that garbles
    assert second.sent[1].tolist() == first.sent[1].tolist()  # the same reply
    assert not np.array_equal(a, b)
    third = Ends(drawing(30), names=names)
    third.run()
    # One program under two names: no two bytes of requests or tables agree but by chance.
    alike = np.mean(first.sent[2] == third.sent[2])
    assert alike < 0.1


@dataclass(frozen=True, repr=False)
class Nothing(UncheckedIntegers):
    """What a liar garbles: noise that weighs nothing. It passes for the honest form."""

    def __repr__(self) -> str:
        return repr(UncheckedIntegers(self.words))

    def weights(self, wires: int) -> Vector | None:
        return np.zeros(wires, dtype=np.uint64)


def without_noise(program: Program) -> Program:
    asked = next(program)
    while True:
        if isinstance(asked, BothWays):
            asked = asked._replace(form=Nothing(NOISE.words))
        shares = yield asked
        try:
            asked = program.send(shares)
        except StopIteration as over:
            return over.value


@pytest.mark.parametrize("liar", [0, 1])
def test_a_server_that_garbles_no_noise_is_caught(liar: int) -> None:
    """In all of 40 runs of 20 noises: it goes unnoticed where all are 0 anyway, once in 10^12 runs,
    and then they are as they should be."""

    def programs(index: int, randomness: Randomness) -> Program:
        honest = draw_noise(NOISE, 20, randomness, index)
        return without_noise(honest) if index == liar else honest

    for seed in range(40):
        ends = Ends(programs, seed, BASES)
        with pytest.raises(PeerError, match="came out differently"):
            ends.run()
        assert not ends.ends[1 - liar].done


@pytest.mark.parametrize("liar", [0, 1])
def test_a_server_that_was_found_out_is_not_met_again(liar: int) -> None:
    """Otherwise it would garble 0 for a noise until that noise is 0: a few runs, which cost
    nobody any ε, and the analyst has the exact count. An honest computation fails as well then,
    with a reason, at the server that found out."""

    def programs(index: int, randomness: Randomness) -> Program:
        honest = draw_noise(NOISE, 20, randomness, index)
        return without_noise(honest) if index == liar else honest

    ends = Ends(programs)
    with pytest.raises(PeerError, match="came out differently"):
        ends.run()
    again = Ends(drawing(2), 2, bases=ends.bases, names=(Name(b"next", ""),) * 2)
    with pytest.raises(PeerError, match="garbled otherwise than it must in an earlier run"):
        again.run()


@pytest.mark.parametrize("who", [0, 1], ids=["the garbler sees", "the evaluator sees"])
def test_neither_view_depends_on_the_others_input(who: int) -> None:
    """2000 comparisons of one bit: what one end receives and the share it gets, byte by byte, have
    one law whether the other's input is 0 or 1. alpha 1e-9 each."""
    views = []
    for secret in (0, 1):
        inputs = (1, secret) if who == 0 else (secret, 1)
        ends = Ends(_comparing(*inputs, 2000), seed=5 + secret)
        shares = ends.run()[who]
        received = ends.sent[2] if who == 0 else ends.sent[3]
        views.append((received[8:], shares.view(np.uint8).ravel()))
    for seen, other in zip(*views, strict=True):
        counts = [np.bincount(each.ravel(), minlength=256) for each in (seen, other)]
        assert stats.chi2_contingency(counts).pvalue > ALPHA
        # Nor do two bytes together tell what each of them does not.
        pairs = [np.bincount((e[:-1] ^ e[1:]).ravel(), minlength=256) for e in (seen, other)]
        assert stats.chi2_contingency(pairs).pvalue > ALPHA


def _comparing(garbler: int, evaluator: int, instances: int) -> Programs:
    def program(index: int, _: Randomness) -> Program:
        value = garbler if index == 0 else evaluator
        bits = np.full((instances, 1), value, dtype=np.uint8)
        shares = yield Task(greater(1), IntegerShares(((1, False),)), bits)
        return shares

    return program


def test_shares_of_one_task_are_inputs_of_the_next() -> None:
    """(a > b) as XOR shares, then compared again: I[x] > I[0]."""
    rng = np.random.default_rng(3)
    values = rng.integers(0, 2, (2, 50, 8), dtype=np.uint8)

    def program(index: int, _: Randomness) -> Program:
        shares = yield Task(greater(8), OutputShares.XOR, values[index])
        again = yield Task(greater(1), OutputShares.XOR, shares.astype(np.uint8))
        return shares, again

    (first, second), (others, more) = Ends(program).run()
    a, b = (np.packbits(v, axis=1, bitorder="little")[:, 0] for v in values)
    assert ((first ^ others)[:, 0] == (a > b)).all()
    expected = (first[:, 0] > others[:, 0]).astype(np.uint64)  # of the shares, in the clear
    assert ((second ^ more)[:, 0] == expected).all()


@pytest.mark.parametrize("step", SPOKEN)
def test_a_byte_that_is_changed_is_noticed_in_whatever_message(step: int) -> None:
    ends = Ends(drawing(2))
    places = np.random.default_rng(step)

    def change(number: int, body: Bytes) -> Bytes:
        if number == step:
            body[int(places.integers(4, body.size))] ^= 1
        return body

    with pytest.raises(PeerError):
        ends.run(change)


@pytest.mark.parametrize("cut", [0, 3, 4, 19, -1])
@pytest.mark.parametrize("step", SPOKEN)
def test_what_is_cut_off_or_too_long_is_refused(step: int, cut: int) -> None:
    ends = Ends(drawing(2))

    def change(number: int, body: Bytes) -> Bytes:
        if number != step:
            return body
        return np.append(body, np.uint8(0)) if cut < 0 else body[:cut]

    with pytest.raises(PeerError):
        ends.run(change)


def test_what_was_taken_is_taken_again_silently_and_nothing_else_is() -> None:
    ends = Ends(drawing(2))
    ends.run()
    garbler, evaluator = ends.ends
    for number, body in enumerate(ends.sent):
        receiver = garbler if number % 2 == 0 else evaluator
        assert receiver.take(body) is None
        other = np.append(body, np.uint8(1))
        with pytest.raises(PeerError, match="twice, differently"):
            receiver.take(other)
    with pytest.raises(PeerError, match="out of turn"):
        garbler.take(np.array([9, 0, 0, 0, 1], dtype=np.uint8))


def test_a_server_of_another_version_or_program_is_named_as_such() -> None:
    others = Name(NAME.run, "another program")
    with pytest.raises(PeerError, match="its version is another"):
        Ends(drawing(2), names=(NAME, others)).run()

    def older(number: int, body: Bytes) -> Bytes:
        if number == 0:
            body[4] = 0
        return body

    with pytest.raises(PeerError, match="does not speak version 3"):
        Ends(drawing(2)).run(older)


@pytest.mark.parametrize("number", [2, 3], ids=["server 1", "server 0, where 1 garbles"])
def test_an_evaluator_that_is_caught_is_not_met_again(number: int) -> None:
    """It guessed at bits of Δ, which is the same in every run."""
    ends = Ends(drawing(2))
    request = BatchShape(NOISE.circuit, UncheckedIntegers(NOISE.words), 2).request_bytes

    def guess(at: int, body: Bytes) -> Bytes:
        if at == number:
            start = body.size - request + NUMBER_BYTES
            body[start : start + 16] ^= 0xFF  # a column that holds other choices
        return body

    with pytest.raises(PeerError, match="inconsistent"):
        ends.run(guess)
    again = Ends(drawing(2), bases=ends.bases, names=(Name(b"next", ""),) * 2)
    with pytest.raises(PeerError, match="was caught"):
        again.run()
