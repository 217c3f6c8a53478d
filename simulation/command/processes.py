"""The process commands: `tally coordinator`, `tally server`, `tally party`, `tally enrolment`,
`tally health`."""

import datetime as dt
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.caps import DEFAULT_CAP_DELTA, Composition
from tallyroom.simulation.command.messages import say, warn

if TYPE_CHECKING:
    from fractions import Fraction

    from tallyroom.protocols.identity.certificates import Credentials
    from tallyroom.protocols.wire.messages import Role

commands = typer.Typer()

MAX_TOKEN = 4096

IdentityFolder = Annotated[Path, typer.Option("--identity", help="Folder that enrol made.")]
Lifetime = Annotated[float, typer.Option(help="Days that party certificates are valid.")]
Listen = Annotated[str, typer.Option(help="host:port to listen on.")]
Store = Annotated[Path | None, typer.Option(help="Folder for the ledger and what was received.")]
Cap = Annotated[
    str | None, typer.Option(envvar="TALLY_CAP", help="The most epsilon ever released.")
]
CapDelta = Annotated[
    float, typer.Option(envvar="TALLY_CAP_DELTA", help="The most delta ever released.")
]
Composes = Annotated[
    Composition,
    typer.Option(
        "--composition",
        help="How releases add up: sum; or tight, if no epsilon is chosen after an answer.",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", envvar="TALLY_INSECURE", help="For trials: do without safeguards."),
]
LogFormat = Annotated[str, typer.Option(envvar="TALLY_LOG_FORMAT", help="text or json.")]
LogLevel = Annotated[
    str, typer.Option(envvar="TALLY_LOG_LEVEL", help="debug, info, warning or error.")
]
MetricsAt = Annotated[
    str | None, typer.Option("--metrics", help="host:port for Prometheus; none if left out.")
]


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
    from tallyroom.protocols.wire.messages import Role
    from tallyroom.servers.process import ServerConfig, run_server

    credentials = _member(identity, Role.SERVER)
    limit = _limit(cap)
    _check_safe("server", store, limit, insecure)
    _configure_logs(credentials.identity.name, log_format, log_level)
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
    _serve(run_server(config, _announce(credentials.identity.name)))


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
        str, typer.Option(help="host:port where parties enrol, if the identity has an authority.")
    ] = "127.0.0.1:7099",
    lifetime: Lifetime = 30.0,
    store: Store = None,
    cap: Cap = None,
    cap_delta: CapDelta = DEFAULT_CAP_DELTA,
    composition: Composes = Composition.SUM,
    max_records_per_party: Annotated[
        int | None, typer.Option(help="Parties that claim more may not join.", min=1)
    ] = None,
    insecure: Insecure = False,
    metrics: MetricsAt = None,
    log_format: LogFormat = "text",
    log_level: LogLevel = "warning",
) -> None:
    """Run the coordinator until it is stopped."""
    from tallyroom.protocols.wire.messages import Role
    from tallyroom.servers.coordinator import MAX_RECORDS_EACH
    from tallyroom.servers.coordinator_process import run_coordinator
    from tallyroom.servers.coordinator_service import CoordinatorConfig
    from tallyroom.servers.enrolment import EnrolmentConfig

    if parties < 1:
        raise LocalError("a federation needs at least one party")
    holding = _days(lifetime)
    credentials = _member(identity, Role.COORDINATOR)
    limit = _limit(cap)
    _check_safe("coordinator", store, limit, insecure)
    _configure_logs("coordinator", log_format, log_level)
    authority = identity / "enrolment"
    config = CoordinatorConfig(
        credentials,
        parties,
        tuple(server),
        listen,
        store,
        limit,
        enrolment=EnrolmentConfig(authority, enrolment, holding, _announce("enrolment"))
        if authority.is_dir()
        else None,
        metrics=metrics,
        cap_delta=None if limit is None else cap_delta,
        composition=composition,
        max_records_per_party=min(max_records_per_party or MAX_RECORDS_EACH, MAX_RECORDS_EACH),
    )
    _serve(run_coordinator(config, _announce("coordinator")))


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
    """Enrol parties until it is stopped. For a federation whose coordinator must not."""
    from tallyroom.protocols.wire.messages import Role
    from tallyroom.servers.enrolment import EnrolmentConfig
    from tallyroom.servers.registrar_process import RegistrarConfig, run_registrar

    credentials = _member(identity, Role.REGISTRAR)
    _configure_logs("registrar", log_format, log_level)
    config = EnrolmentConfig(
        identity / "enrolment", listen, _days(lifetime), _announce("enrolment")
    )
    _serve(run_registrar(RegistrarConfig(credentials, config, tuple(server), coordinator)))


