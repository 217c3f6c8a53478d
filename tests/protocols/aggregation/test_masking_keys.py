"""Keys between two parties: the same at both ends, and for nobody and nothing else."""

import pytest

from tallyroom.protocols.aggregation.masking.keys import (
    SEALED_BYTES,
    Agreements,
    KeyPair,
    channel_keys,
    confirm,
    low_order,
    mask_seed,
    seal,
    unseal,
)

ONE, TWO, THREE = (KeyPair(bytes([i] * 32)) for i in (1, 2, 3))
RUN = b"run-0001"

P = 2**255 - 19
LOW_ORDER = [
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    P - 1,
    P,
    P + 1,
]
"""The points whose order divides 8 (Bernstein, "Curve25519: new Diffie–Hellman speed records",
and its page on contributory behaviour)."""


def test_both_ends_derive_the_same() -> None:
    here, there = ONE.agree(TWO.public), TWO.agree(ONE.public)
    assert here == there
    args = (RUN, ONE.public, TWO.public), (RUN, TWO.public, ONE.public)
    assert mask_seed(here, *args[0]) == mask_seed(there, *args[1])
    assert channel_keys(here, *args[0]) == channel_keys(there, *args[1])


def test_every_purpose_run_and_pair_has_its_own_key() -> None:
    secret = ONE.agree(TWO.public)
    derived = [
        mask_seed(secret, RUN, ONE.public, TWO.public),
        *channel_keys(secret, RUN, ONE.public, TWO.public),
        mask_seed(secret, b"run-0002", ONE.public, TWO.public),
        mask_seed(secret, RUN, ONE.public, THREE.public),
        mask_seed(ONE.agree(THREE.public), RUN, ONE.public, TWO.public),
    ]
    assert len(set(derived)) == len(derived)


def test_agreements_are_shared_by_two_ends_and_by_public_keys_only() -> None:
    agreements = Agreements()
    assert agreements.secret(ONE, TWO.public) == ONE.agree(TWO.public)
    assert agreements.secret(ONE, THREE.public) == ONE.agree(THREE.public)
    assert agreements.secret(TWO, ONE.public) == ONE.agree(TWO.public)
    # A key in another's place: what ONE agreed with TWO is not found for it.
    assert agreements.secret(TWO, THREE.public) == TWO.agree(THREE.public)


@pytest.mark.parametrize("point", LOW_ORDER)
@pytest.mark.parametrize("top", [0, 1 << 255])
def test_points_of_low_order_are_known(point: int, top: int) -> None:
    """The top bit is ignored (RFC 7748, section 5), so it hides nothing."""
    public = (point + top).to_bytes(32, "little")
    assert low_order(public)
    with pytest.raises(ValueError, match="shared key"):
        ONE.agree(public)


def test_real_keys_are_not_of_low_order() -> None:
    assert not any(low_order(pair.public) for pair in (ONE, TWO, THREE))


def test_a_seal_opens_for_its_holder_from_its_dealer_alone() -> None:
    key, secrets = bytes(16), bytes(range(32))
    sealed = seal(key, 3, 5, secrets)
    assert len(sealed) == SEALED_BYTES
    assert unseal(key, 3, 5, sealed) == secrets
    assert unseal(key, 5, 3, sealed) is None
    assert unseal(key, 3, 6, sealed) is None
    assert unseal(bytes(15) + b"\1", 3, 5, sealed) is None
    for i in range(SEALED_BYTES):
        broken = bytearray(sealed)
        broken[i] ^= 1
        assert unseal(key, 3, 5, bytes(broken)) is None


def test_a_confirmation_is_of_one_sender_key_and_set() -> None:
    said = {
        confirm(bytes([k] * 16), sender, m)
        for k in (0, 1)
        for sender in (0, 1)
        for m in (b"a", b"b")
    }
    assert len(said) == 8


def test_secrets_do_not_show() -> None:
    agreements = Agreements()
    secret = agreements.secret(ONE, TWO.public)
    assert repr(ONE) == "<KeyPair>"
    assert secret.hex() not in repr(agreements)
