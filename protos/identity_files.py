"""Identities on disk: a folder with key.pem (mode 600), certificate.pem and authority.pem.

Servers and the coordinator have a party-authority.pem as well. A renewed pair arrives as
certificate.pem.next and key.pem.next, and takes its place even if the process dies halfway.
"""

import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.identity.certificates import Credentials, Trust, claimed_identity
from tallyroom.protocols.wire.messages import Role


def write_identity(folder: Path, credentials: Credentials) -> None:
    """Fills a new or empty folder. The key is never readable by others, not even for a moment."""
    make_folder(folder)
    fill_identity(folder, credentials)


def fill_identity(folder: Path, credentials: Credentials) -> None:
    """Writes an identity beside whatever else is in a folder."""
    write_secret(folder / "key.pem", credentials.key)
    write_public(folder / "authority.pem", credentials.authority)
    if credentials.party_authority:
        write_public(folder / "party-authority.pem", credentials.party_authority)
    # Last: a folder with a certificate has everything.
    write_public(folder / "certificate.pem", credentials.certificate)


def make_folder(folder: Path) -> None:
    """For the owner alone. Raises `LocalError` where it cannot be made, or has something in it."""
    try:
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        if any(folder.iterdir()):
            raise LocalError(f"{folder} is not empty")
        if folder.stat().st_uid == os.getuid():
            folder.chmod(0o700)
    except OSError as error:
        raise LocalError(f"cannot write to {folder}: {error.strerror}") from None


def write_secret(path: Path, data: bytes) -> None:
    """Mode 600 from its first byte, and whole or absent; replaces what was there."""
    _write(path, data, 0o600)


def write_public(path: Path, data: bytes) -> None:
    _write(path, data, 0o644)


def _write(path: Path, data: bytes, mode: int) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def replace_pair(folder: Path, key: bytes, certificate: bytes) -> None:
    """Puts a renewed key and its certificate in place of the old ones."""
    write_secret(folder / "key.pem.next", key)
    write_public(folder / "certificate.pem.next", certificate)
    settle(folder)


def settle(folder: Path) -> None:
    """Finishes a renewal that was cut off after the new pair was on disk."""
    renewed = folder / "certificate.pem.next"
    if not renewed.exists():
        return
    key = folder / "key.pem.next"
    if key.exists():
        key.rename(folder / "key.pem")
    if _is_pair((folder / "key.pem").read_bytes(), renewed.read_bytes()):
        renewed.rename(folder / "certificate.pem")


def read_identity(folder: Path, role: Role) -> Credentials:
    """Raises `LocalError` unless the folder holds an identity of that role."""
    identity = read_any_identity(folder)
    if identity.identity.role is not role:
        raise LocalError(
            f"{folder} is the identity of {identity.identity.name}, not of a {role.label}"
        )
    return identity


def read_any_identity(folder: Path) -> Credentials:
    """The identity of whatever role. Raises `LocalError` where there is none, or not ours alone."""
    try:
        settle(folder)
        certificate = (folder / "certificate.pem").read_bytes()
        authority = (folder / "authority.pem").read_bytes()
        key = (folder / "key.pem").read_bytes()
        parties = folder / "party-authority.pem"
        party_authority = parties.read_bytes() if parties.exists() else b""
        mode = (folder / "key.pem").stat().st_mode
        identity = claimed_identity(certificate)
        if identity.role is not Role.PARTY:  # a party's folder has no certificate of its issuer
            Trust(authority).identity_of(certificate)
        pair = _is_pair(key, certificate)
    except OSError as error:
        raise LocalError(f"no identity in {folder}: {error.strerror}") from None
    except PeerError as error:
        raise LocalError(f"no identity in {folder}: {error.reason}") from None
    except ValueError:
        raise LocalError(f"no identity in {folder}: key.pem is not a key") from None
    if mode & 0o007:
        raise LocalError(f"{folder}/key.pem can be read by everybody: chmod 600 it")
    if not pair:
        raise LocalError(f"no identity in {folder}: key.pem is not the certificate's key")
    return Credentials(identity, certificate, authority, key, party_authority)


def _is_pair(key: bytes, certificate: bytes) -> bool:
    private = serialization.load_pem_private_key(key, password=None)
    return private.public_key() == x509.load_pem_x509_certificate(certificate).public_key()
