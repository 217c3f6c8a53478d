"""The receiver gets the key that it chose and not the other; points that are none are refused."""

import numpy as np
import pytest
from coincurve import PrivateKey, PublicKey

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.garbling import base_ot
from tallyroom.protocols.garbling.links import Links
from tallyroom.protocols.randomness import Randomness
from tests.goodness import ALPHA, uniform_bytes_p
from tests.protocols.pairwise.dealing import random_bits

LINKS = np.array([4, 90, 7], dtype=np.uint64)
# x = 5 is on no point of secp256k1; the field's prime is no number below itself.
OFF_CURVE = bytes([2]) + (5).to_bytes(32, "big")
TOO_LARGE = bytes([3]) + (2**256 - 2**32 - 977).to_bytes(32, "big")
INFINITY = bytes(33)


def scalars(links: Links, seed: int = 1) -> tuple[Bytes, Bytes]:
    return (
        base_ot.draw_scalars(Randomness.from_seed(seed, "sender"), "a", links, 1),
        base_ot.draw_scalars(Randomness.from_seed(seed, "receiver"), "b", links, 130),
    )


@pytest.fixture(scope="module")
def transfer() -> tuple[Bytes, Bytes, Bytes, Bytes, Bytes]:
    """A, B, choices, the receiver's keys and the sender's."""
    a, b = scalars(LINKS)
    choices = random_bits(5, 3, 128)
    points = base_ot.sender_points(a)
    answers, keys = base_ot.receiver_points(LINKS, points, choices, b)
    return points, answers, choices, keys, base_ot.sender_keys(LINKS, a, answers)


Transfer = tuple[Bytes, Bytes, Bytes, Bytes, Bytes]


def test_the_receiver_has_the_key_it_chose_and_no_other(transfer: Transfer) -> None:
    points, answers, choices, keys, pairs = transfer
    assert points.shape == (3, 33)
    assert answers.shape == (3, 128 * 33 + 96)
    chosen = np.take_along_axis(pairs, choices[:, :, None, None].astype(np.intp), axis=2)[:, :, 0]
    assert np.array_equal(chosen, keys)
    assert len({key.tobytes() for key in pairs.reshape(-1, 16)}) == 3 * 128 * 2
    assert uniform_bytes_p(pairs.tobytes()) > ALPHA


def test_a_batch_is_its_links_one_by_one(transfer: Transfer) -> None:
    points, answers, choices, keys, pairs = transfer
    a, b = scalars(LINKS[1:2])
    one = slice(1, 2)
    assert np.array_equal(base_ot.sender_points(a), points[one])
    again, again_keys = base_ot.receiver_points(LINKS[one], points[one], choices[one], b)
    assert np.array_equal(again, answers[one])
    assert np.array_equal(again_keys, keys[one])
    assert np.array_equal(base_ot.sender_keys(LINKS[one], a, answers[one]), pairs[one])


def test_choices_move_a_point_by_a(transfer: Transfer) -> None:
    """B is b·G or b·G + A, both uniform as b is: what the choice's secrecy rests on."""
    points, answers, choices, _, _ = transfer
    _, b = scalars(LINKS)
    for index in range(128):
        plain = PublicKey.from_secret(b[0, index].tobytes())
        moved = PublicKey.combine_keys([plain, PublicKey(points[0].tobytes())])
        expected = moved if choices[0, index] else plain
        assert answers[0, 33 * index : 33 * index + 33].tobytes() == expected.format()
    assert {0, 1} == set(choices[0].tolist())


def test_keys_are_bound_to_their_place_among_the_transfers() -> None:
    """A receiver that sends one point twice does not have one key for both."""
    a, b = scalars(LINKS[:1])
    b[:, 1] = b[:, 0]
    points = base_ot.sender_points(a)
    choices = np.zeros((1, 128), dtype=np.uint8)
    answers, keys = base_ot.receiver_points(LINKS[:1], points, choices, b)
    assert answers[0, :33].tobytes() == answers[0, 33:66].tobytes()
    assert keys[0, 0].tobytes() != keys[0, 1].tobytes()


def test_scalars_are_distinct_and_in_range() -> None:
    drawn = scalars(LINKS)[1].reshape(-1, 32)
    numbers = {int.from_bytes(row.tobytes(), "big") for row in drawn}
    assert len(numbers) == 390
    assert all(0 < number < base_ot._ORDER for number in numbers)


