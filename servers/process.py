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
from protos.tally_pb2_grpc import add_PostServicer_to_server, add_RevocationServicer_to_server
from servers.aggregation_server import AggregationServer
from servers.ledger import Ledger
from servers.metrics import Metrics, watch_ledger
from servers.post import Mailboxes, Post
from servers.revocation import RevocationDesk, Revocations, Screen

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
    metrics: str | None = None

    @property
    def revoked(self) -> Path | None:
        """Where the revocation list is kept: beside the ledger."""
        return None if self.ledger is None else self.ledger.with_name("revoked.pem")


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

    revocations = Revocations(config.credentials.party_authority, config.revoked)
    metrics = Metrics(config.credentials)
    watch_ledger(metrics, ledger)
    server, port = new_server(config.credentials, config.listen, [metrics, Screen(revocations)])
    add_PostServicer_to_server(Post(participant, mailboxes, carry), server)
    add_RevocationServicer_to_server(RevocationDesk(revocations), server)
    async with serving(server):
        with metrics.serving(config.metrics):
            ready(port)
            await stop_signal()
    ledger.close()
