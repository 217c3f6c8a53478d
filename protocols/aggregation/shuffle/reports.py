"""What parties report through a shuffler, and what the reports say together.

With privacy, one randomized report a record (`LocalReports`); without, a party's whole vector as
one report (`PlainReports`), which is how exactness is checked.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from protocols.aggregation import aggregator_named
from protocols.aggregation.contract import Bodies, Ids
from protocols.aggregation.release import Release
from protocols.algebra.ring import Vector, signed
from protocols.errors import LocalError
from protocols.local import BoundedResponse, LocalRandomizer
from protocols.privacy.amplification import local_epsilon, per_record
from protocols.randomness import Randomness
from protocols.records import Column, Holdings
from protocols.run.query import Query
from protocols.statistics.measurement import Measurement


def is_private(query: Query) -> bool:
    """Whether there is anything to hide, and it is to be hidden."""
    return query.epsilon is not None and query.statistic.sensitivity > 0


def honest_parties(query: Query, contributors: int) -> int:
    """How many of so many contributors are taken to be honest: `shuffle?honest=FRACTION`.

    Rounded down: for a fraction below 1, one party at least may lie, however few there are.
    """
    fraction = getattr(aggregator_named(query.aggregator), "honest", 1)
    return max(1, math.floor(Fraction(str(fraction)) * contributors))


def least_reports(query: Query) -> int:
    """The fewest honest reports among which a record may hide: the shuffler releases no fewer.

    Reports of parties that collude with the collector hide nobody. At least the honest ones of
    `min_parties` contributors make a report for each of their records; of all others, who are
    absent or lie, nothing is expected, but that each claims at most `max_records_per_party` of the
    `records`. So whatever one liar claims, the number is never more than the others hold.
    """
    honest = honest_parties(query, query.min_parties)
    return max(honest, query.records - (query.parties - honest) * query.max_records_per_party)


def honest_reports(query: Query, counts: NDArray[np.int64]) -> int:
    """How many reports are honest at least, where contributors sent so many each: those who sent
    the most may be the liars."""
    honest = honest_parties(query, len(counts))
    return int(np.sort(counts)[:honest].sum())


@dataclass(frozen=True)
class Opened:
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
    def open(self, payloads: Bodies) -> Opened:
        """The sum, from payloads of the right length, one a row."""


class PlainReports(Reports):
    """The number of a party's records, and its vector."""

    def __init__(self, query: Query, holdings: Holdings | None = None) -> None:
        super().__init__(query)
        if holdings is not None:
            vectors = query.statistic.encode(holdings)
            self._rows = np.hstack([holdings.counts.astype(np.uint64)[:, None], vectors])

    @property
    def payload_bytes(self) -> int:
        return 8 + 8 * self.query.statistic.length

    @property
    def most(self) -> int:
        return 1

    def counts(self, holdings: Holdings) -> NDArray[np.intp]:
        return np.ones(len(holdings.ids), dtype=np.intp)

    def payloads(self, chosen: NDArray[np.intp], count: int, randomness: Randomness) -> Bodies:
        return self._rows[chosen].astype("<u8").view(np.uint8)[:, None, :]

    def open(self, payloads: Bodies) -> Opened:
        rows = np.ascontiguousarray(payloads).view("<u8")
        possible = (rows[:, 0] >= 1) & (rows[:, 0] <= self.query.max_records_per_party)
        summed = rows[possible].sum(axis=0, dtype=np.uint64)
        return Opened(summed[1:], int(summed[0]), int(np.count_nonzero(~possible)))


