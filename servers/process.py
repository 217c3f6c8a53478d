"""The server process: `tally server`."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from protocols.identity import Credentials, Identity
from protocols.messages import Role
from protocols.participant import Outcome
from protocols.randomness import Randomness
from protos.channel import new_server, serving, stop_signal
from protos.tally_pb2_grpc import add_PostServicer_to_server
from servers.aggregation_server import AggregationServer
from servers.ledger import Ledger
from servers.post import Mailboxes, Post

Ready = Callable[[int], None]
"""Told the port once the process listens."""


@dataclass(frozen=True)
class ServerConfig:
    """`seed` None means randomness from the operating system."""

    index: int
    credentials: Credentials
    listen: str = "127.0.0.1:0"
    ledger: Path | None = None
    cap: Fraction | None = None
    seed: int | None = None


async def run_server(config: ServerConfig, ready: Ready) -> None:
    """Serves until the process is told to stop."""
    ledger = Ledger(config.ledger, config.cap)
    randomness = Randomness.for_role(config.seed, f"server-{config.index}")
    participant = AggregationServer(config.index, ledger, randomness)
    mailboxes = Mailboxes()
    mailboxes.of(Identity(Role.COORDINATOR))

    async def carry(outcome: Outcome) -> None:
        for message in outcome.messages:
            mailboxes.deliver(message)

    server, port = new_server(config.credentials, config.listen)
    add_PostServicer_to_server(Post(participant, mailboxes, carry), server)
    async with serving(server):
        ready(port)
        await stop_signal()
    ledger.close()