@pytest.mark.parametrize("wrong", [OFF_CURVE, TOO_LARGE, INFINITY, b"\x04" + bytes(32)])
def test_bytes_that_are_no_point_name_their_link(wrong: bytes, transfer: Transfer) -> None:
    points, answers, choices, _, _ = transfer
    a, b = scalars(LINKS)
    bad = points.copy()
    bad[0] = np.frombuffer(wrong, dtype=np.uint8)
    with pytest.raises(PeerError, match="point") as refused:
        base_ot.receiver_points(LINKS, bad, choices, b)
    assert refused.value.sender == "link 4"
    bad = answers.copy()
    bad[1, 33 * 77 : 33 * 78] = np.frombuffer(wrong, dtype=np.uint8)
    with pytest.raises(PeerError, match="point") as refused:
        base_ot.sender_keys(LINKS[1:2], a[1:2], bad[1:2])
    assert refused.value.sender == "link 90"


def reply_with(first: bytes) -> Bytes:
    """A reply to link 4 in which the first point is given, and proved as if c were 1 and b 0."""
    a, b = scalars(LINKS[:1])
    point = base_ot.sender_points(a)
    choices = random_bits(5, 1, 128)
    choices[0, 0] = 1
    reply, _ = base_ot.receiver_points(LINKS[:1], point, choices, b)
    encoded = [row.tobytes() for row in reply[0, : 128 * 33].reshape(128, 33)]
    encoded[0] = first
    known = b[0].copy()
    known[0] = 0
    proof = base_ot._prove(
        PublicKey(point[0].tobytes()), encoded, choices[0], known, PrivateKey(b[0, 0].tobytes())
    )
    rows: Bytes = np.frombuffer(b"".join([*encoded, proof]), dtype=np.uint8).reshape(1, -1)
    return rows


def test_our_own_point_sent_back_is_refused(transfer: Transfer) -> None:
    """B = A would make one key that of the point at infinity, which everybody knows. It can be
    proved: b is 0 and c is 1."""
    bad = reply_with(transfer[0][0].tobytes())
    with pytest.raises(PeerError, match="cancels") as refused:
        base_ot.sender_keys(LINKS[:1], scalars(LINKS)[0][:1], bad)
    assert refused.value.sender == "link 4"


def test_a_receiver_that_does_not_know_its_points_is_refused(transfer: Transfer) -> None:
    """A point of somebody else's, with the best proof that can be made without its secrets."""
    stranger = PublicKey.from_secret(bytes([7] * 32)).format()
    with pytest.raises(PeerError, match="without a proof"):
        base_ot.sender_keys(LINKS[:1], scalars(LINKS)[0][:1], reply_with(stranger))


@pytest.mark.parametrize("moved", ["points swapped", "other link", "zeros", "order"])
def test_a_proof_is_of_these_points_in_this_order_to_this_sender(
    moved: str, transfer: Transfer
) -> None:
    _, answers, _, _, _ = transfer
    bad = answers[:1].copy()
    match moved:
        case "points swapped":
            bad[0, :66] = np.roll(bad[0, :66], 33)
        case "other link":
            bad[0] = answers[1]
        case "zeros":
            bad[0, -96:] = 0
        case _:  # a number that is not below the order
            bad[0, -32:] = np.frombuffer(base_ot._ORDER.to_bytes(32, "big"), dtype=np.uint8)
    with pytest.raises(PeerError, match="without a proof") as refused:
        base_ot.sender_keys(LINKS[:1], scalars(LINKS)[0][:1], bad)
    assert refused.value.sender == "link 4"


@pytest.mark.parametrize("byte", range(33 * 128, 33 * 128 + 96, 5))
def test_every_byte_of_a_proof_counts(byte: int, transfer: Transfer) -> None:
    bad = transfer[1][:1].copy()
    bad[0, byte] ^= 1
    with pytest.raises(PeerError, match="without a proof"):
        base_ot.sender_keys(LINKS[:1], scalars(LINKS)[0][:1], bad)


def test_a_proof_is_the_equation_that_it_says(transfer: Transfer) -> None:
    """In numbers modulo the order, with the sender's secret known: z_b + a·z_c is
    s·(a + d) + Σ e_i·β_i where β_i = b_i + c_i·a is the logarithm of B_i."""
    _, answers, choices, _, _ = transfer
    a, b = (int_rows(rows[0]) for rows in scalars(LINKS))
    reply = answers[0].tobytes()
    first, z_b, z_c = reply[-96:-64], int_of(reply[-64:-32]), int_of(reply[-32:])
    encoded = [reply[33 * i : 33 * i + 33] for i in range(128)]
    own = PublicKey.from_secret(scalars(LINKS)[0][0, 0].tobytes()).format()
    e = base_ot._challenges(own, encoded, first)
    β = [b[i] + int(choices[0, i]) * a[0] for i in range(128)]
    d, s = b[128:]
    right = s * (a[0] + d) + sum(x * y for x, y in zip(e, β, strict=True))
    assert (z_b + a[0] * z_c - right) % base_ot._ORDER == 0
    assert len(set(e)) == 128


def int_of(data: bytes) -> int:
    return int.from_bytes(data, "big")


def int_rows(rows: Bytes) -> list[int]:
    return [int_of(row.tobytes()) for row in rows]
