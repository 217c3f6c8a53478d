"""Tokens for certificates: what is signed, and all that is refused. Real TLS on the loopback."""

import asyncio
import base64
import datetime as dt
import sqlite3
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from tallyroom.parties.enrolment import enrol, renew
from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.identity.certificates import Trust, new_key, validity_of
from tallyroom.protocols.identity.enrolment import (
    Token,
    certificate_request,
    check_request,
    sign_renewal,
)
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos.identity_files import read_identity
from tallyroom.servers.enrolment import FAILURES
from tallyroom.servers.federation_folder import invite
from tallyroom.servers.registry import SCHEMA_VERSION, Registry, Signed
from tests.servers.stations import (
    COORDINATOR,
    create,
    knock,
    refusal,
    request_for,
    running,
)

OK = grpc.StatusCode.OK
DENIED = grpc.StatusCode.PERMISSION_DENIED
REFUSED = grpc.StatusCode.UNAUTHENTICATED


def test_a_token_gives_the_party_it_is_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(create(tmp_path / "room")) as room:
            credentials = await enrol(room.tokens[2], room.enrolment)
            assert credentials.identity.name == "party-2"
            trust = Trust(b"", credentials.party_authority)
            assert trust.identity_of(credentials.certificate) == credentials.identity
            assert await knock(room.coordinator, COORDINATOR, credentials) is OK

    asyncio.run(scenario())


def test_a_token_works_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(create(tmp_path / "room")) as room:
            token, request = room.tokens[0].encode(), request_for(0)
            await room.enrol(token, request)
            assert await refusal(room.enrol(token, request)) is DENIED
            assert await refusal(room.enrol(token, request_for(0))) is DENIED
        async with running(room) as again:
            assert await refusal(again.enrol(token, request_for(0))) is DENIED

    asyncio.run(scenario())


