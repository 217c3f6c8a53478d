"""Oblivious transfers of random keys from curve points: a link's extension starts from 128 of them,
and where an evaluator has few input bits, their labels go by as many (`direct_session`).

Chou and Orlandi, "The Simplest Protocol for Oblivious Transfer", LATINCRYPT 2015, on secp256k1.
The sender publishes A = aG. The receiver answers B_i = b_i·G + c_i·A and keeps H(b_i·A); the sender
has H(a·B_i) for choice 0 and H(a·(B_i − A)) for choice 1.

A malicious sender learns nothing of the choices: B_i is uniform whatever c_i is and whatever point
A is. A malicious receiver learns one key of a pair at most, by the Diffie–Hellman assumption and
SHA-256 as a random oracle: who knows both knows a·A. But as published, nothing makes the receiver
know what it chose: it may send points of unknown origin and decide later, so that no simulator can
tell what it asked for (Byali, Patra, Ravi, Sarkar, eprint 2017/1165; Genç, Iovino, Rial, eprint
2017/370). Here it proves that it knows b_i and c_i, for all transfers together. B_i is a Pedersen
commitment to c_i under G and A, and the proof is Schnorr's for a sum of openings:

    receiver: draws d, s; h = H(s·(A + d·G)); e_i = H(A, B, h, i), 128 bits
              sends h, z_b = s·d + Σ e_i·b_i, z_c = s + Σ e_i·c_i modulo the order
    sender:   h = H(z_b·G + z_c·A − Σ e_i·B_i)

Two proofs that differ in e_i alone give b_i and c_i, so the choices can be extracted by rewinding,
with a chance of 2^-128 to cheat a hash call; and (s·d, s) is uniform, so the proof tells nothing.
A c_i that is neither 0 nor 1 can be proved; it opens neither key. So: security against either side
deviating, stand-alone, in the random oracle model. Concurrent (UC) security is not claimed. Endemic
transfers (Masny and Rindal, CCS 2019) would give it, for twice the bytes and a third more time.
One A serves all transfers of a link, so keys are bound to their place as McQuoid, Rosulek and Roy
("Batching Base Oblivious Transfers", ASIACRYPT 2021) ask.

The group has prime order, and points are checked to be on the curve when they are read, so there is
no small subgroup to leak into. Secret scalars meet constant-time code only (`ecdh` and key
generation of libsecp256k1, and sums of numbers of one length): two of those for each transfer at
the sender, where one variable-time multiplication would do. It is for this that the proof's first
point is s·(A + d·G), which `ecdh` computes. What the sender checks is public.

Roles: the evaluator sends, because the garbler must choose the bits of Δ.
"""

import hashlib
from typing import Final

import numpy as np
from coincurve import PrivateKey, PublicKey

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.garbling.links import Links, names
from tallyroom.protocols.garbling.primitives import BLOCK_BYTES, COLUMNS
from tallyroom.protocols.randomness import Randomness

POINT_BYTES: Final = 33
SCALAR_BYTES: Final = 32
PROOF_BYTES: Final = 3 * SCALAR_BYTES
REPLY_BYTES: Final = COLUMNS * POINT_BYTES + PROOF_BYTES
"""What the receiver sends for an extension: points, and the proof that it knows its choices."""
PROOF_SCALARS: Final = 2
"""d and s of the proof, beside one scalar for each transfer."""
RECEIVER_SCALARS: Final = COLUMNS + PROOF_SCALARS
_ORDER: Final = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141
# 128 bits more than the order: a scalar is 2^-128 from uniform.
_DRAWN_BYTES: Final = 48
_USAGE_KEY: Final = b"tallyroom base ot v1 key"
_USAGE_SCALAR: Final = b"tallyroom base ot v1 scalar"
_USAGE_PROOF: Final = b"tallyroom base ot v1 proof"
_CHALLENGE_BYTES: Final = 16


def reply_bytes(transfers: int) -> int:
    """What the receiver of so many transfers sends."""
    return transfers * POINT_BYTES + PROOF_BYTES


