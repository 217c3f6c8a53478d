"""The benchmark of whole commands measures processes that answer."""

import pytest

from tallyroom.protocols.errors import LocalError
from tallyroom.simulation.bench import reading, waiting


def test_a_command_takes_longer_than_numpy_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "REPEATS", 1)
    [row] = waiting.rows({"start-mean": waiting.COMMANDS["start-mean"]})
    assert row.name == "start-mean"
    assert row.ratios["numpy"] > 1
    assert 0.1 < row.details["cpu_seconds"] == pytest.approx(1 / row.rate)
    assert row.details["peak_mb"] > 20


def test_a_command_that_fails_has_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "REPEATS", 1)
    with pytest.raises(LocalError, match="run no-such-thing"):
        waiting.rows({"none": ("no-such-thing",)})
