"""`tally party`: runs one party until it is stopped."""

import asyncio
import socket
from pathlib import Path
from typing import Annotated

import typer

from tallyroom.parties.consent import read_policy
from tallyroom.parties.data import held
from tallyroom.parties.membership import (
    claim_token,
    discard_claim,
    is_member,
    join_federation,
    run_member,
)
from tallyroom.parties.peer_config import PeerConfig
from tallyroom.parties.process import PartyConfig
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.enrolment import Token
from tallyroom.protocols.run.policy import DEPLOYED
from tallyroom.protocols.wire.messages import Role
from tallyroom.servers.logs import configure_logs
from tallyroom.simulation.command.messages import say, warn
from tallyroom.simulation.command.party_metrics import shown_at
from tallyroom.simulation.command.process_options import (
    IdentityFolder,
    Insecure,
    LogFormat,
    LogLevel,
    MetricsAt,
    check_calls,
    check_listens,
    has_expired,
    member_of,
    serve_until_stopped,
)
from tallyroom.storage.store import keep_private

commands = typer.Typer()

MAX_TOKEN = 4096


@commands.command()
def party(
    context: typer.Context,
    identity: IdentityFolder,
    coordinator: Annotated[str, typer.Option(help="host:port of the coordinator.")],
    data: Annotated[str, typer.Option(help="The data of this party: a DATA SPEC.")],
    token: Annotated[
        str | None,
        typer.Option(
            envvar="TALLY_TOKEN",
            help="One-time token, if there is no identity yet. Other users of this machine can see "
            "it here: prefer the environment variable or --token-file.",
        ),
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the one-time token.")] = None,
    tokens: Annotated[
        Path | None, typer.Option(help="Folder of tokens from which to claim one.")
    ] = None,
    enrolment: Annotated[
        str | None,
        typer.Option(help="host:port to enrol at. [default: the coordinator's host, port 7099]"),
    ] = None,
    slices: Annotated[
        int | None,
        typer.Option("--slice", help="Deal the data to N parties and hold only this party's part."),
    ] = None,
    peer: Annotated[
        str,
        typer.Option(
            envvar="TALLY_PEER", help="How to meet other parties: direct (with --listen) or relay."
        ),
    ] = "direct",
    listen: Annotated[
        str, typer.Option(help="host:port to listen on for other parties; if left out, none.")
    ] = "",
    advertise: Annotated[
        str, typer.Option(help="host:port that other parties call, if it differs from --listen.")
    ] = "",
    policy: Annotated[
        Path | None,
        typer.Option(
            envvar="TALLY_POLICY",
            help="TOML file with the questions that this party agrees to; cautious by default.",
        ),
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="Folder for the ledger; by default the identity's.")
    ] = None,
    insecure: Insecure = False,
    metrics: MetricsAt = None,
    log_format: LogFormat = "text",
    log_level: LogLevel = "warning",
) -> None:
    """Run one party until it is stopped. It only calls out, so it needs no open port; it meets
    other parties through the coordinator's relay, encrypted, unless it listens itself."""

    check_calls(coordinator=coordinator, enrolment=enrolment, advertise=advertise)
    check_listens(listen=listen, metrics=metrics)
    keep_private()
    agreed = read_policy(policy) if policy is not None else None if insecure else DEPLOYED
    meeting = PeerConfig(peer, listen, advertise)
    configure_logs("party", log_format, log_level)
    given = bool(token or token_file or tokens)
    again = given and is_member(identity) and has_expired(identity, Role.PARTY)
    credentials = member_of(identity, Role.PARTY) if is_member(identity) and not again else None
    dataset = held(data)  # read before a token is spent
    for note in (*dataset.notes, *dataset.uncounted()):  # for its operator alone
        warn(note)
    at = enrolment or f"{coordinator.rpartition(':')[0]}:7099"
    if credentials is None:
        _enrol(identity, token or _read_token(token_file), tokens, at)
        source = context.get_parameter_source("token")
        if source is not None and source.name == "COMMANDLINE":
            say("--token is visible in the process list: prefer TALLY_TOKEN or --token-file")
        credentials = member_of(identity, Role.PARTY)
    configure_logs(credentials.identity.name, log_format, log_level)
    holdings = dataset.held_by(credentials.identity.first, slices)
    noun = "record" if holdings.rows == 1 else "records"
    say(f"{credentials.identity.name} holds {holdings.rows} {noun}")
    config = PartyConfig(
        credentials,
        coordinator,
        holdings,
        store=store or identity,
        peer=meeting,
        policy=agreed,
    )
    serve_until_stopped(run_member(identity, config, at, shown_at(metrics)))


def _enrol(identity: Path, token: str | None, tokens: Path | None, target: str) -> None:

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
    """Reads no more than the length of a token. Raises `LocalError`."""
    if path is None:
        return None
    try:
        with path.open() as file:
            return file.read(MAX_TOKEN)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise LocalError(f"cannot read a token from {path}: {reason}") from None
