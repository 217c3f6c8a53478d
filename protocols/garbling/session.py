"""Two-party sessions: a garbler and an evaluator, without input or output, many links at once.

    evaluator                                garbler
    open()          ──  A: 33 bytes  ─────▶  reply(rows)              once a link
    accept(rows)    ◀──  B: 4,320 bytes  ──
    request(…)      ──  number, u, check  ▶  answer(…)                once a batch
    finish(rows)    ◀──  seed, tables, output ciphertexts, digest  ──

    compare(bits)   ──  number, u, check  ▶  compare(bits)            do both hold the same bits?
    agree(rows)     ◀──  a hash of their labels: 16 bytes  ──
                    ──  another: 16 bytes  ─────▶  agree(rows)

A message is a (K, bytes) matrix, one row for each of K links, and what is in a row depends on its
link alone: a batch of K links is exactly K batches of one. A batch is I instances of one circuit on
every link. The first two messages are for a cold link; a warm one goes on with `request`.

The seed is 16 bytes and stands for the hash key and all of the garbler's input labels. The digest,
16 bytes, covers the link's number, all that passed on it since it was opened, the circuit, and the
output check (see `outputs`): a bit that was flipped on the way, in whatever message, is refused by
`finish` whether or not it changes the result, and refused for all links it happened on, by number.
The garbler, who sees no answer to its answer, learns of that from the shell.

Threat model: each learns its own share of the outputs, and nothing else. An evaluator may deviate:
its choices are checked (`ot_extension`, `base_ot`), and whatever it sends, it gets labels of one
input. A garbler may not: that its tables and output ciphertexts are those of the circuit is not
checked, so whoever sees a sum of outputs may see in it what a garbler that deviates put there: the
evaluator's inputs, times a weight that no noise hides.

A machine may be started anew from the same randomness, and meet a peer that has new. So what the
garbler draws follows from its randomness and from all that it heard and was given before: to the
same words it gives the same answer, and to others one that is independent of the first.

Errors leave a session as it was, but for links that were closed. After a PeerError the shell can
`drop` the links that it names and call again with the rows of the others.
"""

import copy
import hashlib
from typing import Final, Self

import numpy as np

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.garbling import base_ot, outputs
from tallyroom.protocols.garbling import half_gates as garbling
from tallyroom.protocols.garbling.batch import DIGEST_BYTES, NUMBER_BYTES, BatchShape, GarblerAnswer
from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.links import (
    Bits,
    Links,
    Mask,
    checked_links,
    checked_rows,
    refuse,
    refuse_unfit,
)
from tallyroom.protocols.garbling.ot_extension import (
    CHECK_BYTES,
    Receiver,
    Sender,
    bits_of,
    check,
    request_bytes,
)
from tallyroom.protocols.garbling.outputs import Form, OutputShares
from tallyroom.protocols.garbling.primitives import BLOCK_BYTES
from tallyroom.protocols.randomness import Randomness

_USAGE_TRANSCRIPT: Final = b"tallyroom pairwise v1 transcript"
_USAGE_DIGEST: Final = b"tallyroom pairwise v1 digest"
_USAGE_SECRET: Final = b"tallyroom pairwise v1 secret"
_USAGE_CHALLENGE: Final = b"tallyroom pairwise v1 challenge"
_USAGE_KEYS: Final = b"tallyroom pairwise v1 keys"
_USAGE_GIVEN: Final = b"tallyroom pairwise v1 given keys"
_USAGE_COMPARED: Final = b"tallyroom comparison v1 labels"
_USAGE_GARBLER_AGREES: Final = b"tallyroom comparison v1 garbler"
_USAGE_EVALUATOR_AGREES: Final = b"tallyroom comparison v1 evaluator"
DISAGREE: Final = "what was computed twice, by either as the garbler, came out differently"


class InconsistentError(PeerError):
    """An evaluator deviated, and may have learnt bits of Δ by not being caught until now."""


class DisagreeError(PeerError):
    """The two computations of one result differ: the other end deviated in one of them."""


