"""`tally server`: runs one server until it is stopped."""

import typer

from tallyroom.protocols.privacy.ledger import DEFAULT_CAP_DELTA, Composition
from tallyroom.protocols.wire.messages import Role
from tallyroom.servers.logs import configure_logs
from tallyroom.servers.process import ServerConfig, run_server
from tallyroom.simulation.command.process_options import (
    Cap,
    CapDelta,
    Composes,
    IdentityFolder,
    Insecure,
    Listen,
    LogFormat,
    LogLevel,
    MetricsAt,
    Store,
    announce,
    check_listens,
    check_safe,
    limit_of,
    member_of,
    serve_until_stopped,
)

commands = typer.Typer()


@commands.command()
def server(
    identity: IdentityFolder,
    listen: Listen = "127.0.0.1:7101",
    store: Store = None,
    cap: Cap = None,
    cap_delta: CapDelta = DEFAULT_CAP_DELTA,
    composition: Composes = Composition.SUM,
    insecure: Insecure = False,
    metrics: MetricsAt = None,
    log_format: LogFormat = "text",
    log_level: LogLevel = "warning",
) -> None:
    """Run one server until it is stopped."""

    check_listens(listen=listen, metrics=metrics)
    credentials = member_of(identity, Role.SERVER)
    limit = limit_of(cap)
    check_safe("server", store, limit, insecure)
    configure_logs(credentials.identity.name, log_format, log_level)
    config = ServerConfig(
        credentials.identity.first,
        credentials,
        listen,
        store,
        limit,
        metrics=metrics,
        cap_delta=None if limit is None else cap_delta,
        composition=composition,
    )
    serve_until_stopped(run_server(config, announce(credentials.identity.name)))
