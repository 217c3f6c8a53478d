"""Every statistic and study answers, promises, charges and sends what `golden.json` says.

Where a difference is meant, `python -m tests.golden.make NAME` writes it, and its diff shows what
changed.
"""

import json
from functools import cache
from typing import Any

import pytest

from tests.conftest import Tally
from tests.golden.cases import TABLE, Case, cases
from tests.golden.make import differences, read, run

SEEDS = (101, 102, 103)
"""Others than the file was made with."""
MOST_SHOWN = 20

golden = cache(read)


def changed(case: Case) -> list[str]:
    """Fields that are not as they were; with noise, whatever noise is drawn: one that depends on it
    may have been the same by chance when the file was made."""
    first, *others = SEEDS
    found = differences(golden()[case.label], run(case, first))
    if case.exact or not found:
        return found
    again = [differences(golden()[case.label], run(case, seed)) for seed in others]
    kept = set.intersection(*({_field(each) for each in more} for more in again))
    return [each for each in found if _field(each) in kept]


def _field(difference: str) -> str:
    return difference.partition(": was ")[0]


@pytest.mark.parametrize("name", TABLE)
def test_it_is_as_it_was(name: str) -> None:
    found = [f"{case.label}\n    {each}" for case in cases(name) for each in changed(case)]
    shown = "\n".join(found[:MOST_SHOWN])
    assert not found, f"{len(found)} fields are not as they were:\n{shown}"


def test_all_that_can_be_asked_is(tally_here: Tally) -> None:
    kinds = ("statistics", "studies")
    listed = [json.loads(tally_here("list", kind, "--json").stdout)[kind] for kind in kinds]
    assert TABLE.keys() == {name for names in listed for name in names}


def test_nothing_is_golden_that_is_not_asked() -> None:
    assert golden().keys() == {case.label for name in TABLE for case in cases(name)}


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        ({"a": 1.0}, {"a": 1.0 + 1e-12}, []),
        ({"a": 1.0}, {"a": 1.001}, ["a: was 1.0, is 1.001"]),
        ({"a": [3, "~"]}, {"a": [4, 5]}, ["a[0]: was 3, is 4"]),
        ({"a": "~"}, {"a": {"b": 1}}, []),
        ({"a": [1]}, {"a": [1, 2]}, ["a: was [1], is [1, 2]"]),
        ({"a": 1}, {"a": 1, "b": 2}, ["was {'a': 1}, is {'a': 1, 'b': 2}"]),
        ({"a": None}, {"a": 0}, ["a: was None, is 0"]),
    ],
)
def test_differences_are_told(was: Any, now: Any, told: list[str]) -> None:
    assert [each.removeprefix(": ") for each in differences(was, now)] == told
