"""The work of a server of the local model on reports that have arrived.

`response`: reports of randomized response among 64 values in memory, counted and estimated; `sum`
is the time that numpy takes to add up the same bytes, which is about the time to read them. The
other randomizers are measured likewise, their questions included, with fewer reports.

`auc`: walks two hierarchical histograms over 2^20 scores of records that share 16 scores: no node
above one of them is discarded, so every level is visited. `twice_n` is the time with twice the
records divided by this time, `twice_depth` is this time divided by that over 2^10 scores, and
`twice_both` is the first divided by the last: 2, 2 and 4 if time is linear in n·log d. `auc-every`
is the same for reports with a bit for each level. `working_bytes` are those allocated in addition
to the reports.

All times are processor times, best of several turns in which every size is measured once.
"""

import time
import tracemalloc
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from tallyroom.protocols.local import RANDOMIZERS, LocalRandomizer
from tallyroom.protocols.local.auc import AucResponse, TreeResponse
from tallyroom.protocols.local.contract import Words
from tallyroom.protocols.local.every_level import EveryLevel
from tallyroom.simulation.bench.row import Row

REPORTS = 10_000_000
FEWER = 1_000_000
"""Number of reports for slower randomizers, and of records for trees with a bit about one level."""
EVERY = 250_000
VALUES = 64
DEPTH = 20
SHARED = 16
TURNS = 7


def rows(reports: int = REPORTS, records: int = FEWER, every: int = EVERY) -> list[Row]:
    others = [name for name in RANDOMIZERS if name != "response"]
    return [
        _oracle("response", reports),
        *(_oracle(name, records) for name in others),
        _tree("auc", records, _one_level),
        _tree("auc-every", every, _every_level),
    ]


def cpu_seconds(works: Sequence[Callable[[], object]]) -> list[float]:
    """The best processor time of each, taken in turns: a slow machine slows all of them alike."""
    best = [float("inf")] * len(works)
    for _ in range(TURNS):
        for index, work in enumerate(works):
            start = time.process_time()
            work()
            best[index] = min(best[index], time.process_time() - start)
    return [max(each, 1e-9) for each in best]


def _drawn(rng: np.random.Generator, count: int, words: int) -> Words:
    return rng.integers(0, 2**64, (count, words), dtype=np.uint64)


def _oracle(name: str, reports: int) -> Row:
    randomizer: LocalRandomizer = RANDOMIZERS[name](lambda _: Fraction(1), VALUES)
    rng = np.random.default_rng(0)
    questions = randomizer.questions(_drawn(rng, reports, randomizer.question_words))
    inputs = rng.integers(0, VALUES, reports)
    if randomizer.words > 1:  # a few reports repeated: words for each bit take much memory
        some = randomizer.reports(inputs[:1000], questions, _drawn(rng, 1000, randomizer.words))
        said = np.resize(some, (reports, randomizer.report_bytes))
    else:
        said = randomizer.reports(inputs, questions, _drawn(rng, reports, 1))
    ours, *read = cpu_seconds(
        [lambda: randomizer.summarise(said, questions), said.sum, questions.sum]
    )
    details = {"seconds": ours, "sum_seconds": sum(read)}
    label = f"{name}-{reports}"
    return Row(label, reports / ours, "reports/s", {"sum": ours / sum(read)}, details)


def _one_level(depth: int) -> TreeResponse:
    return AucResponse.spending(Fraction(1), depth, private_labels=False)


def _every_level(depth: int) -> TreeResponse:
    """Uses an ε at which noise discards no more nodes than above."""
    return EveryLevel.spending(Fraction(8), Fraction(1, 10**6), depth, private_labels=False)


def _tree(name: str, records: int, spending: Callable[[int], TreeResponse]) -> Row:
    sizes = ((records, DEPTH), (2 * records, DEPTH), (records, DEPTH // 2))
    works = [_walk(n, spending(depth)) for n, depth in sizes]
    ours, twice_n, half_depth = cpu_seconds(works)
    ratios = {
        "twice_n": twice_n / ours,
        "twice_depth": ours / half_depth,
        "twice_both": twice_n / half_depth,
    }
    details = {"seconds": ours, "working_bytes": float(_working_bytes(works[0]))}
    return Row(f"{name}-{records}x{DEPTH}", records * DEPTH / ours, "levels/s", ratios, details)


def _walk(records: int, randomizer: TreeResponse) -> Callable[[], object]:
    rng = np.random.default_rng(0)
    scores = rng.integers(0, SHARED, records) * ((1 << randomizer.depth) - 1) // (SHARED - 1)
    codes = 2 * scores + rng.integers(0, 2, records)
    questions = randomizer.questions(_drawn(rng, records, randomizer.question_words))
    reports = randomizer.reports(codes, questions, _drawn(rng, records, randomizer.words))
    return lambda: randomizer.summarise(reports, questions)


def _working_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