def draw_scalars(randomness: Randomness, label: str, links: Links, count: int) -> Bytes:
    """(K, count, 32) secret scalars: a function of label and link alone."""
    drawn = randomness.rows(label, links, count * _DRAWN_BYTES)
    scalars = np.empty((len(links), count, SCALAR_BYTES), dtype=np.uint8)
    for row, numbers in zip(scalars, drawn.reshape(len(links), count, _DRAWN_BYTES), strict=True):
        for scalar, number in zip(row, numbers, strict=True):
            scalar[:] = _scalar(number.tobytes())
    return scalars


def bind_scalars(scalars: Bytes, points: Bytes) -> Bytes:
    """(K, count, 32) scalars that follow from these and from the link's A.

    A receiver that answered two points A with the same b_i would give its choices away: the two
    B_i differ by c_i times the difference of the points. That is how it would be if its machine
    were started anew from the same randomness, and its peer's from other.
    """
    bound = np.empty_like(scalars)
    for row, secrets, point in zip(bound, scalars, points, strict=True):
        for scalar, secret in zip(row, secrets, strict=True):
            data = _USAGE_SCALAR + secret.tobytes() + point.tobytes()
            scalar[:] = _scalar(hashlib.sha512(data).digest()[:_DRAWN_BYTES])
    return bound


def sender_points(scalars: Bytes) -> Bytes:
    """(K, 33): A for every link, from (K, 1, 32) scalars."""
    points = [PublicKey.from_valid_secret(row[0].tobytes()).format() for row in scalars]
    return _rows(points, POINT_BYTES)


def receiver_points(
    links: Links, points: Bytes, choices: Bytes, scalars: Bytes
) -> tuple[Bytes, Bytes]:
    """(K, 33n + 96) points B with their proof and (K, n, 16) keys, from A, (K, n) choices and
    (K, n + 2, 32) scalars.

    Raises PeerError if an A is no point of the curve.
    """
    replies, keys = [], []
    count = choices.shape[1]
    for link, row, chosen, secrets in zip(_each(links), points, choices, scalars, strict=True):
        a = _point(link, row.tobytes())
        a_formatted, a_long = a.format(), a.format(compressed=False)
        # One object for all scalars: making one computes two points that are not needed here.
        exchange = PrivateKey(secrets[0].tobytes())
        answers = []
        for index in range(count):
            exchange.secret = secrets[index].tobytes()
            public = PublicKey.from_valid_secret(exchange.secret)
            both = (public, PublicKey.combine_keys([public, a]))
            answer = both[int(chosen[index])].format()
            answers.append(answer)
            keys.append(_key(a_formatted, answer, index, exchange.ecdh(a_long)))
        replies.append(b"".join([*answers, _prove(a, answers, chosen, secrets, exchange)]))
    blocks = _rows(keys, BLOCK_BYTES).reshape(len(links), count, BLOCK_BYTES)
    return _rows(replies, reply_bytes(count)), blocks


def sender_keys(links: Links, scalars: Bytes, answers: Bytes) -> Bytes:
    """(K, n, 2, 16): both keys of every transfer, from the receiver's reply.

    Raises PeerError if a B is no point of the curve, or is A itself, or if the proof is none.
    """
    keys = []
    for link, scalar, row in zip(_each(links), scalars, answers, strict=True):
        secret = PrivateKey(scalar[0].tobytes())
        a = secret.public_key.format()
        minus_a = _negative(secret.public_key)
        points, proof = row[:-PROOF_BYTES], row[-PROOF_BYTES:].tobytes()
        encoded = [point.tobytes() for point in points.reshape(-1, POINT_BYTES)]
        parsed = [_point(link, answer) for answer in encoded]
        if not _verify(secret.public_key, encoded, parsed, proof):
            raise PeerError(names(link), "points without a proof that their sender knows them")
        for index, (answer, b) in enumerate(zip(encoded, parsed, strict=True)):
            try:
                shifted = PublicKey.combine_keys([b, minus_a])
            except ValueError:
                raise PeerError(names(link), "a point that cancels ours") from None
            for point in (b, shifted):
                shared = secret.ecdh(point.format(compressed=False))
                keys.append(_key(a, answer, index, shared))
    return _rows(keys, BLOCK_BYTES).reshape(len(links), -1, 2, BLOCK_BYTES)


