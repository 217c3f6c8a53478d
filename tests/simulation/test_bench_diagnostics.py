"""`tally bench diagnostics` in small: its rows and what they tell."""

from tallyroom.simulation.bench import diagnostics


def test_rows_in_small() -> None:
    dawa, projected = diagnostics.rows(side=16, records=500)
    assert (dawa.name, projected.name) == ("dawa-256", "projected-synthetic")
    assert dawa.rate > 0
    assert dawa.details["cpu_seconds"] > 0
    assert projected.ratios["twice_n"] > 0
