"""Function secret sharing: comparison keys over Z_2^64, native and twin, beside the AES limit.

Every rate is the best of several runs on one thread, except for `cores-2`.

- gen: keys for both servers, from blocks of 4096 (2048 for the twin) alphas.
- eval1: one threshold on 10⁵ stored keys (2·10⁴ for the twin), summed over keys.
- eval1024: 1024 random thresholds on stored keys, summed; a point is one threshold on one key.
- fulldomain: all 2^16 thresholds on stored keys, summed; a leaf is one threshold on one key.

`aes-limit` is the share of the CPU's hash limit: the hash calls that the algorithm cannot avoid for
one unit, times units per second, divided by the calls per second of a loop that only hashes
independent blocks in registers, on one core, with the widest AES instructions available. The trie
of the thresholds determines how many calls are needed: one seed for each of its edges, one value
for each node with a left child, and one for each terminal block touched. The twin is compared with
the same limit; without the native module there is no limit to measure, and no such ratio.

`sycret` is our rate divided by sycret's (LeFactory, 32-bit values, one thread) in the same run, for
keys of 32 bits only. It evaluates one threshold per key, so its rate at one point also stands for
many points and for leaves. `cores-1` is the rate of two threads divided by that of one.
Rows of keys that servers check come from `verified`.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from tallyroom.fss import dcf, native
from tallyroom.fss.ring import Z64, Bytes, Points
from tallyroom.fss.storage import Segment, level_major
from tallyroom.simulation.bench import verified
from tallyroom.simulation.bench.peers.adapters import SYCRET
from tallyroom.simulation.bench.row import Row, seconds

_RING = Z64
_SYCRET_BITS = 32
# Pieces of work take some milliseconds and are repeated, so that the best one hits a quiet moment.
_REPEATS = 40


def rows() -> list[Row]:
    """Runs the whole benchmark, which takes about half a minute."""
    limit = _aes_limit()
    peer = _sycret_rates()
    found: list[Row] = []
    best = None if limit is None else max(limit.values())
    if limit is not None and best is not None:
        found += [
            Row(f"aes-limit-{name}", rate, "blocks/s", {"best": rate / best})
            for name, rate in limit.items()
        ]
        for bits in (32, 16):
            found += _rows_at(bits, "native", best, peer)
        found.append(_two_cores())
        found += [verified.gen_row(best, _REPEATS), verified.curve_row()]
    with _twin():
        for bits in (32, 16):
            found += _rows_at(bits, "twin", best, peer)
    return found


def _rows_at(bits: int, suffix: str, limit: float | None, peer: dict[str, float]) -> list[Row]:
    native_run = suffix == "native"
    count, batch, many, whole = (100_000, 4096, 256, 64) if native_run else (20_000, 2048, 64, 1)
    repeats = _REPEATS if native_run else _REPEATS // 5
    alphas, randomness = _points(count, bits), _randomness(count)
    stored = _stored(alphas, randomness, bits)

    def row(name: str, unit: str, units: int, calls: float, work: Callable[[], object]) -> Row:
        rate = units / seconds(work, repeats)
        ratios = {} if limit is None else {"aes-limit": rate * calls / limit}
        if name in peer and bits == _SYCRET_BITS:
            ratios["sycret"] = rate / peer[name]
        return Row(f"{name}-{bits}-{suffix}", rate, unit, ratios, {"hash_calls": calls})

    found = [
        row(
            "gen",
            "keys/s",
            batch,
            _gen_calls(bits),
            lambda: dcf.gen(alphas[:batch], bits, _RING, randomness[:batch], threads=1),
        )
    ]
    # Half of the bits of this threshold are zero, which is the average cost of a threshold.
    threshold = np.array([0x55555555 >> (32 - bits)], dtype=np.uint64)
    found.append(
        row("eval1", "keys/s", count, _calls(threshold, bits), _sum(stored, threshold, bits))
    )
    thresholds = np.unique(_points(1024, bits, seed=3))
    part = _stored(alphas[:many], randomness[:many], bits)
    found.append(
        row(
            "eval1024",
            "points/s",
            many * len(thresholds),
            _calls(thresholds, bits) / len(thresholds),
            _sum(part, thresholds, bits),
        )
    )
    if bits == 16:
        domain = dcf.full_domain(bits)
        part = _stored(alphas[:whole], randomness[:whole], bits)
        found.append(
            row(
                "fulldomain",
                "leaves/s",
                whole * len(domain),
                _calls(domain, bits) / len(domain),
                _sum(part, domain, bits),
            )
        )
    return found


def _two_cores() -> Row:
    bits, count = 32, 4096
    stored = _stored(_points(count, bits), _randomness(count), bits)
    thresholds = np.unique(_points(256, bits, seed=3))
    units = count * len(thresholds)
    one = two = 0.0
    # In turns, so that both meet the same quiet moments of a shared machine.
    for _ in range(2 * _REPEATS):
        one = max(one, units / seconds(_sum(stored, thresholds, bits, threads=1), 1))
        two = max(two, units / seconds(_sum(stored, thresholds, bits, threads=2), 1))
    return Row("cores-2", two, "points/s", {"cores-1": two / one})


def _sum(stored: Segment, thresholds: Points, bits: int, threads: int = 1) -> Callable[[], object]:
    return lambda: dcf.evaluate_sum(0, stored, thresholds, bits, _RING, threads)


def _gen_calls(bits: int) -> int:
    """Counts left, right and value for both servers at each level, then the terminal blocks."""
    form = dcf.shape(bits, _RING)
    return 6 * form.levels + 2 * -(-form.words * _RING.bytes // 16)


def _calls(thresholds: Points, bits: int) -> int:
    """Counts hash calls for one key at sorted distinct thresholds."""
    form = dcf.shape(bits, _RING)
    calls = 0
    for level in range(form.levels):
        children = np.unique(thresholds >> np.uint64(bits - 1 - level))
        calls += len(children) + int(np.count_nonzero(children % 2 == 0))
    inside = thresholds[thresholds % (1 << form.terminal_bits) < form.words]
    return calls + len(np.unique(inside // (16 // _RING.bytes)))


def _aes_limit() -> dict[str, float] | None:
    """Blocks per second by instruction set, or None without the native module."""
    best = native.instruction_set()
    if best is None:
        return None
    rounds = 100_000
    rates = {}
    for code in range(native.AES_NI, best + 1):
        work = partial(native.compiled.hash_rounds, code, rounds)
        rates[native.NAMES[code]] = work() / seconds(work, 2 * _REPEATS)
    return rates


def _sycret_rates() -> dict[str, float]:
    found = SYCRET.ask(str(_REPEATS))
    if found is None:
        return {}
    point = found["eval"]
    return {"gen": found["gen"], "eval1": point, "eval1024": point, "fulldomain": point}


def peer_rows() -> list[Row]:
    """Those that a peer does too, if it is there."""
    peer = _sycret_rates()
    suffix = "twin" if _aes_limit() is None else "native"
    rows = _rows_at(_SYCRET_BITS, suffix, None, peer) if peer else []
    return [row for row in rows if row.ratios]


@contextmanager
def _twin() -> Iterator[None]:
    before = os.environ.get("TALLYROOM_NATIVE")
    os.environ["TALLYROOM_NATIVE"] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TALLYROOM_NATIVE"]
        else:
            os.environ["TALLYROOM_NATIVE"] = before


def _points(count: int, bits: int, seed: int = 1) -> Points:
    return np.random.default_rng(seed).integers(0, 1 << bits, count, dtype=np.uint64)


def _randomness(count: int) -> Bytes:
    """Keys of a benchmark protect nothing, so a seeded generator will do."""
    shape = (count, dcf.RANDOMNESS_BYTES)
    return np.random.default_rng(2).integers(0, 256, shape, dtype=np.uint8)


def _stored(alphas: Points, randomness: Bytes, bits: int) -> Segment:
    return level_major(dcf.shape(bits, _RING), dcf.gen(alphas, bits, _RING, randomness)[0])
