"""Circuits of coins alone, garbled by a server that is caught if it lies, and proved to have lied.

    evaluator                                            garbler
    commitments to λ seeds                ────────────▶
                                          ◀────────────  A, choices: the bits of λ Δs
    choice of all seeds but one, keys,
    requests of λ copies, part by part    ────────────▶
                                          ◀────────────  λ seeds and witnesses, encrypted;
                                                         a hash of each copy's answers; signature
    which copy was kept, its witness      ────────────▶
                                          ◀────────────  the answers of that copy alone

This is covert security with public proof (Aumann and Lindell, TCC 2007; Asharov and Orlandi,
ASIACRYPT 2012; in the form of Hong, Katz, Kolesnikov, Lu and Wang, EUROCRYPT 2019, eprint
2018/1108). All that the garbler does in a copy follows from a seed of 16 bytes and from what it
hears. It commits to all λ copies before it knows which one is used, and signs. For every copy but
one, at random, the evaluator gets the seed by an oblivious transfer, and does all of it again. A
garbler that deviates in a copy is caught with probability 1 − 1/λ; and its signature, with the
seeds, proves it to anybody (`Accusation`, `judge`). For the copy that is used the evaluator has a
witness in place of the seed, and shows it, so the garbler knows that this seed stays secret.

What that rests on, message by message:

- The evaluator's part in a copy follows from a seed as well, to which it is bound first. So a judge
  can tell who deviated: who accuses shows its seed, and what it had said was other than that if the
  garbler's signed transcript of the request is other. An honest garbler cannot be framed, and
  signs only what it heard.
- Seeds go by Chou and Orlandi's transfer (`base_ot`). Whoever chose 0 proves by its scalar which
  key it has; the ciphertext is signed. So a garbler that encrypts another seed than it garbled by
  is proved to have lied too, and cannot make an honest accusation fail by chance of the choice.
- Every copy has a Δ and base transfers of its own, as opening a copy opens its Δ. They are extended
  from those of the two servers, in which the garbler receives; the keys follow from the evaluator's
  seed, and their hashes, which the garbler holds against those that it got, are signed.
- Whatever an evaluator can refuse but cannot prove does not depend on which copy it keeps: a
  signature that is none, a transcript of requests that is not its own, an answer that is not the
  one that was signed. So nobody learns the choice from a refusal in time to use it.
- Coins are XORed from both ends, and the evaluator is bound to its own before it hears anything: no
  grinding of the garbler's seeds biases them.

A lie that is in the copy that is used, with probability 1/λ, passes, whatever it is: there may be
no noise at all then. Dual execution (`computation.BothWays`) prevents where this deters; it proves
nothing to others.

What is here takes no inputs but coins, so it is done before there is data. Answers of all copies
are kept until one is chosen; `Drawn` bounds how many circuits are in one choice.
"""

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.garbling import base_ot
from tallyroom.protocols.garbling.batch import BatchShape
from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.ot_extension import bits_of
from tallyroom.protocols.garbling.outputs import Form
from tallyroom.protocols.garbling.primitives import BLOCK_BYTES, COLUMNS
from tallyroom.protocols.garbling.session import Evaluator, Garbler
from tallyroom.protocols.identity.signing import check_signed
from tallyroom.protocols.joint.levels import MOST_COPIES
from tallyroom.protocols.randomness import KEY_BYTES, Randomness

Bytes = NDArray[np.uint8]

HASH_BYTES: Final = 32
KEPT_BYTES: Final = 64 << 20
"""Of answers that the garbler keeps until it knows which copy is used."""
PART_BYTES: Final = (3 << 20) - 65536
"""Of a message: the requests of one part of all copies, or its answers of one."""
GARBLER: Final = 0
LINK: Final = np.zeros(1, dtype=np.uint64)
_TAG: Final = b"tallyroom covert statement 1\0"
_USAGE_COMMITMENT: Final = b"tallyroom covert v1 seed"
_USAGE_KEY: Final = b"tallyroom covert v1 key"
_USAGE_KEYS: Final = b"tallyroom covert v1 keys"
KEYS_BYTES: Final = COLUMNS * 2 * BLOCK_BYTES


