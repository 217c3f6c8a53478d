"""A party's life on its machine: claim a token, enrol, take part, renew."""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from tallyroom.parties.enrolment import enrol, is_due, renew
from tallyroom.parties.process import PartyConfig, PartyHost
from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.identity.certificates import Credentials
from tallyroom.protocols.identity.enrolment import Token
from tallyroom.protos.channel import stop_signal
from tallyroom.protos.identity_files import fill_identity, replace_pair

log = logging.getLogger(__name__)

IDENTITY = ("certificate.pem", "key.pem", "authority.pem", "party-authority.pem")
KEPT = frozenset(
    {*IDENTITY, "certificate.pem.next", "key.pem.next"}
    | {"secret.key", "ledger.sqlite", "ledger.sqlite-journal", "spent", "lock", "answers"}
)
"""What may be in the folder of a party that enrols again."""
RENEWAL_SECONDS = 30.0
"""How often to check whether the certificate is due for renewal."""


def claim_token(folder: Path, holder: str) -> Token:
    """Claims for `holder` one of the tokens in `folder`, which are free for the first to come.

    Renaming is atomic, so each of several replicas gets a token of its own; a replica that was
    stopped between claim and enrolment finds its claim again. Raises `LocalError` if no token is
    left.
    """
    mine = f".claimed-{holder}"
    try:
        names = sorted(os.listdir(folder))
        for name in names:
            if name.endswith(mine):
                return Token.decode((folder / name).read_text().strip())
        for name in names:
            if name.endswith(".token"):
                claimed = folder / (name + mine)
                try:
                    (folder / name).rename(claimed)
                except FileNotFoundError:
                    continue
                return Token.decode(claimed.read_text().strip())
    except OSError as error:
        raise LocalError(f"cannot claim a token in {folder}: {error.strerror}") from None
    raise LocalError(f"no token is left in {folder}: the federation has no room for this party")


def discard_claim(folder: Path, holder: str) -> None:
    """Removes a claimed token, which is worthless once it has been used."""
    for path in folder.glob(f"*.token.claimed-{holder}"):
        path.unlink(missing_ok=True)


def is_member(folder: Path) -> bool:
    return (folder / "certificate.pem").exists()


async def join_federation(folder: Path, token: Token, target: str) -> Credentials:
    """Enrols and writes the identity, in place of an earlier one. What the party has answered and
    spent stays: a ledger belongs to the data, not to a certificate.

    Checks first that the identity can be stored, and raises `LocalError` before the token is spent
    if it cannot.
    """
    try:
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        if any(path.name not in KEPT for path in folder.iterdir()):
            raise LocalError(f"{folder} is not empty and does not hold an identity")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise LocalError(f"cannot write to {folder}")
    except OSError as error:
        raise LocalError(f"cannot write to {folder}: {error.strerror}") from None
    credentials = await enrol(token, target)
    for name in IDENTITY:  # the certificate first: a folder that has one has everything
        (folder / name).unlink(missing_ok=True)
    fill_identity(folder, credentials)
    return credentials


async def keep_current(folder: Path, host: PartyHost, config: PartyConfig, enrolment: str) -> None:
    """Renews the certificate at `enrolment` whenever it is due. After a failure it tries again for
    as long as the certificate is valid."""
    credentials = config.credentials
    while True:
        if is_due(credentials):
            try:
                credentials = await renew(credentials, enrolment)
            except PeerError as error:
                log.warning("%s", error)
            else:
                replace_pair(folder, credentials.key, credentials.certificate)
                host.use(credentials)
                log.info("%s renewed its certificate", credentials.identity.name)
        await asyncio.sleep(RENEWAL_SECONDS)


async def run_member(
    folder: Path,
    config: PartyConfig,
    enrolment: str,
    watched: Callable[[PartyHost], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Takes part until the process is stopped or the coordinator refuses it; `watched` meanwhile
    shows its operator how it does."""
    host = PartyHost(config)
    with watched(host):
        await _take_part(folder, host, config, enrolment)


async def _take_part(folder: Path, host: PartyHost, config: PartyConfig, enrolment: str) -> None:
    work = asyncio.create_task(host.run())
    stop = asyncio.create_task(stop_signal())
    current = asyncio.create_task(keep_current(folder, host, config, enrolment))
    tasks = (work, stop, current)
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
