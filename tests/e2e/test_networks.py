"""Emulated networks: what a run under one says of the time under another."""

import contextlib
import socket

import numpy as np
import pytest

from tallyroom.parties.data import Dataset
from tallyroom.protocols.aggregation import aggregator_names
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.choices import Mode
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.wire.messages import Role
from tallyroom.simulation import Federation
from tallyroom.simulation.networks.network import Network, everywhere, network_of
from tallyroom.simulation.networks.prediction import network_seconds
from tallyroom.simulation.networks.profile import PROFILES, Profile, profile_of
from tallyroom.simulation.networks.relay import (
    Proxied,
    RandomLosses,
    RelayDirection,
    RelayLine,
    Relays,
)
from tallyroom.simulation.result import Result

WITHIN = 0.25
VALUES = Dataset(
    "values", {"value": np.random.default_rng(1).uniform(0, 1, 12)}, {"value": (0.0, 1.0)}
)
MEASURED = "delay=15ms"


QUESTIONS: dict[str, tuple[Statistic, Statistic]] = {
    "histogram": (Histogram(bins=2), Histogram(bins=8)),
    "long": (Histogram(bins=2), Histogram(bins=20_000)),
    "ecdf": (Ecdf(thresholds=4), Ecdf(thresholds=8)),
    "mode": (Mode(bins=4), Mode(bins=8)),
    "pairs": (Gini(bits=7), Gini(bits=8)),
}


def asked_twice(network: str, aggregator: str, questions: str, peer: str = "") -> list[Result]:
    """The first question makes the connections, the second finds them."""
    delta = 1e-3 if aggregator == "shuffle" else 0.0
    with Federation(
        4, None, aggregator, "processes", VALUES, seed=1, network=network, peer=peer or None
    ) as federation:
        return [federation.run(each, 4, delta=delta) for each in QUESTIONS[questions]]


def spent(result: Result) -> float:
    return sum(seconds for phase, seconds in result.seconds.items() if phase != "start")


@pytest.mark.parametrize(
    ("aggregator", "questions", "network", "peer"),
    [
        *((name, "histogram", "delay=75ms", "") for name in aggregator_names()),
        ("fss?verified=no", "ecdf", "delay=75ms", ""),
        ("additive", "mode", "delay=75ms", ""),
        ("additive", "pairs", "delay=60ms", "relay"),
        ("additive", "pairs", "delay=60ms", "direct"),
        ("additive", "long", "delay=50ms,rate=3mbit", ""),
        ("additive", "histogram", "party=delay=90ms,server=lan", ""),
        ("masking", "histogram", "party=lan,server=delay=90ms,coordinator=lan", ""),
    ],
)
def test_a_prediction_is_within_a_quarter_of_the_emulated_time(
    aggregator: str, questions: str, network: str, peer: str
) -> None:
    """For every aggregator, for pairs and for what servers compute together, connections
    included. A machine that has other things to do is late now and then: one try of three must
    do."""
    tries = []
    for _ in range(3):
        told = asked_twice(MEASURED, aggregator, questions, peer)
        emulated = asked_twice(network, aggregator, questions, peer)
        ratios = []
        for first, one, other in zip((True, False), told, emulated, strict=True):
            times = one.times
            predicted = times.computing + network_seconds(one.bill, network_of(network), first)
            ratios.append((predicted / spent(one), predicted / spent(other)))
        tries.append(ratios)
        close = all(right == pytest.approx(1, rel=WITHIN) for _, right in ratios)
        if close and max(much for much, _ in ratios) > 1.4:
            return
    pytest.fail(f"predicted of measured, predicted of emulated, of both questions: {tries}")