class Side:
    """What the two roles share: links, the number of the next batch, and a running transcript."""

    def __init__(self, links: Links, randomness: Randomness) -> None:
        self._links = checked_links(links)
        self._randomness = randomness
        self._number = 0
        numbers = self._links.astype("<u8").view(np.uint8).reshape(len(links), -1)
        self._transcript = _hashes(_USAGE_TRANSCRIPT, numbers, numbers[:, :0])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._links)} links>"

    @property
    def links(self) -> Links:
        return self._links.copy()

    def drop(self, links: Links) -> None:
        """Go on without these links."""
        self._keep(~np.isin(self._links, links))

    def part(self, links: Links) -> Self:
        """These links as a session of their own; they are gone from this one."""
        chosen = np.isin(self._links, links)
        other = copy.copy(self)
        other._own_state()
        other._keep(chosen)
        self._keep(~chosen)
        return other

    def _branch(self, label: bytes, randomness: Randomness) -> Self:
        """A session of its own from the same base transfers, whose first batch is yet to come.

        Both ends take the same label, and each label is taken once: a session starts with batch 0.
        """
        other = copy.copy(self)
        other._own_state()
        other._randomness = randomness
        other._number = 0
        labels = np.frombuffer(label, dtype=np.uint8)
        rows = np.broadcast_to(labels, (len(self._links), len(label)))
        other._transcript = self._heard(self._transcript, rows, b" branch")
        return other

    @property
    def transcript(self) -> Bytes:
        """A hash of all that passed on each link, (K, 32)."""
        return self._transcript.copy()

    def _given(self, label: bytes) -> None:
        """Starts the transcript of links whose base transfers somebody else has made."""
        labels = np.frombuffer(label, dtype=np.uint8)
        rows = np.broadcast_to(labels, (len(self._links), len(label)))
        self._transcript = self._heard(self._transcript, rows, _USAGE_GIVEN)

    def _own_state(self) -> None:
        """After a copy: what is changed in place must not be shared with the original."""

    def _keep(self, chosen: Mask) -> None:
        self._links, self._transcript = self._links[chosen], self._transcript[chosen]

    def _heard(self, transcript: Bytes, rows: Bytes, context: bytes = b"") -> Bytes:
        """The transcript after one more message."""
        return _hashes(_USAGE_TRANSCRIPT + context, transcript, rows)

    def _inputs(self, bits: Bits, wires: int) -> Bytes:
        if bits.ndim != 3 or bits.shape[0] != len(self._links) or bits.shape[2] != wires:
            raise LocalError(
                f"inputs are bits by link, instance and wire, "
                f"({len(self._links)}, instances, {wires}), not {bits.shape}"
            )
        if bits.dtype not in (np.uint8, np.bool) or (bits > 1).any():
            raise LocalError("inputs are bits")
        return bits.astype(np.uint8)

    def _secret(self, label: str, known: Bytes) -> Bytes:
        """16 bytes for each link, from our randomness and a row of what is known by now."""
        drawn = self._randomness.rows(label, self._links, BLOCK_BYTES)
        return _hashes(_USAGE_SECRET, drawn, known)[:, :BLOCK_BYTES].copy()

    def _number_rows(self) -> Bytes:
        number = np.frombuffer(self._number.to_bytes(NUMBER_BYTES, "little"), dtype=np.uint8)
        return np.broadcast_to(number, (len(self._links), NUMBER_BYTES))


