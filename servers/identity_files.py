"""Identities on disk: a folder with key.pem (mode 600), certificate.pem and authority.pem."""

import datetime as dt
import os
from pathlib import Path

from protocols.errors import LocalError, PeerError
from protocols.identity import Authority, Credentials, Identity, identity_of
from protocols.messages import Role

LIFETIME = dt.timedelta(days=90)


def write_identity(folder: Path, credentials: Credentials) -> None:
    """Creates the folder. The key is never readable by others, not even for a moment."""
    folder.mkdir(parents=True, mode=0o700)
    (folder / "authority.pem").write_bytes(credentials.authority)
    (folder / "certificate.pem").write_bytes(credentials.certificate)
    write_secret(folder / "key.pem", credentials.key)


def write_secret(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def read_identity(folder: Path, role: Role) -> Credentials:
    """Raises `LocalError` unless the folder holds an identity of that role."""
    try:
        certificate = (folder / "certificate.pem").read_bytes()
        authority = (folder / "authority.pem").read_bytes()
        key = (folder / "key.pem").read_bytes()
        identity = identity_of(certificate)
    except OSError as error:
        raise LocalError(f"no identity in {folder}: {error.strerror}") from None
    except PeerError as error:
        raise LocalError(f"no identity in {folder}: {error.reason}") from None
    if identity.role is not role:
        raise LocalError(f"{folder} is the identity of {identity.name}, not of a {role.label}")
    return Credentials(identity, certificate, authority, key)


def create_federation(
    folder: Path, servers: int, parties: int, hosts: tuple[str, ...] = ()
) -> list[Path]:
    """Makes an authority and the identities of a whole federation, one folder each."""
    if folder.exists() and any(folder.iterdir()):
        raise LocalError(f"{folder} is not empty: a federation is made once")
    if servers < 1 or parties < 1:
        raise LocalError("a federation has at least one server and one party")
    now = dt.datetime.now(dt.UTC)
    authority = Authority.create(folder.name, now, 4 * LIFETIME)
    members = [
        Identity(Role.COORDINATOR),
        Identity(Role.ANALYST),
        *(Identity(Role.SERVER, i, i) for i in range(servers)),
        *(Identity(Role.PARTY, i, i) for i in range(parties)),
    ]
    for member in members:
        credentials = authority.issue(member, now, LIFETIME, hosts)
        write_identity(folder / member.name, credentials)
    return [folder / member.name for member in members]