@pytest.mark.parametrize(
    ("aggregator", "statistic", "delays"),
    [
        ("additive", Histogram(bins=8), 11),
        ("shamir", Histogram(bins=8), 13),
        ("prio3", Histogram(bins=8), 15),
        ("fss?verified=no", Ecdf(thresholds=8), 11),
        ("fss?verified=yes", Ecdf(thresholds=8), 14),
        ("masking", Histogram(bins=8), 17),
        ("local", Histogram(bins=8), 9),
        ("additive", Gini(bits=8), 31),
    ],
)
def test_delays_are_those_that_emulated_runs_took(
    aggregator: str, statistic: Statistic, delays: int
) -> None:
    """One run each of four parties under 150 ms took 11.0, 13.3, 16.6, 11.0, 14.1, 17.1, 10.0 and
    22.9 delays more than under 1 ms. The rule was read off these runs and the code; that it holds
    for others is tested above, at other delays."""
    with Federation(4, None, aggregator, data=VALUES, seed=1, peer="relay") as federation:
        bill = federation.run(statistic, 1).bill
    assert network_seconds(bill, everywhere(Profile(delay=1.0)), first=False) == delays


def test_profiles_are_read() -> None:
    assert profile_of("wan") is PROFILES["wan"]
    assert profile_of("delay=40ms,rate=50mbit,loss=0.1%") == Profile(0.04, 50e6 / 8, 0.001)
    for bad in (
        "moon",
        "",
        "delay=40",
        "delay=-1ms",
        "rate=0mbit",
        "loss=60%",
        "delay=1s,delay=2s",
    ):
        with pytest.raises(LocalError):
            profile_of(bad)
    with pytest.raises(LocalError, match="choose --runtime processes"):
        Federation(4, network="wan")


def test_networks_are_read() -> None:
    wan, mobile, lan = (PROFILES[name] for name in ("wan", "mobile", "lan"))
    assert network_of("wan") == everywhere(wan)
    mixed = network_of("party=mobile,server=lan")
    assert mixed.lines == {Role.PARTY: mobile, Role.SERVER: lan}
    assert mixed.between(Role.PARTY, Role.SERVER) == mobile
    assert mixed.between(Role.COORDINATOR, Role.SERVER) == lan
    spelt = network_of("party=delay=80ms,rate=10mbit,server=rate=1gbit")
    assert spelt.lines == {Role.PARTY: Profile(0.08, 10e6 / 8), Role.SERVER: Profile(rate=1e9 / 8)}
    # of two lines the slower, whichever way it is slow
    assert spelt.between(Role.PARTY, Role.SERVER) == Profile(0.08, 10e6 / 8)
    assert network_of("wan,by=namespaces") == Network(everywhere(wan).lines, "namespaces")
    for bad in (
        "analyst=wan",
        "party=",
        "party=moon",
        "party=wan,party=lan",
        "wan,server=lan",
        "by=namespaces",
        "wan,by=magic",
        "party=wan,lan",
    ):
        with pytest.raises(LocalError):
            network_of(bad)


def test_a_line_carries_one_thing_after_another() -> None:
    line = RelayDirection(10.0)
    assert line.book(20, 0.0) == (0.0, 2.0)
    assert line.book(10, 0.0) == (2.0, 3.0)
    assert line.book(10, 10.0) == (10.0, 11.0)
    two = RelayLine(network_of("party=rate=80kbit"), Role.PARTY, members=2)
    assert two.up.book(20_000, 0.0) == (0.0, 1.0)
    lossy = RandomLosses(Profile(delay=1.0, loss=0.5))
    delays = [lossy.delay(1) for _ in range(2000)]
    assert set(delays) == {1.0, 3.0}
    # 2000 tosses of a fair coin: outside 890..1110 once in a million
    assert 890 <= delays.count(3.0) <= 1110


def test_a_relay_connects_to_nothing_but_processes_of_its_machine() -> None:
    relays = Relays(network_of("lan"))
    try:
        outlet = relays.line("host-0", Role.PARTY)
        assert isinstance(outlet, Proxied)
        port = int(outlet.proxy.rpartition(":")[2])
        for head in (
            b"CONNECT example.org:443 HTTP/1.1",
            b"GET http://127.0.0.1:1/ HTTP/1.1",
            b"CONNECT 127.0.0.1:nowhere HTTP/1.1",
            b"CONNECT 127.0.0.1:99999 HTTP/1.1",
            b"x" * 10_000,
        ):
            with socket.create_connection(("127.0.0.1", port), 10) as one:
                one.sendall(head + b"\r\n\r\n")
                with contextlib.suppress(ConnectionResetError):
                    assert one.recv(100) == b""
    finally:
        relays.close()
