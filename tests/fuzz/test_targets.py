"""The fuzz targets for a moment, in every run of the tests; `make fuzz` gives them minutes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS, Target

Change = tuple[int, int, bytes]


def mutated(seed: bytes) -> st.SearchStrategy[bytes]:
    """A valid input with a few stretches replaced, inserted or cut out."""
    place = st.integers(0, len(seed))
    change = st.tuples(place, st.integers(0, 8), st.binary(max_size=8))

    def apply(changes: list[Change]) -> bytes:
        data = seed
        for start, cut, new in changes:
            data = data[:start] + new + data[start + cut :]
        return data

    return st.lists(change, max_size=4).map(apply)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_only_the_documented_error_comes_out(target: Target) -> None:
    taken = 0

    @settings(max_examples=200)
    @given(st.one_of(st.binary(max_size=300), *(mutated(seed) for seed in target.seeds)))
    def take(data: bytes) -> None:
        nonlocal taken
        target.run(data)
        taken += 1

    take()
    assert target.seeds
    assert taken >= 200
    for seed in target.seeds:
        for end in range(0, len(seed), max(1, len(seed) // 200)):
            target.run(seed[:end])
        target.run(seed)
