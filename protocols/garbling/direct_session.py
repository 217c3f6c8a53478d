"""Two-party sessions for evaluators with few input bits: labels go by base transfers, one a bit.

    evaluator                                garbler
    open()          ──  16 bytes  ────────▶  reply(rows)
    accept(rows)    ◀──  A: 33 bytes  ─────
    request(…)      ──  number, B, proof  ▶  answer(…)
    finish(rows)    ◀──  seed, transfers, tables, output ciphertexts, digest  ──

OT extension needs 128 base transfers to begin with, about 0.22 ms of CPU each for both ends; an
evaluator of w < 128 bits is served by w of them (`base_ot`), in which it is the receiver and
chooses by its input. With k_0 and k_1 the keys of a transfer, the label of 0 is k_0, and the
garbler sends k_0 ⊕ k_1 ⊕ Δ: whoever chose 1 gets k_0 ⊕ Δ, the label of 1; whoever chose 0 does not
know k_1, which masks it. 49 bytes a bit instead of 16, and 145 to begin with instead of 6,449.

A link has one batch. The rest is as in `session`, the threat model too: an evaluator may deviate,
and gets the labels of one input, for it proves that it knows its choices; a garbler may not. The
garbler's point follows from its randomness and the opening, its Δ and seed from the request too: to
other words it gives an answer that is independent of the first.
"""

from typing import Final

import numpy as np

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling import base_ot, outputs
from tallyroom.protocols.garbling import half_gates as garbling
from tallyroom.protocols.garbling.batch import DIGEST_BYTES, NUMBER_BYTES, BatchShape, GarblerAnswer
from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.links import (
    Bits,
    Links,
    Mask,
    checked_rows,
    refuse,
    refuse_unfit,
)
from tallyroom.protocols.garbling.outputs import Form, OutputShares
from tallyroom.protocols.garbling.primitives import BLOCK_BYTES
from tallyroom.protocols.garbling.session import Side, digests
from tallyroom.protocols.randomness import Randomness

MOST_DIRECT: Final = 96
"""Input bits of an evaluator on one link up to which this is cheaper than an extension."""


class DirectEvaluator(Side):
    """As `session.Evaluator`, for one batch."""

    def __init__(self, links: Links, randomness: Randomness) -> None:
        super().__init__(links, randomness)
        self._opened = False
        self._points: Bytes | None = None
        self._batch: BatchShape | None = None
        self._choices = np.empty((len(links), 0), dtype=np.uint8)
        self._keys = np.empty((len(links), 0, BLOCK_BYTES), dtype=np.uint8)

    def open(self) -> Bytes:
        """Random bytes that the garbler's point is bound to, (K, 16). Called once, first."""
        if self._opened:
            raise LocalError("these links are open already")
        self._opened = True
        rows = self._secret("direct opening", self._transcript)
        self._transcript = self._heard(self._transcript, rows)
        return rows

    def accept(self, rows: Bytes) -> None:
        """The garblers' points A. Whether they are any is seen by `request`."""
        if not self._opened or self._points is not None:
            raise LocalError("no points are awaited")
        self._points = checked_rows(self._links, rows, base_ot.POINT_BYTES, "a point").copy()
        self._transcript = self._heard(self._transcript, self._points)

    def request(self, circuit: Circuit, bits: Bits, output: Form = OutputShares.XOR) -> Bytes:
        """Asks for the labels of its (K, I, inputs) bits. Raises PeerError if an A is no point."""
        if self._points is None or self._number:
            raise LocalError("these links are not open, or were used")
        if circuit.shared_inputs:
            raise LocalError("inputs that are shared take a session with an extension")
        bits = self._inputs(bits, circuit.evaluator_inputs)
        batch = BatchShape(circuit, output, bits.shape[1])
        choices = bits.reshape(len(bits), batch.choices)
        scalars = base_ot.draw_scalars(
            self._randomness,
            "direct ot receiver",
            self._links,
            batch.choices + base_ot.PROOF_SCALARS,
        )
        points, self._keys = base_ot.receiver_points(
            self._links, self._points, choices, base_ot.bind_scalars(scalars, self._points)
        )
        rows = np.hstack([self._number_rows(), points])
        self._transcript = self._heard(self._transcript, rows, batch.fingerprint())
        self._batch, self._choices = batch, choices
        self._number += 1
        return rows

    def finish(self, rows: Bytes) -> Vector:
        """Its shares of the outputs. Raises PeerError as `session.Evaluator.finish`."""
        batch = self._batch
        if batch is None:
            raise LocalError("no answer is awaited")
        circuit, links = batch.circuit, len(self._links)
        rows = checked_rows(self._links, rows, _answer_bytes(batch), "an answer")
        ends = np.cumsum([BLOCK_BYTES, BLOCK_BYTES * batch.choices, batch.table_bytes])
        seeds, sent, tables, ciphertexts = np.hsplit(rows[:, :-DIGEST_BYTES], ends)
        keys, garbler_labels = batch.key_and_garbler_labels(seeds)
        transfers = sent.reshape(links, batch.choices, BLOCK_BYTES)
        own = self._keys ^ transfers * self._choices[..., None]
        shape = (links, batch.instances, circuit.evaluator_inputs, BLOCK_BYTES)
        labels = garbling.evaluate(
            circuit,
            keys,
            np.concatenate([garbler_labels, own.reshape(shape)], axis=2),
            tables.reshape(links, batch.instances, circuit.ands, garbling.TABLE_BYTES),
        )
        opened = outputs.open_outputs(batch.output, keys, labels, ciphertexts)
        transcript = self._heard(self._transcript, rows[:, :-DIGEST_BYTES])
        wrong = (rows[:, -DIGEST_BYTES:] != digests(transcript, opened.check)).any(axis=1)
        refuse_unfit(self._links, wrong)
        self._transcript, self._batch = transcript, None
        self._keys, self._choices = self._keys[:, :0], self._choices[:, :0]
        return opened.shares

    def _keep(self, chosen: Mask) -> None:
        super()._keep(chosen)
        self._keys, self._choices = self._keys[chosen], self._choices[chosen]
        if self._points is not None:
            self._points = self._points[chosen]


