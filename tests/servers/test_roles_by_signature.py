"""A role is what an authority that may say so has signed, and an endpoint is the member that is
called: forged certificates, over real TLS."""

import asyncio
import datetime as dt
from pathlib import Path

import grpc
import grpc.aio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.identity.certificates import (
    Authority,
    Credentials,
    Identity,
    Trust,
    check_host,
    new_key,
)
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos.identity_files import read_identity
from tallyroom.servers.federation_folder import create_federation, renew_member
from tests.servers.stations import COORDINATOR, SERVER, Federation, create, knock, running

DAY = dt.timedelta(days=1)
OTHER_SERVER = Identity(Role.SERVER, 1, 1)
PARTY = Identity(Role.PARTY, 0, 0)
MEMBERS = (COORDINATOR, SERVER, Identity(Role.ANALYST), Identity(Role.REGISTRAR))


def forged(
    identity: Identity, issuer: x509.Name, signer: ec.EllipticCurvePrivateKey, *hosts: str
) -> tuple[bytes, bytes]:
    """The certificate and key of a leaf that says what its maker likes."""
    key, pem = new_key()
    now = dt.datetime.now(dt.UTC)
    names = [x509.UniformResourceIdentifier(identity.uri), *map(x509.DNSName, hosts)]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, identity.name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM), pem


