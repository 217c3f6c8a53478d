"""`tally coordinator` and `tally enrolment`: run these processes until they are stopped."""

from typing import Annotated

import typer

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.ledger import DEFAULT_CAP_DELTA, Composition
from tallyroom.protocols.wire.messages import Role
from tallyroom.servers.coordinator import MAX_RECORDS_EACH
from tallyroom.servers.coordinator_process import run_coordinator
from tallyroom.servers.coordinator_service import CoordinatorConfig
from tallyroom.servers.enrolment import EnrolmentConfig
from tallyroom.servers.logs import configure_logs
from tallyroom.servers.registrar_process import RegistrarConfig, run_registrar
from tallyroom.simulation.command.process_options import (
    Cap,
    CapDelta,
    Composes,
    IdentityFolder,
    Insecure,
    Lifetime,
    Listen,
    LogFormat,
    LogLevel,
    MetricsAt,
    Store,
    announce,
    check_calls,
    check_listens,
    check_safe,
    days_of,
    limit_of,
    member_of,
    serve_until_stopped,
)

commands = typer.Typer()


@commands.command()
def coordinator(
    identity: IdentityFolder,
    server: Annotated[
        list[str],
        typer.Option(envvar="TALLY_SERVERS", help="host:port of each server, in order."),
    ],
    parties: Annotated[
        int, typer.Option(envvar="TALLY_PARTIES", help="How many parties the federation has.")
    ],
    listen: Listen = "127.0.0.1:7100",
    enrolment: Annotated[
        str,
        typer.Option(
            help="host:port where parties enrol, if the identity has the party authority."
        ),
    ] = "127.0.0.1:7099",
    lifetime: Lifetime = 30.0,
    store: Store = None,
    cap: Cap = None,
    cap_delta: CapDelta = DEFAULT_CAP_DELTA,
    composition: Composes = Composition.SUM,
    max_records_per_party: Annotated[
        int | None, typer.Option(help="The most records that a party may hold.", min=1)
    ] = None,
    insecure: Insecure = False,
    metrics: MetricsAt = None,
    log_format: LogFormat = "text",
    log_level: LogLevel = "warning",
) -> None:
    """Run the coordinator until it is stopped."""

    if parties < 1:
        raise LocalError("a federation needs at least one party")
    check_listens(listen=listen, enrolment=enrolment, metrics=metrics)
    for each in server:
        check_calls(server=each)
    holding = days_of(lifetime)
    credentials = member_of(identity, Role.COORDINATOR)
    limit = limit_of(cap)
    check_safe("coordinator", store, limit, insecure)
    configure_logs("coordinator", log_format, log_level)
    authority = identity / "enrolment"
    config = CoordinatorConfig(
        credentials,
        parties,
        tuple(server),
        listen,
        store,
        limit,
        enrolment=EnrolmentConfig(authority, enrolment, holding, announce("enrolment"))
        if authority.is_dir()
        else None,
        metrics=metrics,
        cap_delta=None if limit is None else cap_delta,
        composition=composition,
        max_records_per_party=min(max_records_per_party or MAX_RECORDS_EACH, MAX_RECORDS_EACH),
    )
    serve_until_stopped(run_coordinator(config, announce("coordinator")))


@commands.command()
def enrolment(
    identity: IdentityFolder,
    server: Annotated[
        list[str],
        typer.Option(envvar="TALLY_SERVERS", help="host:port of each server, in order."),
    ],
    coordinator: Annotated[str, typer.Option(help="host:port of the coordinator.")],
    listen: Listen = "127.0.0.1:7099",
    lifetime: Lifetime = 30.0,
    log_format: LogFormat = "text",
    log_level: LogLevel = "warning",
) -> None:
    """Enrol parties until stopped: for a federation whose coordinator must not enrol them."""

    check_listens(listen=listen)
    check_calls(coordinator=coordinator)
    for each in server:
        check_calls(server=each)
    credentials = member_of(identity, Role.REGISTRAR)
    configure_logs("registrar", log_format, log_level)
    config = EnrolmentConfig(
        identity / "enrolment", listen, days_of(lifetime), announce("enrolment")
    )
    serve_until_stopped(
        run_registrar(RegistrarConfig(credentials, config, tuple(server), coordinator))
    )
