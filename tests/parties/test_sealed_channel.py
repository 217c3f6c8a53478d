"""Sealed channels under attack by whoever carries them."""

import datetime as dt
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.parties.sealed_channel import (
    End,
    SealedChannel,
    SignedKey,
    direction_key,
    fingerprint,
    sign_key,
    verify_key,
)
from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.identity.certificates import Authority, Credentials, Identity
from tallyroom.protocols.wire.messages import Role
from tallyroom.protocols.wire.meter import SEALING_BYTES

NOW = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
ALICE, BOB, EVE = Identity(Role.PARTY, 0, 3), Identity(Role.PARTY, 4, 4), Identity(Role.PARTY, 5, 9)
SECRETS = {
    who: X25519PrivateKey.from_private_bytes(bytes([n]) * 32)
    for n, who in enumerate((ALICE, BOB, EVE), 1)
}
ROOM = b"one federation".ljust(32)


def public(who: Identity) -> bytes:
    return SECRETS[who].public_key().public_bytes_raw()


def channel(me: Identity, peer: Identity, room: bytes = ROOM) -> SealedChannel:
    return SealedChannel(SECRETS[me], me, peer, public(peer), room)


@given(st.lists(st.binary(max_size=200), max_size=6))
def test_both_ends_hear_each_other_in_order(words: list[bytes]) -> None:
    alice, bob = channel(ALICE, BOB), channel(BOB, ALICE)
    for word in words:
        assert bob.open(alice.seal(word)) == word
        assert alice.open(bob.seal(word)) == word


@pytest.mark.parametrize("size", [0, 1, 36, 100_000])
def test_what_the_meter_charges_is_what_sealing_adds(size: int) -> None:
    assert len(channel(ALICE, BOB).seal(bytes(size))) - size == SEALING_BYTES


def test_equal_words_look_different_and_show_nothing() -> None:
    alice = channel(ALICE, BOB)
    word = b"a secret that shows" * 4
    seals = [alice.seal(word) for _ in range(50)]
    assert len({seal[8:] for seal in seals}) == 50
    assert not any(word[i : i + 4] in seal for seal in seals for i in range(len(word) - 4))


def test_a_repeated_and_an_overtaken_message_are_refused() -> None:
    alice, bob = channel(ALICE, BOB), channel(BOB, ALICE)
    first, second, third = (alice.seal(word) for word in (b"1", b"2", b"3"))
    assert bob.open(first) == b"1"
    with pytest.raises(PeerError, match="repeated"):
        bob.open(first)
    assert bob.open(third) == b"3"  # the second may be lost: that is for the protocol to notice
    for late in (first, second, third):
        with pytest.raises(PeerError, match="repeated"):
            bob.open(late)
    assert bob.open(alice.seal(b"4")) == b"4"


def test_every_changed_byte_and_every_truncation_is_refused_and_changes_nothing() -> None:
    alice, bob = channel(ALICE, BOB), channel(BOB, ALICE)
    sealed = alice.seal(b"words")
    for place in range(len(sealed)):
        for change in (1, 0x80, 0xFF):
            forged = bytearray(sealed)
            forged[place] ^= change
            with pytest.raises(PeerError):
                bob.open(bytes(forged))
    for end in range(len(sealed)):
        with pytest.raises(PeerError):
            bob.open(sealed[:end])
    with pytest.raises(PeerError):
        bob.open(sealed + b"\0")
    assert bob.open(sealed) == b"words"


def test_a_message_returned_to_its_sender_is_refused() -> None:
    alice = channel(ALICE, BOB)
    with pytest.raises(PeerError, match="altered"):
        alice.open(alice.seal(b"words"))


def test_a_seal_opens_for_nobody_else_and_from_nobody_else() -> None:
    sealed = channel(ALICE, BOB).seal(b"words")
    for wrong in (
        channel(BOB, EVE),
        channel(EVE, ALICE),
        channel(EVE, BOB),
        channel(BOB, ALICE, b"another federation".ljust(32)),
        SealedChannel(SECRETS[BOB], BOB, EVE, public(ALICE), ROOM),  # the key under another name
        SealedChannel(SECRETS[BOB], EVE, ALICE, public(ALICE), ROOM),
        SealedChannel(SECRETS[BOB], BOB, replace(ALICE, last=4), public(ALICE), ROOM),
    ):
        with pytest.raises(PeerError, match="altered"):
            wrong.open(sealed)
    assert channel(BOB, ALICE).open(sealed) == b"words"


