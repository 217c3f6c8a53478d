"""What both kinds of keys ask of a query."""

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.measurement import Measurement
from tallyroom.protocols.plans.thresholds import RESOLUTION_BITS
from tallyroom.protocols.query import Query

ASKED = "asked"
FINE = "fine"


def compared(query: Query) -> Measurement:
    """Raises `LocalError` for a statistic whose records are in no cell of a row."""
    return _measurement(query)


def domain_bits(query: Query) -> int:
    """Of keys over the thresholds that are asked, or over the fine grid where any may be asked."""
    fine = f"domain={FINE}" in query.aggregator.partition("?")[2].split("&")
    return bits_for(query, fine)


def bits_for(query: Query, fine: bool) -> int:
    cells = _measurement(query).cells or 1
    if fine or query.points is not None:
        return RESOLUTION_BITS
    return max(1, (cells - 1).bit_length())


def _measurement(query: Query) -> Measurement:
    measurement = query.plan.measurement
    if measurement is None or measurement.cells is None:
        raise LocalError(
            f"fss compares values with thresholds: it cannot do {query.statistic.asked_as}"
        )
    return measurement
