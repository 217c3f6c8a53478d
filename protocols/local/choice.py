"""Which randomizer counts values best: the least variance for their number and ε."""

from collections.abc import Callable, Mapping
from fractions import Fraction

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local.contract import FrequencyOracle
from tallyroom.protocols.local.hadamard import HadamardResponse
from tallyroom.protocols.local.hashing import LocalHashing
from tallyroom.protocols.local.response import RandomizedResponse
from tallyroom.protocols.local.unary import UnaryEncoding
from tallyroom.protocols.names import look_up

LocalBudget = Callable[[int | None], Fraction]
"""The ε that one report may spend: of a randomized response among so many values, or, for None, of
any randomizer. Hiding among others is worth more where it is known how reports come about."""

AUTO = "auto"
RANDOMIZERS: Mapping[str, Callable[[LocalBudget, int], FrequencyOracle]] = {
    "response": lambda budget, k: RandomizedResponse.spending(budget(k), k),
    "unary": lambda budget, k: UnaryEncoding.spending(budget(None), k),
    "hadamard": lambda budget, k: HadamardResponse.spending(budget(None), k),
    "hashing": lambda budget, k: LocalHashing.spending(budget(None), k),
}


def frequency_oracle(name: str, budget: LocalBudget, values: int) -> FrequencyOracle:
    """That of a name, or for `auto` the one with the least variance that can count so many values.

    Raises `LocalError` where there is none.
    """
    if name != AUTO:
        return look_up("randomizer", name, RANDOMIZERS)(budget, values)
    found: list[FrequencyOracle] = []
    why: LocalError | None = None
    for build in RANDOMIZERS.values():
        try:
            found.append(build(budget, values))
        except LocalError as error:
            why = why or error
    if not found:
        assert why is not None
        raise why
    return min(found, key=lambda each: each.empty_variance)
