"""Certificates, which say who a participant is, issued by a federation's own authorities.

An identity is a URI in the certificate, `tally:ROLE:FIRST-LAST`. A party host's certificate names
all the parties it may speak for. This module does no I/O: keys and the time come in, PEM goes out,
and shells write files.

A federation has two authorities. The members' authority certifies the coordinator, the servers, the
registrar and the analysts; its key may stay offline. The party authority certifies parties only.
Its key is where parties enrol, at the coordinator or at a registrar, and whoever holds it must not
be able to pass as a server and collect shares. So we never believe what a certificate says about
its role or its issuer: `Trust` checks which authority signed it.
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
"""The longest common name that X.509 allows."""
CAP_EXTENSION = x509.ObjectIdentifier("2.25.76987225120308112530875358416023332795")
"""The certificate extension that states an analyst's cap: an object identifier from a random UUID.
"""
MAX_CAP = 256
"""The longest cap in a certificate, in bytes."""
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
        """The holder's name in messages."""
        if self.first == self.last:
            return self.role.named(self.first)
        return f"{self.role.label}-{self.first}-to-{self.last}"

    @property
    def tls_name(self) -> str:
        """The name that TLS clients check when they connect to the holder. No host has such a name
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
    """What a process needs to speak TLS. The key is secret and never shows in `repr`.

    Calling parties may also be certified by `party_authority`. It does not certify anybody that is
    called, except parties that call each other (`among_parties`). If it is empty, as in a
    simulation, the members' authority certifies parties too.
    """

    identity: Identity
    certificate: bytes
    authority: bytes
    key: bytes = field(repr=False)
    party_authority: bytes = b""
    parties_only: bool = False

    def among_parties(self, party_authority: bytes) -> "Credentials":
        """Credentials for connections between parties: they trust only the party authority."""
        return replace(self, authority=party_authority, party_authority=b"", parties_only=True)

    @property
    def authority_of_parties(self) -> bytes:
        """The authority that certifies parties. It is known from enrolment, and not taken from a
        coordinator later, which could name an authority of its own."""
        return self.party_authority or self.authority

    def signer(self, clock: Clock | None = None) -> PartySigner:
        """What a party host signs with for other parties. Raises `LocalError` if these are not a
        party's credentials."""
        return PartySigner(self.authority_of_parties, self.certificate, self.key, clock)

    @property
    def trust(self) -> "Trust":
        """The authorities whose signature on a caller's certificate is accepted."""
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
        """A new authority. With `parties_only`, whatever it signs is accepted as a party only."""
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
            raise ValueError("the key does not belong to the certificate")
        return cls(private, parsed)

    @property
    def pem(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key as PEM. Secret."""
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
        cap: str = "",
    ) -> Credentials:
        """A new key pair and its certificate, for participants that this process starts itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.sign(key.public_key(), identity, now, lifetime, hosts, cap)
        return Credentials(identity, certificate, self.pem, _private_pem(key))

    def sign(
        self,
        public_key: ec.EllipticCurvePublicKey,
        identity: Identity,
        now: dt.datetime,
        lifetime: dt.timedelta,
        hosts: tuple[str, ...] = (),
        cap: str = "",
    ) -> bytes:
        """The certificate for the holder of `public_key`, as PEM.

        `hosts` are further names or addresses for other people's TLS clients; ours check the
        identity. `cap` is the most that an analyst may learn, as in `parse_cap`. Raises
        `LocalError` if a host could be mistaken for a member.
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
        if cap:
            stated = x509.UnrecognizedExtension(CAP_EXTENSION, cap.encode())
            builder = builder.add_extension(stated, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM)

    def revoke(self, serials: Iterable[int], number: int, now: dt.datetime) -> bytes:
        """The signed list of all revoked serial numbers, as PEM. `number` must grow each time."""
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
class Validity:
    """A certificate's serial number and validity period."""

    serial: int
    begins: dt.datetime
    ends: dt.datetime

    def due(self, now: dt.datetime) -> bool:
        """Whether it is time to renew: less than a third of the lifetime is left."""
        return now > self.ends - (self.ends - self.begins) / 3


@lru_cache(maxsize=4096)
def validity_of(certificate: bytes) -> Validity:
    """Reads them from a certificate. Raises `PeerError` if it is not a certificate."""
    try:
        parsed = x509.load_pem_x509_certificate(certificate)
    except ValueError:
        raise PeerError("unknown", "its certificate cannot be read") from None
    return Validity(parsed.serial_number, parsed.not_valid_before_utc, parsed.not_valid_after_utc)


@lru_cache(maxsize=4096)
def cap_of(certificate: bytes) -> str:
    """The cap that a certificate states, as a person writes it; empty if it states none.

    Raises `PeerError` if it cannot be read: nobody is without a cap by a damaged one."""
    try:
        parsed = x509.load_pem_x509_certificate(certificate)
        found = parsed.extensions.get_extension_for_oid(CAP_EXTENSION).value
    except x509.ExtensionNotFound:
        return ""
    except ValueError:
        raise PeerError("unknown", "its certificate cannot be read") from None
    stated = found.value if isinstance(found, x509.UnrecognizedExtension) else b""
    if not 0 < len(stated) <= MAX_CAP or not stated.isascii():
        raise PeerError("unknown", "its certificate states a cap that cannot be read")
    return stated.decode()


@dataclass(frozen=True)
class Trust:
    """The authorities that are trusted. `members` may certify any role; `parties` may certify only
    parties, whatever its certificates say. Both are PEM, or empty if there is no such authority."""

    members: bytes
    parties: bytes = b""

    def identity_of(self, certificate: bytes) -> Identity:
        """Who the holder of a certificate is. TLS checks whether it is valid now.

        Raises `PeerError` unless an authority that may certify that role has signed it.
        """
        return _signed_identity(self, certificate)


@lru_cache(maxsize=4096)
def _signed_identity(trust: Trust, certificate: bytes) -> Identity:
    identity = claimed_identity(certificate)
    parsed = x509.load_pem_x509_certificate(certificate)
    if trust.members and _is_signed(parsed, trust.members):
        return identity
    if not trust.parties or not _is_signed(parsed, trust.parties):
        raise PeerError("unknown", "its certificate was not issued by this federation")
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
    """Who a certificate claims that its holder is. Do not believe it before `Trust` has checked who
    signed it. Raises `PeerError` if it names no participant."""
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
    """Raises `LocalError` unless `host` is a host name or an address, and not the name of a member.
    Wildcards and a trailing dot, which TLS accepts in names, are not allowed."""
    if _HOST.fullmatch(host) is None and not _is_address(host):
        raise LocalError(f"{host!r} is not a host name")
    if _RESERVED.fullmatch(host):
        raise LocalError(
            f"{host} cannot be a host name in a certificate: its holder could pass as a member"
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
