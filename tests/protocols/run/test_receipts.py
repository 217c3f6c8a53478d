"""A receipt has one encoding, and states its loss in one way."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.privacy.loss import NO_LOSS, UNBOUNDED, PrivacyLoss
from tallyroom.protocols.run.receipts import RECEIPT_BYTES, Receipt, decode_receipt
from tests.samples import RUN

SIZES = st.fractions(0, 10**9, max_denominator=10**9)
LOSS = slice(64, 128)
DELTA = slice(128, 160)


def a_receipt(loss: PrivacyLoss) -> Receipt:
    return Receipt(RUN, 1, bytes(range(32)), bytes(range(32, 64)), loss, bytes(range(64)))


@given(
    st.one_of(
        st.just(NO_LOSS),
        st.just(UNBOUNDED),
        st.builds(PrivacyLoss.of, SIZES, st.floats(0, 0.999)),
        st.builds(PrivacyLoss.concentrated, SIZES, st.floats(0, 0.999)),
    )
)
def test_a_receipt_is_read_as_it_was_written(loss: PrivacyLoss) -> None:
    data = a_receipt(loss).encode()
    assert len(data) == RECEIPT_BYTES
    assert decode_receipt(RUN, 1, data) == a_receipt(loss)


def test_losses_are_where_they_always_were() -> None:
    data = a_receipt(PrivacyLoss.of(Fraction(1, 3), 1e-6)).encode()
    assert (data[LOSS].rstrip(b"\0"), data[DELTA].rstrip(b"\0")) == (b"1/3", b"1e-06")
    data = a_receipt(PrivacyLoss.concentrated(Fraction(1, 3))).encode()
    assert (data[LOSS].rstrip(b"\0"), data[DELTA].rstrip(b"\0")) == (b"rho 1/3", b"0.0")


@pytest.mark.parametrize(
    ("at", "text"),
    [
        *((LOSS, text) for text in (b"", b"0.5", b"2/2", b"-1", b"nan", b"1\0\0x", b"1 ", b"\xff")),
        *((LOSS, text) for text in (b"rho", b"rho 0", b"rho inf", b"Rho 1", b"rho  1", b"rho -1")),
        *((LOSS, text) for text in (b"1e9", b"1/0", b"9" * 64 + b"9")),
        *((DELTA, text) for text in (b"", b"0", b"-0.0", b"1.0", b"nan", b"1e-6", b"1E-06")),
        *((DELTA, text) for text in (b"0.00", b" 0.0", b"0.0 ", b"0_0.0", b"\xd9\xa3", b"-1e-06")),
    ],
)
def test_no_other_text_of_a_loss_is_a_receipt(at: slice, text: bytes) -> None:
    data = bytearray(a_receipt(PrivacyLoss.of(1)).encode())
    data[at] = text.ljust(at.stop - at.start, b"\0")
    with pytest.raises(PeerError, match="malformed receipt"):
        decode_receipt(RUN, 1, bytes(data))
