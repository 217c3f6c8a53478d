"""A party's life: claiming a token, enrolling, renewing while it takes part."""

import asyncio
import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest

from tallyroom.parties.consent import Consent
from tallyroom.parties.membership import claim_token, discard_claim, join_federation, keep_current
from tallyroom.parties.process import PartyConfig, PartyHost
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.enrolment import Token
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.run.policy import DEPLOYED
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos.identity_files import read_identity
from tallyroom.servers.federation_folder import create_federation, invite
from tests.servers.stations import COORDINATOR, create, knock, running


def _folder(tmp_path: Path, parties: int) -> Path:
    folder = tmp_path / "tokens"
    folder.mkdir()
    for token in create_federation(tmp_path / "room", 1, parties):
        (folder / f"party-{token.party:05d}.token").write_text(token.encode())
    return folder


def test_no_two_replicas_claim_one_token(tmp_path: Path) -> None:
    folder = _folder(tmp_path, 40)

    def claim(replica: int) -> Token | None:
        try:
            return claim_token(folder, f"replica-{replica}")
        except LocalError:
            return None

    with ThreadPoolExecutor(16) as pool:
        claimed = list(pool.map(claim, range(50)))
    parties = sorted(token.party for token in claimed if token is not None)
    assert parties == list(range(40))


def test_a_replica_finds_its_claim_again(tmp_path: Path) -> None:
    folder = _folder(tmp_path, 2)
    first = claim_token(folder, "here")
    assert claim_token(folder, "here") == first
    discard_claim(folder, "here")
    assert claim_token(folder, "here").party == 1
    discard_claim(folder, "here")
    with pytest.raises(LocalError, match="no token is left"):
        claim_token(folder, "here")


def test_a_party_renews_by_itself_and_stays(tmp_path: Path) -> None:
    """A minute is less than a third of what a certificate holds, its slack for clocks counted."""
    ids = np.zeros(1, dtype=np.uint32)
    holdings = Holdings(ids, np.zeros(1, dtype=np.intp), {"score": np.ones(3)})
    folder = tmp_path / "identity"

    async def scenario() -> None:
        made = create(tmp_path / "room", parties=1)
        async with running(made, lifetime=dt.timedelta(minutes=1)) as room:
            first = await join_federation(folder, room.tokens[0], room.enrolment)
            config = PartyConfig(first, room.coordinator, holdings)
            host = PartyHost(config)
            work = [
                asyncio.create_task(host.run()),
                asyncio.create_task(keep_current(folder, host, config, room.enrolment)),
            ]
            for _ in range(100):
                second = read_identity(folder, Role.PARTY)
                if second.certificate != first.certificate:
                    break
                await asyncio.sleep(0.1)
            assert second.certificate != first.certificate
            assert second.key != first.key
            assert second.identity == first.identity
            assert (folder / "key.pem").stat().st_mode & 0o777 == 0o600
            assert await knock(room.coordinator, COORDINATOR, second) is grpc.StatusCode.OK
            assert not any(task.done() for task in work)
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    asyncio.run(scenario())


def test_a_token_is_not_spent_where_the_key_cannot_be_kept(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(create(tmp_path / "room", parties=1)) as room:
            (tmp_path / "full").mkdir()
            (tmp_path / "full" / "something").touch()
            with pytest.raises(LocalError, match="not empty"):
                await join_federation(tmp_path / "full", room.tokens[0], room.enrolment)
            credentials = await join_federation(tmp_path / "id", room.tokens[0], room.enrolment)
            assert credentials.identity.name == "party-0"

    asyncio.run(scenario())


def test_who_enrols_again_keeps_the_ledger(tmp_path: Path) -> None:
    """The certificate is another one; what was spent on the data stays spent."""

    async def scenario() -> None:
        async with running(create(tmp_path / "room", parties=1)) as room:
            folder = tmp_path / "id"
            first = await join_federation(folder, room.tokens[0], room.enrolment)
            Consent(DEPLOYED, folder).close()
            (folder / "secret.key").write_bytes(bytes(16))
            ledger = (folder / "ledger.sqlite").read_bytes()
            token = invite(room.folder, "party-0")
            second = await join_federation(folder, token, room.enrolment)
            assert second.certificate != first.certificate
            assert read_identity(folder, Role.PARTY).certificate == second.certificate
            assert (folder / "ledger.sqlite").read_bytes() == ledger
            assert (folder / "secret.key").read_bytes() == bytes(16)

    asyncio.run(scenario())