def test_each_direction_pair_and_federation_has_a_key_of_its_own() -> None:
    ends = [End(who, public(who)) for who in SECRETS]
    keys = {
        direction_key(bytes(32), one, other, room)
        for room in (ROOM, bytes(32))
        for one in ends
        for other in ends
    }
    assert len(keys) == 18


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), bytes(32), b"\1" + bytes(31)], ids=repr)
def test_keys_that_agree_with_everybody_are_refused(key: bytes) -> None:
    """Points of small order give a secret that any eavesdropper knows."""
    with pytest.raises(PeerError, match="invalid public key"):
        SealedChannel(SECRETS[ALICE], ALICE, BOB, key, ROOM)


def test_keys_show_in_no_log_line() -> None:
    assert public(ALICE).hex() not in repr(End(ALICE, public(ALICE)))
    assert repr(public(ALICE)) not in repr(End(ALICE, public(ALICE)))


# --- who vouches for a key ---


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("room", NOW, 10 * DAY, parties_only=True)


@pytest.fixture(scope="module")
def alice(authority: Authority) -> Credentials:
    return authority.issue(ALICE, NOW, DAY)


@pytest.fixture(scope="module")
def signed_key(alice: Credentials) -> SignedKey:
    return sign_key(public(ALICE), alice, ROOM)


def test_a_signed_key_is_believed(signed_key: SignedKey, authority: Authority) -> None:
    verify_key(signed_key, authority.pem, ROOM, NOW)  # raises where it is not
    assert signed_key.identity == ALICE


def test_altered_keys_are_refused(
    signed_key: SignedKey, alice: Credentials, authority: Authority
) -> None:
    other = authority.issue(EVE, NOW, DAY)
    namesake = Authority.create("room", NOW, DAY, parties_only=True).issue(ALICE, NOW, DAY)
    for wrong in (
        replace(signed_key, key=public(EVE)),
        replace(signed_key, key=signed_key.key[:-1]),
        replace(signed_key, signature=b""),
        replace(signed_key, signature=signed_key.signature[:-1] + b"\0"),
        replace(signed_key, identity=EVE),
        replace(signed_key, identity=replace(ALICE, last=9)),
        replace(signed_key, certificate=other.certificate),
        replace(signed_key, certificate=b""),
        sign_key(public(EVE), replace(other, identity=ALICE), ROOM),
        replace(sign_key(public(EVE), other, ROOM), identity=ALICE),
        replace(sign_key(public(EVE), other, ROOM), certificate=alice.certificate),
        sign_key(public(ALICE), namesake, ROOM),
        sign_key(public(ALICE), alice, b"another federation".ljust(32)),
    ):
        with pytest.raises(PeerError):
            verify_key(wrong, authority.pem, ROOM, NOW)


@pytest.mark.parametrize("role", [Role.SERVER, Role.COORDINATOR, Role.ANALYST])
def test_only_parties_have_signed_keys(role: Role) -> None:
    """Of an authority that signs members as well: theirs are not keys of parties."""
    everyone = Authority.create("room", NOW, DAY)
    member = everyone.issue(Identity(role), NOW, DAY)
    with pytest.raises(PeerError):
        verify_key(sign_key(public(ALICE), member, ROOM), everyone.pem, ROOM, NOW)


@pytest.mark.parametrize("days", [-1, 2])
def test_a_certificate_that_does_not_hold_vouches_for_nothing(
    signed_key: SignedKey, authority: Authority, days: int
) -> None:
    with pytest.raises(PeerError, match="is not valid now"):
        verify_key(signed_key, authority.pem, ROOM, NOW + days * DAY)


def test_federations_have_fingerprints_of_their_own(authority: Authority) -> None:
    other = Authority.create("room", NOW, DAY)
    assert len({fingerprint(one.pem) for one in (authority, other)}) == 2
    assert fingerprint(authority.pem) == fingerprint(b"\n" + authority.pem)
