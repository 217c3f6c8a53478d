"""The same job done by a peer, in the same run: error at the same ε and adjacency, or speed.

Errors are root mean squares over trials, ours divided by the peer's; 1 is the same error.

- histogram-error: 64 counts, one record replaced, ε = 1. `central` has a trusted curator, which is
  what the libraries are; `additive` trusts nobody, and each of two servers adds its noise; `joint`
  has the two draw one noise together. OpenDP adds discrete Laplace noise of scale 2/ε.
  diffprivlib's histogram is for one record added or removed: asked at ε/2, it holds for one
  replaced. Of 20 trials with 64 counts each, a ratio's standard error is 4 %.
- mean-error: of 1,000 records in [0, 1], their number public. Of 400 trials, 8 %.
- compose: the ε at δ = 10⁻⁶ of 200 questions of ε = 0.1, tight, ours by optimal composition divided
  by that of dp-accounting's privacy-loss distributions, whose time `speed` is held against.
- sum-of-three: three parties add up vectors of 1024 numbers over TCP on the loopback. MPyC has the
  three compute among themselves with Shamir shares in a 64-bit prime field, honest majority; ours
  (`additive`, processes) has two servers, mutual TLS and noise. Neither has its start in it.
- loopback: bytes a second of submissions through gRPC, TLS and two servers, as a share of what one
  TCP connection on the loopback carries.
"""

import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallyroom.parties.data import Dataset
from tallyroom.protocols.privacy.ledger import Charge, tight_epsilon
from tallyroom.protocols.statistics import Curve, Statistic
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.simulation.bench.row import Row, seconds
from tallyroom.simulation.federation import Federation

HISTOGRAM_TRIALS, MEAN_TRIALS = 20, 400
RECORDS, BINS, PARTIES = 1000, 64, 20
EPSILON = 1.0
QUESTIONS, EACH, DELTA = 200, Fraction(1, 10), 1e-6
LENGTH = 1024
CARRIED_PARTIES, CARRIED_LENGTH = 25_000, 100
LOOPBACK_BYTES = 1 << 28
MPYC_SECONDS = 120.0

Values = NDArray[np.float64]
Noisy = Callable[[], Values]
WAYS = {
    "central": ("curator", None),
    "additive": ("additive", None),
    "joint": ("additive", "joint"),
}


def rows() -> list[Row]:
    """The whole benchmark; about a minute."""
    return [*errors(), compose(), sum_of_three(), loopback()]


# --- error at the same ε and adjacency ---


def errors() -> list[Row]:
    values = np.random.default_rng(0).random(RECORDS)
    counts = np.histogram(values, BINS, (0.0, 1.0))[0]
    jobs: list[tuple[str, int, Statistic, Values, dict[str, Noisy]]] = [
        (
            "histogram",
            HISTOGRAM_TRIALS,
            Histogram(bins=BINS),
            counts.astype(float),
            {
                **_opendp_histogram(counts),
                **_diffprivlib("histogram", values, epsilon=EPSILON / 2, bins=BINS, range=(0, 1)),
            },
        ),
        (
            "mean",
            MEAN_TRIALS,
            Mean(),
            np.array([values.mean()]),
            {**_opendp_mean(values), **_diffprivlib("mean", values, epsilon=1.0, bounds=(0, 1))},
        ),
    ]
    found = []
    for name, trials, statistic, truth, peers in jobs:
        theirs = {peer: _rmse(draw, truth, trials) for peer, draw in peers.items()}
        for way in WAYS:
            ours = _rmse(_ours(statistic, values, way), truth, trials)
            ratios = {peer: ours / error for peer, error in theirs.items()}
            details = {f"{peer.replace('-', '_')}_rmse": error for peer, error in theirs.items()}
            found.append(Row(f"{name}-error-{way}", ours, "rmse", ratios, details))
    return found


def _rmse(draw: Noisy, truth: Values, trials: int) -> float:
    return float(np.sqrt(np.mean([(draw() - truth) ** 2 for _ in range(trials)])))


def _ours(statistic: Statistic, values: Values, way: str) -> Noisy:
    data = Dataset("uniform", {"value": values}, {"value": (0.0, 1.0)})
    aggregator, noise = WAYS[way]
    federation = Federation(PARTIES, aggregator=aggregator, data=data, hosts=1)

    def draw() -> Values:
        estimate = federation.run(statistic, EPSILON, noise=noise).estimate
        return np.array(estimate.y if isinstance(estimate, Curve) else [estimate], dtype=float)

    return draw


def _opendp() -> Any:
    import opendp.prelude as library

    library.enable_features("contrib", "idealized-numerics")
    return library


