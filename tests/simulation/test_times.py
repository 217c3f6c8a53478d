"""Where a question's time went: parts that add up, with and without parties that vanish."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.parties.data import Dataset
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.wire.meter import Bill
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.accounts import longest_wait
from tallyroom.protos.waits import MOST_RUNS, Waits
from tallyroom.simulation import Federation
from tallyroom.simulation.networks.network import Network, network_of
from tallyroom.simulation.networks.prediction import network_seconds
from tallyroom.simulation.times import COLUMNS, Times

VALUES = Dataset(
    "values", {"value": np.random.default_rng(1).uniform(0, 1, 10)}, {"value": (0.0, 1.0)}
)


@pytest.fixture(scope="module")
def bill() -> Bill:
    with Federation(5, 3, "shamir", data=VALUES, seed=1) as federation:
        return federation.run(Mean(), 1).bill


durations = st.floats(0, 1e4)


@given(
    st.dictionaries(st.sampled_from(["start", "enrol", "submit", "release"]), durations),
    durations,
    st.sampled_from([None, "lan", "wan", "mobile", "party=delay=9ms,coordinator=rate=1mbit"]),
    st.dictionaries(st.sampled_from(["party", "server", "coordinator", "all"]), durations),
)
def test_parts_add_up_to_what_the_clock_shows(
    bill: Bill, seconds: dict[str, float], waited: float, network: str | None, cpu: dict[str, float]
) -> None:
    roles = {role: {"cpu_seconds": each} for role, each in cpu.items()}
    emulated = None if network is None else network_of(network)
    times = Times.of(bill, seconds, waited, emulated, roles)
    wall = seconds.get("enrol", 0) + seconds.get("submit", 0) + seconds.get("release", 0)
    assert times.wall == pytest.approx(wall)
    assert times.waiting == min(waited, times.wall)
    assert times.waiting + times.network + times.computing == pytest.approx(
        wall, rel=1e-9, abs=1e-7
    )
    assert min(times.waiting, times.network) >= 0
    assert times.computing >= -1e-7
    if times.computing_of:
        assert sum(times.computing_of.values()) == pytest.approx(
            times.computing, rel=1e-9, abs=1e-7
        )
    if emulated is None:
        assert times.network == 0 == len(times.network_of) == len(times.elsewhere)
    else:
        assert sum(times.network_of.values()) == pytest.approx(times.network, rel=1e-9, abs=1e-7)
        spent = network_seconds(bill, emulated, "start" in seconds)
        assert times.network == pytest.approx(
            min(spent, times.wall - times.waiting), rel=1e-9, abs=1e-7
        )
    assert set(times.parts | times.of_roles) <= set(COLUMNS)
    twice = Times.together([times, times])
    assert twice.computing == pytest.approx(2 * times.computing, rel=1e-9, abs=1e-7)
    assert twice.network_of.keys() == times.network_of.keys()


@pytest.mark.parametrize("role", ["party", "server", "coordinator"])
def test_network_time_is_that_of_the_role_whose_line_is_slow(bill: Bill, role: str) -> None:
    network: Network = network_of(f"{role}=rate=10kbit")
    times = Times.of(bill, {"submit": 1e6}, 0.0, network, {})
    assert times.network_of[role] > 0.99 * times.network > 0


def ticking(*moments: float) -> Callable[[], float]:
    left = iter(moments)
    return lambda: next(left)


def test_a_run_waits_from_its_last_step_to_its_deadline() -> None:
    waits = Waits(ticking(1.0, 2.0, 7.0, 7.5, 8.0, 20.0, 20.0, 99.0))
    waits.step(b"a")
    waits.step(b"b")
    waits.expire(b"a")  # at 7, and the step that follows from it is at 7.5
    assert waits.waited(b"a") == 6.0
    waits.step(b"a")  # at 8
    waits.expire(b"a")
    assert (waits.waited(b"a"), waits.waited(b"b")) == (18.0, 0.0)
    waits.forget(b"a")
    assert waits.waited(b"a") == 0.0
    waits.expire(b"a")  # nobody knows since when
    assert waits.waited(b"a") == 0.0


def test_runs_that_are_long_over_are_not_kept() -> None:
    waits = Waits(lambda: 0.0)
    for number in range(MOST_RUNS + 10):
        waits.step(number.to_bytes(4, "big"))
    assert len(waits._runs) == MOST_RUNS


def test_stations_wait_at_the_same_time_and_a_lie_is_no_time() -> None:
    claims = [0.0, 3.0, 2.0, -1.0, float("inf"), float("nan")]
    stations = [pb.AccountList(waiting_seconds=each) for each in claims]
    assert longest_wait(stations) == 3.0
    assert longest_wait([]) == 0.0


@pytest.mark.parametrize(
    ("statistic", "deadline", "deadlines"), [(Mean(), 3.0, 1), (Gini(bits=7), 2.0, 3)]
)
def test_what_is_waited_for_is_no_computing(
    statistic: Statistic, deadline: float, deadlines: int
) -> None:
    """One of five parties vanishes: servers wait for it; in pairs first its peers, and then for two
    deadlines the coordinator. A deadline runs while others still submit, which takes less than half
    of it."""
    with Federation(
        5, None, "additive", "processes", VALUES, seed=1, network="delay=10ms", dropout=0.2
    ) as federation:
        result = federation.run(statistic, 5, deadline=deadline)
    times = result.times
    assert "4 of 5 parties contributed" in result.notes
    assert (deadlines - 0.5) * deadline < times.waiting < (deadlines + 0.5) * deadline
    assert times.computing > 0
    assert times.wall == pytest.approx(times.waiting + times.network + times.computing)
    assert sum(times.computing_of.values()) == pytest.approx(times.computing)
    assert all(times.computing_of[role] > 0 for role in ("party", "server"))
    assert times.elsewhere["lan"] < times.elsewhere["wan"] < times.wall