class Evaluator(Side):
    """Holds one input of every pair. Learns labels, whose colours are its shares.

    `randomness` must be fresh unless the inputs are the same: to one reply of the garbler, two
    requests from the same randomness show where their bits differ.
    """

    def __init__(self, links: Links, randomness: Randomness) -> None:
        super().__init__(links, randomness)
        self._scalars = base_ot.draw_scalars(randomness, "base ot sender", self._links, 1)
        self._receiver: Receiver | None = None
        self._opened = False
        self._batch: BatchShape | None = None
        self._labels = np.empty(0, dtype=np.uint8)
        self._compared: Bytes | None = None

    @classmethod
    def with_keys(cls, links: Links, randomness: Randomness, pairs: Bytes, label: bytes) -> Self:
        """A session that is open, from both keys of 128 transfers, (K, 128, 2, 16), which were made
        elsewhere. The garbler's end has one of each (`Garbler.with_keys`), and the same label."""
        session = cls(links, randomness)
        session._opened, session._receiver = True, Receiver(pairs)
        session._given(label)
        return session

    def open(self) -> Bytes:
        """The points A, (K, 33). Called once, first."""
        if self._opened:
            raise LocalError("these links are open already")
        self._opened = True
        rows = base_ot.sender_points(self._scalars)
        self._transcript = self._heard(self._transcript, rows)
        return rows

    def accept(self, rows: Bytes) -> None:
        """The garblers' points B. Raises PeerError on bytes that are no such points."""
        if not self._opened or self._receiver is not None:
            raise LocalError("no points are awaited")
        rows = checked_rows(self._links, rows, base_ot.REPLY_BYTES, "points")
        self._receiver = Receiver(base_ot.sender_keys(self._links, self._scalars, rows))
        self._transcript = self._heard(self._transcript, rows)
        self._scalars = self._scalars[:0]

    def request(self, circuit: Circuit, bits: Bits, output: Form = OutputShares.XOR) -> Bytes:
        """Asks for the labels of its (K, I, inputs) bits. `finish` comes before the next one."""
        self._check_idle()
        bits = self._inputs(bits, circuit.evaluator_inputs)
        batch = BatchShape(circuit, output, bits.shape[1])
        rows, labels = self._choose(bits.reshape(len(bits), batch.choices), batch.fingerprint())
        self._batch = batch
        self._labels = labels.reshape(*bits.shape, BLOCK_BYTES)
        return rows

    def _check_idle(self) -> None:
        if self._receiver is None:
            raise LocalError("these links are not open yet")
        if self._batch is not None or self._compared is not None:
            raise LocalError("the last request has not been answered yet")

    def _choose(self, choices: Bytes, fingerprint: bytes) -> tuple[Bytes, Bytes]:
        """A request for the labels of (K, m) choices, and those labels, (K, m, 16)."""
        assert self._receiver is not None
        # Bound to what the garbler replied: to another reply the check would mask the same choices
        # with the same bits at another point, and the two would tell of them.
        masks = self._secret(f"masks {self._number}", self._transcript)
        u, labels, columns = self._receiver.extend(choices, masks)
        rows = np.hstack([self._number_rows(), u])
        heard = self._heard(self._transcript, rows, fingerprint)
        checks = check(columns, _challenges(heard))
        self._transcript = self._heard(heard, checks)
        self._number += 1
        return np.hstack([rows, checks]), labels

    def finish(self, rows: Bytes) -> Vector:
        """Its shares of the outputs, in the shape of their form.

        Raises PeerError if an answer is not of the right length, or does not fit its digest:
        whatever was changed on the way, and whatever the garbler heard otherwise than we sent it.
        """
        batch = self._batch
        if batch is None:
            raise LocalError("no answer is awaited")
        links, circuit = len(self._links), batch.circuit
        rows = checked_rows(self._links, rows, batch.answer_bytes, "an answer")
        ends = np.cumsum([BLOCK_BYTES, batch.table_bytes])
        seeds, tables, ciphertexts = np.hsplit(rows[:, :-DIGEST_BYTES], ends)
        keys, garbler_labels = batch.key_and_garbler_labels(seeds)
        labels = garbling.evaluate(
            circuit,
            keys,
            np.concatenate([garbler_labels, self._labels], axis=2),
            tables.reshape(links, batch.instances, circuit.ands, garbling.TABLE_BYTES),
        )
        opened = outputs.open_outputs(batch.output, keys, labels, ciphertexts)
        transcript = self._heard(self._transcript, rows[:, :-DIGEST_BYTES])
        expected = digests(transcript, opened.check)
        wrong = (rows[:, -DIGEST_BYTES:] != expected).any(axis=1)
        refuse_unfit(self._links, wrong)
        self._transcript, self._batch = transcript, None
        self._labels = np.empty(0, dtype=np.uint8)
        return opened.shares

    def choose_keys(self, choices: Bytes) -> tuple[Bytes, Bytes]:
        """Asks for one key of each of (K, m) pairs: the request, and the keys, (K, m, 16). The
        garbler has both of each pair (`Garbler.offer_keys`), and nothing to answer."""
        self._check_idle()
        count = choices.shape[1]
        rows, labels = self._choose(choices, _USAGE_KEYS + bytes(str(count), "ascii"))
        return rows, _keys(self._transcript, labels)

    def compare(self, bits: Bytes) -> Bytes:
        """Asks whether the garbler holds the same (K, m) bits. `agree` comes next."""
        self._check_idle()
        rows, self._compared = self._choose(
            bits, _USAGE_COMPARED + bytes(str(bits.shape[1]), "ascii")
        )
        return rows

    def agree(self, rows: Bytes) -> Bytes:
        """The garbler's answer to `compare`, and what to tell it: that the bits are the same.

        Raises PeerError where they are not. Then nothing is to be told: the garbler must not learn
        in what they differ.
        """
        if self._compared is None:
            raise LocalError("nothing is compared")
        rows = checked_rows(self._links, rows, DIGEST_BYTES, "an answer")
        theirs, ours = _agreements(self._transcript, self._compared)
        refuse(self._links, (rows != theirs).any(axis=1), DISAGREE, DisagreeError)
        self._compared = None
        return ours

    def branch(self, label: bytes, randomness: Randomness) -> Self:
        """As `Garbler.branch`."""
        if self._receiver is None or self._batch is not None:
            raise LocalError("a session branches off when its links are open and nothing is asked")
        other = self._branch(label, randomness)
        other._receiver = self._receiver.branch(label)
        return other

    def _own_state(self) -> None:
        self._receiver = copy.copy(self._receiver)

    def _keep(self, chosen: Mask) -> None:
        super()._keep(chosen)
        if self._receiver is None:
            self._scalars = self._scalars[chosen]
        else:
            self._receiver.keep(chosen)
        if self._batch is not None:
            self._labels = self._labels[chosen]
        if self._compared is not None:
            self._compared = self._compared[chosen]


