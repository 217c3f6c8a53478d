"""Emulated networks: what a run under one says of the time under another."""

import numpy as np
import pytest

from parties.data import Dataset
from protocols.errors import LocalError
from protocols.statistics import Statistic
from protocols.statistics.ecdf import Ecdf
from protocols.statistics.histogram import Histogram
from protocols.statistics.of_pairs import Gini
from simulation import Federation
from simulation.networks.prediction import split, waiting_seconds
from simulation.networks.profile import PROFILES, Profile, profile_of
from simulation.networks.relay import RelayLine
from simulation.result import Result

WITHIN = 0.25
VALUES = Dataset(
    "values", {"value": np.random.default_rng(1).uniform(0, 1, 12)}, {"value": (0.0, 1.0)}
)


def asked(network: str, aggregator: str, bins: int) -> tuple[Result, float]:
    with Federation(
        4, None, aggregator, "processes", VALUES, seed=1, network=network
    ) as federation:
        federation.run(Histogram(bins=2), "inf")  # connections are made
        result = federation.run(Histogram(bins=bins), "inf")
    assert result.error == {"rmse": 0.0, "max": 0.0}
    return result, sum(result.seconds.values())


@pytest.mark.parametrize(
    ("aggregator", "bins", "network"),
    [
        ("masking", 8, "delay=200ms"),
        ("additive", 20_000, "delay=100ms,rate=3mbit"),
        ("prio3", 8, "delay=200ms"),
    ],
)
def test_a_prediction_is_within_a_quarter_of_the_emulated_time(
    aggregator: str, bins: int, network: str
) -> None:
    """A machine that has other things to do is late now and then: one try of three must do."""
    tries = []
    for _ in range(3):
        result, whole = asked("delay=100ms", aggregator, bins)
        told = split(result.bill, result.seconds, profile_of("delay=100ms"))
        assert result.as_json()["federation"]["network"] == "delay=100ms"  # type: ignore[index]
        computing = told["computing_seconds"]
        assert isinstance(computing, float)
        predicted = computing + waiting_seconds(result.bill, profile_of(network), False)
        _, emulated = asked(network, aggregator, bins)
        tries.append((computing / whole, predicted / whole, predicted / emulated))
        mostly_network, something_to_predict = computing < 0.5 * whole, predicted > 1.4 * whole
        close = predicted == pytest.approx(emulated, rel=WITHIN)
        if mostly_network and something_to_predict and close:
            return
    pytest.fail(f"computing and predicted of the whole, predicted of emulated: {tries}")


@pytest.mark.parametrize(
    ("aggregator", "statistic", "delays"),
    [
        ("additive", Histogram(bins=8), 13),
        ("shamir", Histogram(bins=8), 17),
        ("prio3", Histogram(bins=8), 21),
        ("fss", Ecdf(thresholds=8), 13),
        ("masking", Histogram(bins=8), 17),
        ("local", Histogram(bins=8), 9),
        ("additive", Gini(bits=8), 23),
    ],
)
def test_delays_are_those_that_emulated_runs_took(
    aggregator: str, statistic: Statistic, delays: int
) -> None:
    """One run each of four parties under 150 ms took 13.1, 16.8, 20.8, 13.0, 16.9, 9.2 and 22.9
    delays more than under 1 ms. The rule was read off these runs and the code; that it holds for
    others is tested above, at other delays."""
    with Federation(4, None, aggregator, data=VALUES, seed=1, peer="relay") as federation:
        bill = federation.run(statistic, 1).bill
    assert waiting_seconds(bill, Profile(delay=1.0), first=False) == delays


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


def test_a_line_carries_one_thing_after_another() -> None:
    line = RelayLine(Profile(delay=1.0, rate=10.0))
    assert line.arrival(20, 0.0) == 3.0
    assert line.arrival(10, 0.0) == 4.0
    assert line.arrival(10, 10.0) == 12.0
    lossy = RelayLine(Profile(delay=1.0, loss=0.5))
    arrivals = [lossy.arrival(1, 0.0) for _ in range(2000)]
    assert set(arrivals) == {1.0, 3.0}
    # 2000 tosses of a fair coin: outside 890..1110 once in a million
    assert 890 <= arrivals.count(3.0) <= 1110