class DirectGarbler(Side):
    """As `session.Garbler`, for one batch."""

    def __init__(self, links: Links, randomness: Randomness) -> None:
        super().__init__(links, randomness)
        self._scalars: Bytes | None = None

    def reply(self, rows: Bytes) -> Bytes:
        """The points A, (K, 33)."""
        if self._scalars is not None:
            raise LocalError("these links are open already")
        rows = checked_rows(self._links, rows, BLOCK_BYTES, "an opening")
        self._scalars = base_ot.draw_scalars(self._randomness, "direct ot sender", self._links, 1)
        self._scalars = base_ot.bind_scalars(self._scalars, rows)
        points = base_ot.sender_points(self._scalars)
        self._transcript = self._heard(self._heard(self._transcript, rows), points)
        return points

    def answer(
        self, circuit: Circuit, bits: Bits, rows: Bytes, output: Form = OutputShares.XOR
    ) -> GarblerAnswer:
        """Garbles I instances on every link, with its own (K, I, inputs) bits.

        Raises PeerError if a request is not of the right length, or not the one awaited, or has
        points that are none or not proved.
        """
        if self._scalars is None:
            raise LocalError("these links are not open yet")
        if circuit.shared_inputs:
            raise LocalError("inputs that are shared take a session with an extension")
        bits = self._inputs(bits, circuit.garbler_inputs)
        batch = BatchShape(circuit, output, bits.shape[1])
        width = NUMBER_BYTES + base_ot.reply_bytes(batch.choices)
        rows = checked_rows(self._links, rows, width, "a request")
        strange = (rows[:, :NUMBER_BYTES] != self._number_rows()).any(axis=1) | (self._number > 0)
        refuse(self._links, strange, "a request that is not of batch 0")
        pairs = base_ot.sender_keys(self._links, self._scalars, rows[:, NUMBER_BYTES:])
        heard = self._heard(self._transcript, rows, batch.fingerprint())
        given = np.packbits(bits.reshape(len(bits), -1), axis=1)
        known = np.hstack([heard, given])
        deltas = self._secret("direct delta", known)
        deltas[:, 0] |= 1
        seeds = self._secret("direct garbling", known)
        keys, active = batch.key_and_garbler_labels(seeds)
        own = active ^ bits[..., None] * deltas[:, None, None, :]
        zeros = pairs[:, :, 0]
        transfers = zeros ^ pairs[:, :, 1] ^ deltas[:, None, :]
        theirs = zeros.reshape(len(rows), batch.instances, circuit.evaluator_inputs, BLOCK_BYTES)
        garbled = garbling.garble(circuit, keys, deltas, np.concatenate([own, theirs], axis=2))
        sealed = outputs.seal(output, keys, deltas, garbled.outputs)
        body = np.hstack(
            [
                seeds,
                transfers.reshape(len(rows), -1),
                garbled.tables.reshape(len(rows), batch.table_bytes),
                sealed.ciphertexts,
            ]
        )
        self._transcript = self._heard(heard, body)
        self._number += 1
        return GarblerAnswer(
            np.hstack([body, digests(self._transcript, sealed.check)]), sealed.shares
        )

    def _keep(self, chosen: Mask) -> None:
        super()._keep(chosen)
        if self._scalars is not None:
            self._scalars = self._scalars[chosen]


def _answer_bytes(batch: BatchShape) -> int:
    return batch.answer_bytes + BLOCK_BYTES * batch.choices