@commands.command()
def party(
    context: typer.Context,
    identity: IdentityFolder,
    coordinator: Annotated[str, typer.Option(help="host:port of the coordinator.")],
    data: Annotated[str, typer.Option(help="What this party holds: a DATA SPEC.")],
    token: Annotated[
        str | None,
        typer.Option(
            envvar="TALLY_TOKEN",
            help="One-time token, if there is no identity yet; all users of the machine can see it "
            "here: better in the environment or a file.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the one-time token, instead.")
    ] = None,
    tokens: Annotated[
        Path | None, typer.Option(help="Folder of tokens to claim one from, instead.")
    ] = None,
    enrolment: Annotated[
        str | None, typer.Option(help="host:port to enrol at; the coordinator's host, port 7099.")
    ] = None,
    slices: Annotated[
        int | None,
        typer.Option(
            "--slice", help="Deal the data to N parties, and hold only this party's part."
        ),
    ] = None,
    peer: Annotated[
        str,
        typer.Option(
            envvar="TALLY_PEER", help="How to meet other parties: direct, with --listen, or relay."
        ),
    ] = "direct",
    listen: Annotated[
        str, typer.Option(help="host:port where other parties may call; none if left out.")
    ] = "",
    advertise: Annotated[
        str, typer.Option(help="host:port where they find it, if that is another.")
    ] = "",
    policy: Annotated[
        Path | None,
        typer.Option(
            envvar="TALLY_POLICY",
            help="TOML file: what this party agrees to; a careful default, if left out.",
        ),
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="Folder for its ledger; the identity's if left out.")
    ] = None,
    insecure: Insecure = False,
    log_format: LogFormat = "text",
    log_level: LogLevel = "warning",
) -> None:
    """Run one party until it is stopped. It only calls out: it needs no open port, and meets other
    parties through the coordinator's relay, sealed, unless it has one."""
    from tallyroom.parties.consent import read_policy
    from tallyroom.parties.data import held
    from tallyroom.parties.membership import is_member, run_member
    from tallyroom.parties.peer_config import PeerConfig
    from tallyroom.parties.process import PartyConfig
    from tallyroom.protocols.run.policy import DEPLOYED
    from tallyroom.protocols.wire.messages import Role
    from tallyroom.storage.store import keep_private

    keep_private()
    agreed = read_policy(policy) if policy is not None else None if insecure else DEPLOYED
    meeting = PeerConfig(peer, listen, advertise)
    _configure_logs("party", log_format, log_level)
    credentials = _member(identity, Role.PARTY) if is_member(identity) else None
    dataset = held(data)  # before a token is spent
    for note in (*dataset.notes, *dataset.uncounted()):  # for its operator, and nobody else
        warn(note)
    at = enrolment or f"{coordinator.rpartition(':')[0]}:7099"
    if credentials is None:
        _enrol(identity, token or _read_token(token_file), tokens, at)
        source = context.get_parameter_source("token")
        if source is not None and source.name == "COMMANDLINE":
            say("--token shows in the list of processes: TALLY_TOKEN or --token-file do not")
        credentials = _member(identity, Role.PARTY)
    _configure_logs(credentials.identity.name, log_format, log_level)
    holdings = dataset.held_by(credentials.identity.first, slices)
    say(f"{credentials.identity.name} holds {holdings.rows} records")
    config = PartyConfig(
        credentials,
        coordinator,
        holdings,
        store=store or identity,
        peer=meeting,
        policy=agreed,
    )
    _serve(run_member(identity, config, at))


@commands.command()
def health(
    target: Annotated[str, typer.Argument(help="host:port")],
    identity: Annotated[
        Path | None, typer.Option(help="Whose certificate to show; TCP alone if left out.")
    ] = None,
    expect: Annotated[
        str | None, typer.Option(help="Who must answer; the identity itself if left out.")
    ] = None,
) -> None:
    """Ask a process whether it serves: exit code 0 if so, 3 if not."""
    from tallyroom.simulation.health import check_health

    check_health(target, identity, expect)


def _configure_logs(name: str, style: str, level: str) -> None:
    from tallyroom.servers.logs import configure_logs

    configure_logs(name, style, level)


def _limit(cap: str | None) -> "Fraction | None":
    from tallyroom.protocols.privacy.mechanisms import parse_epsilon

    return parse_epsilon(cap) if cap else None


def _enrol(identity: Path, token: str | None, tokens: Path | None, target: str) -> None:
    import asyncio
    import socket

    from tallyroom.parties.membership import claim_token, discard_claim, join_federation
    from tallyroom.protocols.identity.enrolment import Token

    if token:
        claimed = Token.decode(token.strip())
    elif tokens is not None:
        claimed = claim_token(tokens, socket.gethostname())
    else:
        raise LocalError(f"no identity in {identity}: give --token-file to enrol")
    asyncio.run(join_federation(identity, claimed, target))
    if tokens is not None:
        discard_claim(tokens, socket.gethostname())


def _read_token(path: Path | None) -> str | None:
    """Raises `LocalError`. Only as much is read as a token may be long."""
    if path is None:
        return None
    try:
        with path.open() as file:
            return file.read(MAX_TOKEN)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise LocalError(f"cannot read a token from {path}: {reason}") from None


def _days(lifetime: float) -> dt.timedelta:
    if not 0 < lifetime <= 365:
        raise LocalError("party certificates hold for some time, a year at most")
    return dt.timedelta(days=lifetime)


def _member(folder: Path, role: "Role") -> "Credentials":
    """Raises `LocalError` on an identity that nobody would take any more."""
    from tallyroom.protocols.identity.certificates import passport_of
    from tallyroom.protos.identity_files import read_identity

    credentials = read_identity(folder, role)
    if passport_of(credentials.certificate).ends < dt.datetime.now(dt.UTC):
        raise LocalError(
            f"the certificate in {folder} has expired: a party enrols again in an empty folder "
            "with a new token, others get `tally enrol renew`"
        )
    return credentials


def _check_safe(role: str, store: Path | None, cap: "Fraction | None", insecure: bool) -> None:
    """Raises `LocalError` for a keeper that would release without end, or forget what it did."""
    missing = [name for name, given in (("--cap", cap), ("--store", store)) if given is None]
    if missing and not insecure:
        raise LocalError(
            f"a {role} without {' and '.join(missing)} sets no bound to what it releases that "
            "outlives it: give both, or --insecure for a trial without real data"
        )


def _announce(name: str) -> Callable[[int], None]:
    return lambda port: say(f"{name} listens on port {port}")


def _serve(work: Coroutine[None, None, None]) -> None:
    import asyncio

    from tallyroom.storage.store import keep_private

    keep_private()
    try:
        asyncio.run(work)
    except OSError as error:
        raise LocalError(str(error)) from None
