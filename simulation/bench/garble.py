"""Garbled circuits and two-party sessions on the comparison x > y of 32 bits: 32 ANDs.

- garble-100, evaluate-100: AND gates per second on one core, 100 instances per call on one link,
  best of many calls. garble-1: one instance per call, including the cost of a call.
- cold-pair: two processes and a pipe, from nothing to shares of one comparison: base OTs, OT
  extension, garbling, evaluation. `cpu_ms` is both processes' CPU time, best of some pairs; `bytes`
  is everything that went over the pipe, both ways.
- warm-pair: the same with 10,000 comparisons on the link; figures are per comparison, and include
  the opening of the link.
- pairs-auc-10000: `auc` over 10,000 pairs of 5,000 records by the whole protocol, with two parties
  as processes with mutual TLS and noise on the total; half of the pairs are within one party.
  `seconds` are from the question to the answer, `bytes` are those between parties, per pair that
  two parties computed.

`aes-limit` is the share of the CPU's AES limit (see the fss benchmark): the hash takes two calls,
garbling an AND takes four hashes, evaluating it takes two. `emp` is our rate divided by EMP's, if a
program for it is found: the one that the environment variable EMP names, or `emp` on the path. It
is run without arguments and must print two numbers, AND gates garbled and evaluated per second.
"""

import multiprocessing
import os
import shutil
import subprocess
import time
from multiprocessing.connection import Connection

import numpy as np

from tallyroom.fss import native
from tallyroom.fss.ring import Bytes
from tallyroom.parties.data import Dataset
from tallyroom.protocols.garbling.circuit import AND, NOT, XOR, Circuit
from tallyroom.protocols.garbling.direct_session import MOST_DIRECT, DirectEvaluator, DirectGarbler
from tallyroom.protocols.garbling.half_gates import evaluate, garble
from tallyroom.protocols.garbling.outputs import OutputShares
from tallyroom.protocols.garbling.session import Evaluator, Garbler
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.statistics.of_pairs import Auc
from tallyroom.simulation.bench.row import Row, seconds
from tallyroom.simulation.federation import Federation

_BITS = 32
_REPEATS = 200
_COLD_PAIRS = 8
_WARM_PAIRS = 3
_AMORTISED = 10_000
_RECORDS = 5_000
_GARBLE_CALLS, _EVALUATE_CALLS = 8, 4


def rows() -> list[Row]:
    """Runs the whole benchmark, which takes some seconds."""
    limit, peer = _aes_limit(), _emp_rates()
    found = []
    for instances in (100, 1):
        garbling, evaluating = _rates(instances)
        found.append(_gates(f"garble-{instances}", garbling, _GARBLE_CALLS, limit, peer[0]))
        found.append(_gates(f"evaluate-{instances}", evaluating, _EVALUATE_CALLS, limit, peer[1]))
    found.append(_pair_row("cold-pair", 1, _COLD_PAIRS, "cpu_ms", 1e3))
    found.append(_pair_row("warm-pair", _AMORTISED, _WARM_PAIRS, "cpu_us", 1e6))
    found.append(_federation_row())
    return found


