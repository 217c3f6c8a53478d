"""Certificates that a station must not take, and what it takes to lose one."""

import asyncio
import datetime as dt
import os
import stat
from pathlib import Path

import grpc
import grpc.aio
import pytest

from tallyroom.parties.enrolment import enrol
from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.identity.certificates import (
    Authority,
    Credentials,
    Identity,
    new_key,
    validity_of,
)
from tallyroom.protocols.wire.messages import Phase, Role
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.channel import open_channel
from tallyroom.protos.identity_files import (
    read_identity,
    replace_pair,
    write_identity,
    write_secret,
)
from tallyroom.protos.tally_pb2_grpc import MessagesStub, RevocationStub
from tallyroom.servers.federation_folder import (
    create_federation,
    invite,
    read_authority,
    renew_member,
    revoke,
)
from tallyroom.servers.revocation import Revocations
from tests.samples import a_message
from tests.servers.stations import (
    COORDINATOR,
    SECONDS,
    SERVER,
    Federation,
    create,
    knock,
    refusal,
    running,
)

OK = grpc.StatusCode.OK
CUT_OFF = grpc.StatusCode.UNAVAILABLE
REFUSED = grpc.StatusCode.UNAUTHENTICATED
DAY = dt.timedelta(days=1)
PARTY = Identity(Role.PARTY, 0, 0)


@pytest.mark.parametrize(
    ("role", "senders", "believed"),
    [
        (Role.PARTY, (3,), True),
        (Role.PARTY, (3, 4, 5), True),
        (Role.PARTY, (2, 3), False),
        (Role.PARTY, (5, 6), False),
        (Role.SERVER, (3,), False),
        (Role.COORDINATOR, (3,), False),
    ],
)
def test_a_certificate_speaks_for_those_that_it_names(
    role: Role, senders: tuple[int, ...], believed: bool
) -> None:
    message = a_message(Phase.SUBMIT, role, Role.SERVER, senders)
    assert Identity(Role.PARTY, 3, 5).speaks_for(message) is believed


async def _both(room: Federation, shown: Credentials) -> set[grpc.StatusCode]:
    """How the coordinator and the server take a caller."""
    return {
        await knock(room.coordinator, COORDINATOR, shown),
        await knock(room.server, SERVER, shown),
    }


def test_expired_and_foreign_certificates_do_not_get_in(tmp_path: Path) -> None:
    async def scenario() -> None:
        theirs = create(tmp_path / "theirs")
        async with running(create(tmp_path / "ours")) as ours:
            good = ours.issue(PARTY, DAY)
            assert await _both(ours, good) == {OK}
            assert await _both(ours, ours.issue(PARTY, -DAY / 1440)) == {CUT_OFF}
            foreign = theirs.issue(PARTY, DAY)
            members = good.authority
            foreign = Credentials(PARTY, foreign.certificate, members, foreign.key)
            assert await _both(ours, foreign) == {CUT_OFF}

    asyncio.run(scenario())


def test_a_certificate_that_ends_while_connected_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(create(tmp_path / "room")) as room:
            brief = room.issue(PARTY, dt.timedelta(seconds=2))
            async with open_channel(room.server, SERVER, brief) as channel:
                stream = MessagesStub(channel).Receive(pb.Subscription(), timeout=SECONDS)
                await stream.initial_metadata()
                with pytest.raises(grpc.aio.AioRpcError, match="expired") as ended:
                    await stream.read()
                assert ended.value.code() is REFUSED

    asyncio.run(scenario())


