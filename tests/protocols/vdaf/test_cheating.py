"""Every cheat is rejected, and rejects its own report only."""

import dataclasses

import numpy as np
import pytest

from tallyroom.protocols.algebra.field import Bytes, Vector
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.vdaf import flp, polynomial
from tallyroom.protocols.vdaf.prio3 import (
    Messages,
    Prio3,
    prio3_histogram,
    prio3_multihot_count_vec,
)
from tests.protocols.vdaf.clients import (
    CTX,
    INSTANCES,
    KEY,
    Batch,
    all_accept,
    expected,
    shard,
    total,
    valid,
    verify,
)


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


def test_a_second_encoding_of_a_right_verifier_is_rejected(prio3: Prio3) -> None:
    """All zeros pass the check, so that p in place of 0 differs in its encoding alone."""
    rows = np.zeros((2, prio3.verifier_share_bytes), dtype=np.uint8)
    again = rows.copy()
    modulus = prio3.field.modulus.to_bytes(prio3.field.width, "little")
    again[1, : prio3.field.width] = np.frombuffer(modulus, dtype=np.uint8)
    shares = [rows] * (prio3.shares - 1) + [again]
    messages = prio3.verifier_shares_to_messages(CTX, shares)
    assert messages.accepted.tolist() == [True, False]
