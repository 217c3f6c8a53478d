"""Reports of parties in the local and the shuffle model, and the estimates from them.

With privacy, there is one randomized report per record (`LocalReports`). Without, each party
reports its whole vector (`PlainReports`), which is how exactness is checked.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.contract import Bodies, Ids
from tallyroom.protocols.aggregation.mechanism import Mechanism
from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.local import LocalRandomizer
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.release import Noise

Flags = NDArray[np.bool]

LARGEST = 1 << 62
"""The absolute value of estimates is below this, so that they fit the ring."""

DRAWN_BYTES = 1 << 24
"""How much randomness is held at a time: unary reports take a word for each of their bits."""


def is_private(query: Query) -> bool:
    """Whether the query has a finite ε and its answer depends on the data."""
    return query.epsilon is not None and query.plan.sensitivity.l1 > 0


@dataclass(frozen=True)
class OpenedReports:
    """The sum from valid reports. It covers `records` records; `refused` reports were left out."""

    vector: Vector
    records: int
    refused: int


class Reports(ABC):
    """The reports of one query: parties make them, and the collector reads them."""

    def __init__(self, query: Query) -> None:
        self.query = query

    @property
    @abstractmethod
    def payload_bytes(self) -> int:
        """The length of a report before it is sealed: the same for all, so it reveals nothing."""

    @property
    @abstractmethod
    def max_per_party(self) -> int:
        """How many reports one party may submit."""

    @abstractmethod
    def counts(self, holdings: Holdings) -> NDArray[np.intp]:
        """How many reports each party of a block submits."""

    @abstractmethod
    def payloads(self, chosen: NDArray[np.intp], count: int, randomness: Randomness) -> Bodies:
        """The reports of the `chosen` parties, which make `count` each; shape (parties, count,
        bytes)."""

    @abstractmethod
    def possible(self, payloads: Bodies) -> Flags:
        """Which payloads, given as rows of the right length, a party can have made."""

    def possible_from(self, ids: Ids, rows: Bodies) -> Flags:
        """Like `possible`, if it is known whose payloads they are; one row per party."""
        return self.possible(rows.reshape(-1, self.payload_bytes))

    @abstractmethod
    def open(self, payloads: Bodies) -> OpenedReports:
        """The sum, from payloads of the right length, one per row. Raises `LocalError` if nothing
        can be estimated from them."""

    def open_from(self, blocks: Sequence[tuple[Ids, Bodies]]) -> OpenedReports:
        """Like `open`, if it is known whose payloads they are; one row per party."""
        return self.open(
            np.concatenate([rows.reshape(-1, self.payload_bytes) for _, rows in blocks])
        )


class PlainReports(Reports):
    """A report is the number of a party's records and its vector."""

    def __init__(self, query: Query, holdings: Holdings | None = None) -> None:
        super().__init__(query)
        if holdings is not None:
            vectors = query.plan.encode(holdings)
            self._rows = np.hstack([holdings.counts.astype(np.uint64)[:, None], vectors])

    @property
    def payload_bytes(self) -> int:
        return 8 + 8 * self.query.plan.length

    @property
    def max_per_party(self) -> int:
        return 1

    def counts(self, holdings: Holdings) -> NDArray[np.intp]:
        return np.ones(len(holdings.ids), dtype=np.intp)

    def payloads(self, chosen: NDArray[np.intp], count: int, randomness: Randomness) -> Bodies:
        return self._rows[chosen].astype("<u8").view(np.uint8)[:, None, :]

    def possible(self, payloads: Bodies) -> Flags:
        records = np.ascontiguousarray(payloads[:, :8]).view("<u8")[:, 0]
        return (records >= 1) & (records <= self.query.max_records_per_party)

    def open(self, payloads: Bodies) -> OpenedReports:
        rows = np.ascontiguousarray(payloads).view("<u8")
        possible = self.possible(payloads)
        summed = rows[possible].sum(axis=0, dtype=np.uint64)
        return OpenedReports(summed[1:], int(summed[0]), int(np.count_nonzero(~possible)))


