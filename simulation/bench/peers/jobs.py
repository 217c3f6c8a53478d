"""The jobs that `tally bench peers` has done by us and by peers."""

import socket
import threading
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallyroom.parties.data import Dataset
from tallyroom.protocols.privacy.composition import composed_epsilon
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.statistics import Curve, Statistic
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.simulation.bench import fss, prio3, secure_aggregation
from tallyroom.simulation.bench.peers.adapters import (
    DIFFPRIVLIB,
    FLOWER,
    MPYC_COMPARE,
    MPYC_SUM,
    OPENDP,
    missing,
)
from tallyroom.simulation.bench.row import Row, seconds
from tallyroom.simulation.bench.together import pairs_between_servers
from tallyroom.simulation.federation import Federation

HISTOGRAM_TRIALS, MEAN_TRIALS = 20, 400
RECORDS, BINS, PARTIES = 1000, 64, 20
EPSILON = 1.0
QUESTIONS, EACH, DELTA = 200, Fraction(1, 10), 1e-6
LENGTH = 1024
CARRIED_PARTIES, CARRIED_LENGTH = 25_000, 100
LOOPBACK_BYTES = 1 << 28
MPYC_WORDS = ("-M3", "--no-log")
PAIR_PARTIES, PAIRS = 200, 1000

Values = NDArray[np.float64]
Noisy = Callable[[], Values]
WAYS = {
    "central": ("curator", None),
    "additive": ("additive", None),
    "joint": ("additive", "joint"),
}


def rows() -> list[Row]:
    """Runs the whole benchmark, which takes about a minute."""
    masks = [] if missing(FLOWER) else secure_aggregation.rows()[-1:]
    keys = [*fss.peer_rows(), *prio3.peer_rows()]
    return [*errors(), compose(), sum_of_three(), comparisons(), *keys, *masks, loopback()]


# --- error at the same ε and adjacency ---


def errors() -> list[Row]:
    values = np.random.default_rng(0).random(RECORDS)
    counts = np.histogram(values, BINS, (0.0, 1.0))[0]
    truths = {"histogram": counts.astype(float), "mean": np.array([values.mean()])}
    statistics: dict[str, tuple[Statistic, int]] = {
        "histogram": (Histogram(bins=BINS), HISTOGRAM_TRIALS),
        "mean": (Mean(), MEAN_TRIALS),
    }
    job = {
        "values": values.tolist(),
        "counts": counts.tolist(),
        "mean": float(values.mean()),
        "records": RECORDS,
        "bins": BINS,
        "epsilon": EPSILON,
        "histogram_trials": HISTOGRAM_TRIALS,
        "mean_trials": MEAN_TRIALS,
    }
    peers = {"opendp-error": OPENDP.ask(job=job), "diffprivlib-error": DIFFPRIVLIB.ask(job=job)}
    found = []
    for name, (statistic, trials) in statistics.items():
        truth = truths[name]
        theirs = {
            peer: _rmse([np.array(draw, dtype=float) for draw in drawn[name]], truth)
            for peer, drawn in peers.items()
            if drawn is not None
        }
        for way in WAYS:
            draw = _ours(statistic, values, way)
            ours = _rmse([draw() for _ in range(trials)], truth)
            ratios = {peer: ours / error for peer, error in theirs.items()}
            details = {f"{peer.replace('-', '_')}_rmse": error for peer, error in theirs.items()}
            found.append(Row(f"{name}-error-{way}", ours, "rmse", ratios, details))
    return found


def _rmse(drawn: Sequence[Values], truth: Values) -> float:
    return float(np.sqrt(np.mean([(each - truth) ** 2 for each in drawn])))


def _ours(statistic: Statistic, values: Values, way: str) -> Noisy:
    data = Dataset("uniform", {"value": values}, {"value": (0.0, 1.0)})
    aggregator, noise = WAYS[way]
    federation = Federation(PARTIES, aggregator=aggregator, data=data, hosts=1)

    def draw() -> Values:
        estimate = federation.run(statistic, EPSILON, noise=noise).estimate
        return np.array(estimate.y if isinstance(estimate, Curve) else [estimate], dtype=float)

    return draw


# --- accounting ---


def compose() -> Row:
    charges = {PrivacyLoss.of(EACH): QUESTIONS}
    ours = composed_epsilon(charges, DELTA)
    took = seconds(lambda: composed_epsilon(charges, DELTA))
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
    asked = MPYC_SUM.ask(*MPYC_WORDS)
    peer = None if asked is None else float(asked["seconds"])
    ratios = {} if peer is None else {"mpyc": peer / took}
    details = {"seconds": took} if peer is None else {"seconds": took, "mpyc_seconds": peer}
    return Row(f"sum-of-three-{LENGTH}", LENGTH / took, "numbers/s", ratios, details)


def comparisons() -> Row:
    """As many pairs as the peer compares."""
    ours = pairs_between_servers(PAIR_PARTIES, PAIRS)
    peer = MPYC_COMPARE.ask(*MPYC_WORDS)
    took = ours.details["seconds"]
    if peer is None:
        return Row(f"compare-pairs-{PAIRS}", ours.rate, ours.unit, {}, {"seconds": took})
    details = {"seconds": took, "mpyc_seconds": peer["seconds"]}
    rate = peer["pairs"] / peer["seconds"]
    ratios = {"mpyc-compare": ours.rate / rate}
    return Row(f"compare-pairs-{PAIRS}", ours.rate, ours.unit, ratios, details)


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
    """Bytes per second of one TCP connection on the loopback, in pieces of a megabyte."""
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
