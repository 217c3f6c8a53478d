"""A coordinator and a server in this process, with real sockets and real TLS."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import grpc.aio
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tallyroom.protocols.identity.certificates import Credentials, Identity, new_key
from tallyroom.protocols.identity.enrolment import Token, certificate_request
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.channel import open_channel, open_enrolment_channel
from tallyroom.protos.identity_files import read_identity
from tallyroom.protos.tally_pb2_grpc import CoordinatorStub, EnrolmentStub
from tallyroom.servers.coordinator_process import run_coordinator
from tallyroom.servers.coordinator_service import CoordinatorConfig
from tallyroom.servers.enrolment import EnrolmentConfig
from tallyroom.servers.federation_folder import create_federation, enroller_folder, read_authority
from tallyroom.servers.process import ServerConfig, run_server

SECONDS = 10.0
COORDINATOR = Identity(Role.COORDINATOR)
SERVER = Identity(Role.SERVER, 0, 0)


QUESTION = Question(Mean(value="v", lower=0.0, upper=1.0), "additive", None, Placement.EACH_SERVER)


@dataclass(frozen=True)
class Federation:
    """One server, a coordinator, and the folder that an operator made them from."""

    folder: Path
    tokens: list[Token]
    coordinator: str = ""
    enrolment: str = ""
    server: str = ""

    async def enrol(self, token: str, request: bytes) -> pb.Certified:
        """The bare call, as anybody might make it."""
        shown = (self.folder / "coordinator" / "certificate.pem").read_bytes()
        async with open_enrolment_channel(self.enrolment, COORDINATOR, shown) as channel:
            certified: pb.Certified = await EnrolmentStub(channel).Enrol(
                pb.EnrolRequest(token=token, request=request), timeout=SECONDS
            )
            return certified

    async def renew(self, certificate: bytes, request: bytes, signature: bytes) -> pb.Certified:
        """Likewise."""
        shown = (self.folder / "coordinator" / "certificate.pem").read_bytes()
        asked = pb.RenewRequest(request=request, certificate=certificate, signature=signature)
        async with open_enrolment_channel(self.enrolment, COORDINATOR, shown) as channel:
            certified: pb.Certified = await EnrolmentStub(channel).Renew(asked, timeout=SECONDS)
            return certified

    def issue(self, identity: Identity, lifetime: dt.timedelta) -> Credentials:
        """What the party authority's key can make, by the book or not."""
        authority = read_authority(enroller_folder(self.folder) / "enrolment")
        made = authority.issue(identity, dt.datetime.now(dt.UTC), lifetime)
        members = (self.folder / "coordinator" / "authority.pem").read_bytes()
        return Credentials(identity, made.certificate, members, made.key, authority.pem)


def create(folder: Path, parties: int = 3) -> Federation:
    return Federation(folder, create_federation(folder, 1, parties))


@asynccontextmanager
async def running(
    made: Federation, lifetime: dt.timedelta = dt.timedelta(days=30)
) -> AsyncIterator[Federation]:
    """Both stations, until the block ends. Party certificates hold for `lifetime`."""
    async with started(
        lambda ready: run_server(
            ServerConfig(
                0,
                read_identity(made.folder / "server-0", Role.SERVER),
                store=made.folder / "store-0",
            ),
            ready,
        )
    ) as port:
        server = f"127.0.0.1:{port}"
        enrolment: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        config = CoordinatorConfig(
            read_identity(made.folder / "coordinator", Role.COORDINATOR),
            len(made.tokens),
            (server,),
            store=made.folder / "store",
            enrolment=EnrolmentConfig(
                made.folder / "coordinator" / "enrolment",
                lifetime=lifetime,
                ready=enrolment.set_result,
            ),
        )
        async with started(lambda ready: run_coordinator(config, ready)) as port:
            yield Federation(
                made.folder,
                made.tokens,
                f"127.0.0.1:{port}",
                f"127.0.0.1:{await enrolment}",
                server,
            )


@asynccontextmanager
async def started(run: Callable[[Callable[[int], None]], Awaitable[None]]) -> AsyncIterator[int]:
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(run(ready.set_result))
    task.add_done_callback(lambda ended: ready.done() or ready.cancel())
    try:
        async with asyncio.timeout(SECONDS):
            port = await ready
        yield port
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def request_for(party: int) -> bytes:
    return certificate_request(new_key()[0], party)


async def refusal(call: Awaitable[object]) -> grpc.StatusCode:
    """The status that a call is refused with; OK if it is not."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def knock(target: str, expected: Identity, shown: Credentials) -> grpc.StatusCode:
    """How the harmless question whether a station serves ends for one who shows these."""
    async with open_channel(target, expected, shown) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        return await refusal(check(health_pb2.HealthCheckRequest(), timeout=SECONDS))


async def failure(coordinator: str, room: Federation, deadline: float = 0.3) -> str:
    """One party is here and never answers; why the question fails."""
    shown = room.issue(Identity(Role.PARTY, 0, 0), dt.timedelta(days=1))
    analyst = read_identity(room.folder / "analyst", Role.ANALYST)
    joining = pb.JoinRequest(
        parties=np.array([0], dtype="<u4").tobytes(), records=np.array([5], dtype="<u4").tobytes()
    )
    async with (
        open_channel(coordinator, COORDINATOR, shown) as party,
        open_channel(coordinator, COORDINATOR, analyst) as channel,
    ):
        await CoordinatorStub(party).Join(joining, timeout=SECONDS)
        question = pb.Question(json=replace(QUESTION, deadline=deadline).encode())
        async for event in CoordinatorStub(channel).Ask(question, timeout=60.0):
            if event.WhichOneof("kind") == "failure":
                return str(event.failure.reason)
    raise AssertionError("it did not fail")
