"""Lines between network namespaces, where the kernel's own TCP speaks. They need root."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from tallyroom.parties.data import Dataset
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.wire.messages import Role
from tallyroom.simulation import Federation
from tallyroom.simulation.networks import namespaces
from tallyroom.simulation.networks.namespaces import Namespaces
from tallyroom.simulation.networks.network import network_of

T = TypeVar("T")
reason = namespaces.missing()
needs_root = pytest.mark.skipif(bool(reason), reason=f"network namespaces: {reason}")
VALUES = Dataset(
    "values", {"value": np.random.default_rng(1).uniform(0, 1, 12)}, {"value": (0.0, 1.0)}
)


@contextmanager
def two(network: str) -> Iterator[tuple[Namespaces, Callable[[str, Callable[[], T]], T]]]:
    """A party and a server, and what does something as if it were one of them."""
    made = Namespaces(network_of(f"{network},by=namespaces"))
    outlets = {"party": made.line("party", Role.PARTY), "server": made.line("server", Role.SERVER)}

    def inside(name: str, work: Callable[[], T]) -> T:
        def there() -> T:
            outlets[name].plug_in()
            return work()

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(there).result()

    try:
        yield made, inside
    finally:
        made.close()


def sent(made: Namespaces, inside: Callable[..., T], size: int) -> float:
    """Seconds until the server has `size` bytes of the party's, with a connection that stands."""
    server = inside("server", lambda: socket.create_server((made.address("server"), 0)))
    assert isinstance(server, socket.socket)
    near = inside("party", lambda: socket.create_connection(server.getsockname(), 10))
    assert isinstance(near, socket.socket)
    far, _ = server.accept()
    with server, near, far, ThreadPoolExecutor(1) as thread:
        begun = time.perf_counter()
        sending = thread.submit(near.sendall, bytes(size))
        left = size
        while left:
            left -= len(far.recv(1 << 16))
        sending.result()
        return time.perf_counter() - begun


def resent() -> int:
    """Segments that TCP sent again in this thread's namespace."""
    heads, values = (
        line.split()
        for line in Path("/proc/thread-self/net/snmp").read_text().splitlines()
        if line.startswith("Tcp:")
    )
    return int(values[heads.index("RetransSegs")])


@needs_root
def test_a_line_has_its_rate_and_its_delay() -> None:
    with two("party=delay=30ms,rate=16mbit,server=lan") as (made, inside):
        small = sent(made, inside, 1)
        large = sent(made, inside, 1_000_000)
    # a way; and half a second of bytes. A machine that is busy is late, none is early.
    assert 0.030 <= small < 0.15
    assert 0.5 <= large < 2.0


@needs_root
def test_lost_packets_are_sent_again_by_tcp() -> None:
    """Of about 690 packets one in twenty is lost: all arrive the first time once in 10^15."""
    with two("delay=2ms,loss=5%") as (made, inside):
        sent(made, inside, 1_000_000)
        assert inside("party", resent) > 0
    with two("delay=2ms") as (made, inside):
        sent(made, inside, 10_000)
        assert inside("party", resent) == 0


@needs_root
def test_a_namespace_sees_its_line_and_nothing_else() -> None:
    with two("delay=1ms") as (_, inside), socket.create_server(("127.0.0.1", 0)) as ours:
        seen = inside("party", lambda: sorted(name for _, name in socket.if_nameindex()))
        assert seen == ["line0", "lo"]
        with pytest.raises(ConnectionRefusedError):
            inside("party", lambda: socket.create_connection(ours.getsockname(), 1))
        with pytest.raises(OSError, match="unreachable"):
            inside("party", lambda: socket.create_connection(("192.0.2.1", 80), 1))
        names = [name for _, name in socket.if_nameindex()]
        assert "line0" not in names
        open_before = len(os.listdir("/proc/self/fd"))
    assert len(os.listdir("/proc/self/fd")) <= open_before - 5  # two of each line, and our socket


@needs_root
@pytest.mark.parametrize("statistic", [Histogram(bins=8), Gini(bits=8)])
def test_a_federation_in_namespaces_answers_as_in_one_process(
    statistic: Statistic, tmp_path: Path
) -> None:
    """Parties that meet directly do it over their lines, too."""
    with Federation(4, None, "additive", data=VALUES, seed=1) as federation:
        expected = federation.run(statistic, 1)
    network = "party=delay=5ms,server=lan,by=namespaces"
    with Federation(
        4, None, "additive", "processes", VALUES, seed=1, network=network
    ) as federation:
        found = federation.run(statistic, 1)
        assert federation.runtime.layout.network == network_of(network)
    assert np.array_equal(np.asarray(found.estimate), np.asarray(expected.estimate))
    assert found.bill.total == expected.bill.total
    found.write(tmp_path)
    report = (tmp_path / "report.html").read_text()
    rows = ("network", "computing", "predicted, lan", "predicted, wan", "predicted, mobile")
    assert all(row in report for row in rows)
    # the delay is there: a party joins in ten of them, and its servers are six more away
    assert sum(v for k, v in found.seconds.items() if k != "start") > 0.08


def test_without_root_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LocalError, match="namespaces need root; by=relays works without root"):
        Namespaces(network_of("wan,by=namespaces"))
