"""What was begun is never begun again, however many runs came between and in whatever order."""

import random

import pytest

from tallyroom.protocols.run.participant import (
    AHEAD_SECONDS,
    BEHIND_SECONDS,
    MOST_NAMES,
    BegunRuns,
    next_time,
)
from tallyroom.protocols.wire.messages import last_number, milliseconds, number, time_of


def run_of(value: int, digest: int = 0) -> bytes:
    return value.to_bytes(8, "big") + bytes([digest]) * 20


@pytest.mark.parametrize("seed", range(20))
def test_no_number_is_taken_twice_in_any_order(seed: int) -> None:
    order = random.Random(seed)
    begun = BegunRuns(most=4)
    taken: set[int] = set()
    for step in range(400):
        value = order.randrange(max(0, step - 30), step + 10)  # old ones among the new
        if begun.like(run_of(value)) is None:
            assert value not in taken
            taken.add(value)
            begun.add(run_of(value))
        assert len(begun) <= 4
    assert all(begun.like(run_of(value)) is not None for value in taken)
    assert len(taken) > 100


def test_runs_start_in_any_order_among_the_newest() -> None:
    begun = BegunRuns(most=4)
    for value in (5, 9, 7, 8, 6):
        assert begun.like(run_of(value)) is None
        begun.add(run_of(value))
    assert begun.mark == run_of(5)[:8]
    assert begun.like(run_of(4)) is not None  # it never was, and nobody knows that any more
    assert begun.like(run_of(10)) is None


def test_another_question_under_a_number_is_told_by_its_name() -> None:
    begun = BegunRuns(most=4)
    begun.add(run_of(5, digest=1))
    begun.add(run_of(5, digest=2))
    assert begun.like(run_of(5, digest=2)) == run_of(5, digest=1)


def test_what_does_not_grow_drives_out_nothing() -> None:
    begun = BegunRuns(most=2)
    for value in (5, 6, *range(5), 5, 6):
        begun.add(run_of(value))
    begun.add(run_of(7))
    assert begun.mark == run_of(5)[:8]


def test_numbers_of_the_future_are_told_from_those_of_now() -> None:
    begun, now = BegunRuns(), 1_800_000_000.0
    assert not begun.is_ahead(b"\xff" * 28)  # a simulation has no clock
    begun.clock = lambda: now
    assert not begun.is_ahead(last_number(now))
    assert not begun.is_ahead(last_number(now + AHEAD_SECONDS - 1))
    assert begun.is_ahead(number(milliseconds(now + AHEAD_SECONDS + 1), 0))
    assert begun.is_ahead(b"\xff" * 28)


def test_numbers_of_long_ago_are_told_too() -> None:
    begun, now = BegunRuns(), 1_800_000_000.0
    assert not begun.is_outdated(bytes(28))
    begun.clock = lambda: now
    assert not begun.is_outdated(number(milliseconds(now - BEHIND_SECONDS + 1), 0))
    assert begun.is_outdated(number(milliseconds(now - BEHIND_SECONDS - 1), 0))


def test_numbers_are_ordered_by_time_first() -> None:
    assert number(5, 1 << 20) == number(5, 0) < number(5, (1 << 20) - 1) < number(6, 0)
    assert time_of(number(1_800_000_000_000, 77)) == 1_800_000_000_000


def test_numbers_grow_by_the_clock_and_never_stay_in_the_future() -> None:
    now = 1_800_000_000.0
    assert next_time(5, now) == 1_800_000_000_000
    assert next_time(1_800_000_000_000, now) == 1_800_000_000_001
    assert next_time(1_800_000_200_000, now) == 1_800_000_200_001  # the clock was set back
    for wrong in (1_800_000_300_000, (1 << 44) - 1):
        assert next_time(wrong, now) == 1_800_000_000_000


def test_without_a_clock_every_name_is_kept() -> None:
    """Runs of a simulation are named for their keys: their order says nothing."""
    begun = BegunRuns()
    for value in range(MOST_NAMES + 9, 0, -1):
        begun.add(run_of(value))
    assert begun.mark == b""
    begun.clock = lambda: 1_800_000_000.0
    begun.add(run_of(MOST_NAMES + 10))
    assert len(begun) == MOST_NAMES
    assert begun.mark == run_of(10)[:8]
