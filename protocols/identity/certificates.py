"""Who a participant is: certificates of one federation's own authority.

An identity is a URI in the certificate, `tally:ROLE:FIRST-LAST`. A party host's certificate names
all the parties it may speak for. Pure: keys and the time come in, PEM goes out; writing files is
the shells' work.

A federation has two authorities. The members' authority signs the coordinator, the servers, the
registrar and the analysts; its key may stay offline. The party authority signs parties alone: its
key is where parties enrol, at the coordinator or at a registrar, and whoever holds it must not be
able to pass as a server and collect shares. So a role is never taken from what a certificate says
of itself or of its issuer: `Trust` asks whose signature it bears.
"""

import datetime as dt
import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.identity.vouchers import EXTENSION, Clock, PartySigner, make_voucher
from tallyroom.protocols.wire.messages import Message, Role

_URI = re.compile(r"tally:(party|server|coordinator|analyst|registrar):(\d{1,9})-(\d{1,9})")
_RESERVED = re.compile(
    r"(party|server|coordinator|analyst|registrar)(-[^.]*)?|(.*\.)?tally\.invalid", re.IGNORECASE
)
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.IGNORECASE)
MAX_NAME = 64
"""Of a common name, by X.509."""
_CLOCK_SLACK = dt.timedelta(minutes=5)
_PARTIES_ONLY = x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "parties")


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
        """What the holder is called in messages."""
        if self.first == self.last:
            return self.role.named(self.first)
        return f"{self.role.label}-{self.first}-to-{self.last}"

    @property
    def tls_name(self) -> str:
        """What a certificate must be for if its holder is called: no host has such a name
        (RFC 2606), and `Authority.sign` writes it for nobody else."""
        return f"{self.name}.tally.invalid"

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
    """What a process needs to speak TLS. The key is secret and shows nowhere.

    `party_authority` is whose signature on a calling party is taken as well; it certifies nobody
    that is called, but parties that call each other (`among_parties`). Where there is none, as in a
    simulation, the members' authority signs parties too.
    """

    identity: Identity
    certificate: bytes
    authority: bytes
    key: bytes = field(repr=False)
    party_authority: bytes = b""
    parties_only: bool = False

    def among_parties(self, party_authority: bytes) -> "Credentials":
        """For connections between parties alone: whom the parties' authority certified."""
        return replace(self, authority=party_authority, party_authority=b"", parties_only=True)

    @property
    def authority_of_parties(self) -> bytes:
        """Whose signature makes a party: known from enrolment, not from what a coordinator says
        later, which could name an authority of its own."""
        return self.party_authority or self.authority

    def signet(self, clock: Clock | None = None) -> PartySigner:
        """What a party host signs with for other parties. Raises `LocalError` if it is none."""
        return PartySigner(self.authority_of_parties, self.certificate, self.key, clock)

    @property
    def trust(self) -> "Trust":
        """Whose signature on a caller's certificate is taken."""
        if self.parties_only:
            return Trust(b"", self.authority)
        return Trust(self.authority, self.party_authority)


class Authority:
    """A federation's certificate authority."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def create(
        cls, federation: str, now: dt.datetime, lifetime: dt.timedelta, parties_only: bool = False
    ) -> "Authority":
        """A new one. What one for `parties_only` signs is taken for a party and nothing else."""
        key = ec.generate_private_key(ec.SECP256R1())
        common = x509.NameAttribute(NameOID.COMMON_NAME, f"Tallyroom {federation}"[:MAX_NAME])
        name = x509.Name([common, _PARTIES_ONLY] if parties_only else [common])
        certificate = (
            _builder(name, name, key.public_key(), now, lifetime)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    @classmethod
    def load(cls, key: bytes, certificate: bytes) -> "Authority":
        """Raises `ValueError` if the two are not the PEM of one authority."""
        private = serialization.load_pem_private_key(key, password=None)
        parsed = x509.load_pem_x509_certificate(certificate)
        if (
            not isinstance(private, ec.EllipticCurvePrivateKey)
            or private.public_key() != parsed.public_key()
        ):
            raise ValueError("the key is not that of the certificate")
        return cls(private, parsed)

    @property
    def pem(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """Secret."""
        return _private_pem(self._key)

    @property
    def public_key(self) -> ec.EllipticCurvePublicKey:
        return self._key.public_key()

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
        return Credentials(identity, certificate, self.pem, _private_pem(key))

    def sign(
        self,
        public_key: ec.EllipticCurvePublicKey,
        identity: Identity,
        now: dt.datetime,
        lifetime: dt.timedelta,
        hosts: tuple[str, ...] = (),
    ) -> bytes:
        """The certificate that says who the holder of `public_key` is, as PEM.

        `hosts` are further names or addresses for other people's TLS clients; ours go by the
        identity. Raises `LocalError` on one that could be taken for a member.
        """
        for host in hosts:
            check_host(host)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, identity.name)])
        names: list[x509.GeneralName] = [
            x509.UniformResourceIdentifier(identity.uri),
            x509.DNSName(identity.tls_name),
            x509.DNSName(identity.name),
            *(_host_name(host) for host in hosts),
        ]
        usage = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if identity.role is not Role.ANALYST:  # parties serve each other
            usage.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = (
            _builder(name, self._certificate.subject, public_key, now, lifetime)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        )
        if identity.role is Role.PARTY:
            first, last, ends = identity.first, identity.last, now + lifetime
            voucher = make_voucher(self._key, first, last, ends, public_key)
            extension = x509.UnrecognizedExtension(EXTENSION, voucher)
            builder = builder.add_extension(extension, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM)

    def revoke(self, serials: Iterable[int], number: int, now: dt.datetime) -> bytes:
        """The signed list of all serials that are revoked, as PEM. `number` only grows."""
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._certificate.subject)
            .last_update(now)
            .next_update(now + dt.timedelta(days=7))
            .add_extension(x509.CRLNumber(number), critical=False)
        )
        for serial in serials:
            revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
            builder = builder.add_revoked_certificate(revoked.build())
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def new_key() -> tuple[ec.EllipticCurvePrivateKey, bytes]:
    """A participant's own key pair, and its secret PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key, _private_pem(key)


