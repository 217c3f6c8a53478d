"""Reports that go through a shuffler, and how much ε a report may spend."""

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.reports import (
    LocalReports,
    PlainReports,
    RandomizedReports,
    Reports,
    is_private,
)
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local import LocalRandomizer
from tallyroom.protocols.local.amplification import local_epsilon, per_record
from tallyroom.protocols.plans.measurement import Measurement
from tallyroom.protocols.query import Query
from tallyroom.protocols.records import Holdings

LEAST_BYTES = 4
"""The least length of a report before it is sealed: shorter ones are padded."""


def honest_parties(query: Query, contributors: int) -> int:
    """How many of `contributors` are assumed to be honest (`shuffle?honest=FRACTION`).

    Rounded down, so that for a fraction below 1 at least one party may lie, however few there are.
    """
    fraction = getattr(aggregator_named(query.aggregator), "honest", 1)
    return max(1, math.floor(Fraction(str(fraction)) * contributors))


def least_reports(query: Query) -> int:
    """The fewest honest reports among which a record may hide; the shuffler releases no fewer.

    Reports of parties that collude with the collector hide nobody. At least the honest ones among
    `min_parties` contributors make a report for each of their records. The other parties may be
    absent or lie; we only know that each claims at most `max_records_per_party` of the `records`.
    So whatever a liar claims, the number is never more than what the others hold.
    """
    honest = honest_parties(query, query.min_parties)
    return max(honest, query.records - (query.parties - honest) * query.max_records_per_party)


def honest_reports(query: Query, counts: NDArray[np.int64]) -> int:
    """How many reports are honest at least, if contributors sent `counts` of them: those who sent
    most may be the liars."""
    honest = honest_parties(query, len(counts))
    return int(np.sort(counts)[:honest].sum())


def reports_of(query: Query, holdings: Holdings | None = None) -> Reports:
    """This query's reports; with `holdings`, those of a block of parties."""
    return sealed_reports(query, holdings) if is_private(query) else PlainReports(query, holdings)


def sealed_reports(query: Query, holdings: Holdings | None = None) -> LocalReports:
    """Reports of a private query. The collector does not know who sent which, so a question travels
    with its answer."""
    return LocalReports(query, randomizer_of(query), holdings, least_bytes=LEAST_BYTES)


def local_budget(query: Query, values: int | None) -> Fraction:
    """The ε of one report, for a response among `values` values, or for any randomizer if None. It
    is amplified if that helps, and else a record's share of ε."""
    assert query.epsilon is not None
    each, delta = per_record(query.epsilon, query.delta, query.records_per_unit)
    return local_epsilon(each, delta, least_reports(query), values)


def randomizer_of(query: Query) -> LocalRandomizer:
    """The randomizer of one record. Raises `LocalError` if the statistic has none."""
    assert query.epsilon is not None
    each, delta = per_record(query.epsilon, query.delta, query.records_per_unit)
    found = _randomizer(query.plan.measurement, each, delta, least_reports(query))
    if found is None:
        raise LocalError(
            f"shuffle has no local randomizer for {query.statistic.name}: choose another aggregator"
        )
    return found


@lru_cache(maxsize=16)
def _randomizer(
    measurement: Measurement | None, each: Fraction, delta: float, reports: int
) -> LocalRandomizer | None:
    if measurement is None:
        return None
    if not measurement.alike:
        raise LocalError(
            "shuffling hides a record among those of its own label only: leave --labels public "
            "out, or ask --aggregator local"
        )
    return measurement.randomizer(lambda values: local_epsilon(each, delta, reports, values))


class ShuffledReports(RandomizedReports):
    """Reports that the shuffler hides among all others."""

    @property
    def randomizer(self) -> LocalRandomizer:
        return randomizer_of(self.query)

    @property
    def amplified(self) -> bool:
        """Whether ε relies on the shuffler; if not, it holds for every report by itself."""
        query = self.query
        if not is_private(query) or query.epsilon is None:
            return False
        return self.local > query.epsilon / query.records_per_unit

    @property
    def local(self) -> Fraction:
        """The ε of a report by itself."""
        return local_budget(self.query, self.randomizer.amplified_as)

    @property
    def delta(self) -> float:
        return self.query.delta if self.amplified else 0.0

    @property
    def words(self) -> str:
        if self.exact:
            return "none"
        return f"{self.randomizer.name}, of local ε {float(self.local):.6g}"

    @property
    def statement(self) -> str:
        if not self.amplified:
            return "each report is private by itself: shuffling does not add to that"
        return (
            f"each report hides among at least {least_reports(self.query)} honest ones, while the "
            "shuffler does not collude with the coordinator and "
            f"{honest_parties(self.query, self.query.min_parties)} parties are honest"
        )