def test_a_revoked_party_is_out_everywhere_and_its_stream_is_cut(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(create(tmp_path / "room")) as room:
            shown = await enrol(room.tokens[0], room.enrolment)
            other = await enrol(room.tokens[1], room.enrolment)
            async with open_channel(room.coordinator, COORDINATOR, shown) as channel:
                stream = MessagesStub(channel).Receive(pb.Subscription(), timeout=SECONDS)
                await stream.initial_metadata()
                assert revoke(room.folder, "party-0") == 1
                with pytest.raises(grpc.aio.AioRpcError, match="revoked"):
                    await stream.read()
            for _ in range(50):
                if await _both(room, shown) == {REFUSED}:
                    break
                await asyncio.sleep(0.1)
            assert await _both(room, shown) == {REFUSED}
            assert await _both(room, other) == {OK}

    asyncio.run(scenario())


def test_nothing_is_revoked_twice_or_by_a_wrong_name(tmp_path: Path) -> None:
    create_federation(tmp_path / "room", 1, 1)
    for name in ("party-7", "server-0", "party--1", "party"):
        with pytest.raises(LocalError):
            revoke(tmp_path / "room", name)
    with pytest.raises(LocalError, match="no federation"):
        revoke(tmp_path, "party-0")


def test_the_party_authority_certifies_parties_only(tmp_path: Path) -> None:
    """The coordinator holds that key. With it, it must not pass as a server and collect shares."""

    async def scenario() -> None:
        async with running(create(tmp_path / "room")) as room:
            for identity in (SERVER, COORDINATOR, Identity(Role.ANALYST)):
                shown = room.issue(identity, DAY)
                async with open_channel(room.server, SERVER, shown) as channel:
                    call = RevocationStub(channel).Update(pb.RevocationList(), timeout=SECONDS)
                    assert await refusal(call) is grpc.StatusCode.PERMISSION_DENIED
            party = room.issue(PARTY, DAY)
            members = read_authority(room.folder / "authority").pem
            assert party.authority == members
            for false_server in (room.issue(SERVER, DAY), room.issue(PARTY, DAY)):
                tls = grpc.ssl_server_credentials([(false_server.key, false_server.certificate)])
                imposter = grpc.aio.server()
                port = imposter.add_secure_port("127.0.0.1:0", tls)
                await imposter.start()
                for expected in (SERVER, COORDINATOR, false_server.identity):
                    assert await knock(f"127.0.0.1:{port}", expected, party) is CUT_OFF
                await imposter.stop(0)

    asyncio.run(scenario())


def test_revocation_lists_must_be_signed_and_only_grow(tmp_path: Path) -> None:
    now = dt.datetime.now(dt.UTC)
    authority = Authority.create("room", now, DAY, parties_only=True)
    stranger = Authority.create("room", now, DAY, parties_only=True)
    party = authority.issue(PARTY, now, DAY)
    serial = validity_of(party.certificate).serial
    path = tmp_path / "revoked.pem"
    revocations = Revocations(authority.pem, path)
    for forged in (stranger.revoke([serial], 9, now), b"", b"\x00" * 99, authority.pem):
        with pytest.raises(PeerError):
            revocations.update(forged)
    assert revocations.refuses(party.certificate, now) is None
    assert revocations.refuses(party.certificate, now + 2 * DAY) == "its certificate has expired"
    revocations.update(authority.revoke([serial], 1, now))
    revocations.update(authority.revoke([], 0, now))
    assert revocations.refuses(party.certificate, now) == "its certificate is revoked"
    # A server that starts again has it; one that nobody reaches can be given the file.
    assert Revocations(authority.pem, path).refuses(party.certificate, now) is not None


def test_keys_are_ours_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        create_federation(tmp_path / "room", 2, 1)
    finally:
        os.umask(old)
    keys = sorted((tmp_path / "room").rglob("key.pem"))
    assert len(keys) == 6
    for key in keys:
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    keys[0].chmod(0o644)
    with pytest.raises(LocalError, match="chmod 600"):
        read_identity(tmp_path / "room" / "analyst", Role.ANALYST)


@pytest.mark.parametrize("steps", range(4))
def test_a_renewal_that_is_cut_off_leaves_a_pair(tmp_path: Path, steps: int) -> None:
    now = dt.datetime.now(dt.UTC)
    authority = Authority.create("room", now, DAY)
    folder = tmp_path / "identity"
    old, new = authority.issue(PARTY, now, DAY), authority.issue(PARTY, now, DAY)
    write_identity(folder, old)
    if steps == 3:
        replace_pair(folder, new.key, new.certificate)
    if steps >= 1:
        write_secret(folder / "key.pem.next", new.key)
    if steps == 2:
        write_secret(folder / "certificate.pem.next", new.certificate)
        (folder / "key.pem.next").rename(folder / "key.pem")
    found = read_identity(folder, Role.PARTY)
    assert (found.key, found.certificate) in (
        (old.key, old.certificate),
        (new.key, new.certificate),
    )
    assert (found.key == new.key) == (steps >= 2)


def test_a_key_of_another_certificate_is_no_identity(tmp_path: Path) -> None:
    now = dt.datetime.now(dt.UTC)
    write_identity(tmp_path / "identity", Authority.create("room", now, DAY).issue(PARTY, now, DAY))
    write_secret(tmp_path / "identity" / "key.pem", new_key()[1])
    with pytest.raises(LocalError, match="not the certificate's key"):
        read_identity(tmp_path / "identity", Role.PARTY)


def test_members_are_renewed_where_the_authority_is(tmp_path: Path) -> None:
    create_federation(tmp_path / "room", 1, 1)
    (tmp_path / "room" / "coordinator").rename(tmp_path / "elsewhere")
    old = read_identity(tmp_path / "room" / "server-0", Role.SERVER)
    new = read_identity(renew_member(tmp_path / "room", "server-0"), Role.SERVER)
    assert new.identity == old.identity
    assert new.key != old.key
    assert (new.authority, new.party_authority) == (old.authority, old.party_authority)
    assert invite(tmp_path / "elsewhere", "party-0").party == 0
    assert revoke(tmp_path / "elsewhere", "party-0") == 1
    with pytest.raises(LocalError, match="is not a member: give coordinator"):
        renew_member(tmp_path / "room", "party-0")
