"""Twenty rounds of chaos; `make chaos` runs two hundred."""

from pathlib import Path

import pytest

from tests.e2e.chaos import chaos


@pytest.mark.parametrize("aggregator", ["additive", "fss", "prio3"])
def test_a_killed_process_changes_no_answer_and_no_ledger(aggregator: str, tmp_path: Path) -> None:
    tally = chaos(aggregator, 10, tmp_path, seed=7)
    assert tally.rounds == 10
    assert not tally.differences
