"""Local randomizers: reports that are private by themselves, and unbiased estimators from them.

Most questions need none of them, so their modules are loaded when a name is first used.
"""

from typing import TYPE_CHECKING

from tallyroom.protocols.registry import lazily

AUTO = "auto"
"""The oracle that is best for the number of cells and ε."""

if TYPE_CHECKING:
    from tallyroom.protocols.local.bounded import BoundedResponse
    from tallyroom.protocols.local.choice import RANDOMIZERS, LocalBudget, frequency_oracle
    from tallyroom.protocols.local.contract import FrequencyOracle, LocalRandomizer, Summary
    from tallyroom.protocols.local.hadamard import HadamardResponse
    from tallyroom.protocols.local.hashing import LocalHashing
    from tallyroom.protocols.local.oracle_levels import level_randomizer
    from tallyroom.protocols.local.response import RandomizedResponse
    from tallyroom.protocols.local.unary import UnaryEncoding
else:
    _HOMES = {
        "BoundedResponse": "bounded",
        "FrequencyOracle": "contract",
        "HadamardResponse": "hadamard",
        "LocalBudget": "choice",
        "LocalHashing": "hashing",
        "LocalRandomizer": "contract",
        "RANDOMIZERS": "choice",
        "RandomizedResponse": "response",
        "Summary": "contract",
        "UnaryEncoding": "unary",
        "frequency_oracle": "choice",
        "level_randomizer": "oracle_levels",
    }
    __getattr__ = lazily(__name__, _HOMES)

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
    "level_randomizer",
]
