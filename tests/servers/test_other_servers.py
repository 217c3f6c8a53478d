"""Servers find each other where the coordinator says, and nowhere that is not a host and a port."""

import asyncio
import datetime as dt

import pytest

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.certificates import Authority, Credentials, Identity
from tallyroom.protocols.wire.messages import Message, Phase, Role, decode
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.channel import Context, new_server, serving
from tallyroom.protos.tally_pb2_grpc import MessagesServicer, add_MessagesServicer_to_server
from tallyroom.servers.other_servers import OtherServers, as_target
from tests.samples import a_message

SECONDS = 10.0


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("10.0.0.7:50051", "dns:///10.0.0.7:50051"),
        ("server_1.example.org:80", "dns:///server_1.example.org:80"),
        ("[::1]:80", "dns:///[::1]:80"),
        ("unix:80", "dns:///unix:80"),  # gRPC would take it for a file
    ],
)
def test_an_address_is_a_host_and_a_port_whatever_the_host_is_called(
    address: str, target: str
) -> None:
    assert as_target(address) == target


@pytest.mark.parametrize(
    "address",
    [
        "",
        "host",
        ":80",
        "host:65536",
        "host:²",
        "host:-1",
        "host:" + "9" * 5000,
        "h" * 300 + ":80",
        "unix:///run/secret.sock",
        "unix:/run/secret:80",
        "ipv4:10.0.0.7:80",
        "[::1%lo]:80",
        "dns://8.8.8.8/host:80",
        "xds:///host:80",
        "host%2Fpath:80",
        "host\n:80",
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(LocalError):
        as_target(address)


class Heard(MessagesServicer):
    """What reached a server."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Message] = asyncio.Queue()

    async def Send(self, request: pb.Parcel, context: Context) -> pb.Receipt:  # noqa: N802
        self.messages.put_nowait(decode(request.message, "the other server"))
        return pb.Receipt()


NOW = dt.datetime.now(dt.UTC)
LIFETIME = dt.timedelta(hours=1)
AUTHORITY = Authority.create("federation", NOW, LIFETIME)


def credentials(index: int) -> Credentials:
    return AUTHORITY.issue(Identity(Role.SERVER, index, index), NOW, LIFETIME)


@pytest.mark.parametrize("bad", ["h" * 5000 + ":80", "unix:///run/secret.sock", "host:²", ""])
def test_a_bad_address_of_one_server_does_not_move_the_others(bad: str) -> None:
    async def run() -> bytes:
        heard = Heard()
        server, port = new_server(credentials(1), "127.0.0.1:0")
        add_MessagesServicer_to_server(heard, server)
        others = OtherServers(credentials(0), lambda _: True)
        async with serving(server, 0), asyncio.timeout(SECONDS):
            others.find([bad, f"127.0.0.1:{port}"])
            others.send(
                a_message(Phase.TOGETHER, Role.SERVER, Role.SERVER, receivers=(1,), body=b"hello")
            )
            message = await heard.messages.get()
            await others.close()
            return bytes(message.body[0])

    assert asyncio.run(run()) == b"hello"