class LocalReports(Reports):
    """One report of a local randomizer per record.

    The question precedes the answer, unless `coins` are given: public randomness from which both
    sides derive the questions, by party and record. Reports shorter than `least_bytes` are padded
    with zeros.
    """

    def __init__(
        self,
        query: Query,
        randomizer: LocalRandomizer,
        holdings: Holdings | None = None,
        coins: Randomness | None = None,
        least_bytes: int = 1,
    ) -> None:
        super().__init__(query)
        self.randomizer = randomizer
        self._coins = coins
        self._asked = 0 if coins is not None else randomizer.question_bytes
        self._width = max(self._asked + randomizer.report_bytes, least_bytes)
        if holdings is not None:
            self._ids: Ids = holdings.ids
            self._starts = holdings.starts
            self._inputs = query.plan.measured(holdings)

    @property
    def payload_bytes(self) -> int:
        return self._width

    @property
    def max_per_party(self) -> int:
        return self.query.max_records_per_party

    def counts(self, holdings: Holdings) -> NDArray[np.intp]:
        return holdings.counts

    def questions(self, ids: Ids, count: int) -> Bodies:
        """The questions for `count` records of each of these parties, one per row, from the public
        coins."""
        assert self._coins is not None
        return self.randomizer.questions(
            _words(self._coins, "question", ids, count, self.randomizer.question_words)
        )

    def payloads(self, chosen: NDArray[np.intp], count: int, randomness: Randomness) -> Bodies:
        drawn = 8 * (self.randomizer.words + self.randomizer.question_words) * count
        step = max(1, DRAWN_BYTES // max(drawn, 1))
        parts = [
            self._payloads(chosen[start : start + step], count, randomness)
            for start in range(0, len(chosen), step)
        ]
        return np.concatenate(parts) if len(parts) != 1 else parts[0]

    def _payloads(self, chosen: NDArray[np.intp], count: int, randomness: Randomness) -> Bodies:
        randomizer, ids = self.randomizer, self._ids[chosen]
        if self._coins is None:
            asked = _words(randomness, "question", ids, count, randomizer.question_words)
            questions = randomizer.questions(asked)
        else:
            questions = self.questions(ids, count)
        words = _words(randomness, "local randomizer", ids, count, randomizer.words)
        records = self._starts[chosen][:, None] + np.arange(count)
        said = randomizer.reports(self._inputs[records.ravel()], questions, words)
        rows = np.zeros((len(said), self._width), dtype=np.uint8)
        rows[:, : self._asked] = questions[:, : self._asked]
        rows[:, self._asked : self._asked + said.shape[1]] = said
        return rows.reshape(len(chosen), count, self._width)

    @property
    def _used(self) -> int:
        return self._asked + self.randomizer.report_bytes

    def _padded(self, payloads: Bodies) -> Flags:
        return np.asarray((payloads[:, self._used :] == 0).all(axis=1))

    def possible(self, payloads: Bodies) -> Flags:
        """With public coins questions are not sent, so a zero question stands in for each."""
        questions = payloads[:, : self._asked]
        if self._coins is not None:
            questions = np.zeros((len(payloads), self.randomizer.question_bytes), dtype=np.uint8)
        answers = payloads[:, self._asked : self._used]
        return self._padded(payloads) & self.randomizer.possible(answers, questions)

    def possible_from(self, ids: Ids, rows: Bodies) -> Flags:
        if self._coins is None or self.randomizer.answers_alike:
            return super().possible_from(ids, rows)
        payloads = rows.reshape(-1, self._width)
        questions = self.questions(ids, rows.shape[1] // self._width)
        answers = payloads[:, : self._used]
        return self._padded(payloads) & self.randomizer.possible(answers, questions)

    def open(self, payloads: Bodies) -> OpenedReports:
        padded = self._padded(payloads)
        rows = payloads if padded.all() else payloads[padded]
        opened = self.open_answers(rows[:, self._asked : self._used], rows[:, : self._asked])
        return replace(opened, refused=opened.refused + int(np.count_nonzero(~padded)))

    def open_from(self, blocks: Sequence[tuple[Ids, Bodies]]) -> OpenedReports:
        if self._coins is None:
            return super().open_from(blocks)
        answers = [rows.reshape(-1, self._width) for _, rows in blocks]
        questions = [self.questions(ids, rows.shape[1] // self._width) for ids, rows in blocks]
        return self.open_answers(np.concatenate(answers), np.concatenate(questions))

    def open_answers(self, answers: Bodies, questions: Bodies) -> OpenedReports:
        """The sum, from answers and their questions."""
        summary = self.randomizer.summarise(answers, questions)
        sums = np.rint(summary.vector).astype(np.int64)
        return OpenedReports(sums.view(np.uint64), summary.records, summary.refused)


class RandomizedReports(Mechanism):
    """A mechanism in which parties randomize each report."""

    @property
    @abstractmethod
    def randomizer(self) -> LocalRandomizer:
        """The randomizer of one record, if the query is private."""

    @property
    def exact(self) -> bool:
        return not is_private(self.query)

    @property
    def placement(self) -> str:
        return "local"

    def noise(self, values: Vector, records: int, contributors: int) -> Noise | None:
        """For a histogram, the noise of each bin at the estimated counts; for other statistics, a
        bound. The estimate is a sum of bounded, independent reports, one per record, so its noise
        is normal by the central limit theorem: it has no Laplace part."""
        if self.exact:
            return None
        estimates = signed(values).astype(np.float64)
        return Noise.normal(self.randomizer.variances(estimates, records))


def _words(
    randomness: Randomness, label: str, ids: Ids, count: int, words: int
) -> NDArray[np.uint64]:
    """`words` random words for each of `count` records of each party, one row per record."""
    if not words:
        return np.zeros((len(ids) * count, 0), dtype=np.uint64)
    drawn = randomness.rows(label, ids, 8 * words * count)
    return np.ascontiguousarray(drawn).view("<u8").reshape(-1, words)
