"""What strangers can do to a station's port: connections that say nothing, old TLS."""

import asyncio
import contextlib
import resource
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tallyroom.protocols.wire.messages import Role
from tallyroom.protos import channel, descriptors
from tallyroom.protos.identity_files import read_identity
from tallyroom.servers.federation_folder import create_federation
from tests.e2e.deployed import TALLY, Station
from tests.servers.stations import COORDINATOR, SERVER, create, knock, running

LIMIT = 256
SILENT = 400


class Cramped(Station):
    """A process that may open few files, and may not have more. A shell sets the limit: a fork that
    ran Python here first would run gRPC's handlers of forks too, and die of them now and then."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self.log = log
        limited = ["sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh"]
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [*limited, *TALLY, *arguments], stdout=subprocess.DEVNULL, stderr=file
            )


@contextlib.contextmanager
def silent_connections(port: int) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for _ in range(SILENT):
            connection = stack.enter_context(socket.socket())
            connection.settimeout(5.0)
            connection.connect(("127.0.0.1", port))
        yield


def test_silent_connections_do_not_keep_others_out(tmp_path: Path) -> None:
    """More than there are descriptors, all held open. gRPC alone would wait for two minutes."""
    create_federation(tmp_path / "fed", 1, 1)
    station = Cramped(
        tmp_path / "log", "server", "--identity", str(tmp_path / "fed" / "server-0"),
        "--listen", "127.0.0.1:0", "--store", str(tmp_path / "store"), "--cap", "1",
    )  # fmt: skip
    try:
        port = station.port("listens on")
        caller = read_identity(tmp_path / "fed" / "coordinator", Role.COORDINATOR)
        with silent_connections(port):
            deadline = time.monotonic() + 4 * channel.HANDSHAKE_SECONDS
            while asyncio.run(knock(f"127.0.0.1:{port}", SERVER, caller)) is not grpc.StatusCode.OK:
                assert time.monotonic() < deadline, "nobody gets in"
    finally:
        station.stop()


@pytest.mark.parametrize(
    ("limit", "most"), [("536870912\n", 2048), ("1073741824\n", 4096), ("max\n", None)]
)
def test_connections_leave_memory_for_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int | None
) -> None:
    (tmp_path / "memory.max").write_text(limit)
    monkeypatch.setattr(descriptors, "LIMITS", (tmp_path / "memory.max", tmp_path / "absent"))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 16, 1 << 16))
    found = descriptors.most_connections()
    assert found == most if most is not None else found > 4096


def test_connections_leave_descriptors_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(descriptors, "memory", lambda: 1 << 40)
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    for soft, hard, raised_to, most in (
        (256, 256, None, 128),
        (1024, 1024, None, 832),
        (1024, 4096, 4096, 3904),
        (1024, resource.RLIM_INFINITY, 65536, 65344),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None, 65344),
        (10**6, 10**6, None, 65344),
    ):
        raised.clear()
        monkeypatch.setattr(resource, "getrlimit", lambda _, now=(soft, hard): now)
        assert descriptors.most_connections() == most
        assert raised == ([] if raised_to is None else [(raised_to, hard)])


def _handshake(target: str, version: ssl.TLSVersion, folder: Path) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    context.minimum_version = context.maximum_version = version
    host, _, port = target.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=5.0) as connection,
        context.wrap_socket(connection) as secured,
    ):
        return secured.version()


def test_tls_is_1_3_or_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(create(tmp_path / "room")) as room:
            shown = room.folder / "coordinator"
            for target in (room.coordinator, room.server, room.enrolment):
                version = ssl.TLSVersion.TLSv1_3
                assert await asyncio.to_thread(_handshake, target, version, shown) == "TLSv1.3"
                with pytest.raises(OSError):  # noqa: PT011 - reset, or a broken handshake
                    await asyncio.to_thread(_handshake, target, ssl.TLSVersion.TLSv1_2, shown)
            caller = read_identity(shown, Role.COORDINATOR)
            assert await knock(room.coordinator, COORDINATOR, caller) is grpc.StatusCode.OK

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "module",
    ["tallyroom.servers.process", "tallyroom.parties.process", "tallyroom.simulation.command.main"],
)
def test_every_process_sets_tls_before_grpc_reads_it(module: str) -> None:
    code = f"import {module}; from tallyroom import protos; assert protos.TLS13_ONLY"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
