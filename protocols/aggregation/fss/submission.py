"""The measurement and the domain of a query's keys, checked or not."""

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.measurement import Measurement
from tallyroom.protocols.plans.thresholds import RESOLUTION_BITS
from tallyroom.protocols.query import Query
from tallyroom.protocols.statistics.contract import asked_as

ASKED = "asked"
FINE = "fine"


def compared(query: Query) -> Measurement:
    """How the query places each record in one of a row of cells.

    Raises `LocalError` for a statistic that does not.
    """
    measurement = query.plan.measurement
    if measurement is None or measurement.cells is None:
        raise LocalError(
            f"fss compares values with thresholds: it cannot do {asked_as(query.statistic)}"
        )
    return measurement


def domain_bits(query: Query) -> int:
    """Bits of the domain of keys: of the thresholds that are asked, or of the fine grid if any
    threshold may be asked."""
    fine = f"domain={FINE}" in query.aggregator.partition("?")[2].split("&")
    return bits_for(query, fine)


def bits_for(query: Query, fine: bool) -> int:
    cells = compared(query).cells or 1
    if fine or query.points is not None:
        return RESOLUTION_BITS
    return max(1, (cells - 1).bit_length())
