"""`tally enrol`: an operator's commands on a federation's folder."""

from pathlib import Path
from typing import Annotated

import typer

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.enrolment import Token
from tallyroom.protos.identity_files import write_secret
from tallyroom.servers.federation_folder import (
    add_analyst,
    analysts,
    create_federation,
    invite,
    open_registry,
    renew_member,
    revoke_analyst,
)
from tallyroom.servers.federation_folder import revoke as revoke_party

commands = typer.Typer(
    name="enrol", help="Make a federation and manage who belongs to it.", no_args_is_help=True
)

Folder = Annotated[Path, typer.Argument(help="The federation's folder.")]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", help="MEMBER=HOST: adds a name to a member's certificate; repeatable."),
]
Tokens = Annotated[
    Path | None,
    typer.Option(help="Write the tokens to this folder, for replicas to claim; prints none."),
]


@commands.command()
def create(
    folder: Folder,
    servers: Annotated[int, typer.Option(help="How many servers.")] = 2,
    parties: Annotated[int, typer.Option(help="How many parties.")] = 5,
    host: Hosts = None,
    tokens: Tokens = None,
    registrar: Annotated[
        bool,
        typer.Option(
            "--registrar", help="Enrol parties in a separate process, not at the coordinator."
        ),
    ] = False,
    keep: Annotated[bool, typer.Option(help="Keep a federation that already exists.")] = False,
) -> None:
    """Make a federation: its authorities, its members' identities, and a token for each party."""

    if keep and (folder / "authority" / "key.pem").exists():
        return
    if tokens is not None:
        _make_token_folder(tokens)
    given = create_federation(folder, servers, parties, tuple(host or ()), registrar)
    _hand_out(given, tokens)


@commands.command()
def token(
    folder: Folder,
    party: Annotated[str, typer.Argument(help="party-0, party-1 …")],
    tokens: Tokens = None,
) -> None:
    """Make a new token for a party. Its unused token is void; its old certificate is revoked when
    it enrols."""

    if tokens is not None:
        _make_token_folder(tokens)
    _hand_out([invite(folder, party)], tokens)


@commands.command()
def analyst(
    folder: Folder,
    cap: Annotated[
        str,
        typer.Option(
            help="The most that this analyst may learn: epsilon; `3, delta = 1e-6`; or `rho 0.1`."
        ),
    ] = "",
) -> None:
    """Make the identity of one more analyst, whose certificate states its cap."""

    print(add_analyst(folder, cap))


@commands.command()
def revoke(
    folder: Folder,
    member: Annotated[str, typer.Argument(help="party-0, party-1 …, analyst, analyst-1 …")],
    certificate: Annotated[
        Path | None,
        typer.Option(help="An analyst's certificate, if it was not made in this folder."),
    ] = None,
) -> None:
    """Revoke a party's certificates and its unused token, or an analyst's certificates; all
    stations know within seconds."""

    if member.startswith("analyst"):
        count = revoke_analyst(folder, member, certificate)
        print(f"{member}: certificates revoked: {count}")
        return
    if certificate is not None:
        raise LocalError("--certificate is for analysts: parties are known by name")
    count = revoke_party(folder, member)
    print(f"{member}: certificates and tokens revoked: {count}")


@commands.command()
def renew(
    folder: Folder,
    member: Annotated[str, typer.Argument(help="coordinator, analyst, server-0 …")],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="Adds a name to its certificate; repeatable."),
    ] = None,
    cap: Annotated[
        str | None, typer.Option(help="An analyst's cap from now on. [default: as before]")
    ] = None,
) -> None:
    """Make a new key and certificate for a member that is not a party; parties renew by
    themselves."""

    print(renew_member(folder, member, tuple(host or ()), cap))


@commands.command("list")
def list_parties(folder: Folder) -> None:
    """List the parties and whether each is invited, enrolled or revoked, and the analysts with
    their caps."""

    registry = open_registry(folder)
    for party, state in registry.parties().items():
        print(f"party-{party}  {state}")
    registry.close()
    for name, (cap, current) in analysts(folder).items():
        print(f"{name}  {'enrolled' if current else 'revoked'}  cap {cap or 'none'}")


def _make_token_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    except OSError as error:
        raise LocalError(f"cannot write to {folder}: {error.strerror}") from None


def _hand_out(tokens: list["Token"], folder: Path | None) -> None:
    """Shows each token this one time; only its hash is kept."""

    for token in tokens:
        if folder is None:
            print(f"party-{token.party}  {token.encode()}")
        else:
            write_secret(folder / f"party-{token.party:05d}.token", token.encode().encode())