def test_of_many_who_race_with_one_token_one_gets_in(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(create(tmp_path / "room")) as room:
            token = room.tokens[1].encode()
            calls = (refusal(room.enrol(token, request_for(1))) for _ in range(8))
            assert sorted(map(str, await asyncio.gather(*calls))).count(str(OK)) == 1

    asyncio.run(scenario())


def _bad_requests() -> dict[str, bytes]:
    key, _ = new_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "party-0")])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    server = x509.SubjectAlternativeName([x509.UniformResourceIdentifier("tally:server:0-0")])
    pem = serialization.Encoding.PEM
    rsa_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    good = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)
    broken = good[:-1] + bytes([good[-1] ^ 1])
    p384 = ec.generate_private_key(ec.SECP384R1())
    return {
        "another index": certificate_request(key, 1),
        "another role": builder.add_extension(server, critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(pem),
        "an RSA key": builder.sign(rsa_key, hashes.SHA256()).public_bytes(pem),
        "another curve": builder.sign(p384, hashes.SHA256()).public_bytes(pem),
        "a broken signature": _pem(broken),
        "nothing": b"",
        "bytes": bytes(range(256)),
        "half": builder.sign(key, hashes.SHA256()).public_bytes(pem)[:200],
        "too long": certificate_request(key, 0) + b"#" * 5000,
    }


def _pem(der: bytes) -> bytes:
    return (
        b"-----BEGIN CERTIFICATE REQUEST-----\n"
        + base64.encodebytes(der)
        + b"-----END CERTIFICATE REQUEST-----\n"
    )


def test_bad_requests_are_refused_and_do_not_use_up_the_token(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(create(tmp_path / "room")) as room:
            token = room.tokens[0].encode()
            for what, request in _bad_requests().items():
                assert await refusal(room.enrol(token, request)) is DENIED, what
            assert await refusal(room.enrol(token, b"#" * (1 << 20))) is (
                grpc.StatusCode.RESOURCE_EXHAUSTED
            )
            assert await refusal(room.enrol(token, request_for(0))) is OK

    asyncio.run(scenario())


def test_a_request_of_random_bytes_is_a_peer_error() -> None:
    with pytest.raises(PeerError, match="cannot be read"):
        check_request(b"\x00" * 100, 3)


def test_wrong_tokens_are_refused_and_counted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(create(tmp_path / "room")) as room:
            genuine = room.tokens[0]
            guess = Token(0, genuine.authority, b"\x00" * 16).encode()
            moved = Token(1, genuine.authority, genuine.secret).encode()
            for token in (guess, moved, "", "tally1-", genuine.encode()[:-1]):
                assert await refusal(room.enrol(token, request_for(0))) is DENIED
            for _ in range(FAILURES - 5):
                assert await refusal(room.enrol(guess, request_for(0))) is DENIED
            last = await refusal(room.enrol(guess, request_for(0)))
            assert last is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (await room.enrol(genuine.encode(), request_for(0))).certificate

    asyncio.run(scenario())


def test_a_token_is_shown_to_its_own_federation_only(tmp_path: Path) -> None:
    async def scenario() -> None:
        ours = create(tmp_path / "ours")
        async with running(create(tmp_path / "theirs")) as theirs:
            with pytest.raises(PeerError, match="not at the federation"):
                await enrol(ours.tokens[0], theirs.enrolment)

    asyncio.run(scenario())


def test_renewal_keeps_the_index_and_changes_the_key(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(create(tmp_path / "room")) as room:
            first = await enrol(room.tokens[1], room.enrolment)
            second = await renew(first, room.enrolment)
            assert second.identity == first.identity
            assert second.key != first.key
            assert validity_of(second.certificate).serial != validity_of(first.certificate).serial
            assert await knock(room.coordinator, COORDINATOR, second) is OK
            for request in _reused_and_foreign(second.key):
                signature = sign_renewal(request, second.key)
                call = room.renew(second.certificate, request, signature)
                assert await refusal(call) is DENIED

    asyncio.run(scenario())


def test_only_a_certificates_key_renews_it(tmp_path: Path) -> None:
    """Whoever carries a request, the coordinator too, cannot put a key of its own into it."""

    async def scenario() -> None:
        async with running(create(tmp_path / "room")) as room:
            mine = await enrol(room.tokens[0], room.enrolment)
            other = await enrol(room.tokens[1], room.enrolment)
            asked, put_in_its_place = request_for(0), request_for(0)
            signature = sign_renewal(asked, mine.key)
            coordinator = read_identity(room.folder / "coordinator", Role.COORDINATOR)
            for certificate, request, signed, reason in (
                (mine.certificate, put_in_its_place, signature, "not signed with its certificate"),
                (mine.certificate, asked, sign_renewal(asked, other.key), "not signed"),
                (mine.certificate, asked, b"", "not signed"),
                (other.certificate, asked, sign_renewal(asked, other.key), "other than to be"),
                (coordinator.certificate, asked, signature, "not issued by this federation"),
                (b"", asked, signature, "names no participant"),
                (b"x" * 5000, asked, signature, "longer than"),
            ):
                with pytest.raises(grpc.aio.AioRpcError, match=reason):
                    await room.renew(certificate, request, signed)
            expired = room.issue(mine.identity, dt.timedelta(seconds=-1))
            with pytest.raises(grpc.aio.AioRpcError, match="expired"):
                await room.renew(expired.certificate, asked, sign_renewal(asked, expired.key))
            assert (await room.renew(mine.certificate, asked, signature)).certificate
            with pytest.raises(grpc.aio.AioRpcError, match="this key already has a certificate"):
                await room.renew(mine.certificate, asked, signature)

    asyncio.run(scenario())


def _reused_and_foreign(key: bytes) -> tuple[bytes, bytes]:
    private = serialization.load_pem_private_key(key, password=None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    return certificate_request(private, 1), request_for(2)


def test_certificates_are_due_in_their_last_third(tmp_path: Path) -> None:
    room = create(tmp_path / "room")
    certificate = room.issue(COORDINATOR, dt.timedelta(days=30)).certificate
    validity = validity_of(certificate)
    now = dt.datetime.now(dt.UTC)
    assert not validity.due(now + dt.timedelta(days=19))
    assert validity.due(now + dt.timedelta(days=21))


def test_a_new_token_ends_the_old_certificate(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(create(tmp_path / "room")) as room:
            old = await enrol(room.tokens[0], room.enrolment)
            await enrol(invite(room.folder, "party-0"), room.enrolment)
            for _ in range(50):
                if await knock(room.coordinator, COORDINATOR, old) is REFUSED:
                    break
                await asyncio.sleep(0.1)
            assert await knock(room.coordinator, COORDINATOR, old) is REFUSED

    asyncio.run(scenario())


def test_the_registry_keeps_only_hashes_and_refuses_the_future(tmp_path: Path) -> None:
    room = create(tmp_path / "room")
    path = room.folder / "coordinator" / "enrolment" / "registry.sqlite"
    assert path.stat().st_mode & 0o777 == 0o600
    for token in room.tokens:
        assert token.secret not in path.read_bytes()
        assert token.encode().encode() not in path.read_bytes()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()
    with pytest.raises(LocalError, match="newer Tallyroom"):
        Registry(path)


def test_an_expired_token_is_refused(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.sqlite")
    now = dt.datetime.now(dt.UTC)
    registry.add_token(b"digest", 0, now)
    with pytest.raises(PeerError, match="expired"):
        registry.redeem(b"digest", now + dt.timedelta(seconds=2), lambda _: pytest.fail("signed"))
    registry.close()


def test_a_revoked_certificate_is_not_renewed(tmp_path: Path) -> None:
    """Whoever stole it would be in again under a serial that is on no list."""
    registry = Registry(tmp_path / "registry.sqlite")
    now = dt.datetime.now(dt.UTC)

    def signed(serial: int) -> Signed:
        return Signed(b"certificate", serial, serial.to_bytes(4, "big"), now)

    registry.add_token(b"digest", 0, now)
    registry.redeem(b"digest", now, lambda _: signed(1))
    registry.renew(0, 1, lambda _: signed(2))
    with pytest.raises(PeerError, match="may not be renewed"):  # it is another party's
        registry.renew(1, 2, lambda _: pytest.fail("signed"))
    assert registry.revoke(0, now) == 2
    for serial in (1, 2, 3):
        with pytest.raises(PeerError, match="may not be renewed"):
            registry.renew(0, serial, lambda _: pytest.fail("signed"))
    registry.close()


def test_tokens_hide_their_secret() -> None:
    token = Token(3, b"\x02" + b"\x11" * 32, b"secretsecretsecr")
    assert "secret" not in repr(token).replace("secret=", "")
