"""`tally verify`: checks the servers' receipts of an answer again."""

from pathlib import Path
from typing import Annotated

import typer

from tallyroom.protocols.errors import LocalError
from tallyroom.simulation.command.messages import warn
from tallyroom.simulation.proof import read_result
from tallyroom.simulation.verification import authority_of, verify

commands = typer.Typer()


@commands.command("verify")
def verify_result(
    result: Annotated[Path, typer.Argument(help="A folder written by --out, or its result.json.")],
    authority: Annotated[
        Path | None,
        typer.Option(help="The members' authority (PEM) that must have certified the servers."),
    ] = None,
) -> None:
    """Check a result: the servers' receipts, each stating what a server released, for which
    question and at what ε, and that everything else follows from them. Lists the fields that nobody
    signs."""

    pinned = None
    if authority is not None:
        try:
            pinned = authority.read_bytes()
        except OSError as error:
            raise LocalError(f"cannot read {authority}: {error.strerror}") from None
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
