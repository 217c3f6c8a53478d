"""What parties report in the local and the shuffle model, and what the reports say together.

With privacy, one randomized report per record (`LocalReports`); without, a party's whole vector as
one report (`PlainReports`), which is how exactness is checked.
"""

import math
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
"""Estimates stay below this in size: they must fit the ring."""

DRAWN_BYTES = 1 << 24
"""Of randomness that is held at a time: unary reports take a word for each of their bits."""


def is_private(query: Query) -> bool:
    """Whether there is anything to hide, and it is to be hidden."""
    return query.epsilon is not None and query.plan.sensitivity > 0


@dataclass(frozen=True)
class OpenedReports:
    """What valid reports say together: `records` are in the sum, `refused` reports are not."""

    vector: Vector
    records: int
    refused: int


class Reports(ABC):
    """The reports of one query, as parties make and the collector reads them."""

    def __init__(self, query: Query) -> None:
        self.query = query

    @property
    @abstractmethod
    def payload_bytes(self) -> int:
        """The length of every report before it is sealed: lengths tell nothing."""

    @property
    @abstractmethod
    def most(self) -> int:
        """How many reports one party may submit."""

    @abstractmethod
    def counts(self, holdings: Holdings) -> NDArray[np.intp]:
        """How many reports each party of a block submits."""

    @abstractmethod
    def payloads(self, chosen: NDArray[np.intp], count: int, randomness: Randomness) -> Bodies:
        """The reports of some parties that make `count` each, shape (parties, count, bytes)."""

    @abstractmethod
    def possible(self, payloads: Bodies) -> Flags:
        """Which of some payloads of the right length, one a row, a party may make."""

    def possible_from(self, ids: Ids, rows: Bodies) -> Flags:
        """The same of payloads of parties that are known, a row a party."""
        return self.possible(rows.reshape(-1, self.payload_bytes))

    @abstractmethod
    def open(self, payloads: Bodies) -> OpenedReports:
        """The sum, from payloads of the right length, one a row. Raises `LocalError` where they
        cannot say anything."""

    def open_from(self, blocks: Sequence[tuple[Ids, Bodies]]) -> OpenedReports:
        """The sum, from the payloads of parties that are known, a row a party."""
        return self.open(
            np.concatenate([rows.reshape(-1, self.payload_bytes) for _, rows in blocks])
        )


class PlainReports(Reports):
    """The number of a party's records, and its vector."""

    def __init__(self, query: Query, holdings: Holdings | None = None) -> None:
        super().__init__(query)
        if holdings is not None:
            vectors = query.plan.encode(holdings)
            self._rows = np.hstack([holdings.counts.astype(np.uint64)[:, None], vectors])

    @property
    def payload_bytes(self) -> int:
        return 8 + 8 * self.query.plan.length

    @property
    def most(self) -> int:
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

    Its question goes before it, unless `coins` are given: public randomness that both sides draw
    questions from, by party and place. `least_bytes` pads short reports with zeros.
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
    def most(self) -> int:
        return self.query.max_records_per_party

    def counts(self, holdings: Holdings) -> NDArray[np.intp]:
        return holdings.counts

    def questions(self, ids: Ids, count: int) -> Bodies:
        """Of the `count` records of each of these parties, one a row: where coins are public."""
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
        """Questions that both sides draw are possible ones, as the first is."""
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
        """The sum, from answers to questions that are known."""
        summary = self.randomizer.summarise(answers, questions)
        sums = np.rint(summary.vector).astype(np.int64)
        return OpenedReports(sums.view(np.uint64), summary.records, summary.refused)


class RandomizedReports(Mechanism):
    """Randomized at the parties, report by report."""

    @property
    @abstractmethod
    def randomizer(self) -> LocalRandomizer:
        """Of one record, if the query is a private one."""

    @property
    def exact(self) -> bool:
        return not is_private(self.query)

    @property
    def placement(self) -> str:
        return "local"

    def noise(self, values: Vector, records: int, contributors: int) -> Noise | None:
        """That of a histogram's bins at the counts that were estimated; of other statistics, at
        most. A sum of as many bounded, independent reports as there are records is normal, by the
        central limit theorem: no Laplace noise is in it."""
        if self.exact:
            return None
        variances = self.randomizer.variances(signed(values).astype(np.float64), records)
        if variances.size == 1:
            return Noise(float(variances[0]), math.inf)
        return Noise(math.nan, math.inf, variances)


def _words(
    randomness: Randomness, label: str, ids: Ids, count: int, words: int
) -> NDArray[np.uint64]:
    """`words` for each of `count` records of each party, one row a record."""
    if not words:
        return np.zeros((len(ids) * count, 0), dtype=np.uint64)
    drawn = randomness.rows(label, ids, 8 * words * count)
    return np.ascontiguousarray(drawn).view("<u8").reshape(-1, words)
