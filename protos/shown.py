"""The certificate that a station shows, seen without being believed.

gRPC says of a station whose certificate has expired only that it cannot be reached.
"""

import datetime as dt
import socket
import ssl

from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.identity.certificates import claimed_identity, validity_of

SECONDS = 20.0


def shown_certificate(host: str, port: int, seconds: float = SECONDS) -> bytes:
    """The PEM that is shown there, unverified. Raises `OSError` if nobody shows one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Whoever uses the certificate holds it against an authority: none of its claims counts before.
    context.check_hostname = False
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, port), timeout=seconds) as connection,
        context.wrap_socket(connection) as secured,
    ):
        certificate = secured.getpeercert(binary_form=True)
    if certificate is None:
        raise OSError("the peer shows no certificate")
    return ssl.DER_cert_to_PEM_cert(certificate).encode()


def expired_at(target: str, seconds: float = 2.0) -> str | None:
    """Says so if the certificate shown at host:port has expired; None in every other case.

    For a person to read: whoever is in between can show any certificate.
    """
    host, _, port = target.rpartition(":")
    try:
        certificate = shown_certificate(host.strip("[]"), int(port), seconds)
        name, ends = claimed_identity(certificate).name, validity_of(certificate).ends
    except (OSError, ValueError, PeerError):
        return None
    if ends >= dt.datetime.now(dt.UTC):
        return None
    return f"the certificate of {name} expired on {ends:%Y-%m-%d}: renew it (`tally enrol renew`)"
