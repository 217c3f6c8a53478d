"""The registrar process: `tally enrolment`. It enrols parties if the coordinator must not: it holds
the party authority's key, and takes no part in any run."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.certificates import Credentials, Identity
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos.channel import open_channel, stop_signal
from tallyroom.servers.enrolment import EnrolmentConfig, enrolling, registrar_of


@dataclass(frozen=True)
class RegistrarConfig:
    """`servers` and `coordinator` are sent the revocation list."""

    credentials: Credentials
    enrolment: EnrolmentConfig
    servers: tuple[str, ...]
    coordinator: str


async def run_registrar(config: RegistrarConfig) -> None:
    """Serves until the process is stopped. Raises `LocalError` without an authority."""
    credentials = config.credentials
    if not credentials.party_authority:
        raise LocalError("the registrar's identity lacks the party authority's certificate")
    stations = [(target, Identity(Role.SERVER, i, i)) for i, target in enumerate(config.servers)]
    stations.append((config.coordinator, Identity(Role.COORDINATOR)))
    async with AsyncExitStack() as stack:
        registrar = await stack.enter_async_context(registrar_of(config.enrolment))
        channels = [
            await stack.enter_async_context(open_channel(target, expected, credentials))
            for target, expected in stations
        ]
        await stack.enter_async_context(
            enrolling(config.enrolment, registrar, credentials, None, channels)
        )
        await stop_signal()