class Garbler(Side):
    """Holds the other input. Learns nothing but its own shares."""

    def __init__(self, links: Links, randomness: Randomness) -> None:
        super().__init__(links, randomness)
        self._sender: Sender | None = None
        self._agreement: Bytes | None = None
        self.asked = self._transcript
        """The transcript up to the last request that was answered."""
        self._closed: Mask = np.zeros(len(links), dtype=bool)

    @classmethod
    def with_keys(
        cls, links: Links, randomness: Randomness, keys: Bytes, deltas: Bytes, label: bytes
    ) -> Self:
        """A session that is open, from one key of each of 128 transfers, (K, 128, 16), namely those
        that the bits of Δ, (K, 16), choose. The first bit of Δ is 1."""
        session = cls(links, randomness)
        session._sender = Sender(keys, deltas)
        session._given(label)
        return session

    def reply(self, rows: Bytes) -> Bytes:
        """The points B and their proof, (K, 4320), for the evaluators' A. Raises PeerError if one
        is no point."""
        if self._sender is not None:
            raise LocalError("these links are open already")
        rows = checked_rows(self._links, rows, base_ot.POINT_BYTES, "a point")
        heard = self._heard(self._transcript, rows)
        deltas = self._secret("delta", heard)
        # The two labels of a wire must differ in colour. This bit of Δ is public from here on.
        deltas[:, 0] |= 1
        scalars = base_ot.draw_scalars(
            self._randomness, "base ot receiver", self._links, base_ot.RECEIVER_SCALARS
        )
        points, keys = base_ot.receiver_points(
            self._links, rows, bits_of(deltas), base_ot.bind_scalars(scalars, rows)
        )
        self._sender = Sender(keys, deltas)
        self._transcript = self._heard(heard, points)
        return points

    def answer(
        self, circuit: Circuit, bits: Bits, rows: Bytes, output: Form = OutputShares.XOR
    ) -> GarblerAnswer:
        """Garbles I instances on every link, with its own (K, I, inputs) bits.

        Raises PeerError if a request is not of the right length or not of the batch awaited, or if
        its choices are inconsistent: then those links are closed, for to try again would be to
        guess again at the same Δ.
        """
        bits = self._inputs(bits, circuit.garbler_bits)
        batch = BatchShape(circuit, output, bits.shape[1])
        zeros, heard, deltas = self._offer(rows, batch.choices, batch.fingerprint())
        self.asked = heard
        given = np.packbits(bits.reshape(len(bits), -1), axis=1)
        seeds = self._secret(f"garbling {self._number}", np.hstack([heard, given]))
        keys, active = batch.key_and_garbler_labels(seeds)
        # The label of 0 follows from the active one: L0 = active ⊕ x·Δ. The usual order draws L0
        # and sends active = L0 ⊕ x·Δ; either way each is uniform and their difference is x·Δ, so
        # the joint distribution is the same, and active labels drawn from a seed that does not
        # depend on x tell nothing of x. That the evaluator knows the seed gives it no more than the
        # labels: the hash is robust for active labels of anybody's choice, as long as Δ, which the
        # seed has no part in, is secret.
        theirs = zeros.reshape(len(rows), batch.instances, circuit.evaluator_inputs, BLOCK_BYTES)
        flips = bits[..., None] * deltas[:, None, None, :]
        if circuit.shared_inputs:
            # Of a wire that carries x ⊕ y, the evaluator has the label of y. With x known to the
            # garbler alone, the label of 0 is that of y = x.
            labels = theirs ^ flips
        else:
            labels = np.concatenate([active ^ flips, theirs], axis=2)
        garbled = garbling.garble(circuit, keys, deltas, labels)
        sealed = outputs.seal(output, keys, deltas, garbled.outputs)
        tables = garbled.tables.reshape(len(rows), batch.table_bytes)
        answer = np.empty((len(rows), batch.answer_bytes), dtype=np.uint8)
        body, end = answer[:, :-DIGEST_BYTES], BLOCK_BYTES + batch.table_bytes
        body[:, :BLOCK_BYTES], body[:, BLOCK_BYTES:end] = seeds, tables
        body[:, end:] = sealed.ciphertexts
        self._transcript = self._heard(heard, body)
        self._number += 1
        answer[:, -DIGEST_BYTES:] = digests(self._transcript, sealed.check)
        return GarblerAnswer(answer, sealed.shares)

    def _offer(self, rows: Bytes, choices: int, fingerprint: bytes) -> tuple[Bytes, Bytes, Bytes]:
        """The labels of 0 of so many choices, the transcript with the request, and Δ."""
        sender = self._sender
        if sender is None:
            raise LocalError("these links are not open yet")
        width = NUMBER_BYTES + request_bytes(choices)
        rows = checked_rows(self._links, rows, width, "a request")
        refuse(self._links, self._closed, "a link that was closed")
        strange = (rows[:, :NUMBER_BYTES] != self._number_rows()).any(axis=1)
        refuse(self._links, strange, f"a request that is not of batch {self._number}")
        asked, checks = rows[:, :-CHECK_BYTES], rows[:, -CHECK_BYTES:]
        heard = self._heard(self._transcript, asked, fingerprint)
        zeros, consistent = sender.extend(
            asked[:, NUMBER_BYTES:], choices, _challenges(heard), checks
        )
        self._closed = ~consistent
        refuse(
            self._links,
            self._closed,
            "choices that are inconsistent: the link is closed",
            InconsistentError,
        )
        return zeros, self._heard(heard, checks), sender.deltas

    def offer_keys(self, rows: Bytes, count: int) -> Bytes:
        """Both keys of each of `count` pairs, (K, count, 2, 16), of which the evaluator's request
        has chosen one. Raises PeerError as `answer` does."""
        fingerprint = _USAGE_KEYS + bytes(str(count), "ascii")
        zeros, self._transcript, deltas = self._offer(rows, count, fingerprint)
        self._number += 1
        both = (zeros, zeros ^ deltas[:, None, :])
        return np.stack([_keys(self._transcript, labels) for labels in both], axis=2)

    def compare(self, bits: Bytes, rows: Bytes) -> Bytes:
        """The answer to an evaluator that asks whether it holds the same (K, m) bits.

        It is a hash of the labels of our bits. An evaluator with other bits lacks a label, so it
        learns that they differ and not where. Only one that has them all can tell us so (`agree`).
        Raises PeerError as `answer` does.
        """
        fingerprint = _USAGE_COMPARED + bytes(str(bits.shape[1]), "ascii")
        zeros, self._transcript, deltas = self._offer(rows, bits.shape[1], fingerprint)
        labels = zeros ^ bits[..., None] * deltas[:, None, :]
        ours, self._agreement = _agreements(self._transcript, labels)
        self._number += 1
        return ours

    def agree(self, rows: Bytes) -> None:
        """What the evaluator made of it. Raises PeerError unless it holds the same bits."""
        if self._agreement is None:
            raise LocalError("nothing is compared")
        rows = checked_rows(self._links, rows, DIGEST_BYTES, "an answer")
        refuse(self._links, (rows != self._agreement).any(axis=1), DISAGREE, DisagreeError)
        self._agreement = None

    def branch(self, label: bytes, randomness: Randomness) -> Self:
        """A session of its own for one purpose, from the same base transfers.

        Its labels have the same Δ, under hash keys of its own; its transfers are extended from keys
        that follow from the label. Whoever is caught in one session must not be met in another.
        """
        if self._sender is None:
            raise LocalError("a session branches off when its links are open")
        refuse(self._links, self._closed, "a link that was closed")
        other = self._branch(label, randomness)
        other._sender = self._sender.branch(label)
        return other

    def _own_state(self) -> None:
        self._sender = copy.copy(self._sender)

    def _keep(self, chosen: Mask) -> None:
        super()._keep(chosen)
        self._closed = self._closed[chosen]
        if self._agreement is not None:
            self._agreement = self._agreement[chosen]
        if self._sender is not None:
            self._sender.keep(chosen)


