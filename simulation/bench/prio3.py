"""Prio3: a histogram of 1024 bins, sharded by a client and verified by one of two servers.

Each report passes `shard`, then a server's `verify_init`, the combination of both servers' verifier
shares, and `verify_next`; `shard_ms` and `prepare_ms` are milliseconds of one thread per report.
`-batch` has a hundred reports in each call. The rate is reports per second through both steps.

`vdaf-reference` is our rate divided by that of the draft authors' own Python, on the same report
size in the same run. It is measured if their package can be imported as `vdaf_poc`, which is not
published: it is the folder `poc` of the draft's repository, and needs Python 3.12.

`prio3-NxL` is a whole run of the aggregator in one process, with N parties of one record each and a
histogram of L bins: all parties, two servers and the coordinator. `ratios.linear` is its time
divided by that of the smallest, scaled to its number of parties: 1 if time grows linearly.
"""

import numpy as np

from tallyroom.parties.data import Dataset
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.vdaf.prio3 import NONCE_BYTES, VERIFY_KEY_BYTES, prio3_histogram
from tallyroom.simulation.bench.peers.adapters import VDAF
from tallyroom.simulation.bench.row import Row, seconds
from tallyroom.simulation.federation import Federation

_LENGTH, _CHUNK_LENGTH = 1024, 32
_CTX = b"bench"
_KEY = bytes(VERIFY_KEY_BYTES)
_REPEATS = 20
_SIZES, _BINS = (1000, 2000, 4000), 100


def rows() -> list[Row]:
    """Runs the whole benchmark, which takes some seconds."""
    reference = _reference()
    return [
        _row("prio3-histogram-1024", 1, reference),
        _row("prio3-histogram-1024-batch", 100, reference),
        *_whole_runs(),
    ]


def _whole_runs() -> list[Row]:
    took = {parties: _run_seconds(parties) for parties in _SIZES}
    least = took[_SIZES[0]] / _SIZES[0]
    return [
        Row(
            f"prio3-{parties}x{_BINS}",
            parties / each,
            "parties/s",
            {"linear": each / parties / least},
            {"seconds": each},
        )
        for parties, each in took.items()
    ]


def _run_seconds(parties: int) -> float:
    values = np.random.default_rng(0).random(parties)
    data = Dataset("uniform", {"value": values}, {"value": (0.0, 1.0)})
    with Federation(parties=parties, aggregator="prio3", data=data) as federation:
        return seconds(lambda: federation.run(Histogram(bins=_BINS), epsilon=1.0))


def _row(name: str, reports: int, reference: dict[str, float]) -> Row:
    ours = _ours(reports)
    total = sum(ours.values())
    ratios = {"vdaf-reference": sum(reference.values()) / total} if reference else {}
    peers = {f"reference_{key}": value for key, value in reference.items()}
    return Row(name, 1000 / total, "reports/s", ratios, {**ours, **peers})


def _ours(reports: int) -> dict[str, float]:
    """Milliseconds per report."""
    prio3 = prio3_histogram(_LENGTH, _CHUNK_LENGTH)
    generator = np.random.default_rng(1)
    measurements = generator.integers(0, _LENGTH, reports)
    nonces = generator.integers(0, 256, (reports, NONCE_BYTES), dtype=np.uint8)
    rand = generator.integers(0, 256, (reports, prio3.rand_bytes), dtype=np.uint8)
    made = prio3.shard(measurements, nonces, rand, _CTX)
    public, (leader, helper) = made.public_shares, made.input_shares
    _, helper_shares = prio3.verify_init(_KEY, _CTX, 1, nonces, public, helper)

    def prepare() -> None:
        states, shares = prio3.verify_init(_KEY, _CTX, 0, nonces, public, leader)
        messages = prio3.verifier_shares_to_messages(_CTX, [shares, helper_shares])
        if not prio3.verify_next(states, messages).accepted.all():
            raise RuntimeError("an honest report was rejected")

    shard = seconds(lambda: prio3.shard(measurements, nonces, rand, _CTX), _REPEATS)
    scale = 1000 / reports
    return {"shard_ms": scale * shard, "prepare_ms": scale * seconds(prepare, _REPEATS)}


def _reference() -> dict[str, float]:
    """The same figures of the reference, or nothing if it is not installed."""
    return VDAF.ask(str(_LENGTH), str(_CHUNK_LENGTH)) or {}


def peer_rows() -> list[Row]:
    """One report at a time, beside the reference, if that is there."""
    reference = _reference()
    return [_row("prio3-histogram-1024", 1, reference)] if reference else []
