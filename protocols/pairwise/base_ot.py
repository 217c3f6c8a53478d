"""128 oblivious transfers of random keys from curve points: what a link's extension starts from.

Chou and Orlandi, "The Simplest Protocol for Oblivious Transfer", LATINCRYPT 2015, on secp256k1.
The sender publishes A = aG. The receiver answers B_i = b_i·G + c_i·A and keeps H(b_i·A); the sender
has H(a·B_i) for choice 0 and H(a·(B_i − A)) for choice 1.

Security is semi-honest. B_i is uniform whatever c_i is, so the choices are hidden without any
assumption; the other key is hidden by the Diffie–Hellman assumption and SHA-256 as a random oracle.
The group has prime order, and points are checked to be on the curve when they are read, so there is
no small subgroup to leak into. Secret scalars meet constant-time code only (`ecdh` and key
generation of libsecp256k1): two of those for each transfer at the sender, where one variable-time
multiplication would do.

Roles: the evaluator sends, because the garbler must choose the bits of Δ.
"""

import hashlib
from typing import Final

import numpy as np
from coincurve import PrivateKey, PublicKey

from fss.ring import Bytes
from protocols.errors import PeerError
from protocols.pairwise.blocks import BLOCK_BYTES, COLUMNS
from protocols.pairwise.links import Links, names
from protocols.randomness import Randomness

POINT_BYTES: Final = 33
SCALAR_BYTES: Final = 32
_ORDER: Final = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141
# 128 bits more than the order: a scalar is 2^-128 from uniform.
_DRAWN_BYTES: Final = 48
_USAGE_KEY: Final = b"tallyroom base ot v1 key"
_USAGE_SCALAR: Final = b"tallyroom base ot v1 scalar"


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
    """(K, 128·33) points B and (K, 128, 16) keys, from A, (K, 128) choices and as many scalars.

    Raises PeerError if an A is no point of the curve.
    """
    answers, keys = [], []
    for link, row, chosen, secrets in zip(_each(links), points, choices, scalars, strict=True):
        a = _point(link, row.tobytes())
        a_formatted, a_long = a.format(), a.format(compressed=False)
        # One object for all scalars: making one computes two points that are not needed here.
        exchange = PrivateKey(secrets[0].tobytes())
        for index in range(COLUMNS):
            exchange.secret = secrets[index].tobytes()
            public = PublicKey.from_valid_secret(exchange.secret)
            both = (public, PublicKey.combine_keys([public, a]))
            answer = both[int(chosen[index])].format()
            answers.append(answer)
            keys.append(_key(a_formatted, answer, index, exchange.ecdh(a_long)))
    blocks = _rows(keys, BLOCK_BYTES).reshape(len(links), COLUMNS, BLOCK_BYTES)
    return _rows(answers, POINT_BYTES).reshape(len(links), COLUMNS * POINT_BYTES), blocks


def sender_keys(links: Links, scalars: Bytes, answers: Bytes) -> Bytes:
    """(K, 128, 2, 16): both keys of every transfer, from the receiver's points.

    Raises PeerError if a B is no point of the curve, or is A itself.
    """
    keys = []
    for link, scalar, row in zip(_each(links), scalars, answers, strict=True):
        secret = PrivateKey(scalar[0].tobytes())
        a = secret.public_key.format()
        minus_a = PublicKey(bytes([a[0] ^ 1]) + a[1:])
        for index, encoded in enumerate(row.reshape(COLUMNS, POINT_BYTES)):
            answer = encoded.tobytes()
            b = _point(link, answer)
            try:
                shifted = PublicKey.combine_keys([b, minus_a])
            except ValueError:
                raise PeerError(names(link), "a point that cancels ours") from None
            for point in (b, shifted):
                shared = secret.ecdh(point.format(compressed=False))
                keys.append(_key(a, answer, index, shared))
    return _rows(keys, BLOCK_BYTES).reshape(len(links), COLUMNS, 2, BLOCK_BYTES)


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
