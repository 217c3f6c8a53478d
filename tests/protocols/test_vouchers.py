"""What a party's signature shows, and to whom."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.certificates import Authority, Credentials, Identity
from tallyroom.protocols.identity.vouchers import PROOF_BYTES, VOUCHER_BYTES, Vouchers, voucher_in
from tallyroom.protocols.wire.messages import Role

NOW = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
AUTHORITY = Authority.create("room", NOW, DAY, parties_only=True)
OTHERS = Authority.create("room", NOW, DAY, parties_only=True)
SAID = b"a statement"


def party(first: int, last: int, authority: Authority = AUTHORITY) -> Credentials:
    return authority.issue(Identity(Role.PARTY, first, last), NOW, DAY)


ONE, BLOCK = party(3, 3), party(4, 9)
PROOF = ONE.signer().prove(SAID)
CHECK = Vouchers(AUTHORITY.pem)


def test_a_proof_shows_what_a_party_said() -> None:
    assert len(PROOF) == PROOF_BYTES
    assert CHECK.fault(3, SAID, PROOF) is None
    assert ONE.signer().prove(SAID) == PROOF, "a party that is started again says the same"
    proof = BLOCK.signer().prove(SAID)
    assert [i for i in range(12) if CHECK.fault(i, SAID, proof) is None] == list(range(4, 10))


def test_others_are_not_believed() -> None:
    assert CHECK.fault(3, SAID + b".", PROOF) == "its signature is invalid"
    assert CHECK.fault(2, SAID, PROOF) == "its certificate is another party's"
    foreign = party(3, 3, OTHERS).signer().prove(SAID)
    assert CHECK.fault(3, SAID, foreign) == "its certificate was not issued by this federation"
    mixed = PROOF[:VOUCHER_BYTES] + foreign[VOUCHER_BYTES:]
    assert CHECK.fault(3, SAID, mixed) == "its signature is invalid"


@given(st.integers(0, PROOF_BYTES * 8 - 1))
def test_no_bit_of_a_proof_can_be_changed(bit: int) -> None:
    changed = bytearray(PROOF)
    changed[bit // 8] ^= 1 << bit % 8
    assert CHECK.fault(3, SAID, bytes(changed)) is not None


@given(st.binary(max_size=PROOF_BYTES + 20))
def test_bytes_that_are_no_proof_are_refused(data: bytes) -> None:
    assert CHECK.fault(3, SAID, data) is not None
    assert CHECK.fault(3, SAID, PROOF[: len(data) % PROOF_BYTES]) is not None
    assert CHECK.fault(3, SAID, PROOF + data + b"x") is not None


def test_a_proof_ends_with_the_certificate() -> None:
    for moment, fault in ((NOW + DAY / 2, None), (NOW + 2 * DAY, "its certificate has expired")):
        assert Vouchers(AUTHORITY.pem, lambda moment=moment: moment).fault(3, SAID, PROOF) == fault  # type: ignore[misc]


@pytest.mark.parametrize("role", [Role.SERVER, Role.COORDINATOR, Role.ANALYST, Role.REGISTRAR])
def test_only_parties_have_vouchers(role: Role) -> None:
    member = AUTHORITY.issue(Identity(role), NOW, DAY)
    with pytest.raises(LocalError, match="no voucher"):
        voucher_in(member.certificate)


def test_secrets_do_not_show() -> None:
    assert repr(ONE.signer()) == "<PartySigner>"
