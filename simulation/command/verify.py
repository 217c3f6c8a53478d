"""`tally verify`: checks the servers' receipts of an answer again."""

import hashlib
from pathlib import Path
from typing import Annotated

import typer

from tallyroom.protocols.aggregation.cheat_certificate import CheatCertificate
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.statistics.contract import asked_as
from tallyroom.simulation.command.messages import warn
from tallyroom.simulation.proof import read_certificate, read_result
from tallyroom.simulation.verification import authority_of, verify

commands = typer.Typer()


def show_cheat(certificate: CheatCertificate, pinned: bytes | None) -> None:
    """Raises `TallyError` where it proves nothing."""
    query = certificate.check(pinned)
    print(
        f"{certificate.cheater} cheated in run {certificate.run.hex()[:16]}, "
        f"{asked_as(query.statistic)}: what it signed is not what it had to garble"
    )
    if pinned is None:
        shown = hashlib.sha256(certificate.authority).hexdigest()
        warn(f"the servers' authority is {shown}; give --authority to check that it is yours")


@commands.command("verify")
def verify_result(
    result: Annotated[Path, typer.Argument(help="A folder written by --out, or a file of it.")],
    authority: Annotated[
        Path | None,
        typer.Option(help="The members' authority (PEM) that must have certified the servers."),
    ] = None,
) -> None:
    """Check a result: the servers' receipts, each stating what a server released, for which
    question and at what ε, and that everything else follows from them. Lists the fields that nobody
    signs. Or check a certificate that a server cheated."""

    pinned = None
    if authority is not None:
        try:
            pinned = authority.read_bytes()
        except OSError as error:
            raise LocalError(f"cannot read {authority}: {error.strerror}") from None
    if (certificate := read_certificate(result)) is not None:
        show_cheat(certificate, pinned)
        return
    document = read_result(result)
    verdict = verify(document, pinned)
    for receipt in verdict.receipts:
        loss = receipt.loss
        size = loss.encode()[loss.measure]
        print(
            f"server-{receipt.server}  released {receipt.share.hex()[:16]} in run "
            f"{receipt.run.hex()[:16]}  {loss.letter} {size}  δ {loss.written_delta}  holds"
        )
    print(f"all else follows from that, except for unsigned fields: {', '.join(verdict.unsigned)}")
    if pinned is None:
        shown = authority_of(document)
        warn(f"the servers' authority is {shown}; give --authority to check that it is yours")
