"""Sessions without an extension: right shares, few bytes, and no wrong byte accepted."""

import numpy as np
import pytest

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.garbling import native
from tallyroom.protocols.garbling.direct_session import DirectEvaluator, DirectGarbler
from tallyroom.protocols.garbling.outputs import OutputShares
from tallyroom.protocols.randomness import Randomness
from tests.protocols.garbling.circuits import clear, greater, random_circuit
from tests.protocols.pairwise.dealing import random_bits

CIRCUIT = greater(4)


def links(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(numbers, dtype=np.uint64)


def sides(*numbers: int, seed: int = 1) -> tuple[DirectEvaluator, DirectGarbler]:
    evaluator = DirectEvaluator(links(*numbers), Randomness.from_seed(seed, "evaluator"))
    garbler = DirectGarbler(links(*numbers), Randomness.from_seed(seed, "garbler"))
    evaluator.accept(garbler.reply(evaluator.open()))
    return evaluator, garbler


@pytest.mark.parametrize("pure", [False, True], ids=["native", "twin"])
@pytest.mark.parametrize("output", [OutputShares.XOR, OutputShares.SIGNED])
def test_shares_are_right(
    pure: bool, output: OutputShares, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pure:
        monkeypatch.setattr(native, "instruction_set", lambda: None)
    circuit = random_circuit(3, 5, 6, 50, 7)
    evaluator, garbler = sides(3, 8)
    x, y = random_bits(1, 2, 3, 5), random_bits(2, 2, 3, 6)
    answer = garbler.answer(circuit, x, evaluator.request(circuit, y, output), output)
    shares = evaluator.finish(answer.rows)
    bits = clear(circuit, x, y)
    if output is OutputShares.XOR:
        assert np.array_equal(answer.shares ^ shares, bits)
    else:
        weights = np.array([1, 2, 4, 8, 16, 32, -64])
        assert np.array_equal((answer.shares + shares).view(np.int64), bits @ weights)


def test_links_do_not_mix_and_a_part_goes_on_by_itself() -> None:
    x, y = random_bits(1, 2, 1, 4), random_bits(2, 2, 1, 4)
    both = sides(3, 8)
    request = both[0].request(CIRCUIT, y)
    alone = sides(8)
    assert np.array_equal(alone[0].request(CIRCUIT, y[1:]), request[1:])
    parted = both[0].part(links(8)), both[1].part(links(8))
    answer = parted[1].answer(CIRCUIT, x[1:], request[1:])
    again = alone[1].answer(CIRCUIT, x[1:], request[1:])
    assert np.array_equal(answer.rows, again.rows)
    found = answer.shares ^ parted[0].finish(answer.rows)
    assert np.array_equal(found, clear(CIRCUIT, x, y)[1:])
    rest = both[1].answer(CIRCUIT, x[:1], request[:1])
    assert np.array_equal(rest.shares ^ both[0].finish(rest.rows), clear(CIRCUIT, x, y)[:1])


def test_it_takes_the_bytes_it_says() -> None:
    evaluator, garbler = sides(1)
    request = evaluator.request(CIRCUIT, random_bits(1, 1, 1, 4))
    answer = garbler.answer(CIRCUIT, random_bits(2, 1, 1, 4), request)
    assert request.shape[1] == 4 + 4 * 33 + 96
    # seed, a transfer a bit, two ciphertexts an AND, the output's check, digest
    assert answer.rows.shape[1] == 16 + 4 * 16 + CIRCUIT.ands * 32 + 8 + 16


@pytest.mark.parametrize("message", ["opening", "point", "request", "answer"])
def test_no_byte_can_be_changed(message: str) -> None:
    """Every byte of the request and the answer, one bit each; of the point, some."""
    y, x = random_bits(1, 1, 1, 4), random_bits(2, 1, 1, 4)

    def run(change: tuple[str, int] | None) -> None:
        evaluator = DirectEvaluator(links(1), Randomness.from_seed(1, "evaluator"))
        garbler = DirectGarbler(links(1), Randomness.from_seed(1, "garbler"))

        def on_the_way(name: str, rows: Bytes) -> Bytes:
            rows = rows.copy()
            if change is not None and change[0] == name:
                rows[0, change[1]] ^= 1
            return rows

        opening = on_the_way("opening", evaluator.open())
        evaluator.accept(on_the_way("point", garbler.reply(opening)))
        request = on_the_way("request", evaluator.request(CIRCUIT, y))
        evaluator.finish(on_the_way("answer", garbler.answer(CIRCUIT, x, request).rows))

    run(None)
    sizes = {
        "opening": 16,
        "point": 33,
        "request": 4 + 4 * 33 + 96,
        "answer": 16 + 64 + CIRCUIT.ands * 32 + 24,
    }
    step = {"opening": 5, "point": 5, "request": 7, "answer": 5}[message]
    for place in range(0, sizes[message], step):
        with pytest.raises(PeerError):
            run((message, place))


@pytest.mark.parametrize("cut", [0, 3, 100, -1])
def test_what_is_too_short_or_too_long_is_refused(cut: int) -> None:
    evaluator, garbler = sides(1)
    y, x = random_bits(1, 1, 1, 4), random_bits(2, 1, 1, 4)
    request = evaluator.request(CIRCUIT, y)

    def wrong(rows: Bytes) -> Bytes:
        return np.pad(rows, ((0, 0), (0, 1))) if cut < 0 else rows[:, :cut]

    with pytest.raises(PeerError):
        garbler.answer(CIRCUIT, x, wrong(request))
    answer = garbler.answer(CIRCUIT, x, request)
    with pytest.raises(PeerError):
        evaluator.finish(wrong(answer.rows))
    assert np.array_equal(answer.shares ^ evaluator.finish(answer.rows), clear(CIRCUIT, x, y))


def test_a_link_has_one_batch() -> None:
    """A second one would take the same transfers."""
    evaluator, garbler = sides(1)
    y, x = random_bits(1, 1, 1, 4), random_bits(2, 1, 1, 4)
    request = evaluator.request(CIRCUIT, y)
    with pytest.raises(LocalError):
        evaluator.request(CIRCUIT, y)
    garbler.answer(CIRCUIT, x, request)
    with pytest.raises(PeerError):
        garbler.answer(CIRCUIT, x, request)


def test_choices_without_a_proof_are_refused() -> None:
    """Points of unknown origin, which an evaluator could decide about later."""
    evaluator, garbler = sides(1)
    other = sides(1, seed=2)[0].request(CIRCUIT, random_bits(1, 1, 1, 4))
    with pytest.raises(PeerError, match="proof"):
        garbler.answer(CIRCUIT, random_bits(2, 1, 1, 4), other)
    assert evaluator.request(CIRCUIT, random_bits(1, 1, 1, 4)).shape == other.shape


def test_another_request_gets_an_independent_answer() -> None:
    """A garbler that is started anew meets another evaluator: no two labels under one Δ."""
    x = random_bits(2, 1, 1, 4)
    answers = []
    for bits in (0, 1):
        garbler = DirectGarbler(links(1), Randomness.from_seed(1, "garbler"))
        evaluator = DirectEvaluator(links(1), Randomness.from_seed(bits, "evaluator"))
        evaluator.accept(garbler.reply(evaluator.open()))
        y = np.full((1, 1, 4), bits, dtype=np.uint8)
        answers.append(garbler.answer(CIRCUIT, x, evaluator.request(CIRCUIT, y)).rows)
    assert np.mean(answers[0] == answers[1]) < 0.1