@dataclass(frozen=True)
class Passport:
    """What a certificate says beside the identity: its number and for how long it holds."""

    serial: int
    begins: dt.datetime
    ends: dt.datetime

    def due(self, now: dt.datetime) -> bool:
        """Whether it is time to renew: less than a third of the lifetime is left."""
        return now > self.ends - (self.ends - self.begins) / 3


@lru_cache(maxsize=4096)
def passport_of(certificate: bytes) -> Passport:
    """Raises `PeerError` if `certificate` is none."""
    try:
        parsed = x509.load_pem_x509_certificate(certificate)
    except ValueError:
        raise PeerError("unknown", "its certificate cannot be read") from None
    return Passport(parsed.serial_number, parsed.not_valid_before_utc, parsed.not_valid_after_utc)


@dataclass(frozen=True)
class Trust:
    """Who decides who somebody is. `members` signs any role, `parties` signs parties and no other
    role, whatever its certificates say; both are PEM, and empty for nobody."""

    members: bytes
    parties: bytes = b""

    def identity_of(self, certificate: bytes) -> Identity:
        """Who the holder of a certificate is; whether it holds now is for TLS to see.

        Raises `PeerError` unless an authority that may say so has signed it.
        """
        return _signed_identity(self, certificate)


@lru_cache(maxsize=4096)
def _signed_identity(trust: Trust, certificate: bytes) -> Identity:
    identity = claimed_identity(certificate)
    parsed = x509.load_pem_x509_certificate(certificate)
    if trust.members and _is_signed(parsed, trust.members):
        return identity
    if not trust.parties or not _is_signed(parsed, trust.parties):
        raise PeerError("unknown", "its certificate is not of this federation")
    if identity.role is not Role.PARTY:
        role = identity.role.label
        raise PeerError("unknown", f"an authority for parties cannot certify a {role}")
    return identity


def _is_signed(certificate: x509.Certificate, authority: bytes) -> bool:
    try:
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False
    return True


@lru_cache(maxsize=4096)
def claimed_identity(certificate: bytes) -> Identity:
    """Who a certificate says that its holder is: not to be believed before somebody has looked
    whose signature it bears (`Trust`). Raises `PeerError` where it says nothing."""
    try:
        parsed = x509.load_pem_x509_certificate(certificate)
        names = parsed.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value.get_values_for_type(x509.UniformResourceIdentifier)
    except (ValueError, x509.ExtensionNotFound):
        raise PeerError("unknown", "its certificate names no participant of a federation") from None
    matches = [match for name in names if (match := _URI.fullmatch(name))]
    if len(matches) != 1:
        raise PeerError("unknown", "its certificate names no participant of a federation")
    role, first, last = matches[0].groups()
    return Identity(Role[role.upper()], int(first), int(last))


def check_host(host: str) -> None:
    """Raises `LocalError` unless `host` is a name or an address, and none that is a member's. TLS
    takes wildcards and a trailing dot for names as well: there are none of those."""
    if _HOST.fullmatch(host) is None and not _is_address(host):
        raise LocalError(f"{host!r} is not a host name")
    if _RESERVED.fullmatch(host):
        raise LocalError(
            f"{host} cannot be a host's name in a certificate: who holds it could pass as a member"
        )


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


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
    if _is_address(host):
        return x509.IPAddress(ipaddress.ip_address(host))
    return x509.DNSName(host)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
