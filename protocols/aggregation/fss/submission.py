"""What both kinds of keys ask of a query."""

from protocols.errors import LocalError
from protocols.run.query import Query
from protocols.statistics.measurement import Measurement


def compared(query: Query) -> Measurement:
    """Raises `LocalError` for a statistic whose records are in no cell of a row."""
    measurement = query.statistic.measurement
    if measurement is None or measurement.cells is None:
        raise LocalError(
            f"fss compares values with thresholds: it cannot do {query.statistic.name}"
        )
    return measurement
