"""What an aggregator can do for a question. Aggregators state it (`Aggregator.offers`), statistics
and studies ask for it: neither needs to know the other's name."""

from enum import StrEnum


class Offer(StrEnum):
    SUM = "sum"
    """Vectors are added up."""
    COMPARE = "compare"
    """Keys are stored once; values at most t are then counted for any t."""
    RANDOMIZE = "randomize"
    """Each record is randomized where it is, and reported by itself: the local model."""
    CURATE = "curate"
    """One server sees the exact sum, and is trusted with it."""


Offers = frozenset[Offer]
