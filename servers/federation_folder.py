"""A federation on disk, as its operator keeps it, for the `tally enrol` commands.

authority/              the members' authority: certifies everybody except parties; keep it offline
coordinator/            an identity, and enrolment/: the party authority and the registry
registrar/              optional: an identity, and the enrolment/ that the coordinator then lacks
server-0/ … analyst/    one identity each, to be carried to the machine that it is for

Invitations and revocations are made where the folder with enrolment/ is now: `folder` is that
folder itself, or the one that it was created in.
"""

import datetime as dt
import re
import secrets
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.certificates import Authority, Credentials, Identity, check_host
from tallyroom.protocols.identity.enrolment import SECRET_BYTES, Token, compressed
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos.identity_files import make_folder, write_identity, write_public, write_secret
from tallyroom.servers.registry import Registry

AUTHORITY_LIFETIME = dt.timedelta(days=3650)
MEMBER_LIFETIME = dt.timedelta(days=365)
TOKEN_LIFETIME = dt.timedelta(days=7)
MAX_PARTIES = 1 << 16

_PARTY = re.compile(r"party-(\d{1,9})")


def create_federation(
    folder: Path,
    servers: int,
    parties: int,
    hosts: tuple[str, ...] = (),
    registrar: bool = False,
) -> list[Token]:
    """Makes both authorities, the members' identities, and a token for each party.

    Each entry of `hosts` is MEMBER=HOST, a name for one member's certificate. With `registrar`, the
    party authority belongs to a separate process, and the coordinator cannot certify parties.
    Folders may exist already if they are empty (mounted volumes). Raises `LocalError`.
    """
    if servers < 1 or not 1 <= parties <= MAX_PARTIES:
        raise LocalError(f"a federation has at least one server, and 1 to {MAX_PARTIES} parties")
    if (folder / "authority" / "key.pem").exists():
        raise LocalError(f"{folder} already holds a federation")
    now = dt.datetime.now(dt.UTC)
    name = folder.resolve().name
    authority = Authority.create(name, now, AUTHORITY_LIFETIME)
    party_authority = Authority.create(name, now, AUTHORITY_LIFETIME, parties_only=True)
    members = [
        Identity(Role.COORDINATOR),
        Identity(Role.ANALYST),
        *(Identity(Role.SERVER, i, i) for i in range(servers)),
        *([Identity(Role.REGISTRAR)] if registrar else ()),
    ]
    names = hosts_of(hosts, [member.name for member in members])
    for member in members:
        write_identity(
            folder / member.name,
            _member(authority, party_authority.pem, member, now, names[member.name]),
        )
    enrolment = folder / ("registrar" if registrar else "coordinator") / "enrolment"
    _write_authority(enrolment, party_authority)
    # Written last: a folder that has this key holds a complete federation.
    _write_authority(folder / "authority", authority)
    write_public(folder / "authority" / "party-authority.pem", party_authority.pem)
    registry = Registry(enrolment / "registry.sqlite")
    try:
        return [_invite(registry, authority.public_key, party, now) for party in range(parties)]
    finally:
        registry.close()


def invite(folder: Path, party: str) -> Token:
    """Makes a new token for a party that lost its key or let its token expire."""
    enroller = enroller_folder(folder)
    authority = x509.load_pem_x509_certificate((enroller / "authority.pem").read_bytes())
    key = authority.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise LocalError(f"{enroller}/authority.pem does not belong to a federation")
    registry = open_registry(folder)
    try:
        return _invite(registry, key, index_of(party), dt.datetime.now(dt.UTC))
    finally:
        registry.close()


def revoke(folder: Path, party: str) -> int:
    """Revokes a party's certificates and returns how many there were. The process that enrols
    parties tells the servers within seconds.

    Raises `LocalError` if there is nothing to revoke.
    """
    enrolment = enroller_folder(folder) / "enrolment"
    registry = open_registry(folder)
    try:
        count = registry.revoke(index_of(party), dt.datetime.now(dt.UTC))
        if not count:
            raise LocalError(f"{party} has no certificate and no token here")
        revoked = signed_revocations(registry, read_authority(enrolment))
        write_public(enrolment / "revoked.pem", revoked)
    finally:
        registry.close()
    return count


