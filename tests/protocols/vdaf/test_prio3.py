"""Prio3 in batches: one by one the same, honest reports summed, nonsense refused.

These run with the native loops where they are built; that the twins do the same is shown by the
vectors, and by `test_native_and_twin_send_the_same_bytes`.
"""

from collections.abc import Callable

import numpy as np
import pytest

from tallyroom.protocols.algebra.field import FIELD64
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.vdaf import flp
from tallyroom.protocols.vdaf.circuit import Count
from tallyroom.protocols.vdaf.prio3 import (
    Prio3,
    prio3_count,
    prio3_histogram,
    prio3_multihot_count_vec,
    prio3_sum,
    prio3_sum_vec,
)
from tallyroom.protocols.vdaf.vectors import Histogram, MultihotCountVec, SumVec, best_chunk_length
from tests.protocols.vdaf.clients import (
    CTX,
    INSTANCES,
    KEY,
    Batch,
    expected,
    shard,
    total,
    valid,
    verify,
)


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
        with pytest.raises(ValueError, match=r"rows of|shares, got|wrong shape|does not exist"):
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
