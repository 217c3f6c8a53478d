"""A federation on disk, as its operator keeps it, for the `tally enrol` commands.

authority/              the members' authority: certifies everybody except parties; keep it offline
coordinator/            an identity, and enrolment/: the party authority and the registry
registrar/              optional: an identity, and the enrolment/ that the coordinator then lacks
server-0/ … analyst/    one identity each, to be carried to the machine that it is for
analyst-1/ …            further analysts, each with a cap if it is to have one

Invitations and revocations are made where the folder with enrolment/ is now: `folder` is that
folder itself, or the one that it was created in.
"""

import datetime as dt
import re
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.identity.certificates import (
    Authority,
    Credentials,
    Identity,
    cap_of,
    check_host,
    claimed_identity,
    validity_of,
)
from tallyroom.protocols.identity.enrolment import SECRET_BYTES, Token, compressed
from tallyroom.protocols.privacy.ledger import parse_cap
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos.identity_files import make_folder, write_identity, write_public, write_secret
from tallyroom.servers.registry import Registry

AUTHORITY_LIFETIME = dt.timedelta(days=3650)
MEMBER_LIFETIME = dt.timedelta(days=365)
TOKEN_LIFETIME = dt.timedelta(days=7)
MAX_PARTIES = 1 << 16

ISSUED = "issued"
"""In the authority's folder: copies of the certificates of analysts."""
_ANALYST = re.compile(r"analyst(?:-([1-9]\d{0,8}))?")
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
        made = _member(authority, party_authority.pem, member, now, names[member.name])
        write_identity(folder / member.name, made)
    enrolment = folder / ("registrar" if registrar else "coordinator") / "enrolment"
    _write_authority(enrolment, party_authority)
    # Written last: a folder that has this key holds a complete federation.
    _write_authority(folder / "authority", authority)
    write_public(folder / "authority" / "party-authority.pem", party_authority.pem)
    _keep_certificate(folder, folder / Identity(Role.ANALYST).name)
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


def add_analyst(folder: Path, cap: str = "") -> Path:
    """Makes the identity of one more analyst, in analyst-1/, analyst-2/ …, and returns its folder.

    Its certificate states `cap`, the most that it may learn (`parse_cap`); empty states none.
    Raises `LocalError`."""
    stated = _stated(cap)
    authority = read_authority(folder / "authority")
    index = 1 + max(
        (found for found in map(_analyst, _names(folder)) if found is not None), default=0
    )
    member = Identity(Role.ANALYST, index, index)
    target = folder / member.name
    write_identity(target, _member(authority, b"", member, dt.datetime.now(dt.UTC), (), stated))
    _keep_certificate(folder, target)
    return target


def _stated(cap: str) -> str:
    """A cap as a certificate states it. Raises `LocalError` if it is none."""
    return "" if not cap or parse_cap(cap) is None else cap


def _names(folder: Path) -> list[str]:
    """The folders of members, and all to whom a certificate was ever issued here."""
    issued = (folder / "authority" / ISSUED).glob("*.pem")
    return [path.name for path in folder.iterdir()] + [
        path.stem.partition(".")[0] for path in issued
    ]


def _analyst(name: str) -> int | None:
    """The index of an analyst by its name; None for anything else."""
    found = _ANALYST.fullmatch(name)
    return None if found is None else int(found[1] or 0)


def _keep_certificate(folder: Path, identity: Path) -> None:
    """Keeps a copy of a certificate where it was issued, so that it can be revoked by its name."""
    certificate = (identity / "certificate.pem").read_bytes()
    kept = folder / "authority" / ISSUED
    kept.mkdir(mode=0o700, exist_ok=True)
    name = claimed_identity(certificate).name
    write_public(kept / f"{name}.{validity_of(certificate).serial:x}.pem", certificate)


def revoke_analyst(folder: Path, name: str, certificate: Path | None = None) -> int:
    """Revokes an analyst's certificates, as `revoke` does a party's; returns how many there were.

    They are found in the folder where they were made, unless the `certificate` is given. Raises
    `LocalError` if there is nothing to revoke."""
    issued = sorted((folder / "authority" / ISSUED).glob(f"{name}.*.pem"))
    paths = [certificate] if certificate else [*issued, folder / name / "certificate.pem"]
    serials = {_serial(path, name) for path in paths if certificate or path.exists()}
    if not serials:
        raise LocalError(f"no certificate of {name} in {folder}: give it with --certificate")
    with _telling(folder) as registry:
        count = registry.revoke_members(serials, name, dt.datetime.now(dt.UTC))
        if not count:
            raise LocalError(f"{name}'s certificates are revoked already")
    return count