def renew_member(folder: Path, name: str, hosts: tuple[str, ...] = ()) -> Path:
    """Makes a new key and certificate for a member that is not a party, in NAME.renewed/.

    `hosts` are further names for its certificate.
    """
    found = re.fullmatch(r"(server)-(\d{1,3})|coordinator|analyst|registrar", name)
    if found is None:
        raise LocalError(
            f"{name!r} is not a member: give coordinator, analyst, registrar, server-0, server-1 …"
        )
    role = Role[(found[1] or name).upper()]
    index = int(found[2] or 0)
    authority = read_authority(folder / "authority")
    parties = (folder / "authority" / "party-authority.pem").read_bytes()
    target = folder / f"{name}.renewed"
    member = Identity(role, index, index)
    write_identity(target, _member(authority, parties, member, dt.datetime.now(dt.UTC), hosts))
    return target


def signed_revocations(registry: Registry, authority: Authority) -> bytes:
    revoked = registry.revoked()
    return authority.revoke(revoked, len(revoked), dt.datetime.now(dt.UTC))


def open_registry(folder: Path) -> Registry:
    """Raises `LocalError` if `folder` is not a federation's folder."""
    return Registry(enroller_folder(folder) / "enrolment" / "registry.sqlite")


def hosts_of(hosts: tuple[str, ...], members: list[str]) -> dict[str, tuple[str, ...]]:
    """Returns each member's hosts from entries MEMBER=HOST. Raises `LocalError` for a host without
    a member: a host in every certificate would distinguish nobody."""
    names: dict[str, tuple[str, ...]] = dict.fromkeys(members, ())
    for given in hosts:
        member, _, host = given.partition("=")
        if member not in names or not host:
            raise LocalError(
                f"--host {given}: say whose it is, as in --host server-0=a.example.org; "
                f"members are {', '.join(members)}"
            )
        check_host(host)
        names[member] += (host,)
    return names


def enroller_folder(folder: Path) -> Path:
    """The folder of the member that enrols parties: the coordinator or the registrar."""
    for path in (folder / "registrar", folder / "coordinator", folder):
        if (path / "enrolment" / "registry.sqlite").is_file():
            return path
    raise LocalError(f"no federation in {folder}: `tally enrol create` makes one")


def read_authority(folder: Path) -> Authority:
    try:
        key, certificate = ((folder / name).read_bytes() for name in ("key.pem", "certificate.pem"))
        return Authority.load(key, certificate)
    except OSError as error:
        raise LocalError(f"no authority in {folder}: {error.strerror}") from None
    except ValueError as error:
        raise LocalError(f"no authority in {folder}: {error}") from None


def index_of(party: str) -> int:
    found = _PARTY.fullmatch(party)
    if found is None:
        raise LocalError(f"{party!r} is not a party: they are called party-0, party-1 …")
    return int(found[1])


def _member(
    authority: Authority,
    party_authority: bytes,
    member: Identity,
    now: dt.datetime,
    hosts: tuple[str, ...],
) -> Credentials:
    serves = member.role is not Role.ANALYST
    issued = authority.issue(member, now, MEMBER_LIFETIME, hosts if serves else ())
    return Credentials(
        member,
        issued.certificate,
        issued.authority,
        issued.key,
        party_authority if serves else b"",
    )


def _write_authority(folder: Path, authority: Authority) -> None:
    make_folder(folder)
    write_public(folder / "certificate.pem", authority.pem)
    write_secret(folder / "key.pem", authority.key_pem)


def _invite(
    registry: Registry, authority: ec.EllipticCurvePublicKey, party: int, now: dt.datetime
) -> Token:
    token = Token(party, compressed(authority), secrets.token_bytes(SECRET_BYTES))
    registry.add_token(token.digest, party, now + TOKEN_LIFETIME)
    return token
