"""Some rounds of chaos; `make chaos` runs three hundred."""

from pathlib import Path

import pytest

from tallyroom.protocols.aggregation import aggregators
from tests.e2e.chaos import FILL, KINDS, LOCK, PAIRS, REFUSE, STOP, STREAM, TERM, chaos


@pytest.mark.parametrize("aggregator", ["additive", "fss", "masking", "prio3", "shamir"])
def test_a_killed_process_changes_no_answer_and_no_ledger(aggregator: str, tmp_path: Path) -> None:
    tally = chaos(aggregator, 10, tmp_path, seed=7)
    assert tally.rounds == 10
    assert not tally.differences


def test_what_parties_answer_a_server_is_not_lost_with_the_coordinator(tmp_path: Path) -> None:
    """Parties that join again have answered already, and answer once."""
    tally = chaos("masking", 10, tmp_path, seed=77, victims="coordinator", longest=0.25)
    assert tally.killed == {"coordinator": 10}
    assert not tally.differences


@pytest.mark.parametrize("kind", ["additive", "masking"])
def test_full_disks_and_rubbish_change_no_answer(kind: str, tmp_path: Path) -> None:
    tally = chaos(kind, 6, tmp_path, seed=11, longest=0.2, harms=(FILL, REFUSE))
    assert tally.rounds == sum(tally.harms.values()) == 6
    assert len(tally.harms) == 2
    assert not tally.differences


def test_processes_that_stop_or_stand_still_and_held_ledgers_change_no_answer(
    tmp_path: Path,
) -> None:
    tally = chaos("three servers", 6, tmp_path, seed=15, longest=0.2, harms=(TERM, STOP, LOCK))
    assert tally.rounds == sum(tally.harms.values()) == 6
    assert len(tally.harms) == 3
    assert not tally.differences


def test_pairs_that_are_lost_with_a_process_are_counted(tmp_path: Path) -> None:
    tally = chaos(PAIRS, 5, tmp_path, seed=5)
    assert tally.rounds == 5
    assert not tally.differences


@pytest.mark.parametrize("kind", ["study", "choice"])
def test_studies_and_what_servers_compute_together_come_to_the_same(
    kind: str, tmp_path: Path
) -> None:
    tally = chaos(kind, 3, tmp_path, seed=4, longest=0.3)
    assert sum(tally.killed.values()) == tally.rounds == 3
    assert not tally.differences


def test_a_stream_goes_on_with_the_same_noise(tmp_path: Path) -> None:
    """Of 24 batches, whoever is killed in between; each stream is paid for once."""
    tally = chaos(STREAM, 5, tmp_path, seed=3)
    assert sum(tally.killed.values()) == tally.rounds == 5
    assert not tally.differences


def test_every_aggregator_is_in_the_long_run() -> None:
    """But for the curator, whose one server is trusted with everything."""
    tried = {kind.aggregator.partition("?")[0] for kind in KINDS.values()}
    assert tried == aggregators().keys() - {"curator"}
