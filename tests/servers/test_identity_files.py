"""Identities on disk, and certificates."""

import datetime as dt
from pathlib import Path

import pytest
from servers.identity_files import create_federation, read_identity

from protocols.errors import LocalError, PeerError
from protocols.identity import Authority, Identity, identity_of
from protocols.messages import Phase, Role
from tests.samples import a_message

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


def test_a_federation_on_disk(tmp_path: Path) -> None:
    paths = create_federation(tmp_path / "fed", 2, 3)
    names = ["coordinator", "analyst", "server-0", "server-1", "party-0", "party-1", "party-2"]
    assert [path.name for path in paths] == names
    roles = [Role.COORDINATOR, Role.ANALYST, *[Role.SERVER] * 2, *[Role.PARTY] * 3]
    for path, role in zip(paths, roles, strict=True):
        credentials = read_identity(path, role)
        assert credentials.identity.name == path.name
        assert (path / "key.pem").stat().st_mode & 0o777 == 0o600
        assert path.stat().st_mode & 0o777 == 0o700
        assert "PRIVATE" not in repr(credentials)
    assert len({(path / "key.pem").read_bytes() for path in paths}) == 7
    assert len({(path / "authority.pem").read_bytes() for path in paths}) == 1
    authority_keys = [p for p in (tmp_path / "fed").rglob("*") if "PRIVATE KEY" in text_of(p)]
    assert sorted(authority_keys) == sorted(path / "key.pem" for path in paths)


def text_of(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


def test_a_federation_is_made_once(tmp_path: Path) -> None:
    create_federation(tmp_path / "fed", 1, 1)
    with pytest.raises(LocalError, match="made once"):
        create_federation(tmp_path / "fed", 1, 1)


def test_an_identity_of_another_role_or_none_is_refused(tmp_path: Path) -> None:
    create_federation(tmp_path / "fed", 1, 1)
    with pytest.raises(LocalError, match="identity of party-0, not of a server"):
        read_identity(tmp_path / "fed" / "party-0", Role.SERVER)
    with pytest.raises(LocalError, match="no identity"):
        read_identity(tmp_path, Role.SERVER)
    (tmp_path / "fed" / "server-0" / "certificate.pem").write_text("nonsense")
    with pytest.raises(LocalError, match="no identity"):
        read_identity(tmp_path / "fed" / "server-0", Role.SERVER)


@pytest.mark.parametrize(
    "identity",
    [Identity(Role.PARTY, 3, 17), Identity(Role.SERVER, 1, 1), Identity(Role.COORDINATOR)],
    ids=str,
)
def test_a_certificate_says_who_its_holder_is(identity: Identity) -> None:
    credentials = Authority.create("x", NOW, DAY).issue(identity, NOW, DAY)
    assert identity_of(credentials.certificate) == identity


@pytest.mark.parametrize("data", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\n"])
def test_what_is_no_certificate_names_nobody(data: bytes) -> None:
    with pytest.raises(PeerError, match="names no participant"):
        identity_of(data)


def test_the_authority_is_no_participant() -> None:
    with pytest.raises(PeerError, match="names no participant"):
        identity_of(Authority.create("x", NOW, DAY).pem)


@pytest.mark.parametrize(
    ("role", "senders", "may"),
    [
        (Role.PARTY, (3,), True),
        (Role.PARTY, (5, 3, 4), True),
        (Role.PARTY, (2,), False),
        (Role.PARTY, (3, 6), False),
        (Role.SERVER, (3,), False),
        (Role.COORDINATOR, (3,), False),
    ],
)
def test_whom_a_host_speaks_for(role: Role, senders: tuple[int, ...], may: bool) -> None:
    host = Identity(Role.PARTY, 3, 5)
    message = a_message(Phase.SUBMIT, role, Role.SERVER, senders, body=b"share")
    assert host.speaks_for(message) is may
