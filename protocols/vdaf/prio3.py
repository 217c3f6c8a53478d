"""Prio3 of draft-irtf-cfrg-vdaf (section "Prio3"), batched over reports.

A client shards a measurement and its proof among `shares` servers. Each server queries its share
(`verify_init`), the servers add up what they found (`verifier_shares_to_messages`), and each takes
the output shares of valid reports (`verify_next`), which it sums (`aggregate`). As long as one
server is honest, nobody learns more than the sum; as long as all are honest, no client moves it by
more than a valid measurement can.

Arrays hold one report per row, in the draft's encodings. Rows from clients and other servers must
have the sizes below. A row that is not canonical, or fails a check, is false in `accepted`, and no
exception is raised for it. A report's nonce must be used only once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.field import FIELD64, Bytes, Field, Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.vdaf import flp, xof
from tallyroom.protocols.vdaf.circuit import Count, Measurements, Sum, ValidityCircuit
from tallyroom.protocols.vdaf.vectors import Histogram, MultihotCountVec, SumVec, best_chunk_length
from tallyroom.protocols.vdaf.xof import SEED_BYTES

VERSION: Final = 18
NONCE_BYTES: Final = 16
VERIFY_KEY_BYTES: Final = SEED_BYTES

USAGE_MEASUREMENT_SHARE: Final = 1
USAGE_PROOF_SHARE: Final = 2
USAGE_JOINT_RANDOMNESS: Final = 3
USAGE_PROVE_RANDOMNESS: Final = 4
USAGE_QUERY_RANDOMNESS: Final = 5
USAGE_JOINT_RAND_SEED: Final = 6
USAGE_JOINT_RAND_PART: Final = 7

Truths = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, repr=False)
class ReportShares:
    """What clients send: one row per report, and one array of input shares per server."""

    public_shares: Bytes
    input_shares: tuple[Bytes, ...]


@dataclass(frozen=True, eq=False, repr=False)
class VerifyStates:
    """What a server keeps between `verify_init` and `verify_next`: its output shares."""

    output_shares: Vector
    joint_rand_seeds: Bytes
    accepted: Truths


class Messages(NamedTuple):
    """The message of each report, which all servers get, and which proofs are right."""

    rows: Bytes
    accepted: Truths


class Outputs(NamedTuple):
    """Output shares (rows, output_length, limbs), 0 where the report is not accepted."""

    shares: Vector
    accepted: Truths


class _Share(NamedTuple):
    """A server's input share, expanded. Rows that are not canonical hold 0."""

    measurement: Vector
    proofs: Vector
    blinds: Bytes
    canonical: Truths