def _hashes(usage: bytes, left: Bytes, right: Bytes) -> Bytes:
    """SHA-256 of two rows of each link; the left ones have a fixed length."""
    found = bytearray()
    for first, second in zip(left, right, strict=True):
        state = hashlib.sha256(usage + first.tobytes())
        state.update(np.ascontiguousarray(second).data)
        found += state.digest()
    return np.frombuffer(bytes(found), dtype=np.uint8).reshape(len(left), -1)


def _keys(transcript: Bytes, labels: Bytes) -> Bytes:
    """A key from each label, (K, m, 16): without a label, its key is random."""
    keys = bytearray()
    for heard, row in zip(transcript, labels, strict=True):
        for index, label in enumerate(row):
            data = _USAGE_KEYS + heard.tobytes() + index.to_bytes(4, "little") + label.tobytes()
            keys += hashlib.sha256(data).digest()[:BLOCK_BYTES]
    return np.frombuffer(bytes(keys), dtype=np.uint8).reshape(labels.shape)


def _challenges(transcript: Bytes) -> Bytes:
    """Where a request's columns are checked: nobody knows it before the columns are fixed."""
    return _hashes(_USAGE_CHALLENGE, transcript, transcript[:, :0])[:, :BLOCK_BYTES]


def _agreements(transcript: Bytes, labels: Bytes) -> tuple[Bytes, Bytes]:
    """What garbler and evaluator say of the labels of the same bits."""
    flat = labels.reshape(len(labels), -1)
    garbler, evaluator = (
        _hashes(usage, transcript, flat)[:, :DIGEST_BYTES]
        for usage in (_USAGE_GARBLER_AGREES, _USAGE_EVALUATOR_AGREES)
    )
    return garbler, evaluator


def digests(transcript: Bytes, check: Bytes) -> Bytes:
    return _hashes(_USAGE_DIGEST, transcript, check)[:, :DIGEST_BYTES]
