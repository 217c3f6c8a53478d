"""Whole sessions: right shares, few bytes, links that do not mix, and no wrong byte accepted."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from coincurve import PublicKey

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.garbling import native
from tallyroom.protocols.garbling.batch import MOST_HASHES, answer_bytes
from tallyroom.protocols.garbling.circuit import AND, Circuit
from tallyroom.protocols.garbling.ot_extension import bits_of
from tallyroom.protocols.garbling.outputs import OutputShares
from tallyroom.protocols.garbling.session import Evaluator, Garbler
from tallyroom.protocols.randomness import Randomness
from tests.protocols.garbling.circuits import clear, greater, random_circuit
from tests.protocols.pairwise.dealing import dealt, opened, random_bits, random_bytes

CIRCUIT = greater(32)


def numbered(*links: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(links, dtype=np.uint64)


def batch(
    sides: tuple[Evaluator, Garbler],
    circuit: Circuit,
    x: Bytes,
    y: Bytes,
    output: OutputShares = OutputShares.XOR,
) -> tuple[Bytes, Bytes, Vector, Vector]:
    """Request, answer, and both sides' shares."""
    evaluator, garbler = sides
    request = evaluator.request(circuit, y, output)
    answer = garbler.answer(circuit, x, request, output)
    return request, answer.rows, answer.shares, evaluator.finish(answer.rows)


