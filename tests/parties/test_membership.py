"""Replicas that claim tokens from one folder."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from parties.membership import claim_token, discard_claim
from protocols.enrolment import Token
from protocols.errors import LocalError
from servers.federation_folder import create_federation


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
