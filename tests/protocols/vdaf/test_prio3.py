"""Prio3 in batches: one by one the same, honest reports summed, every cheat rejected.

These run with the native loops where they are built; that the twins do the same is shown by the
vectors, and by `test_native_and_twin_send_the_same_bytes`.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from protocols.errors import LocalError
from protocols.field import FIELD64, Bytes, Vector
from protocols.randomness import Randomness
from protocols.vdaf import flp, polynomial
from protocols.vdaf.circuit import Count, Measurements, Sum
from protocols.vdaf.prio3 import (
    NONCE_BYTES,
    VERIFY_KEY_BYTES,
    Messages,
    Outputs,
    Prio3,
    Reports,
    prio3_count,
    prio3_histogram,
    prio3_multihot_count_vec,
    prio3_sum,
    prio3_sum_vec,
)
from protocols.vdaf.vectors import Histogram, MultihotCountVec, SumVec, best_chunk_length

CTX = b"test"
KEY = Randomness.from_seed(1, "verify key").bytes(VERIFY_KEY_BYTES)

INSTANCES = {
    "count": prio3_count(),
    "count-3": prio3_count(3),
    "sum-1": prio3_sum(1),
    "sum-1337": prio3_sum(1337, 3),
    "sum-vec": prio3_sum_vec(5, 9, 4),
    "sum-vec-4": prio3_sum_vec(3, 6, shares=4),
    "multiproof": Prio3(SumVec(4, 3, 5, FIELD64), 0xFFFFFFFF, proofs=3),
    "histogram": prio3_histogram(11, 3),
    "histogram-5": prio3_histogram(6, shares=5),
    "histogram-1": prio3_histogram(1, 1),
    "multihot": prio3_multihot_count_vec(10, 4, 3, 3),
}


@pytest.fixture(params=INSTANCES)
def prio3(request: pytest.FixtureRequest) -> Prio3:
    return INSTANCES[request.param]


def valid(prio3: Prio3, rows: int) -> Measurements:
    """Valid measurements, the largest ones among them."""
    generator = np.random.default_rng(rows)
    circuit = prio3.circuit
    if isinstance(circuit, Count):
        return generator.integers(0, 2, rows)
    if isinstance(circuit, Sum):
        found = generator.integers(0, circuit.max_measurement, rows, endpoint=True)
        found[0] = circuit.max_measurement
        return found
    if isinstance(circuit, SumVec):
        shape = (rows, circuit.length)
        found = generator.integers(0, circuit.max_measurement, shape, endpoint=True)
        found[0] = circuit.max_measurement
        return found
    if isinstance(circuit, Histogram):
        return generator.integers(0, circuit.length, rows)
    assert isinstance(circuit, MultihotCountVec)
    ranks = generator.random((rows, circuit.length)).argsort(axis=1)
    weights = np.arange(rows) % (circuit.max_weight + 1)
    return (ranks < weights[:, None]).astype(np.int64)


def expected(prio3: Prio3, measurements: Measurements) -> list[int]:
    if isinstance(prio3.circuit, Histogram):
        counts = np.bincount(measurements, minlength=prio3.circuit.length)
        return [int(count) for count in counts]
    return [int(value) for value in np.atleast_1d(measurements.sum(axis=0))]


@dataclass(frozen=True)
class Batch:
    nonces: Bytes
    rand: Bytes

    @classmethod
    def draw(cls, prio3: Prio3, rows: int, seed: int = 1) -> "Batch":
        source = Randomness.from_seed(seed, "clients")

        def drawn(width: int) -> Bytes:
            return np.frombuffer(source.bytes(rows * width), dtype=np.uint8).reshape(rows, width)

        return cls(drawn(NONCE_BYTES), drawn(prio3.rand_bytes))


def shard(prio3: Prio3, measurements: Measurements, batch: Batch) -> Reports:
    return prio3.shard(measurements, batch.nonces, batch.rand, CTX)


def verify(prio3: Prio3, nonces: Bytes, reports: Reports) -> list[Outputs]:
    """What every server ends with."""
    begun = [
        prio3.verify_init(KEY, CTX, server, nonces, reports.public_shares, shares)
        for server, shares in enumerate(reports.input_shares)
    ]
    messages = prio3.verifier_shares_to_messages(CTX, [shares for _, shares in begun])
    return [prio3.verify_next(states, messages) for states, _ in begun]


def total(prio3: Prio3, ends: list[Outputs]) -> list[int]:
    together = np.logical_and.reduce([end.accepted for end in ends])
    kept = [Outputs(end.shares, together) for end in ends]
    return prio3.unshard([prio3.aggregate(end) for end in kept])


def all_accept(ends: list[Outputs]) -> list[bool]:
    return [all(row) for row in zip(*(end.accepted.tolist() for end in ends), strict=True)]


def test_honest_reports_are_summed(prio3: Prio3) -> None:
    batch = Batch.draw(prio3, 9)
    measurements = valid(prio3, 9)
    ends = verify(prio3, batch.nonces, shard(prio3, measurements, batch))
    for end in ends:
        assert end.accepted.all()
    assert total(prio3, ends) == expected(prio3, measurements)


def test_sizes_are_as_announced(prio3: Prio3) -> None:
    batch = Batch.draw(prio3, 2)
    reports = shard(prio3, valid(prio3, 2), batch)
    assert reports.public_shares.shape == (2, prio3.public_share_bytes)
    assert len(reports.input_shares) == prio3.shares
    for server, rows in enumerate(reports.input_shares):
        assert rows.shape == (2, prio3.input_share_bytes(server))
        _, verifiers = prio3.verify_init(
            KEY, CTX, server, batch.nonces, reports.public_shares, rows
        )
        assert verifiers.shape == (2, prio3.verifier_share_bytes)


def test_a_batch_is_its_reports_one_by_one(prio3: Prio3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flp, "_BLOCK_ELEMENTS", 2 * prio3.circuit.arity * flp.points(prio3.circuit))
    rows = 5
    batch = Batch.draw(prio3, rows)
    measurements = valid(prio3, rows)
    reports = shard(prio3, measurements, batch)
    ends = verify(prio3, batch.nonces, reports)
    for row in range(rows):
        one = slice(row, row + 1)
        alone = shard(prio3, measurements[one], Batch(batch.nonces[one], batch.rand[one]))
        assert np.array_equal(alone.public_shares, reports.public_shares[one])
        for server in range(prio3.shares):
            shares = reports.input_shares[server]
            assert np.array_equal(alone.input_shares[server], shares[one])
            found = prio3.verify_init(
                KEY, CTX, server, batch.nonces, reports.public_shares, shares
            )[1]
            single = prio3.verify_init(
                KEY, CTX, server, batch.nonces[one], alone.public_shares, shares[one]
            )[1]
            assert np.array_equal(single, found[one])
        for end, single_end in zip(ends, verify(prio3, batch.nonces[one], alone), strict=True):
            assert np.array_equal(single_end.shares, end.shares[one])


def test_no_reports_at_all(prio3: Prio3) -> None:
    batch = Batch.draw(prio3, 0)
    empty = valid(prio3, 1)[:0]
    ends = verify(prio3, batch.nonces, shard(prio3, empty, batch))
    assert total(prio3, ends) == [0] * prio3.circuit.output_length


def test_native_and_twin_send_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    prio3 = prio3_histogram(100)
    batch = Batch.draw(prio3, 3)
    measurements = valid(prio3, 3)
    found = []
    for setting in ("0", "1"):
        monkeypatch.setenv("TALLYROOM_NATIVE", setting)
        reports = shard(prio3, measurements, batch)
        begun = prio3.verify_init(
            KEY, CTX, 0, batch.nonces, reports.public_shares, reports.input_shares[0]
        )
        found.append([reports.public_shares, *reports.input_shares, begun[1]])
    for pure, native in zip(*found, strict=True):
        assert np.array_equal(pure, native)


def invalid_encodings(prio3: Prio3) -> Vector:
    """One wrong element at every place, by a little and at random; and all at random."""
    field, length = prio3.circuit.field, prio3.circuit.encoded_length
    honest = prio3.circuit.encode(valid(prio3, 2))[:1]
    wrong = []
    drawn = field.sample(Randomness.from_seed(2, "cheat").bytes, 2 * length)
    for place in range(length):
        for value in (field.from_ints([2])[0], field.from_ints([-1])[0], drawn[place]):
            wrong.append(honest.copy())
            wrong[-1][0, place] = value
    wrong.append(drawn[None, length:])
    return np.concatenate(wrong)


def test_invalid_measurements_with_honest_proofs_are_rejected(prio3: Prio3) -> None:
    """A client that runs the prover on what is not a measurement (soundness error below 2^-50)."""
    encoded = invalid_encodings(prio3)
    good = prio3.circuit.encode(valid(prio3, 1))
    encoded = np.concatenate([good, encoded, good])
    batch = Batch.draw(prio3, len(encoded))
    reports = prio3.shard_encoded(encoded, batch.nonces, batch.rand, CTX)
    ends = verify(prio3, batch.nonces, reports)
    assert all_accept(ends) == [True, *[False] * (len(encoded) - 2), True]
    assert total(prio3, ends) == [2 * count for count in expected(prio3, valid(prio3, 1))]


@pytest.mark.parametrize(
    ("prio3", "bits"),
    [
        (prio3_histogram(4, 2), [0, 0, 0, 0]),
        (prio3_histogram(4, 2), [1, 0, 1, 0]),
        (prio3_histogram(4, 2), [1, 1, 1, 1]),
        # Claimed weight (the last two bits) too small; too large; at the bound with one more.
        (prio3_multihot_count_vec(4, 2, 3), [1, 1, 0, 0, 1, 0]),
        (prio3_multihot_count_vec(4, 2, 3), [0, 0, 0, 0, 0, 1]),
        (prio3_multihot_count_vec(4, 2, 3), [1, 1, 1, 0, 1, 1]),
    ],
)
def test_bits_that_do_not_add_up_are_rejected(prio3: Prio3, bits: list[int]) -> None:
    encoded = prio3.field.from_ints(bits)[None]
    batch = Batch.draw(prio3, 1)
    reports = prio3.shard_encoded(encoded, batch.nonces, batch.rand, CTX)
    assert all_accept(verify(prio3, batch.nonces, reports)) == [False]


def corrupted(rows: Bytes, places: list[int], flips: Bytes) -> Bytes:
    """Row i + 1 with the byte at places[i] changed; row 0 as it is."""
    changed = rows.copy()
    for row, place in enumerate(places, start=1):
        changed[row, place] ^= flips[row]
    return changed


@pytest.mark.parametrize("target", ["public", "leader", "helper", "last"])
def test_any_changed_byte_rejects_that_report_only(prio3: Prio3, target: str) -> None:
    """Measurement shares, proofs, seeds, blinds and public shares, byte by byte."""
    server = {"leader": 0, "helper": 1, "last": prio3.shares - 1}.get(target)
    width = prio3.public_share_bytes if server is None else prio3.input_share_bytes(server)
    if width == 0:
        pytest.skip("this instance has no public share")
    places = list(range(0, width, max(1, width // 60)))
    rows = len(places) + 1
    flips = np.random.default_rng(3).integers(1, 256, rows).astype(np.uint8)
    batch = Batch.draw(prio3, rows)
    measurements = valid(prio3, rows)
    reports = shard(prio3, measurements, batch)
    if server is None:
        public = corrupted(reports.public_shares, places, flips)
        reports = dataclasses.replace(reports, public_shares=public)
    else:
        shares = list(reports.input_shares)
        shares[server] = corrupted(shares[server], places, flips)
        reports = dataclasses.replace(reports, input_shares=tuple(shares))
    ends = verify(prio3, batch.nonces, reports)
    assert all_accept(ends) == [True, *[False] * len(places)]
    assert total(prio3, ends) == expected(prio3, measurements[:1])


def test_what_is_not_canonical_is_rejected_where_it_is(prio3: Prio3) -> None:
    batch = Batch.draw(prio3, 3)
    reports = shard(prio3, valid(prio3, 3), batch)
    leader = reports.input_shares[0].copy()
    leader[1, : prio3.field.width] = 0xFF
    states, verifiers = prio3.verify_init(KEY, CTX, 0, batch.nonces, reports.public_shares, leader)
    assert states.accepted.tolist() == [True, False, True]
    helpers = [
        prio3.verify_init(
            KEY, CTX, j, batch.nonces, reports.public_shares, reports.input_shares[j]
        )[1]
        for j in range(1, prio3.shares)
    ]
    helpers[0] = helpers[0].copy()
    helpers[0][2, : prio3.field.width] = 0xFF
    messages = prio3.verifier_shares_to_messages(CTX, [verifiers, *helpers])
    assert messages.accepted.tolist() == [True, False, False]
    outputs = prio3.verify_next(states, messages)
    assert outputs.accepted.tolist() == [True, False, False]
    assert not outputs.shares[1:].any()


def test_another_context_or_nonce_is_rejected(prio3: Prio3) -> None:
    batch = Batch.draw(prio3, 2)
    measurements = valid(prio3, 2)
    elsewhere = prio3.shard(measurements, batch.nonces, batch.rand, b"elsewhere")
    assert all_accept(verify(prio3, batch.nonces, elsewhere)) == [False, False]
    if prio3.joint:
        nonces = batch.nonces[::-1]
        assert all_accept(verify(prio3, nonces, shard(prio3, measurements, batch))) == [False] * 2


def test_a_wrong_message_is_rejected_by_its_receiver() -> None:
    prio3 = INSTANCES["histogram"]
    batch = Batch.draw(prio3, 2)
    reports = shard(prio3, valid(prio3, 2), batch)
    begun = [
        prio3.verify_init(KEY, CTX, j, batch.nonces, reports.public_shares, rows)
        for j, rows in enumerate(reports.input_shares)
    ]
    messages = prio3.verifier_shares_to_messages(CTX, [shares for _, shares in begun])
    changed = messages.rows.copy()
    changed[0, 5] ^= 1
    outputs = prio3.verify_next(begun[0][0], Messages(changed, messages.accepted))
    assert outputs.accepted.tolist() == [False, True]


def test_no_verifier_is_sent_at_a_point_that_would_leak(
    prio3: Prio3, monkeypatch: pytest.MonkeyPatch
) -> None:
    field, p = prio3.field, flp.points(prio3.circuit)
    batch = Batch.draw(prio3, 3)
    reports = shard(prio3, valid(prio3, 3), batch)
    length = flp.query_rand_length(prio3.circuit)
    chosen = field.sample(Randomness.from_seed(4, "query").bytes, 3 * length * prio3.proofs)
    chosen = chosen.reshape(3, length * prio3.proofs, field.limbs)
    chosen[0, length - 1] = polynomial.roots(field, p).powers[1]
    chosen[1, length - 1] = polynomial.roots(field, 2 * p).powers[1]
    monkeypatch.setattr(Prio3, "_query_rand", lambda *unused: chosen)
    states, verifiers = prio3.verify_init(
        KEY, CTX, 1, batch.nonces, reports.public_shares, reports.input_shares[1]
    )
    assert states.accepted.tolist() == [False, True, True]
    assert not verifiers[0, : prio3.verifier_share_bytes - prio3.message_bytes].any()
    assert all_accept(verify(prio3, batch.nonces, reports)) == [False, True, True]


INVALID: list[tuple[Prio3, object]] = [
    (prio3_count(), [2]),
    (prio3_count(), [-1]),
    (prio3_count(), [[1]]),
    (prio3_count(), [0.5]),
    (prio3_sum(10), [11]),
    (prio3_sum(10), [-1]),
    (prio3_sum_vec(2, 3), [[0, 4]]),
    (prio3_sum_vec(2, 3), [[0, 1, 2]]),
    (prio3_histogram(4), [4]),
    (prio3_histogram(4), [-1]),
    (prio3_multihot_count_vec(3, 1), [[1, 1, 0]]),
    (prio3_multihot_count_vec(3, 1), [[2, 0, 0]]),
    (prio3_multihot_count_vec(3, 1), [[1, 0]]),
]


@pytest.mark.parametrize(("prio3", "measurements"), INVALID)
def test_invalid_measurements_are_refused_before_sharding(
    prio3: Prio3, measurements: object
) -> None:
    with pytest.raises(LocalError):
        shard(prio3, np.array(measurements), Batch.draw(prio3, 1))


@pytest.mark.parametrize(
    "build",
    [
        lambda: prio3_count(1),
        lambda: prio3_count(256),
        lambda: Prio3(Count(), 1, proofs=0),
        lambda: Prio3(SumVec(4, 3, 5, FIELD64), 3, proofs=2),
        lambda: prio3_sum(0),
        lambda: prio3_sum(2**63),
        lambda: Histogram(0, 1),
        lambda: Histogram(3, 0),
        lambda: MultihotCountVec(3, 1, 4),
        lambda: MultihotCountVec(3, 1, 0),
    ],
)
def test_instances_that_make_no_sense_are_refused(build: Callable[[], object]) -> None:
    with pytest.raises(LocalError):
        build()


def test_arrays_of_wrong_sizes_are_refused() -> None:
    prio3 = INSTANCES["histogram"]
    batch = Batch.draw(prio3, 2)
    reports = shard(prio3, valid(prio3, 2), batch)
    nonces, public, leader = batch.nonces, reports.public_shares, reports.input_shares[0]
    calls: list[Callable[[], object]] = [
        lambda: shard(prio3, valid(prio3, 2), Batch(nonces[:, 1:], batch.rand)),
        lambda: shard(prio3, valid(prio3, 2), Batch(nonces, batch.rand[:1])),
        lambda: prio3.verify_init(KEY[1:], CTX, 0, nonces, public, leader),
        lambda: prio3.verify_init(KEY, CTX, 2, nonces, public, leader),
        lambda: prio3.verify_init(KEY, CTX, 0, nonces, public[:, 1:], leader),
        lambda: prio3.verify_init(KEY, CTX, 0, nonces, public, leader[:, 1:]),
        lambda: prio3.verify_init(KEY, CTX, 1, nonces, public, leader),
        lambda: prio3.verifier_shares_to_messages(CTX, [leader]),
        lambda: prio3.verifier_shares_to_messages(CTX, [leader, leader]),
        lambda: prio3.unshard([prio3.field.zeros(11)]),
        lambda: prio3.shard_encoded(prio3.field.zeros(2, 12), nonces, batch.rand, CTX),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"rows of|shares, not|shape|no such"):
            call()


def test_shares_do_not_show_in_print() -> None:
    prio3 = INSTANCES["histogram"]
    batch = Batch.draw(prio3, 1)
    reports = shard(prio3, valid(prio3, 1), batch)
    states, _ = prio3.verify_init(
        KEY, CTX, 0, batch.nonces, reports.public_shares, reports.input_shares[0]
    )
    for secret in (reports, states):
        assert "array" not in repr(secret)


def test_the_chunk_length_gives_the_shortest_proof() -> None:
    for length in (1, 2, 7, 100, 1024):
        lengths = [flp.proof_length(Histogram(length, c)) for c in range(1, length + 1)]
        best = flp.proof_length(Histogram(length, best_chunk_length(length)))
        assert best == min(lengths)
