"""How a server signs what it says, and how others check that it did."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.identity.certificates import Credentials, Identity, Trust
from tallyroom.protocols.identity.vouchers import holds_raw, sign_raw
from tallyroom.protocols.wire.messages import Role

Sign = Callable[[bytes], bytes]


@dataclass(frozen=True)
class SigningIdentity:
    """`sign` signs with the key of `certificate`: ECDSA on P-256, always 64 bytes. `authority`
    certified all members. Both are PEM."""

    sign: Sign = field(repr=False)
    certificate: bytes
    authority: bytes

    @classmethod
    def of(cls, credentials: Credentials) -> Self:
        key = serialization.load_pem_private_key(credentials.key, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
            raise ValueError("servers sign with keys on P-256")
        return cls(partial(sign_raw, key), credentials.certificate, credentials.authority)


def check_signed(
    server: int,
    statement: bytes,
    signature: bytes,
    certificate: bytes,
    authority: bytes,
    called: str = "its statement",
) -> None:
    """Raises `PeerError` unless the members' authority certified this server, and it signed the
    statement, which messages name as it is `called`."""
    name = Role.SERVER.named(server)
    try:
        identity = Trust(members=authority).identity_of(certificate)
    except PeerError:
        raise PeerError(name, "its certificate is not signed by the members' authority") from None
    if identity != Identity(Role.SERVER, server, server):
        raise PeerError(name, f"{called} came with the certificate of somebody else")
    key = x509.load_pem_x509_certificate(certificate).public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not holds_raw(key, statement, signature):
        raise PeerError(name, f"{called} is not signed with its certificate's key")
