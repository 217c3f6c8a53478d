"""A wall clock that jumps: deadlines are counted on a clock that cannot."""

import ast
import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.servers.aggregation_server import AggregationServer
from tallyroom.servers.message_service import Mailboxes, MessageService
from tallyroom.storage.ledger import Ledger
from tests.samples import a_message, a_query

ROOT = Path(__file__).parents[2]
WALL = {"time", "time_ns", "now", "utcnow", "today", "localtime", "gmtime", "ctime"}
CERTIFIES = {
    "parties/enrolment.py",
    "parties/membership.py",
    "parties/peers.py",
    "parties/signing.py",
    "protos/shown.py",
    "servers/enrolment.py",
    "servers/federation_folder.py",
    "servers/registry.py",
    "servers/revocation.py",
}
"""Certificates hold until a date: who issues, renews and checks them must know the date."""
NUMBERS = {"parties/process.py", "servers/process.py"}
"""Runs are numbered by the date: whoever lost track takes all that were before for begun."""


def wall_clocks(source: str) -> Iterator[str]:
    """Calls that read the wall clock, however the modules are named."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Call(), attr="time")):
                continue  # get_running_loop().time(), which is monotonic
            case ast.Call(func=ast.Attribute(value=ast.Name(id="loop"), attr="time")):
                continue
            case ast.Call(func=ast.Attribute(attr=name)) if name in WALL:
                yield f"line {node.lineno}: {ast.unparse(node)}"
            case ast.ImportFrom(module="time", names=names):
                for alias in names:
                    if alias.name in WALL:
                        yield f"line {node.lineno}: from time import {alias.name}"


def test_the_scan_finds_what_it_looks_for() -> None:
    lines = "time.time()", "dt.datetime.now(dt.UTC)", "from time import time", "loop.time()"
    assert [len(list(wall_clocks(line))) for line in lines] == [1, 1, 1, 0]


@pytest.mark.parametrize("package", ["fss", "protocols", "parties", "servers", "protos"])
def test_only_certificates_and_numbers_know_the_date(package: str) -> None:
    paths = [path for path in (ROOT / package).rglob("*.py") if "_pb2" not in path.name]
    assert paths
    found = {
        str(path.relative_to(ROOT)): clocks
        for path in paths
        if (clocks := list(wall_clocks(path.read_text())))
    }
    assert found.keys() <= CERTIFIES | NUMBERS, found


@pytest.mark.parametrize("jump", [-(10.0**9), 10.0**9], ids=["back", "ahead"])
def test_a_deadline_passes_when_its_time_is_up_and_not_when_the_clock_jumps(
    jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadline = 0.6
    real = time.time
    server = AggregationServer(0, Ledger(None), Randomness.from_seed(1, "server-0"))
    carried: list[tuple[float, Message]] = []

    async def carry(outcome: Reply) -> None:
        carried.extend((time.monotonic(), message) for message in outcome.messages)

    async def wait() -> None:
        post = MessageService(server, Mailboxes(), carry, None)
        query = a_query(deadline=deadline)
        asked = a_message(Phase.QUERY, Role.COORDINATOR, Role.SERVER, body=query.encode())
        begun = time.monotonic()
        await post.deliver(asked, asked.encode())
        monkeypatch.setattr(time, "time", lambda: real() + jump)
        async with asyncio.timeout(20):
            while not carried:
                await asyncio.sleep(0.02)
        ((passed, roster),) = carried
        assert roster.phase is Phase.ROSTER
        assert deadline <= passed - begun < deadline + 5

    asyncio.run(wait())
