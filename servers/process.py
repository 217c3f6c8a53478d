"""The server process: `tally server`."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.identity.certificates import Credentials, Identity
from tallyroom.protocols.identity.signing import SigningIdentity
from tallyroom.protocols.identity.vouchers import Vouchers
from tallyroom.protocols.privacy.ledger import Cap, Composition, Filter
from tallyroom.protocols.run.receipts import decode_receipt
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.messages import Role, last_number
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.channel import new_server, serving, stop_signal
from tallyroom.protos.heap import keep_freed_memory
from tallyroom.protos.tally_pb2_grpc import (
    add_MessagesServicer_to_server,
    add_RevocationServicer_to_server,
)
from tallyroom.servers.aggregation_server import AggregationServer
from tallyroom.servers.health import Health
from tallyroom.servers.message_service import Mailboxes, MessageService
from tallyroom.servers.metrics import Metrics, watch_ledger, watch_store
from tallyroom.servers.other_servers import OtherServers
from tallyroom.servers.revocation import Revocations, RevocationService, Screen
from tallyroom.storage.bulk import FileBulk
from tallyroom.storage.journal import Journal
from tallyroom.storage.store import Store

log = logging.getLogger(__name__)

Ready = Callable[[int], None]
"""Receives the port once the process listens."""


@dataclass(frozen=True)
class ServerConfig:
    """Without a `seed`, randomness is the operating system's; without a `store`, a restart loses
    everything."""

    index: int
    credentials: Credentials
    listen: str = "127.0.0.1:0"
    store: Path | None = None
    cap: Cap = None
    seed: int | None = None
    metrics: str | None = None
    cap_delta: float | None = None
    composition: Composition = Composition.SUM


def look_at(server: AggregationServer, authority: bytes, shown: pb.Subscription) -> None:
    """Looks at a receipt that is said to be ours; one that is not says nothing about us."""
    if not shown.receipt.receipt:
        return
    try:
        receipt = decode_receipt(shown.run, server.index, shown.receipt.receipt)
        receipt.check_signature(shown.receipt.certificate, authority)
    except PeerError as error:
        log.warning("the coordinator shows no receipt of ours: %s", error)
        return
    server.shown(receipt)
    if server.doubt:
        log.error("nothing is begun here: %s; `tally ledger STORE --restore`", server.doubt)


async def run_server(config: ServerConfig, ready: Ready) -> None:
    """Serves until the process is stopped. With a store it resumes where it was killed."""
    keep_freed_memory()
    store = Store(config.store)
    ledger = store.open_ledger(Filter.of(config.cap, config.cap_delta, config.composition))
    known = store.has_secret
    randomness = store.randomness(config.seed, f"server-{config.index}")
    journal = Journal(store.folder / "runs") if store.durable else None
    participant = AggregationServer(
        config.index,
        ledger,
        randomness,
        lambda run: FileBulk(store.folder, run, journal),
        SigningIdentity.of(config.credentials),
        Vouchers(config.credentials.authority_of_parties),
    )
    mailboxes = Mailboxes()
    mailboxes.of(Identity(Role.COORDINATOR))

    others = OtherServers(config.credentials, participant.is_open)

    async def carry(outcome: Reply) -> None:
        for message in outcome.messages:
            if message.between_servers:
                others.send(message)
            else:
                mailboxes.deliver(message)

    post = MessageService(participant, mailboxes, carry, journal)
    post.certificate = config.credentials.certificate
    post.told_servers = others.find
    post.shown = partial(look_at, participant, config.credentials.authority)
    others.give_up = post.give_up
    if config.seed is None:
        participant.begun.clock = time.time
    if journal:
        # A store without journals (lost, or a partial copy) does not know which runs have begun.
        participant.begun.mark = journal.begin(last_number(time.time()) if known else b"")
        for run in journal.forgotten():
            participant.forget(run)
        for run, records in journal.retold():
            for outcome in post.replay(run, records):
                await carry(outcome)
    revocations = Revocations(config.credentials.party_authority, store.revoked)
    metrics = Metrics(lambda: config.credentials)
    watch_ledger(metrics, ledger)
    health = Health(config.store, ledger, lambda: participant.waiting)
    watch_store(metrics, health, participant)
    calls = [metrics, Screen(revocations)]
    server, port = new_server(config.credentials, config.listen, calls, health.service)
    add_MessagesServicer_to_server(post, server)
    add_RevocationServicer_to_server(RevocationService(revocations), server)
    try:
        async with serving(server), health.watched():
            with metrics.serving(config.metrics):
                ready(port)
                await stop_signal()
    finally:
        await post.stop()
        await others.close()
        post.close()
        ledger.close()
        store.close()
