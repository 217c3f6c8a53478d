"""The benchmark of reading measures whole processes, ours and pandas'."""

import pytest

from tallyroom.protocols.errors import LocalError
from tallyroom.simulation.bench import reading


def test_a_small_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "REPEATS", 1)
    [row] = reading.rows(records=1000)
    assert row.name == "csv-mean-1000"
    assert row.rate == pytest.approx(1000 / row.details["cpu_seconds"])
    assert 0.05 < row.details["cpu_seconds"] < 60
    assert 20 < row.details["peak_mb"] < 2000
    assert row.ratios["pandas"] > 0


def test_a_process_that_fails_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PANDAS", "raise SystemExit(1)")
    with pytest.raises(LocalError, match="failed"):
        reading.rows(records=100)