def key_of(folder: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key((folder / "key.pem").read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def shouted(name: x509.Name) -> x509.Name:
    """The same name to TLS, which does not mind the case; not to who compares attributes."""
    return x509.Name([x509.NameAttribute(a.oid, str(a.value).upper()) for a in name])


def by_the_party_authority(room: Federation, identity: Identity) -> Credentials:
    folder = room.folder / "coordinator" / "enrolment"
    issuer = x509.load_pem_x509_certificate((folder / "certificate.pem").read_bytes()).subject
    certificate, key = forged(identity, shouted(issuer), key_of(folder), identity.name)
    members = (room.folder / "coordinator" / "authority.pem").read_bytes()
    return Credentials(identity, certificate, members, key)


@pytest.mark.parametrize("identity", MEMBERS, ids=lambda identity: identity.name)
def test_the_party_authority_makes_no_member_whatever_the_issuer_is_called(
    tmp_path: Path, identity: Identity
) -> None:
    async def scenario() -> None:
        async with running(create(tmp_path / "room")) as room:
            shown = by_the_party_authority(room, identity)
            for target, expected in ((room.coordinator, COORDINATOR), (room.server, SERVER)):
                assert await knock(target, expected, shown) is grpc.StatusCode.PERMISSION_DENIED

    asyncio.run(scenario())


def test_a_server_whose_certificate_has_anothers_host_name_is_not_that_server(
    tmp_path: Path,
) -> None:
    """As `--host server-1` once made them: server-0's own, signed by the members' authority."""

    async def scenario() -> None:
        create_federation(tmp_path, 2, 1)
        folder = tmp_path / "authority"
        issuer = x509.load_pem_x509_certificate((folder / "certificate.pem").read_bytes()).subject
        hosts = ("server-0", "server-0.tally.invalid", "server-1", "coordinator")
        certificate, key = forged(SERVER, issuer, key_of(folder), *hosts)
        station = grpc.aio.server()
        tls = grpc.ssl_server_credentials([(key, certificate)])
        port = station.add_secure_port("127.0.0.1:0", tls)
        await station.start()
        caller = read_identity(tmp_path / "coordinator", Role.COORDINATOR)
        for expected, code in (
            (SERVER, grpc.StatusCode.UNIMPLEMENTED),  # it is spoken to, and has no health service
            (OTHER_SERVER, grpc.StatusCode.UNAVAILABLE),
            (COORDINATOR, grpc.StatusCode.UNAVAILABLE),
        ):
            assert await knock(f"127.0.0.1:{port}", expected, caller) is code
        await station.stop(0)

    asyncio.run(scenario())


RESERVED = (
    "server-1",
    "SERVER-0",
    "server",
    "coordinator",
    "Analyst",
    "registrar",
    "party-7",
    "party-0-to-9",
    "server-1.tally.invalid",
    "x.server-1.TALLY.invalid",
    "tally.invalid",
)


@pytest.mark.parametrize(
    "host", [*RESERVED, "", "a" * 254, "a\nb", "bücher.example", "*", "server-1."]
)
def test_no_host_has_a_members_name(tmp_path: Path, host: str) -> None:
    with pytest.raises(LocalError):
        check_host(host)
    authority = Authority.create("room", dt.datetime.now(dt.UTC), DAY)
    with pytest.raises(LocalError):
        authority.issue(SERVER, dt.datetime.now(dt.UTC), DAY, (host,))
    with pytest.raises(LocalError):
        create_federation(tmp_path / "room", 2, 1, (f"server-0={host}",))
    assert not (tmp_path / "room").exists()


def hosts_in(folder: Path) -> set[str]:
    certificate = x509.load_pem_x509_certificate((folder / "certificate.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    found = set(names.get_values_for_type(x509.DNSName))
    return found | {str(address) for address in names.get_values_for_type(x509.IPAddress)}


def test_hosts_go_into_one_members_certificate(tmp_path: Path) -> None:
    hosts = ("server-0=a.example.org", "server-0=10.0.0.7", "server-1=server-1.example.org")
    create_federation(tmp_path, 2, 1, hosts)
    own = {name: {name, f"{name}.tally.invalid"} for name in ("server-0", "server-1", "analyst")}
    assert hosts_in(tmp_path / "server-0") == own["server-0"] | {"a.example.org", "10.0.0.7"}
    assert hosts_in(tmp_path / "server-1") == own["server-1"] | {"server-1.example.org"}
    assert hosts_in(tmp_path / "analyst") == own["analyst"]
    renewed = renew_member(tmp_path, "server-0", ("b.example.org",))
    assert hosts_in(renewed) == own["server-0"] | {"b.example.org"}


@pytest.mark.parametrize("host", ["a.example.org", "server-2=a.example.org", "=a", "server-0="])
def test_a_host_that_is_nobodys_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(LocalError, match="say whose it is"):
        create_federation(tmp_path / "room", 2, 1, (host,))
    assert not (tmp_path / "room").exists()


def test_who_may_say_what_somebody_is() -> None:
    """Every role, signed by every authority, seen by every kind of receiver."""
    now = dt.datetime.now(dt.UTC)
    members, parties, strangers = (Authority.create("room", now, DAY) for _ in range(3))
    everyone = (*MEMBERS, PARTY)
    for identity in everyone:
        signed = {a: a.issue(identity, now, DAY) for a in (members, parties, strangers)}
        is_party = identity.role is Role.PARTY
        for authority, taken_by in (
            (members, {"station": True, "alone": True, "peer": False}),
            (parties, {"station": is_party, "alone": False, "peer": is_party}),
            (strangers, {"station": False, "alone": False, "peer": False}),
        ):
            certificate = signed[authority].certificate
            trusts = {
                "station": Trust(members.pem, parties.pem),
                "alone": Trust(members.pem),
                "peer": Trust(b"", parties.pem),
            }
            for kind, trust in trusts.items():
                if taken_by[kind]:
                    assert trust.identity_of(certificate) == identity
                else:
                    with pytest.raises(PeerError):
                        trust.identity_of(certificate)


def test_an_identity_that_its_authority_did_not_sign_is_not_read(tmp_path: Path) -> None:
    create_federation(tmp_path / "ours", 1, 1)
    create_federation(tmp_path / "theirs", 1, 1)
    foreign = (tmp_path / "theirs" / "authority" / "certificate.pem").read_bytes()
    (tmp_path / "ours" / "server-0" / "authority.pem").write_bytes(foreign)
    with pytest.raises(LocalError, match="not issued by this federation"):
        read_identity(tmp_path / "ours" / "server-0", Role.SERVER)