def _serial(path: Path, name: str) -> int:
    try:
        certificate = path.read_bytes()
        found = claimed_identity(certificate)
        if found.name != name:
            raise LocalError(f"{path} is a certificate of {found.name}, not of {name}")
        return validity_of(certificate).serial
    except (OSError, PeerError):
        raise LocalError(f"{path} is not a certificate") from None


def analysts(folder: Path) -> dict[str, tuple[str, bool]]:
    """Each analyst's cap, empty if there is none, and whether a certificate that is not revoked was
    issued to it, as far as the folder's authority knows."""
    with closing(open_registry(folder)) as registry:
        revoked = frozenset(registry.revoked())
    found: dict[str, tuple[str, bool]] = {}
    issued = [path.read_bytes() for path in (folder / "authority" / ISSUED).glob("*.pem")]
    for certificate in sorted(issued, key=lambda each: validity_of(each).begins):
        name, held = claimed_identity(certificate).name, validity_of(certificate)
        before = found.get(name, ("", False))[1]
        found[name] = (cap_of(certificate), before or held.serial not in revoked)
    return dict(sorted(found.items()))


@contextmanager
def _telling(folder: Path) -> Iterator[Registry]:
    """The registry, whose revocations are then signed and written for the process that enrols."""
    enrolment = enroller_folder(folder) / "enrolment"
    registry = open_registry(folder)
    try:
        yield registry
        revoked = signed_revocations(registry, read_authority(enrolment))
        write_public(enrolment / "revoked.pem", revoked)
    finally:
        registry.close()


def revoke(folder: Path, party: str) -> int:
    """Revokes a party's certificates and returns how many there were. The process that enrols
    parties tells the servers within seconds.

    Raises `LocalError` if there is nothing to revoke.
    """
    with _telling(folder) as registry:
        count = registry.revoke(index_of(party), dt.datetime.now(dt.UTC))
        if not count:
            raise LocalError(f"{party} has no certificate and no token here")
    return count


def renew_member(
    folder: Path, name: str, hosts: tuple[str, ...] = (), cap: str | None = None
) -> Path:
    """Makes a new key and certificate for a member that is not a party, in NAME.renewed/.

    `hosts` are further names for its certificate. An analyst keeps its cap unless one is given. Its
    old certificate holds until it is revoked or ends.
    """
    role, index = _member_named(name)
    if cap is not None and role is not Role.ANALYST:
        raise LocalError(f"{name} has no cap in its certificate: give --cap where it is started")
    stated = _stated(cap or "")
    authority = read_authority(folder / "authority")
    parties = (folder / "authority" / "party-authority.pem").read_bytes()
    target = folder / f"{name}.renewed"
    member, now = Identity(role, index, index), dt.datetime.now(dt.UTC)
    if cap is None and role is Role.ANALYST:
        stated = _cap_before(folder, name)
    write_identity(target, _member(authority, parties, member, now, hosts, stated))
    if role is Role.ANALYST:
        _keep_certificate(folder, target)
    return target


def _member_named(name: str) -> tuple[Role, int]:
    if (analyst := _analyst(name)) is not None:
        return Role.ANALYST, analyst
    found = re.fullmatch(r"(server)-(\d{1,3})|coordinator|registrar", name)
    if found is None:
        raise LocalError(
            f"{name!r} is not a member: give coordinator, analyst, analyst-1, registrar, server-0, "
            "server-1 …"
        )
    return Role[(found[1] or name).upper()], int(found[2] or 0)


def _cap_before(folder: Path, name: str) -> str:
    """The cap in an analyst's newest certificate, so that a renewal does not lift it. Raises
    `LocalError` if there is none to look at."""
    issued = (folder / "authority" / ISSUED).glob(f"{name}.*.pem")
    found = [
        path.read_bytes() for path in (*issued, folder / name / "certificate.pem") if path.exists()
    ]
    if not found:
        raise LocalError(
            f"no certificate of {name} in {folder}: say its cap with --cap, or --cap inf"
        )
    return cap_of(max(found, key=lambda each: validity_of(each).begins))


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
    cap: str = "",
) -> Credentials:
    serves = member.role is not Role.ANALYST
    issued = authority.issue(member, now, MEMBER_LIFETIME, hosts if serves else (), cap)
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
