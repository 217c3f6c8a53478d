"""The capabilities of aggregators. An aggregator states what it offers (`Aggregator.offers`), and a
statistic or study asks for what it needs, so neither has to know the other's name."""

from enum import StrEnum


class Offer(StrEnum):
    SUM = "sum"
    """Adds up vectors."""
    COMPARE = "compare"
    """Stores keys once; then counts the values that are at most t, for any t."""
    RANDOMIZE = "randomize"
    """The local model: parties randomize each record and report it by itself."""
    CURATE = "curate"
    """One trusted server sees the exact sum."""


Offers = frozenset[Offer]