class LocalReports(Reports):
    """One value of a local randomizer a record, as four bytes."""

    def __init__(self, query: Query, holdings: Holdings | None = None) -> None:
        super().__init__(query)
        self.randomizer = randomizer_of(query)
        if holdings is not None:
            self._ids: Ids = holdings.ids
            self._starts = holdings.starts
            self._inputs = query.statistic.measured(holdings)

    @property
    def payload_bytes(self) -> int:
        return 4

    @property
    def most(self) -> int:
        return self.query.max_records_per_party

    def counts(self, holdings: Holdings) -> NDArray[np.intp]:
        return holdings.counts

    def payloads(self, chosen: NDArray[np.intp], count: int, randomness: Randomness) -> Bodies:
        words = self.randomizer.words
        drawn = randomness.rows("local randomizer", self._ids[chosen], 8 * words * count)
        records = self._starts[chosen][:, None] + np.arange(count)
        said = self.randomizer.randomize(
            self._inputs[records.ravel()],
            np.ascontiguousarray(drawn).view("<u8").reshape(-1, words),
        )
        return said.astype("<u4").view(np.uint8).reshape(len(chosen), count, 4)

    def open(self, payloads: Bodies) -> Opened:
        said = np.ascontiguousarray(payloads).view("<u4")[:, 0]
        possible = said < self.randomizer.values
        counts = np.bincount(said[possible], minlength=self.randomizer.values).astype(np.int64)
        records = int(counts.sum())
        sums = np.rint(self.randomizer.estimate(counts)).astype(np.int64)
        return Opened(sums.view(np.uint64), records, int(np.count_nonzero(~possible)))


def reports_of(query: Query, holdings: Holdings | None = None) -> Reports:
    """What this query's reports are; with `holdings`, those of a block of parties."""
    kind = LocalReports if is_private(query) else PlainReports
    return kind(query, holdings)


def local_budget(query: Query, values: int) -> Fraction:
    """The ε of one report among `values`: amplified if that helps, else a record's share of ε."""
    assert query.epsilon is not None
    each, delta = per_record(query.epsilon, query.delta, query.records_per_unit)
    return local_epsilon(each, delta, least_reports(query), values)


def randomizer_of(query: Query) -> LocalRandomizer:
    """Raises `LocalError` for a statistic that no local randomizer serves."""
    assert query.epsilon is not None
    each, delta = per_record(query.epsilon, query.delta, query.records_per_unit)
    found = _randomizer(query.statistic.measurement, each, delta, least_reports(query))
    if found is None:
        raise LocalError(
            f"shuffle has no local randomizer for {query.statistic.name}: ask for histogram, sum "
            "or mean, or choose another aggregator"
        )
    return found


@lru_cache(maxsize=256)
def _randomizer(
    measurement: Measurement | None, each: Fraction, delta: float, reports: int
) -> LocalRandomizer | None:
    if measurement is None:
        return None
    return measurement.randomizer(lambda values: local_epsilon(each, delta, reports, values))


class ShuffledReports(Release):
    """Randomized at the parties, and hidden among all reports by the shuffler."""

    @property
    def exact(self) -> bool:
        return not is_private(self.query)

    @property
    def placement(self) -> str:
        return "local"

    @property
    def amplified(self) -> bool:
        """Whether ε relies on the shuffler; if not, it holds for every report by itself."""
        query = self.query
        if not is_private(query) or query.epsilon is None:
            return False
        return (
            local_budget(query, randomizer_of(query).values)
            > query.epsilon / query.records_per_unit
        )

    @property
    def delta(self) -> float:
        return self.query.delta if self.amplified else 0.0

    @property
    def words(self) -> str:
        if self.exact:
            return "none"
        randomizer = randomizer_of(self.query)
        local = float(local_budget(self.query, randomizer.values))
        how = f"randomized response of local ε {local:.6g} among {randomizer.values} values"
        if isinstance(randomizer, BoundedResponse):
            kind = "one bit" if randomizer.values == 2 else f"{randomizer.values} grid points"
            how = f"random rounding to {kind}, of all grids the least variance; {how}"
        return how

    @property
    def statement(self) -> str:
        if not self.amplified:
            return "each report is private by itself: shuffling would not add to that"
        return (
            f"each report hides among at least {least_reports(self.query)} honest ones, while the "
            "shuffler does not collude with the coordinator and "
            f"{honest_parties(self.query, self.query.min_parties)} parties are honest"
        )

    def deviations(self, released: Vector, records: int, contributors: int) -> Column:
        """Of a histogram's bins at the counts that were estimated; of sums, at most."""
        if self.exact:
            return np.zeros(1)
        randomizer = randomizer_of(self.query)
        variances = randomizer.variances(signed(released).astype(np.float64), records)
        return self.query.statistic.deviations(1.0, records) * np.sqrt(variances)
