"""With what a server signs, and whom it believes: its standing among the members."""

from collections.abc import Callable
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.identity.certificates import Identity, Trust
from tallyroom.protocols.identity.vouchers import holds_raw
from tallyroom.protocols.wire.messages import Role

Sign = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Standing:
    """`sign` signs with the key of `certificate`; `authority` certified all members. Both PEM."""

    sign: Sign = field(repr=False)
    certificate: bytes
    authority: bytes


def check_signed(
    server: int, statement: bytes, signature: bytes, certificate: bytes, authority: bytes
) -> None:
    """Raises `PeerError` unless the members' authority certified this server, and it signed."""
    name = Role.SERVER.named(server)
    try:
        identity = Trust(members=authority).identity_of(certificate)
    except PeerError:
        raise PeerError(name, "its certificate is not signed by the members' authority") from None
    if identity != Identity(Role.SERVER, server, server):
        raise PeerError(name, "its signature came with the certificate of somebody else")
    key = x509.load_pem_x509_certificate(certificate).public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not holds_raw(key, statement, signature):
        raise PeerError(name, "what it says is not signed with its certificate's key")