class Drawn(NamedTuple):
    """So many instances of a circuit that takes coins of both ends alone, XORed on its wires.

    `block` tells draws of one program apart."""

    circuit: Circuit
    form: Form
    instances: int
    copies: int = 2
    block: int = 0

    def __repr__(self) -> str:
        return f"<Drawn of {self.instances} in {self.copies} copies>"

    @property
    def parts(self) -> list[int]:
        """How many instances go into each message."""
        most = _part(self.circuit, self.form, self.copies)
        whole, rest = divmod(self.instances, most)
        return [most] * whole + [rest] * (rest > 0)

    def label(self, name: bytes, copy: int) -> bytes:
        return b"covert" + bytes([copy]) + self.block.to_bytes(4, "little") + name


def draws(circuit: Circuit, form: Form, instances: int, copies: int) -> list[Drawn]:
    """As many as it takes, so that what is kept of each is bounded. Raises `LocalError`."""
    if not 2 <= copies <= MOST_COPIES:
        raise LocalError(f"covert security has 2 to {MOST_COPIES} circuits, not {copies}")
    most = max(_part(circuit, form, copies), KEPT_BYTES // (copies * _answer(circuit, form)))
    starts = range(0, instances, most)
    return [
        Drawn(circuit, form, min(most, instances - start), copies, block)
        for block, start in enumerate(starts)
    ]


def _answer(circuit: Circuit, form: Form) -> int:
    """Bytes that one more instance adds to an answer."""
    one, two = (BatchShape(circuit, form, count).answer_bytes for count in (1, 2))
    return two - one


def _part(circuit: Circuit, form: Form, copies: int) -> int:
    each = max(_answer(circuit, form), copies * BLOCK_BYTES * circuit.evaluator_inputs)
    return max(1, PART_BYTES // each)


# --- the two ends of one copy, each a function of a seed and of what it hears ---


class EvaluatorCopy:
    """One of λ, from the evaluator's seed."""

    def __init__(self, drawn: Drawn, name: bytes, copy: int, seed: bytes) -> None:
        self._drawn = drawn
        source = Randomness(seed)
        pairs = np.frombuffer(source.derive("keys").bytes(KEYS_BYTES), dtype=np.uint8)
        self.pairs = pairs.reshape(COLUMNS, 2, BLOCK_BYTES)
        label = drawn.label(name, copy)
        session = Evaluator.with_keys(LINK, source, self.pairs[None], label)
        self._sessions = [
            session.branch(b"part %d" % part, source.derive(f"part {part}"))
            for part in range(len(drawn.parts))
        ]
        self._coins = source.derive("coins")

    @property
    def hashes(self) -> bytes:
        """Of all keys: the garbler holds them against those that it has."""
        return key_hashes(self.pairs.reshape(-1, BLOCK_BYTES))

    def request(self, part: int) -> Bytes:
        """What it asks. Parts are asked for in their order, each once."""
        drawn = self._drawn
        bits = _coins(self._coins, drawn.parts[part], drawn.circuit.evaluator_inputs)
        row: Bytes = self._sessions[part].request(drawn.circuit, bits[None], drawn.form)[0]
        return row

    def transcript(self, part: int) -> bytes:
        return self._sessions[part].transcript.tobytes()

    def finish(self, part: int, row: Bytes) -> Vector:
        """Its shares. Raises `PeerError`."""
        shares: Vector = self._sessions[part].finish(row[None])[0]
        return shares


class GarblerCopy:
    """One of λ, from the garbler's seed, and the key of each pair that the seed's Δ chooses."""

    def __init__(self, drawn: Drawn, name: bytes, copy: int, seed: bytes, keys: Bytes) -> None:
        self._drawn = drawn
        self.copy = copy
        source = Randomness(seed)
        delta = np.frombuffer(delta_of(seed), dtype=np.uint8)[None]
        label = drawn.label(name, copy)
        session = Garbler.with_keys(LINK, source, keys[None], delta, label)
        self._sessions = [
            session.branch(b"part %d" % part, source.derive(f"part {part}"))
            for part in range(len(drawn.parts))
        ]
        self._coins = source.derive("coins")
        self.rows: list[Bytes] = []
        self.shares: list[Vector] = []
        self.heard: list[bytes] = []
        """For each part: the transcript of its request, and of its answer."""

    def answer(self, part: int, request: Bytes) -> None:
        """Garbles. Raises `PeerError`. Parts are answered in their order, each once."""
        drawn, session = self._drawn, self._sessions[part]
        bits = _coins(self._coins, drawn.parts[part], drawn.circuit.evaluator_inputs)
        answer = session.answer(self.circuit, bits[None], request[None], self.form)
        self.rows.append(answer.rows[0])
        self.shares.append(answer.shares[0])
        self.heard.append(session.asked.tobytes() + session.transcript.tobytes())

    @property
    def circuit(self) -> Circuit:
        return self._drawn.circuit

    @property
    def form(self) -> Form:
        return self._drawn.form


def delta_of(seed: bytes) -> bytes:
    drawn = bytearray(Randomness(seed).derive("delta").bytes(BLOCK_BYTES))
    drawn[0] |= 1
    return bytes(drawn)


def _coins(source: Randomness, instances: int, wires: int) -> Bytes:
    count = instances * wires
    drawn = np.frombuffer(source.bytes(-(-count // 8)), dtype=np.uint8)
    bits: Bytes = np.unpackbits(drawn)[:count].reshape(instances, wires)
    return bits


def key_hashes(keys: Bytes) -> bytes:
    return b"".join(hashlib.sha256(_USAGE_KEY + key.tobytes()).digest() for key in keys)


def keys_digest(hashes: bytes) -> bytes:
    """Of the hashes of all keys of a copy, as it is signed."""
    return digest(_USAGE_KEYS, hashes)


def answers_of(
    drawn: Drawn, name: bytes, copy: int, seed: bytes, pairs: Bytes, requests: list[Bytes]
) -> tuple[bytes, ...]:
    """What a garbler that follows the protocol would have signed of a copy with this seed."""
    chosen = bits_of(np.frombuffer(delta_of(seed), dtype=np.uint8)[None])[0]
    again = GarblerCopy(drawn, name, copy, seed, pairs[np.arange(COLUMNS), chosen])
    for part, request in enumerate(requests):
        again.answer(part, request)
        again.rows.clear()
    return tuple(again.heard)


def commitment(copy: int, seed: bytes) -> bytes:
    return hashlib.sha256(_USAGE_COMMITMENT + bytes([copy]) + seed).digest()


def digest(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


# --- what the garbler signs ---


@dataclass(frozen=True)
class Statement:
    """All that a copy's answers depend on, and their hashes. One entry for each copy."""

    name: bytes
    block: int
    commitments: tuple[bytes, ...]
    point: bytes
    choices: tuple[bytes, ...]
    """The points by which the evaluator chose."""
    keys: tuple[bytes, ...]
    """A hash of the hashes of all keys."""
    seeds: tuple[bytes, ...]
    """Encrypted, for whoever chose 0."""
    witnesses: tuple[bytes, ...]
    heard: tuple[tuple[bytes, ...], ...]

    @property
    def said(self) -> bytes:
        """What the evaluator did not know before."""
        heard = [part for each in self.heard for part in each]
        return b"".join([*self.seeds, *self.witnesses, *heard])

    @property
    def signed(self) -> bytes:
        head = _TAG + self.name + self.block.to_bytes(4, "little") + bytes([len(self.seeds)])
        known = [*self.commitments, self.point, *self.choices, *self.keys]
        return head + b"".join(known) + self.said


def said_bytes(drawn: Drawn) -> int:
    """Of `Statement.said`."""
    return drawn.copies * (2 * KEY_BYTES + 2 * HASH_BYTES * len(drawn.parts))


def split(data: bytes, width: int, count: int) -> tuple[bytes, ...]:
    return tuple(data[at : at + width] for at in range(0, width * count, width))


class Disclosed(NamedTuple):
    """What of a statement the evaluator did not know before."""

    seeds: tuple[bytes, ...]
    witnesses: tuple[bytes, ...]
    heard: tuple[tuple[bytes, ...], ...]


def told_in(data: bytes, drawn: Drawn) -> Disclosed:
    """Precondition: `data` is `said_bytes` long."""
    copies, parts = drawn.copies, len(drawn.parts)
    seeds = split(data, KEY_BYTES, copies)
    witnesses = split(data[copies * KEY_BYTES :], KEY_BYTES, copies)
    heard = split(data[2 * copies * KEY_BYTES :], 2 * HASH_BYTES * parts, copies)
    each = tuple(split(copy, 2 * HASH_BYTES, parts) for copy in heard)
    return Disclosed(seeds, witnesses, each)


# --- who lied ---


@dataclass(frozen=True)
class Accusation:
    """What proves that the garbler deviated in a copy: all that it signed, and what opens it."""

    statement: bytes
    signature: bytes
    certificate: bytes
    copy: int
    scalar: bytes
    seed: bytes

    def encode(self) -> bytes:
        told = {
            key: value if isinstance(value, int) else base64.b64encode(value).decode()
            for key, value in self.__dict__.items()
        }
        return json.dumps(told, sort_keys=True).encode()

    @classmethod
    def decode(cls, fields: dict[str, Any]) -> Self:
        """Raises one of `MALFORMED` on anything else."""
        copy = fields["copy"]
        if type(copy) is not int or fields.keys() != set(cls.__dataclass_fields__):
            raise ValueError("not an accusation")
        rest = {
            name: base64.b64decode(fields[name], validate=True)
            for name in cls.__dataclass_fields__
            if name != "copy"
        }
        return cls(copy=copy, **rest)


class CaughtError(PeerError):
    """The other server deviated, and it can be proved to others."""

    def __init__(self, accusation: Accusation) -> None:
        super().__init__("the other server", "garbled otherwise than it must")
        self.accusation = accusation


def judge(accusation: Accusation, drawn: list[Drawn], name: bytes, authority: bytes) -> None:
    """Returns if it is proved that the garbler deviated. Raises `PeerError` where it is not: who
    accuses is wrong then, whatever happened."""
    block, statement = _statement_of(accusation.statement, drawn, name)
    check_signed(
        GARBLER, accusation.statement, accusation.signature, accusation.certificate, authority
    )
    drawn_here, copy = drawn[block], accusation.copy
    if not 0 <= copy < drawn_here.copies or len(accusation.seed) != KEY_BYTES:
        raise _unproved("it is of no copy")
    if commitment(copy, accusation.seed) != statement.commitments[copy]:
        raise _unproved("the seed is not the one that the accuser was bound to")
    choice = statement.choices[copy]
    key = base_ot.opened_key(statement.point, choice, copy, accusation.scalar)
    if key is None:
        raise _unproved("the accuser did not choose the seed of this copy")
    theirs = EvaluatorCopy(drawn_here, name, copy, accusation.seed)
    if keys_digest(theirs.hashes) != statement.keys[copy]:
        raise _unproved("the accuser's keys were others")
    requests = [theirs.request(part) for part in range(len(drawn_here.parts))]
    heard = statement.heard[copy]
    for part in range(len(drawn_here.parts)):
        if heard[part][:HASH_BYTES] != theirs.transcript(part):
            raise _unproved("the accuser had asked something else")
    seed = xor(statement.seeds[copy], key)
    if answers_of(drawn_here, name, copy, seed, theirs.pairs, requests) == heard:
        raise _unproved("the garbler did what it must")


def _statement_of(data: bytes, drawn: list[Drawn], name: bytes) -> tuple[int, Statement]:
    head = len(_TAG) + len(name)
    block = int.from_bytes(data[head : head + 4], "little")
    if data[:head] != _TAG + name or block >= len(drawn):
        raise _unproved("it is of another run")
    here, at = drawn[block], head + 5
    copies = here.copies
    if data[head + 4 : at] != bytes([copies]):
        raise _unproved("it is of another number of copies")
    found = []
    for width, count in (
        (HASH_BYTES, copies),
        (base_ot.POINT_BYTES, 1),
        (base_ot.POINT_BYTES, copies),
        (HASH_BYTES, copies),
    ):
        found.append(split(data[at:], width, count))
        at += width * count
    if len(data) != at + said_bytes(here):
        raise _unproved("it is of another length")
    commitments, (point,), choices, keys = found
    told = told_in(data[at:], here)
    return block, Statement(name, block, commitments, point, choices, keys, *told)


def _unproved(reason: str) -> PeerError:
    return PeerError("the certificate", f"proves nothing: {reason}")


def xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
