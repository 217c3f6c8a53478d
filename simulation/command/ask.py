"""`tally ask`: takes a question as JSON and prints the coordinator's events as JSON lines.

For programs that reach a coordinator only through a process beside it, as the docker runtime does.
"""

from pathlib import Path
from typing import Annotated

import typer

from tallyroom.protocols.run.question import Question
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos.identity_files import read_identity
from tallyroom.simulation.analyst import Analyst

commands = typer.Typer()


@commands.command("ask", hidden=True)
def put_question(
    question: Annotated[str, typer.Argument(help="A question, as JSON.")],
    coordinator: Annotated[str, typer.Option(envvar="TALLY_COORDINATOR", help="host:port")],
    identity: Annotated[
        Path, typer.Option(envvar="TALLY_IDENTITY", help="The folder of the analyst's identity.")
    ],
) -> None:
    """Put a question to a coordinator and print its events, one JSON object per line."""
    from google.protobuf.json_format import MessageToJson

    encoded = Question.decode(question).encode()
    analyst = Analyst(coordinator, read_identity(identity, Role.ANALYST))
    try:
        for event in analyst.events(encoded):
            print(MessageToJson(event, indent=None), flush=True)
    finally:
        analyst.close()