def opened_key(point: bytes, answer: bytes, index: int, scalar: bytes) -> bytes | None:
    """The key of a transfer whose receiver chose 0 and now tells its scalar b: of choice 0, as
    B = bG has one b, and nobody can tell another. None if it is not that, or no transfer.
    """
    try:
        a, exchange = PublicKey(point), PrivateKey(scalar)
    except ValueError:
        return None
    if exchange.public_key.format() != answer or a.format() != point:
        return None
    return _key(point, answer, index, exchange.ecdh(a.format(compressed=False)))


def _prove(
    a: PublicKey, answers: list[bytes], choices: Bytes, secrets: Bytes, exchange: PrivateKey
) -> bytes:
    d, s = (scalar.tobytes() for scalar in secrets[len(answers) :])
    exchange.secret = s
    base = PublicKey.combine_keys([a, PublicKey.from_valid_secret(d)])
    first = exchange.ecdh(base.format(compressed=False))
    z_b, z_c = _number(s) * _number(d), _number(s)
    for e, secret, choice in zip(
        _challenges(a.format(), answers, first), secrets, choices.tolist(), strict=False
    ):
        z_b += e * _number(secret.tobytes())
        z_c += e * int(choice)
    return first + b"".join((z % _ORDER).to_bytes(SCALAR_BYTES, "big") for z in (z_b, z_c))


def _verify(a: PublicKey, answers: list[bytes], points: list[PublicKey], proof: bytes) -> bool:
    first, z_b, z_c = (proof[at : at + SCALAR_BYTES] for at in range(0, PROOF_BYTES, SCALAR_BYTES))
    challenges = _challenges(a.format(), answers, first)
    try:
        weighted = [
            point.multiply(e.to_bytes(SCALAR_BYTES, "big"))
            for e, point in zip(challenges, points, strict=True)
        ]
        minus_sum = _negative(PublicKey.combine_keys(weighted))
        opened = PublicKey.combine_keys([PublicKey.from_secret(z_b), a.multiply(z_c), minus_sum])
    except ValueError:  # a number out of range, or a sum that is no point
        return False
    return hashlib.sha256(opened.format()).digest() == first  # as `ecdh` hashes a point


def _challenges(a: bytes, answers: list[bytes], first: bytes) -> list[int]:
    state = hashlib.sha256(_USAGE_PROOF + a + b"".join(answers) + first)
    challenges = []
    for index in range(len(answers)):
        own = state.copy()
        own.update(index.to_bytes(2, "little"))
        challenges.append(int.from_bytes(own.digest()[:_CHALLENGE_BYTES], "big"))
    return challenges


def _negative(point: PublicKey) -> PublicKey:
    encoded = point.format()
    return PublicKey(bytes([encoded[0] ^ 1]) + encoded[1:])


def _number(scalar: bytes) -> int:
    return int.from_bytes(scalar, "big")


def _point(link: Links, encoded: bytes) -> PublicKey:
    try:
        return PublicKey(encoded)
    except ValueError:
        raise PeerError(names(link), "bytes that are no point of the curve") from None


def _scalar(drawn: bytes) -> Bytes:
    value = int.from_bytes(drawn, "big") % (_ORDER - 1) + 1
    return np.frombuffer(value.to_bytes(SCALAR_BYTES, "big"), dtype=np.uint8)


def _key(a: bytes, b: bytes, index: int, shared: bytes) -> bytes:
    """Bound to the transfer's place and to both points, as the paper asks."""
    data = _USAGE_KEY + a + b + index.to_bytes(2, "little") + shared
    return hashlib.sha256(data).digest()[:BLOCK_BYTES]


def _each(links: Links) -> list[Links]:
    return [links[index : index + 1] for index in range(len(links))]


def _rows(items: list[bytes], width: int) -> Bytes:
    return np.frombuffer(b"".join(items), dtype=np.uint8).reshape(len(items), width)