@pytest.mark.parametrize("pure", [False, True], ids=["native", "twin"])
def test_a_cold_link_then_warm_batches_of_every_output(
    pure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pure:
        monkeypatch.setattr(native, "instruction_set", lambda: None)
    sides = opened(numbered(3, 8), 1)
    for number, (instances, output) in enumerate(
        [
            (1, OutputShares.XOR),
            (5, OutputShares.UNSIGNED),
            (2, OutputShares.SIGNED),
            (9, OutputShares.XOR),
        ]
    ):
        circuit = random_circuit(number, 5, 6, 50, 7)
        x, y = random_bits(number, 2, instances, 5), random_bits(50 + number, 2, instances, 6)
        _, rows, ours, theirs = batch(sides, circuit, x, y, output)
        assert rows.shape == (2, answer_bytes(circuit, output, instances))
        bits = clear(circuit, x, y)
        if output is OutputShares.XOR:
            assert np.array_equal(ours ^ theirs, bits)
            continue
        weights = 1 << np.arange(7)
        weights[-1] *= -1 if output is OutputShares.SIGNED else 1
        assert np.array_equal((ours + theirs).view(np.int64), (bits * weights).sum(axis=2))


def test_the_bytes_of_a_comparison() -> None:
    link = numbered(1)
    evaluator = Evaluator(link, Randomness.from_seed(1, "evaluator"))
    garbler = Garbler(link, Randomness.from_seed(1, "garbler"))
    points = evaluator.open()
    answers = garbler.reply(points)
    evaluator.accept(answers)
    x, y = random_bits(1, 1, 1, 32), random_bits(2, 1, 1, 32)
    request, rows, _, _ = batch((evaluator, garbler), CIRCUIT, x, y)
    cold = points.nbytes + answers.nbytes + request.nbytes + rows.nbytes
    check = 128 * 16 + 48
    assert cold == 33 + (128 * 33 + 96) + (4 + 512 + check) + (16 + 1024 + 8 + 16) == 8029

    x, y = random_bits(3, 1, 10_000, 32), random_bits(4, 1, 10_000, 32)
    request, rows, ours, theirs = batch((evaluator, garbler), CIRCUIT, x, y, OutputShares.UNSIGNED)
    assert request.nbytes + rows.nbytes == 10_000 * (512 + 1024 + 16) + 36 + check
    assert np.array_equal(ours + theirs, clear(CIRCUIT, x, y)[..., 0])
    assert answer_bytes(CIRCUIT, OutputShares.XOR, 1) == 1064


def test_a_batch_of_links_is_its_links_one_by_one() -> None:
    links = numbered(70, 2, 500)
    x, y = random_bits(1, 3, 4, 32), random_bits(2, 3, 4, 32)

    def transcript(chosen: slice) -> list[Bytes | Vector]:
        evaluator = Evaluator(links[chosen], Randomness.from_seed(1, "evaluator"))
        garbler = Garbler(links[chosen], Randomness.from_seed(1, "garbler"))
        points = evaluator.open()
        answers = garbler.reply(points)
        evaluator.accept(answers)
        first = batch((evaluator, garbler), CIRCUIT, x[chosen], y[chosen])
        second = batch((evaluator, garbler), CIRCUIT, x[chosen], y[chosen], OutputShares.SIGNED)
        return [points, answers, *first, *second]

    together = transcript(slice(0, 3))
    for link in range(3):
        for ours, theirs in zip(transcript(slice(link, link + 1)), together, strict=True):
            assert np.array_equal(ours[0], theirs[link])


def test_links_and_batches_have_their_own_secrets() -> None:
    """The same inputs again, on every link and in every batch: no block of bytes comes twice."""
    sides = dealt(np.arange(50, dtype=np.uint64), 1)
    x, y = np.zeros((50, 2, 32), dtype=np.uint8), np.ones((50, 2, 32), dtype=np.uint8)
    blocks = []
    for _ in range(3):
        request, rows, _, _ = batch(sides, CIRCUIT, x, y)
        for data in (request[:, 4:], rows[:, :-8]):
            whole = data[:, : data.shape[1] // 16 * 16].reshape(-1, 16)
            blocks += [block.tobytes() for block in whole]
    assert len(set(blocks)) == len(blocks)


def test_every_flipped_bit_of_an_answer_is_refused() -> None:
    """Used by the evaluator or not: one bit of every byte; then the right answer passes."""
    evaluator, garbler = dealt(numbered(5, 6), 3)
    x, y = random_bits(1, 2, 2, 4), random_bits(2, 2, 2, 4)
    circuit = greater(4)
    request = evaluator.request(circuit, y, OutputShares.SIGNED)
    answer = garbler.answer(circuit, x, request, OutputShares.SIGNED)
    for index in range(answer.rows.shape[1]):
        rows = answer.rows.copy()
        rows[1, index] ^= 1 << (index % 8)
        with pytest.raises(PeerError, match="digest") as refused:
            evaluator.finish(rows)
        assert refused.value.sender == "link 6"
    shares = answer.shares + evaluator.finish(answer.rows)
    assert np.array_equal(-shares, clear(circuit, x, y)[..., 0])


def test_every_flipped_column_of_a_request_is_refused() -> None:
    """One link a column of u, a bit flipped in each: also where the garbler's bit of Δ ignores it,
    for the columns are checked at a point that follows from all of them. A link whose choices were
    inconsistent is closed: the right request does not open it again."""
    circuit = greater(8)
    count = 128
    evaluator, garbler = dealt(np.arange(count, dtype=np.uint64), 4)
    x, y = random_bits(1, count, 1, 8), random_bits(2, count, 1, 8)
    request = evaluator.request(circuit, y)
    assert request.shape[1] == 4 + 17 * count + 48
    wrong = request.copy()
    wrong[np.arange(count - 1), 4 + 17 * np.arange(count - 1)] ^= 16
    with pytest.raises(PeerError, match="links 0, 1, 2 and 124 more: choices that are incon"):
        garbler.answer(circuit, x, wrong)
    with pytest.raises(PeerError, match="links 0, 1, 2 and 124 more: a link that was closed"):
        garbler.answer(circuit, x, request)
    alone = garbler.part(np.array([3], dtype=np.uint64))
    with pytest.raises(PeerError, match="link 3: a link that was closed"):
        alone.answer(circuit, x[3:4], request[3:4])
    for side in (garbler, evaluator):
        side.drop(np.arange(count - 1, dtype=np.uint64))
    answer = garbler.answer(circuit, x[-1:], request[-1:])
    share = evaluator.finish(answer.rows)
    assert np.array_equal(share ^ answer.shares, clear(circuit, x, y)[-1:])


@pytest.mark.parametrize("message", ["opening", "reply"])
def test_a_changed_point_is_refused_at_once_or_by_the_first_check(message: str) -> None:
    """Link 1 gets another point of the curve, link 2 bytes that are none; link 0 goes on. An A is
    anybody's; a B comes with a proof."""
    links = numbered(0, 1, 2)
    evaluator = Evaluator(links, Randomness.from_seed(5, "evaluator"))
    garbler = Garbler(links, Randomness.from_seed(5, "garbler"))

    def changed(rows: Bytes) -> Bytes:
        wrong = rows.copy()
        wrong[2 if message == "reply" else 1, 0] ^= 1  # −P for P
        wrong[1 if message == "reply" else 2, :33] = [2, *bytes(31), 5]  # no point has x = 5
        return wrong

    points = evaluator.open()
    x = random_bits(1, 3, 1, 32)
    if message == "reply":
        rows = changed(garbler.reply(points))
        for link, reason in ((1, "bytes that are no point of the curve"), (2, "without a proof")):
            with pytest.raises(PeerError, match=f"link {link}: .*{reason}"):
                evaluator.accept(rows)
            rows = np.delete(rows, 1, axis=0)
            for side in (evaluator, garbler):
                side.drop(links[link : link + 1])
        evaluator.accept(rows)
    else:
        rows = changed(points)
        with pytest.raises(PeerError, match="link 2: bytes that are no point of the curve"):
            garbler.reply(rows)
        for side in (evaluator, garbler):
            side.drop(links[2:])
        answers = garbler.reply(rows[:2])
        with pytest.raises(PeerError, match=r"link 1: .*without a proof"):
            evaluator.accept(answers)
        for side in (evaluator, garbler):
            side.drop(links[1:])
        evaluator.accept(answers[:1])
    answer = garbler.answer(CIRCUIT, x[:1], evaluator.request(CIRCUIT, x[:1]))
    share = evaluator.finish(answer.rows)
    assert np.array_equal(share ^ answer.shares, clear(CIRCUIT, x[:1], x[:1]))


def test_truncated_and_overlong_rows_are_refused_by_link() -> None:
    links = numbered(11, 12, 13, 14)
    evaluator = Evaluator(links, Randomness.from_seed(6, "evaluator"))
    garbler = Garbler(links, Randomness.from_seed(6, "garbler"))
    x = random_bits(1, 4, 2, 32)

    def refused(call: Callable[[Bytes], object], rows: Bytes) -> None:
        longer = np.hstack([rows, rows[:, :1]])
        for wrong in (rows[:, :-1], rows[:, :0], longer):
            with pytest.raises(PeerError, match=r"links 11, 12, 13 and 1 more: .* bytes, not"):
                call(wrong)
        others: list[Any] = [rows[:3], rows[0], rows.astype(np.uint16)]
        for other in others:
            with pytest.raises(LocalError, match="one row of bytes"):
                call(other)

    points = evaluator.open()
    refused(garbler.reply, points)
    answers = garbler.reply(points)
    refused(evaluator.accept, answers)
    evaluator.accept(answers)
    request = evaluator.request(CIRCUIT, x)
    refused(lambda rows: garbler.answer(CIRCUIT, x, rows), request)
    answer = garbler.answer(CIRCUIT, x, request)
    refused(evaluator.finish, answer.rows)
    assert not (answer.shares ^ evaluator.finish(answer.rows)).any()


def test_replayed_messages_are_refused() -> None:
    evaluator, garbler = dealt(numbered(1, 2), 7)
    x, y = random_bits(1, 2, 1, 32), random_bits(2, 2, 1, 32)
    request, rows, _, _ = batch((evaluator, garbler), CIRCUIT, x, y)
    with pytest.raises(PeerError, match="links 1, 2: a request that is not of batch 1"):
        garbler.answer(CIRCUIT, x, request)
    second = evaluator.request(CIRCUIT, y)
    mixed = np.vstack([second[:1], request[1:]])
    with pytest.raises(PeerError, match="link 2: a request that is not of batch 1"):
        garbler.answer(CIRCUIT, x, mixed)
    with pytest.raises(PeerError, match="digest"):
        evaluator.finish(rows)
    answer = garbler.answer(CIRCUIT, x, second)
    with pytest.raises(PeerError, match="links 1, 2: an answer that does not fit"):
        evaluator.finish(answer.rows[::-1])  # each other's answers
    assert np.array_equal(answer.shares ^ evaluator.finish(answer.rows), clear(CIRCUIT, x, y))


def test_a_garbler_started_anew_gives_a_new_peer_nothing_to_compare() -> None:
    """From the same randomness, and asked with another A. Were B_i = b_i·G + c_i·A with the same
    b_i, two answers would differ by A' − A where Δ has a 1, and not at all where it has a 0."""
    link = numbered(7)
    points = [Evaluator(link, Randomness.from_seed(seed, "e")).open() for seed in (1, 2)]
    garblers = [Garbler(link, Randomness.from_seed(1, "garbler")) for _ in range(3)]
    asked = (points[0], points[1], points[0])
    one, other, again = (
        g.reply(a)[:, :-96].reshape(128, 33) for g, a in zip(garblers, asked, strict=True)
    )
    assert np.array_equal(one, again)  # and what was asked before is answered as before
    a, b = (PublicKey(point[0].tobytes()) for point in points)
    minus_a = PublicKey(bytes([a.format()[0] ^ 1]) + a.format()[1:])
    for before, after in zip(one, other, strict=True):
        moved = PublicKey.combine_keys([PublicKey(before.tobytes()), b, minus_a]).format()
        assert after.tobytes() not in (before.tobytes(), moved)
    deltas = [bits_of(garbler._sender.deltas) for garbler in garblers if garbler._sender]
    assert np.array_equal(deltas[0], deltas[2])
    assert 20 < np.count_nonzero(deltas[0] != deltas[1]) < 108


def test_a_garbler_started_anew_garbles_other_words_with_another_seed() -> None:
    """Whatever differs, the request or its own bits; the same again gives the same bytes."""
    circuit = greater(4)
    x, y = random_bits(1, 1, 2, 4), random_bits(2, 1, 2, 4)

    def answer(x: Bytes, y: Bytes) -> Bytes:
        return batch(dealt(numbered(5), 3), circuit, x, y)[1]

    whole = answer(x, y)
    assert np.array_equal(answer(x, y), whole)
    one = np.uint8(1)
    for other in (answer(x ^ one, y), answer(x, y ^ one)):
        assert not np.array_equal(other[:, :16], whole[:, :16])


def test_a_link_under_another_number_is_refused() -> None:
    evaluator, garbler = dealt(numbered(5), 3)
    _, elsewhere = dealt(numbered(6), 3)
    x, y = random_bits(1, 1, 1, 32), random_bits(2, 1, 1, 32)
    request = evaluator.request(CIRCUIT, y)
    with pytest.raises(PeerError, match="link 6: choices that are inconsistent"):
        elsewhere.answer(CIRCUIT, x, request)
    evaluator.finish(garbler.answer(CIRCUIT, x, request).rows)


def test_another_circuit_of_the_same_size_is_refused() -> None:
    """NOT of a wire and the wire have the same labels: the check is bound to the circuit."""
    outputs = np.array([2], dtype=np.uint32)
    gates = np.array([[2, 0, 0], [AND, 2, 1]], dtype=np.uint32)
    circuit = Circuit(1, 1, gates, outputs + 1)
    other = Circuit(1, 1, np.array([[2, 1, 1], [AND, 2, 0]], dtype=np.uint32), outputs + 1)
    evaluator, garbler = dealt(numbered(1), 8)
    bit = np.ones((1, 1, 1), dtype=np.uint8)
    with pytest.raises(PeerError, match="inconsistent"):
        garbler.answer(other, bit, evaluator.request(circuit, bit))
    assert circuit.ands == other.ands


def test_unsigned_is_not_mistaken_for_signed() -> None:
    evaluator, garbler = dealt(numbered(1), 9)
    x = random_bits(1, 1, 1, 32)
    request = evaluator.request(CIRCUIT, x, OutputShares.SIGNED)
    with pytest.raises(PeerError, match="inconsistent"):
        garbler.answer(CIRCUIT, x, request, OutputShares.UNSIGNED)


def test_steps_out_of_turn_are_refused() -> None:
    evaluator = Evaluator(numbered(1), Randomness.from_seed(1, "evaluator"))
    garbler = Garbler(numbered(1), Randomness.from_seed(1, "garbler"))
    x, some = random_bits(1, 1, 1, 32), random_bytes(1, 1, 33)
    for early in (
        lambda: evaluator.accept(some),
        lambda: evaluator.request(CIRCUIT, x),
        lambda: evaluator.finish(some),
        lambda: garbler.answer(CIRCUIT, x, some),
    ):
        with pytest.raises(LocalError):
            early()
    points = evaluator.open()
    answers = garbler.reply(points)
    evaluator.accept(answers)
    request = evaluator.request(CIRCUIT, x)
    for late in (
        evaluator.open,
        lambda: evaluator.accept(answers),
        lambda: garbler.reply(points),
        lambda: evaluator.request(CIRCUIT, x),
    ):
        with pytest.raises(LocalError):
            late()
    evaluator.finish(garbler.answer(CIRCUIT, x, request).rows)
    with pytest.raises(LocalError):
        evaluator.finish(some)


def test_our_own_mistakes_are_refused_before_anything_is_sent() -> None:
    evaluator, _ = dealt(numbered(1, 2), 1)
    good = random_bits(1, 2, 3, 32)
    wrongs: list[Any] = [good[:1], good[0], good[..., :31], good[:, :0]]
    wrongs += [good + np.uint8(2), good.astype(np.int64)]
    for wrong in wrongs:
        with pytest.raises(LocalError):
            evaluator.request(CIRCUIT, wrong)
    with pytest.raises(LocalError, match="64 bits"):
        evaluator.request(random_circuit(1, 1, 32, 5, 65), good, OutputShares.SIGNED)
    for links in (numbered(1, 1), np.array([1, 2]), numbered(1)[None]):
        with pytest.raises(LocalError, match="distinct"):
            Garbler(links, Randomness.from_seed(1, "garbler"))
    with pytest.raises(LocalError, match="at most"):
        answer_bytes(CIRCUIT, OutputShares.XOR, MOST_HASHES // 65 + 1)
    evaluator.request(CIRCUIT, good.astype(bool))


def test_circuits_without_inputs_of_one_side() -> None:
    for garbler_inputs, evaluator_inputs in ((0, 3), (3, 0)):
        circuit = random_circuit(1, garbler_inputs, evaluator_inputs, 20, 4)
        x, y = random_bits(1, 2, 3, garbler_inputs), random_bits(2, 2, 3, evaluator_inputs)
        _, _, ours, theirs = batch(dealt(numbered(1, 2), 1), circuit, x, y)
        assert np.array_equal(ours ^ theirs, clear(circuit, x, y))


def test_many_sessions_of_many_links() -> None:
    for seed in range(3):
        sides = dealt(np.arange(400, dtype=np.uint64), seed)
        for number in range(2):
            x, y = random_bits(number, 400, 1, 32), random_bits(9 + number, 400, 1, 32)
            _, _, ours, theirs = batch(sides, CIRCUIT, x, y, OutputShares.UNSIGNED)
            assert np.array_equal(ours + theirs, clear(CIRCUIT, x, y)[..., 0])


def test_secrets_do_not_show() -> None:
    evaluator, garbler = dealt(numbered(1, 2), 1)
    x = random_bits(1, 2, 1, 32)
    answer = garbler.answer(CIRCUIT, x, evaluator.request(CIRCUIT, x))
    shown = (repr(evaluator), repr(garbler), repr(answer))
    assert shown == ("<Evaluator of 2 links>", "<Garbler of 2 links>", "<GarblerAnswer>")
