"""The coordinator process: `tally coordinator`."""

from protos.channel import new_server, serving, stop_signal
from protos.tally_pb2_grpc import (
    add_DeskServicer_to_server,
    add_DirectoryServicer_to_server,
    add_PostServicer_to_server,
    add_RelayServicer_to_server,
)
from servers.desk import CoordinatorConfig, Desk
from servers.enrolment import FederationDirectory, enrolling, registrar_of
from servers.metrics import Metrics
from servers.process import Ready
from servers.relay import Relay
from servers.revocation import Revocations, Screen


async def run_coordinator(config: CoordinatorConfig, ready: Ready) -> None:
    """Serves until the process is told to stop. With a store it takes its runs up again."""
    desk = Desk(config)
    credentials = config.credentials
    revocations = Revocations(credentials.party_authority)
    metrics = Metrics(credentials)
    desk.watch(metrics)
    server, port = new_server(credentials, config.listen, [metrics, Screen(revocations)])
    add_PostServicer_to_server(desk.post, server)
    add_DeskServicer_to_server(desk, server)
    add_RelayServicer_to_server(Relay(desk.hosts), server)
    async with registrar_of(config.enrolment) as registrar:
        directory = FederationDirectory(
            desk.coordinator, registrar, credentials.authority, desk.durable
        )
        add_DirectoryServicer_to_server(directory, server)
        enrolment = enrolling(
            config.enrolment,
            registrar,
            credentials,
            revocations,
            [link.channel for link in desk.servers],
        )
        async with enrolment, serving(server):
            try:
                desk.runs.resume()
                desk.dispatch.listen_to_servers()
                with metrics.serving(config.metrics):
                    ready(port)
                    await stop_signal()
            finally:
                await desk.close()
