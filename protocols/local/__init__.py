"""Local randomizers: what a party may say aloud, with its privacy map and unbiased estimators."""

from protocols.local.bounded import BoundedResponse
from protocols.local.choice import AUTO, RANDOMIZERS, LocalBudget, frequency_oracle
from protocols.local.contract import FrequencyOracle, LocalRandomizer, Summary
from protocols.local.hadamard import HadamardResponse
from protocols.local.hashing import LocalHashing
from protocols.local.response import RandomizedResponse
from protocols.local.unary import UnaryEncoding

__all__ = [
    "AUTO",
    "RANDOMIZERS",
    "BoundedResponse",
    "FrequencyOracle",
    "HadamardResponse",
    "LocalBudget",
    "LocalHashing",
    "LocalRandomizer",
    "RandomizedResponse",
    "Summary",
    "UnaryEncoding",
    "frequency_oracle",
]
