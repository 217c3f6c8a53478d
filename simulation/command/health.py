"""`tally health`: asks a process whether it is serving."""

import re
import socket
from pathlib import Path
from typing import Annotated

import grpc
import typer
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.identity.certificates import Identity
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos.channel import open_blocking_channel
from tallyroom.protos.identity_files import read_any_identity
from tallyroom.servers.metrics import parse_address

commands = typer.Typer()
SECONDS = 5.0


@commands.command()
def health(
    target: Annotated[str, typer.Argument(help="host:port")],
    identity: Annotated[
        Path | None, typer.Option(help="The identity to show; if left out, only TCP is checked.")
    ] = None,
    expect: Annotated[
        str | None, typer.Option(help="The member that must answer; by default the identity's own.")
    ] = None,
) -> None:
    """Check whether a process is serving: exit code 0 if it is, 3 if not."""

    check_health(target, identity, expect)


def check_health(target: str, folder: Path | None, expect: str | None) -> None:
    """Over mutual TLS with the identity in `folder`, or by TCP alone. Raises `RunFailed`."""
    host, port = parse_address(target)
    if folder is None:
        try:
            socket.create_connection((host, port), timeout=SECONDS).close()
        except OSError as error:
            raise RunFailed(f"{target} does not listen: {error.strerror or error}") from None
        return
    credentials = read_any_identity(folder)
    expected = credentials.identity if expect is None else _identity_named(expect)
    channel = open_blocking_channel(target, expected, credentials)
    try:
        answer = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(), timeout=SECONDS
        )
    except grpc.RpcError as error:
        raise RunFailed(f"{expected.name} does not answer at {target}: {error.details()}") from None
    finally:
        channel.close()
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise RunFailed(f"{expected.name} at {target} does not serve")


def _identity_named(name: str) -> Identity:
    found = re.fullmatch(r"(coordinator)|server-(\d{1,3})", name)
    if found is None:
        raise LocalError(f"{name!r} is none of coordinator, server-0, server-1 …")
    if found[1]:
        return Identity(Role.COORDINATOR)
    return Identity(Role.SERVER, int(found[2]), int(found[2]))
