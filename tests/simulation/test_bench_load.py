"""`tally bench load`, small: real processes with stores, and what is made of the times."""

import pytest

from tallyroom.simulation.bench import load
from tallyroom.simulation.bench.load import Load


def test_a_fair_share_of_the_machine_is_the_least_wait() -> None:
    alone = Load(1, [1.0] * 4, wall=4.0, cpu=2.0)
    many = Load(20, [5.0] * 40, wall=10.0, cpu=20.0)
    assert many.rate == 4.0
    assert many.fair(alone, cores=2) == 5.0  # 20 · 0.5 s of CPU on two cores
    assert many.fair(alone, cores=64) == 1.0


@pytest.mark.timeout(120)
def test_rows_in_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "KINDS", {"analysts": load.KINDS["analysts"]})
    alone, many = load.rows(parties=10, analysts=3, each=1)
    assert (alone.name, many.name) == ("analysts-1", "analysts-3")
    assert many.rate > 0
    assert many.details["p50"] <= many.details["p99"]
    assert many.details["cpu_s_each"] > 0
    assert many.ratios["one-analyst"] == pytest.approx(many.rate / alone.rate)
