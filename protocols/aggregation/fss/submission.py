"""What both kinds of keys ask of a query."""

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.query import Query
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.measurement import Measurement
from tallyroom.protocols.statistics.thresholds import RESOLUTION_BITS

ASKED = "asked"
FINE = "fine"


def compared(query: Query) -> Measurement:
    """Raises `LocalError` for a statistic whose records are in no cell of a row."""
    return _measurement(query.statistic)


def domain_bits(query: Query) -> int:
    """Of keys over the thresholds that are asked, or over the fine grid where any may be asked."""
    fine = f"domain={FINE}" in query.aggregator.partition("?")[2].split("&")
    return bits_for(query.statistic, fine)


def bits_for(statistic: Statistic, fine: bool) -> int:
    cells = _measurement(statistic).cells or 1
    if fine or statistic.on_demand:
        return RESOLUTION_BITS
    return max(1, (cells - 1).bit_length())


def _measurement(statistic: Statistic) -> Measurement:
    measurement = statistic.measurement
    if measurement is None or measurement.cells is None:
        raise LocalError(f"fss compares values with thresholds: it cannot do {statistic.asked_as}")
    return measurement
