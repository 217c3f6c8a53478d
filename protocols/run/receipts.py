"""A receipt is what a server signs for a release, with the key of its certificate.

It states in which run the server released, hence in answer to which query (`run_name`), over which
parties, what, and at what privacy loss. It travels in front of the share.
"""

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.identity.signing import Sign, check_signed
from tallyroom.protocols.identity.vouchers import SIGNATURE_BYTES
from tallyroom.protocols.privacy.loss import MAX_TEXT, PrivacyLoss
from tallyroom.protocols.wire.messages import RUN_BYTES, Role

_TAG = b"tallyroom receipt 1\0"
_CLAIMS = struct.Struct(f"<32s32s{MAX_TEXT}s32s")  # request, share, loss and δ as padded text
_HEAD = struct.Struct(f"<{len(_TAG)}s{RUN_BYTES}sI")
RECEIPT_BYTES = _CLAIMS.size + SIGNATURE_BYTES


def request_digest(release: bytes, ask: bytes = b"") -> bytes:
    """Digest of what a server was told to release: the body of RELEASE, and of ASK if any."""
    return _digest((release, ask), b"request")


def share_digest(bodies: Iterable[bytes]) -> bytes:
    """Digest of what a server released, in the order in which it was sent."""
    return _digest(bodies, b"share")


@dataclass(frozen=True)
class Receipt:
    """`loss` is what the server's ledger has for this run."""

    run: bytes
    server: int
    request: bytes
    share: bytes
    loss: PrivacyLoss
    signature: bytes = bytes(SIGNATURE_BYTES)

    @property
    def statement(self) -> bytes:
        """The bytes that are signed."""
        return _HEAD.pack(_TAG, self.run, self.server) + self._claims

    @property
    def _claims(self) -> bytes:
        loss, delta = self.loss.text.encode(), repr(self.loss.written_delta).encode()
        return _CLAIMS.pack(self.request, self.share, loss, delta)

    def signed(self, sign: Sign) -> "Receipt":
        return replace(self, signature=sign(self.statement))

    def encode(self) -> bytes:
        """Always `RECEIPT_BYTES` long. Who says it in which run stands in the message's header."""
        return self._claims + self.signature

    def check_signature(self, certificate: bytes, authority: bytes) -> None:
        """Raises `PeerError` unless the members' authority certified this server, and it signed."""
        check_signed(
            self.server, self.statement, self.signature, certificate, authority, "its receipt"
        )


def decode_receipt(run: bytes, server: int, data: bytes) -> Receipt:
    """Raises `PeerError` on anything but a receipt."""
    refusal = PeerError(Role.SERVER.named(server), "malformed receipt")
    if len(data) != RECEIPT_BYTES or len(run) != RUN_BYTES or not 0 <= server < 1 << 32:
        raise refusal
    request, share, text, delta = _CLAIMS.unpack_from(data)
    try:
        delta = float(delta.rstrip(b"\0").decode("ascii"))
        loss = PrivacyLoss.read(text.rstrip(b"\0").decode("ascii"), delta)
    except ValueError:
        raise refusal from None
    receipt = Receipt(run, server, request, share, loss, data[_CLAIMS.size :])
    if receipt.encode() != data:
        raise refusal
    return receipt


def request_of(data: bytes) -> bytes:
    """What a receipt says was answered (`request_digest`), whatever else it says."""
    return bytes(_CLAIMS.unpack_from(data)[0])


def unsigned(statement: bytes) -> bytes:
    """Signs for a server that has no certificate: nobody believes its receipts."""
    return bytes(SIGNATURE_BYTES)


def _digest(parts: Iterable[bytes], purpose: bytes) -> bytes:
    digest = hashlib.blake2s(person=purpose)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()
