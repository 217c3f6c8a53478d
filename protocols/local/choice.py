"""Chooses the randomizer that counts values with the least variance, for their number and ε."""

from collections.abc import Callable, Mapping
from fractions import Fraction

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local import AUTO
from tallyroom.protocols.local.contract import FrequencyOracle
from tallyroom.protocols.local.hadamard import HadamardResponse
from tallyroom.protocols.local.hashing import LocalHashing
from tallyroom.protocols.local.response import RandomizedResponse
from tallyroom.protocols.local.unary import UnaryEncoding
from tallyroom.protocols.registry import look_up

LocalBudget = Callable[[int | None], Fraction]
"""The ε that one report may spend, for a randomized response among so many values, or for any
randomizer if None. Shuffling amplifies more if the randomizer is known."""

RANDOMIZERS: Mapping[str, Callable[[LocalBudget, int], FrequencyOracle]] = {
    "response": lambda budget, k: RandomizedResponse.spending(budget(k), k),
    "unary": lambda budget, k: UnaryEncoding.spending(budget(None), k),
    "hadamard": lambda budget, k: HadamardResponse.spending(budget(None), k),
    "hashing": lambda budget, k: LocalHashing.spending(budget(None), k),
}


def frequency_oracle(name: str, budget: LocalBudget, values: int) -> FrequencyOracle:
    """The randomizer of that name; for `auto`, the one with the least variance among those that can
    count so many values.

    Raises `LocalError` if no randomizer can.
    """
    if name != AUTO:
        return look_up("randomizer", name, RANDOMIZERS)(budget, values)
    oracles: list[FrequencyOracle] = []
    first_error: LocalError | None = None
    for build in RANDOMIZERS.values():
        try:
            oracles.append(build(budget, values))
        except LocalError as error:
            first_error = first_error or error
    if not oracles:
        assert first_error is not None
        raise first_error
    return min(oracles, key=lambda oracle: oracle.empty_variance)
