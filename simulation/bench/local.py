"""What a server of the local model does with reports, once they are there.

`response`: reports of randomized response among 64 values in memory, counted and estimated; `sum`
is the time that numpy takes to add the same bytes up, which is about what reading them takes.
`auc`: two hierarchical histograms over 2^20 scores are walked; `twice_n` and `twice_depth` divide
the time with twice the records, and over a domain of twice the bits at half the bits, by this.
"""

from fractions import Fraction

import numpy as np

from protocols.local import RandomizedResponse
from protocols.local.auc import AucResponse
from simulation.bench.row import Row, seconds

REPORTS = 10_000_000
VALUES = 64
RECORDS = 1_000_000
DEPTH = 20
REPEATS = 7


def rows(reports: int = REPORTS, records: int = RECORDS) -> list[Row]:
    return [_response(reports), _auc(records)]


def _response(reports: int) -> Row:
    response = RandomizedResponse.spending(Fraction(1), VALUES)
    said = np.random.default_rng(0).integers(0, VALUES, (reports, 1), dtype=np.uint8)
    none = np.zeros((reports, 0), dtype=np.uint8)
    ours = seconds(lambda: response.summarise(said, none), REPEATS)
    read = seconds(said.sum, REPEATS)
    details = {"seconds": ours, "sum_seconds": read}
    return Row(f"response-{reports}", reports / ours, "reports/s", {"sum": ours / read}, details)


def _auc(records: int) -> Row:
    ours = _walk_seconds(records, DEPTH)
    ratios = {
        "twice_n": _walk_seconds(2 * records, DEPTH) / ours,
        "twice_depth": ours / _walk_seconds(records, DEPTH // 2),
    }
    name = f"auc-{records}x{DEPTH}"
    return Row(name, records * DEPTH / ours, "levels/s", ratios, {"seconds": ours})


def _walk_seconds(records: int, depth: int) -> float:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, records)
    scores = rng.integers(0, 1 << depth, records)
    randomizer = AucResponse.spending(Fraction(1), depth, private_labels=False)
    words = rng.integers(0, 2**64, (3, records), dtype=np.uint64)
    questions = randomizer.questions(words[:2].T)
    reports = randomizer.reports(2 * scores + labels, questions, words[2:].T)
    return seconds(lambda: randomizer.summarise(reports, questions))
