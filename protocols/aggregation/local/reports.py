"""Reports of the local model, and their privacy."""

from fractions import Fraction
from functools import lru_cache

from tallyroom.protocols.aggregation.reports import (
    LocalReports,
    PlainReports,
    RandomizedReports,
    Reports,
    is_private,
)
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local import LocalRandomizer
from tallyroom.protocols.plans.measurement import Measurement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.messages import SINGLE_BYTES


def randomizer_of(query: Query) -> LocalRandomizer:
    """The randomizer of one record. Raises `LocalError` if the statistic has none."""
    assert query.epsilon is not None
    each = query.records_per_unit
    found = _randomizer(query.plan.measurement, query.epsilon / each, Fraction(query.delta) / each)
    if found is None:
        raise LocalError(
            f"local has no randomizer for {query.statistic.name}: choose another aggregator"
        )
    return found


@lru_cache(maxsize=16)
def _randomizer(
    measurement: Measurement | None, epsilon: Fraction, delta: Fraction
) -> LocalRandomizer | None:
    """The reports of a unit's records are independent, so their ε and their δ add up."""
    return None if measurement is None else measurement.randomizer_by_itself(epsilon, delta)


def reports_of(query: Query, holdings: Holdings | None = None) -> Reports:
    """This query's reports; with `holdings`, those of a block of parties.

    Server and parties derive the questions from the run's name, so that only answers travel.
    """
    if not is_private(query):
        return PlainReports(query, holdings)
    return LocalReports(query, randomizer_of(query), holdings, Randomness.public(query.run))


class LocalMechanism(RandomizedReports):
    """Reports are private by themselves; processing them costs no more."""

    @property
    def randomizer(self) -> LocalRandomizer:
        return randomizer_of(self.query)

    @property
    def delta(self) -> float:
        """The δ granted, if reports need it; 0 if they are ε-private."""
        if self.exact or not self.randomizer.delta:
            return 0.0
        return self.query.delta

    @property
    def words(self) -> str:
        if self.exact or self.query.epsilon is None:
            return "none"
        randomizer = self.randomizer
        each = float(self.query.epsilon / self.query.records_per_unit)
        bits, sent = randomizer.report_bits, randomizer.report_bytes
        budget = f"ε {each:.6g}"
        if randomizer.delta:
            budget += f" and δ {float(randomizer.delta):.3g}"
        return (
            f"{randomizer.name}, of {budget} a report; a record's report says {bits} "
            f"bit{'s' * (bits > 1)}, sent in {sent} byte{'s' * (sent > 1)}, and the message around "
            f"a party's reports adds {SINGLE_BYTES}"
        )

    @property
    def statement(self) -> str:
        return "parties randomize their own records: nobody is trusted with them"