@dataclass(frozen=True)
class Prio3:
    """One instance of Prio3. Everything here is public and the same for clients and servers."""

    circuit: ValidityCircuit
    algorithm: int
    shares: int = 2
    proofs: int = 1

    def __post_init__(self) -> None:
        if not 2 <= self.shares < 256 or not 1 <= self.proofs < 256:
            raise LocalError("Prio3 needs 2 to 255 shares and 1 to 255 proofs")
        # A client may try many sharings until the joint randomness suits an invalid measurement
        # (draft, "Choosing FLP Parameters").
        if self.joint and self.circuit.field is FIELD64 and self.proofs < 3:
            raise LocalError("joint randomness over FIELD64 needs at least three proofs")

    @property
    def field(self) -> Field:
        return self.circuit.field

    @property
    def joint(self) -> bool:
        """Whether the circuit takes joint randomness."""
        return self.circuit.joint_rand_length > 0

    @property
    def rand_bytes(self) -> int:
        """How many uniform bytes it takes to shard one measurement."""
        return SEED_BYTES * self.shares * (2 if self.joint else 1)

    @property
    def public_share_bytes(self) -> int:
        return SEED_BYTES * self.shares if self.joint else 0

    def input_share_bytes(self, server: int) -> int:
        blind = SEED_BYTES if self.joint else 0
        if server:
            return SEED_BYTES + blind
        return (self.circuit.encoded_length + self._proofs_length) * self.field.width + blind

    @property
    def verifier_share_bytes(self) -> int:
        length = flp.verifier_length(self.circuit) * self.proofs
        return length * self.field.width + (SEED_BYTES if self.joint else 0)

    @property
    def message_bytes(self) -> int:
        return SEED_BYTES if self.joint else 0

    @property
    def _proofs_length(self) -> int:
        return flp.proof_length(self.circuit) * self.proofs

    def shard(
        self, measurements: Measurements, nonces: Bytes, rand: Bytes, ctx: bytes
    ) -> ReportShares:
        """Reports of valid measurements. Raises `LocalError` if one is not valid."""
        return self.shard_encoded(self.circuit.encode(measurements), nonces, rand, ctx)

    def shard_encoded(
        self, encoded: Vector, nonces: Bytes, rand: Bytes, ctx: bytes
    ) -> ReportShares:
        """Like `shard`, from encoded measurements that are not checked: a cheating client would
        share invalid ones."""
        rows = len(encoded)
        if encoded.shape != (rows, self.circuit.encoded_length, self.field.limbs):
            raise ValueError(f"encoded measurements have the wrong shape {encoded.shape}")
        _check("nonces", nonces, rows, NONCE_BYTES)
        _check("randomness", rand, rows, self.rand_bytes)
        seeds = rand.reshape(rows, self.rand_bytes // SEED_BYTES, SEED_BYTES)
        helpers = range(1, self.shares)
        width = 2 if self.joint else 1
        helper_seeds = [seeds[:, width * (j - 1)] for j in helpers]
        leader = encoded
        parts: list[Bytes] = []
        for j in helpers:
            share = self._measurement_share(ctx, j, helper_seeds[j - 1])
            leader = self.field.sub(leader, share)
            if self.joint:
                parts.append(self._joint_rand_part(ctx, j, seeds[:, 2 * j - 1], share, nonces))
        public = np.empty((rows, 0), dtype=np.uint8)
        blinds = [public] * self.shares
        joint_rand = self.field.zeros(rows, 0)
        if self.joint:
            blinds = [seeds[:, -2], *(seeds[:, 2 * j - 1] for j in helpers)]
            parts.insert(0, self._joint_rand_part(ctx, 0, blinds[0], leader, nonces))
            public = np.concatenate(parts, axis=1)
            joint_rand = self._joint_rand(ctx, self._joint_rand_seeds(ctx, public))
        proofs = self._prove(encoded, self._prove_rand(ctx, seeds[:, -1]), joint_rand)
        for j in helpers:
            proofs = self.field.sub(proofs, self._proofs_share(ctx, j, helper_seeds[j - 1]))
        leader_rows = [self.field.encode(leader), self.field.encode(proofs), blinds[0]]
        input_shares = [np.concatenate(leader_rows, axis=1)]
        input_shares += [np.concatenate([helper_seeds[j - 1], blinds[j]], axis=1) for j in helpers]
        return ReportShares(public, tuple(input_shares))

    def _prove(self, encoded: Vector, prove_rand: Vector, joint_rand: Vector) -> Vector:
        proofs = [
            flp.prove(self.circuit, encoded, prove, joint)
            for prove, joint in zip(self._split(prove_rand), self._split(joint_rand), strict=True)
        ]
        return np.concatenate(proofs, axis=1)

    def verify_init(
        self,
        verify_key: bytes,
        ctx: bytes,
        server: int,
        nonces: Bytes,
        public_shares: Bytes,
        input_shares: Bytes,
    ) -> tuple[VerifyStates, Bytes]:
        """A server's state and its verifier shares, which it sends to the others.

        The servers share `verify_key` and keep it from clients: whoever knows it can forge proofs.
        """
        rows = len(nonces)
        if not 0 <= server < self.shares or len(verify_key) != VERIFY_KEY_BYTES:
            raise ValueError(f"server {server} does not exist, or the key has the wrong size")
        _check("nonces", nonces, rows, NONCE_BYTES)
        _check("public shares", public_shares, rows, self.public_share_bytes)
        _check("input shares", input_shares, rows, self.input_share_bytes(server))
        share = self._expand(ctx, server, input_shares)
        joint_rand = self.field.zeros(rows, 0)
        part = joint_seeds = np.empty((rows, 0), dtype=np.uint8)
        if self.joint:
            part = self._joint_rand_part(ctx, server, share.blinds, share.measurement, nonces)
            parts = public_shares.copy()
            parts[:, server * SEED_BYTES : (server + 1) * SEED_BYTES] = part
            joint_seeds = self._joint_rand_seeds(ctx, parts)
            joint_rand = self._joint_rand(ctx, joint_seeds)
        accepted = share.canonical
        verifiers = []
        for proofs, query_rand, joint in zip(
            self._split(share.proofs),
            self._split(self._query_rand(verify_key, ctx, nonces)),
            self._split(joint_rand),
            strict=True,
        ):
            found = flp.query(
                self.circuit, share.measurement, proofs, query_rand, joint, self.shares
            )
            verifiers.append(found.verifiers)
            accepted = accepted & found.sound
        # The verifier of a rejected report is not sent: at an unsound point it would leak a share.
        verifier = np.where(
            accepted[:, None, None], np.concatenate(verifiers, axis=1), np.uint64(0)
        )
        states = VerifyStates(self.circuit.truncate(share.measurement), joint_seeds, accepted)
        return states, np.concatenate([self.field.encode(verifier), part], axis=1)

    def verifier_shares_to_messages(self, ctx: bytes, verifier_shares: Sequence[Bytes]) -> Messages:
        """The message of each report, from every server's verifier shares in the servers' order."""
        if len(verifier_shares) != self.shares:
            raise ValueError(f"expected {self.shares} verifier shares, got {len(verifier_shares)}")
        rows = len(verifier_shares[0])
        width = self.verifier_share_bytes - self.message_bytes
        total = self.field.zeros(rows, width // self.field.width)
        accepted = np.ones(rows, dtype=np.bool_)
        for share in verifier_shares:
            _check("verifier shares", share, rows, self.verifier_share_bytes)
            verifiers, canonical = self._decode(share[:, :width])
            total = self.field.add(total, verifiers)
            accepted &= canonical
        for verifiers in self._split(total):
            accepted &= flp.decide(self.circuit, verifiers)
        messages = np.empty((rows, 0), dtype=np.uint8)
        if self.joint:
            parts = np.concatenate([share[:, width:] for share in verifier_shares], axis=1)
            messages = self._joint_rand_seeds(ctx, parts)
        return Messages(messages, accepted)

    def verify_next(self, states: VerifyStates, messages: Messages) -> Outputs:
        """Output shares of the reports whose proofs are right, and for which the client gave all
        servers the same public share.

        The joint randomness must follow from the parts that the servers computed themselves.
        """
        rows = len(states.accepted)
        _check("messages", messages.rows, rows, self.message_bytes)
        same = (messages.rows == states.joint_rand_seeds).all(axis=1)
        accepted: Truths = states.accepted & messages.accepted & same
        kept = np.where(accepted[:, None, None], states.output_shares, np.uint64(0))
        return Outputs(kept, accepted)

    def output_shares(self, ctx: bytes, server: int, input_shares: Bytes) -> Vector:
        """The shares that `verify_next` returns for accepted reports, computed again by a server
        that did not keep them."""
        _check("input shares", input_shares, len(input_shares), self.input_share_bytes(server))
        return self.circuit.truncate(self._expand(ctx, server, input_shares).measurement)

    def aggregate(self, outputs: Outputs) -> Vector:
        """A server's share of the sum over accepted reports, (output_length, limbs).

        All servers must sum the same reports: those that all of them accepted.
        """
        return self.field.sum(outputs.shares[outputs.accepted], 0)

    def unshard(self, aggregate_shares: Sequence[Vector]) -> list[int]:
        """The sum, from every server's aggregate share."""
        if len(aggregate_shares) != self.shares:
            raise ValueError(
                f"expected {self.shares} aggregate shares, got {len(aggregate_shares)}"
            )
        return self.circuit.decode(self.field.sum(np.stack(aggregate_shares), 0))

    def _expand(self, ctx: bytes, server: int, rows: Bytes) -> _Share:
        if server:
            seeds, blinds = rows[:, :SEED_BYTES], rows[:, SEED_BYTES:]
            measurement = self._measurement_share(ctx, server, seeds)
            proofs = self._proofs_share(ctx, server, seeds)
            return _Share(measurement, proofs, blinds, np.ones(len(rows), dtype=np.bool_))
        length = self.circuit.encoded_length
        end = (length + self._proofs_length) * self.field.width
        vectors, canonical = self._decode(rows[:, :end])
        return _Share(vectors[:, :length], vectors[:, length:], rows[:, end:], canonical)

    def _decode(self, rows: Bytes) -> tuple[Vector, Truths]:
        """The vectors, with 0 in rows that are not canonical, and which rows are canonical."""
        vectors = self.field.unchecked(rows)
        canonical: Truths = np.logical_and.reduce(self.field.canonical(vectors), axis=1)
        if not canonical.all():
            vectors = np.where(canonical[:, None, None], vectors, np.uint64(0))
        return vectors, canonical

    def _split(self, vectors: Vector) -> list[Vector]:
        """The part of `vectors` that belongs to each proof."""
        return np.split(vectors, self.proofs, axis=1)

    def _tag(self, usage: int, ctx: bytes) -> bytes:
        algorithm_class = 0
        head = bytes([VERSION, algorithm_class])
        return head + self.algorithm.to_bytes(4, "big") + usage.to_bytes(2, "big") + ctx

    def _seeded(self, usage: int, ctx: bytes, seeds: Bytes, binders: Bytes, count: int) -> Vector:
        return xof.expand(self.field, self._tag(usage, ctx), seeds, binders, count)

    def _measurement_share(self, ctx: bytes, server: int, seeds: Bytes) -> Vector:
        length = self.circuit.encoded_length
        return self._seeded(USAGE_MEASUREMENT_SHARE, ctx, seeds, _binder(server), length)

    def _proofs_share(self, ctx: bytes, server: int, seeds: Bytes) -> Vector:
        binder = _binder(self.proofs, server)
        return self._seeded(USAGE_PROOF_SHARE, ctx, seeds, binder, self._proofs_length)

    def _prove_rand(self, ctx: bytes, seeds: Bytes) -> Vector:
        length = self.circuit.arity * self.proofs
        return self._seeded(USAGE_PROVE_RANDOMNESS, ctx, seeds, _binder(self.proofs), length)

    def _query_rand(self, verify_key: bytes, ctx: bytes, nonces: Bytes) -> Vector:
        keys = np.frombuffer(verify_key, dtype=np.uint8)[None]
        binders = _beside(_binder(self.proofs), nonces)
        length = flp.query_rand_length(self.circuit) * self.proofs
        return self._seeded(USAGE_QUERY_RANDOMNESS, ctx, keys, binders, length)

    def _joint_rand_part(
        self, ctx: bytes, server: int, blinds: Bytes, measurement: Vector, nonces: Bytes
    ) -> Bytes:
        binders = _beside(_binder(server), nonces, self.field.encode(measurement))
        return xof.derive_seeds(self._tag(USAGE_JOINT_RAND_PART, ctx), blinds, binders)

    def _joint_rand_seeds(self, ctx: bytes, parts: Bytes) -> Bytes:
        zeros = np.zeros((1, SEED_BYTES), dtype=np.uint8)
        return xof.derive_seeds(self._tag(USAGE_JOINT_RAND_SEED, ctx), zeros, parts)

    def _joint_rand(self, ctx: bytes, seeds: Bytes) -> Vector:
        length = self.circuit.joint_rand_length * self.proofs
        return self._seeded(USAGE_JOINT_RANDOMNESS, ctx, seeds, _binder(self.proofs), length)


def _binder(*values: int) -> Bytes:
    return np.array([values], dtype=np.uint8)


def _beside(first: Bytes, *others: Bytes) -> Bytes:
    """Puts the one row of `first` in front of every row of the others."""
    repeated = np.broadcast_to(first, (len(others[0]), first.shape[1]))
    return np.concatenate([repeated, *others], axis=1)


def _check(name: str, array: Bytes, rows: int, width: int) -> None:
    if array.dtype != np.uint8 or array.shape != (rows, width):
        raise ValueError(f"{name} must be {rows} rows of {width} bytes, not {array.shape}")


def prio3_count(shares: int = 2) -> Prio3:
    return Prio3(Count(), 1, shares)


def prio3_sum(max_measurement: int, shares: int = 2) -> Prio3:
    return Prio3(Sum(max_measurement), 2, shares)


def prio3_sum_vec(
    length: int, max_measurement: int, chunk_length: int | None = None, shares: int = 2
) -> Prio3:
    chunk = chunk_length or best_chunk_length(length * max_measurement.bit_length())
    return Prio3(SumVec(length, chunk, max_measurement), 3, shares)


def prio3_histogram(length: int, chunk_length: int | None = None, shares: int = 2) -> Prio3:
    return Prio3(Histogram(length, chunk_length or best_chunk_length(length)), 4, shares)


def prio3_multihot_count_vec(
    length: int, max_weight: int, chunk_length: int | None = None, shares: int = 2
) -> Prio3:
    chunk = chunk_length or best_chunk_length(length + max_weight.bit_length())
    return Prio3(MultihotCountVec(length, chunk, max_weight), 5, shares)
