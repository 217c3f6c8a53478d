"""Who a participant is: certificates of one federation's own authority.

An identity is a URI in the certificate, `tally:ROLE:FIRST-LAST`. A party host's certificate names
all the parties it may speak for. Pure: keys and the time come in, PEM goes out; writing files is
the shells' work.
"""

import datetime as dt
import ipaddress
import re
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from protocols.errors import PeerError
from protocols.messages import Message, Role

_URI = re.compile(r"tally:(party|server|coordinator|analyst):(\d{1,9})-(\d{1,9})")
_CLOCK_SLACK = dt.timedelta(minutes=5)


@dataclass(frozen=True)
class Identity:
    """A role, and the indices that its holder may speak for."""

    role: Role
    first: int = 0
    last: int = 0

    @property
    def uri(self) -> str:
        return f"tally:{self.role.label}:{self.first}-{self.last}"

    @property
    def name(self) -> str:
        """What the holder is called in messages, and its host name in TLS."""
        if self.first == self.last:
            return self.role.named(self.first)
        return f"{self.role.label}-{self.first}-to-{self.last}"

    def speaks_for(self, message: Message) -> bool:
        senders = message.senders
        return (
            message.sender_role is self.role
            and int(senders.min()) >= self.first
            and int(senders.max()) <= self.last
        )

    def covers(self, ids: np.typing.NDArray[np.uint32]) -> bool:
        return len(ids) > 0 and int(ids.min()) >= self.first and int(ids.max()) <= self.last


@dataclass(frozen=True)
class Credentials:
    """What a process needs to speak TLS. The key is secret and shows nowhere."""

    identity: Identity
    certificate: bytes
    authority: bytes
    key: bytes = field(repr=False)


class Authority:
    """A federation's certificate authority."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def create(cls, federation: str, now: dt.datetime, lifetime: dt.timedelta) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Tallyroom {federation}")])
        certificate = (
            _builder(name, name, key.public_key(), now, lifetime)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    @property
    def pem(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self,
        identity: Identity,
        now: dt.datetime,
        lifetime: dt.timedelta,
        hosts: tuple[str, ...] = (),
    ) -> Credentials:
        """A key pair and its certificate, for participants that this process starts itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.sign(key.public_key(), identity, now, lifetime, hosts)
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return Credentials(identity, certificate, self.pem, pem)

    def sign(
        self,
        public_key: ec.EllipticCurvePublicKey,
        identity: Identity,
        now: dt.datetime,
        lifetime: dt.timedelta,
        hosts: tuple[str, ...] = (),
    ) -> bytes:
        """The certificate that says who the holder of `public_key` is, as PEM."""
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, identity.name)])
        names: list[x509.GeneralName] = [
            x509.UniformResourceIdentifier(identity.uri),
            x509.DNSName(identity.name),
            *(_host_name(host) for host in hosts),
        ]
        usage = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if identity.role in (Role.SERVER, Role.COORDINATOR):
            usage.append(ExtendedKeyUsageOID.SERVER_AUTH)
        certificate = (
            _builder(name, self._certificate.subject, public_key, now, lifetime)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)


@lru_cache(maxsize=4096)
def identity_of(certificate: bytes) -> Identity:
    """Reads the identity off a certificate that TLS has verified. Raises `PeerError`."""
    try:
        names = (
            x509.load_pem_x509_certificate(certificate)
            .extensions.get_extension_for_class(x509.SubjectAlternativeName)
            .value.get_values_for_type(x509.UniformResourceIdentifier)
        )
    except (ValueError, x509.ExtensionNotFound):
        names = []
    matches = [match for name in names if (match := _URI.fullmatch(name))]
    if len(matches) != 1:
        raise PeerError("unknown", "its certificate names no participant of a federation")
    role, first, last = matches[0].groups()
    return Identity(Role[role.upper()], int(first), int(last))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: dt.datetime,
    lifetime: dt.timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SLACK)
        .not_valid_after(now + lifetime)
    )


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