def _opendp_histogram(counts: NDArray[np.int64]) -> dict[str, Noisy]:
    try:
        library = _opendp()
    except ImportError:
        return {}
    space = library.vector_domain(library.atom_domain(T=int)), library.l1_distance(T=int)
    noisy = library.m.make_laplace(*space, scale=2 / EPSILON)
    return {"opendp-error": lambda: np.array(noisy(counts.tolist()), dtype=float)}


def _opendp_mean(values: Values) -> dict[str, Noisy]:
    try:
        library = _opendp()
    except ImportError:
        return {}
    space = library.atom_domain(T=float, nan=False), library.absolute_distance(T=float)
    noisy = library.m.make_laplace(*space, scale=1 / (EPSILON * len(values)))
    return {"opendp-error": lambda: np.array([noisy(float(values.mean()))])}


def _diffprivlib(tool: str, values: Values, **options: object) -> dict[str, Noisy]:
    """Its package imports its models first, which not every scikit-learn has room for."""
    try:
        from diffprivlib import BudgetAccountant, tools
    except ImportError:
        return {}

    def draw() -> Values:
        answer = getattr(tools, tool)(values, accountant=BudgetAccountant(), **options)
        return np.atleast_1d(np.array(answer[0] if isinstance(answer, tuple) else answer, float))

    return {"diffprivlib-error": draw}


# --- accounting ---


def compose() -> Row:
    charges = [Charge(EACH, 0.0, QUESTIONS)]
    ours = tight_epsilon(charges, DELTA)
    took = seconds(lambda: tight_epsilon(charges, DELTA))
    ratios = {}
    try:
        from dp_accounting.pld import common, privacy_loss_distribution

        def theirs() -> float:
            pure = common.DifferentialPrivacyParameters(float(EACH), 0.0)
            one = privacy_loss_distribution.from_privacy_parameters(pure)
            return float(one.self_compose(QUESTIONS).get_epsilon_for_delta(DELTA))

        ratios = {"dp-accounting": seconds(theirs) / took, "dp-accounting-epsilon": ours / theirs()}
    except ImportError:
        pass
    return Row(f"compose-{QUESTIONS}", 1 / took, "bounds/s", ratios, {"epsilon": ours})


# --- speed ---


def sum_of_three() -> Row:
    data = Dataset("uniform", {"value": np.linspace(0, 1, 3)}, {"value": (0.0, 1.0)})
    with Federation(3, runtime="processes", data=data, hosts=3) as federation:
        runs = [federation.run(Histogram(bins=LENGTH), EPSILON).seconds for _ in range(5)]
    took = min(run["submit"] + run["release"] for run in runs)
    peer = _mpyc_seconds()
    ratios = {} if peer is None else {"mpyc": peer / took}
    details = {"seconds": took} if peer is None else {"seconds": took, "mpyc_seconds": peer}
    return Row(f"sum-of-three-{LENGTH}", LENGTH / took, "numbers/s", ratios, details)


def _mpyc_seconds() -> float | None:
    """In processes of its own: importing it reads the command line of whoever does."""
    program = Path(__file__).with_name("mpyc_sum.py")
    command = [sys.executable, str(program), "-M3", "--no-log"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=MPYC_SECONDS
        )
        return float(done.stdout.split()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError):
        return None


def loopback(parties: int = CARRIED_PARTIES) -> Row:
    values = np.random.default_rng(0).random(parties)
    data = Dataset("uniform", {"value": values}, {"value": (0.0, 1.0)})
    with Federation(parties, runtime="processes", data=data, hosts=2) as federation:
        runs = [federation.run(Histogram(bins=CARRIED_LENGTH), EPSILON) for _ in range(3)]
    carried = runs[0].bill.wire_bytes
    rate = carried / min(run.seconds["submit"] + run.seconds["release"] for run in runs)
    line = loopback_rate(LOOPBACK_BYTES)
    return Row(f"carried-{parties}", rate, "bytes/s", {"loopback": rate / line}, {"line": line})


def loopback_rate(size: int) -> float:
    """Bytes a second of one TCP connection on the loopback, in pieces of a megabyte."""
    piece = bytes(1 << 20)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send() -> None:
            with socket.create_connection(server.getsockname()) as line:
                for _ in range(size // len(piece)):
                    line.sendall(piece)

        def carry() -> None:
            sender = threading.Thread(target=send)
            sender.start()
            received, buffer = 0, bytearray(len(piece))
            with server.accept()[0] as line:
                while count := line.recv_into(buffer):
                    received += count
            sender.join()
            assert received == size // len(piece) * len(piece)

        return size / seconds(carry)
