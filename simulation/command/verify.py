"""`tally verify`: the servers' receipts of an answer, checked again."""

from pathlib import Path
from typing import Annotated

import typer

from protocols.errors import LocalError

verify_command = typer.Typer()


@verify_command.command("verify")
def verify_result(
    result: Annotated[Path, typer.Argument(help="A folder that --out wrote, or its result.json.")],
    authority: Annotated[
        Path | None,
        typer.Option(help="The members' authority (PEM) that must have certified the servers."),
    ] = None,
) -> None:
    """Check the receipts of a result. They say who released what to which question, for what ε."""
    from simulation.command.messages import warn
    from simulation.proof import authority_of, read_result, verify

    pinned = None
    if authority is not None:
        try:
            pinned = authority.read_bytes()
        except OSError as error:
            raise LocalError(f"cannot read {authority}: {error.strerror}") from None
    document = read_result(result)
    for receipt in verify(document, pinned):
        print(
            f"server-{receipt.server}  released {receipt.share.hex()[:16]} in run "
            f"{receipt.run.hex()[:16]}  ε {receipt.epsilon}  δ {receipt.delta}  holds"
        )
    if pinned is None:
        shown = authority_of(document)
        warn(f"the servers' authority is {shown}; give --authority to check that it is yours")
