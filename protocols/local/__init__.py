"""Local randomizers: what a party may say aloud, with its privacy map and unbiased estimators."""

from tallyroom.protocols.local.bounded import BoundedResponse
from tallyroom.protocols.local.choice import AUTO, RANDOMIZERS, LocalBudget, frequency_oracle
from tallyroom.protocols.local.contract import FrequencyOracle, LocalRandomizer, Summary
from tallyroom.protocols.local.hadamard import HadamardResponse
from tallyroom.protocols.local.hashing import LocalHashing
from tallyroom.protocols.local.response import RandomizedResponse
from tallyroom.protocols.local.unary import UnaryEncoding

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