def _federation_row() -> Row:
    draw = np.random.default_rng(1)
    labels = draw.integers(0, 2, _RECORDS).astype(np.float64)
    scores = np.clip(0.5 + 0.2 * (labels - 0.5) + 0.2 * draw.standard_normal(_RECORDS), 0, 1)
    data = Dataset("scores", {"score": scores, "label": labels}, {"score": (0.0, 1.0)})
    best, remote = float("inf"), 0.0
    statistic = Auc(pairs_per_party=str(_AMORTISED * 2 // _RECORDS))
    with Federation(parties=2, runtime="processes", data=data, hosts=2, seed=1) as federation:
        for _ in range(_WARM_PAIRS):
            begun = time.perf_counter()
            result = federation.run(statistic, 1.0)
            best = min(best, time.perf_counter() - begun)
            remote = result.bill.by_link()["party->party"].bytes
    details = {"seconds": best, "bytes": remote / (_AMORTISED / 2)}
    return Row(f"pairs-auc-{_AMORTISED}", _AMORTISED / best, "pairs/s", {}, details)


def _gates(name: str, rate: float, calls: int, limit: float | None, peer: float | None) -> Row:
    ratios = {} if limit is None else {"aes-limit": rate * calls / limit}
    if peer is not None:
        ratios["emp"] = rate / peer
    return Row(name, rate, "ANDs/s", ratios)


def _rates(instances: int) -> tuple[float, float]:
    circuit = greater(_BITS)
    keys, deltas = _random(1, 16), _random(1, 16)
    deltas[:, 0] |= 1
    labels = _random(1, instances, 2 * _BITS, 16)
    tables = garble(circuit, keys, deltas, labels).tables
    gates = circuit.ands * instances
    garbling = seconds(lambda: garble(circuit, keys, deltas, labels), _REPEATS)
    evaluating = seconds(lambda: evaluate(circuit, keys, labels, tables), _REPEATS)
    return gates / garbling, gates / evaluating


def _pair_row(name: str, instances: int, pairs: int, detail: str, scale: float) -> Row:
    cpu, sent = _pair(instances, pairs)
    details = {"bytes": sent / instances, detail: scale * cpu / instances}
    return Row(name, instances / cpu, "comparisons/s", {}, details)


def _pair(instances: int, pairs: int) -> tuple[float, int]:
    """CPU seconds of both processes for the best of several fresh links, and a link's bytes."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_evaluator, args=(theirs, instances, pairs))
    child.start()
    theirs.close()
    best, sent = float("inf"), 0
    link = np.zeros(1, dtype=np.uint64)
    circuit, x = greater(_BITS), _bits(instances, seed=1)
    try:
        for pair in range(pairs):
            ours.send_bytes(b"next")
            begun = time.process_time()
            kind = DirectGarbler if instances * _BITS <= MOST_DIRECT else Garbler
            garbler = kind(link, Randomness.from_seed(pair, "garbler"))
            opening = ours.recv_bytes()
            points = garbler.reply(_row(opening)).tobytes()
            ours.send_bytes(points)
            request = ours.recv_bytes()
            answer = garbler.answer(circuit, x, _row(request), OutputShares.XOR)
            ours.send_bytes(answer.rows.tobytes())
            spent = time.process_time() - begun
            sent = len(opening) + len(points) + len(request) + answer.rows.nbytes
            theirs_spent, shares = ours.recv()
            right = answer.shares ^ shares
            if not np.array_equal(right[0, :, 0], _values(x) > _values(_bits(instances, seed=2))):
                raise AssertionError("a comparison gave a wrong result")
            best = min(best, spent + theirs_spent)
    finally:
        ours.close()
        child.join()
    return best, sent


def _evaluator(pipe: Connection, instances: int, pairs: int) -> None:
    link = np.zeros(1, dtype=np.uint64)
    circuit, y = greater(_BITS), _bits(instances, seed=2)
    for pair in range(pairs):
        pipe.recv_bytes()
        begun = time.process_time()
        kind = DirectEvaluator if instances * _BITS <= MOST_DIRECT else Evaluator
        evaluator = kind(link, Randomness.from_seed(pair, "evaluator"))
        pipe.send_bytes(evaluator.open().tobytes())
        evaluator.accept(_row(pipe.recv_bytes()))
        pipe.send_bytes(evaluator.request(circuit, y, OutputShares.XOR).tobytes())
        shares = evaluator.finish(_row(pipe.recv_bytes()))
        pipe.send((time.process_time() - begun, shares))


def greater(bits: int) -> Circuit:
    """x > y for the garbler's x: a borrow from the lowest bit on, c ← c ⊕ (x ⊕ c)(¬y ⊕ c)."""
    gates: list[tuple[int, int, int]] = []

    def gate(kind: int, left: int, right: int) -> int:
        gates.append((kind, left, right))
        return 2 * bits + len(gates) - 1

    carry = gate(AND, 0, gate(NOT, bits, bits))
    for bit in range(1, bits):
        differs = gate(XOR, bits + bit, carry)
        both = gate(AND, gate(XOR, bit, carry), gate(NOT, differs, differs))
        carry = gate(XOR, carry, both)
    outputs = np.array([carry], dtype=np.uint32)
    return Circuit(bits, bits, np.array(gates, dtype=np.uint32), outputs)


def _aes_limit() -> float | None:
    code = native.instruction_set()
    if code is None:
        return None
    rounds = 100_000
    blocks = native.compiled.hash_rounds(code, rounds)
    return blocks / seconds(lambda: native.compiled.hash_rounds(code, rounds), _REPEATS // 4)


def _emp_rates() -> tuple[float | None, float | None]:
    program = os.environ.get("EMP") or shutil.which("emp")
    if program is None:
        return None, None
    done = subprocess.run([program], capture_output=True, text=True, timeout=120, check=True)
    garbling, evaluating = done.stdout.split()[:2]
    return float(garbling), float(evaluating)


def _row(data: bytes) -> Bytes:
    return np.frombuffer(data, dtype=np.uint8).reshape(1, -1)


def _random(*shape: int) -> Bytes:
    """Labels of a benchmark protect nothing, so a seeded generator will do."""
    return np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)


def _bits(instances: int, seed: int) -> Bytes:
    shape = (1, instances, _BITS)
    return np.random.default_rng(seed).integers(0, 2, shape, dtype=np.uint8)


def _values(bits: Bytes) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    weights = np.uint64(1) << np.arange(_BITS, dtype=np.uint64)
    values: np.ndarray[tuple[int], np.dtype[np.uint64]] = (bits[0] * weights).sum(
        axis=1, dtype=np.uint64
    )
    return values
