"""The benchmark of noise draws both laws and tells curves by every strategy."""

from tallyroom.protocols.privacy.curves import CURVES
from tallyroom.simulation.bench import noise


def test_every_law_and_every_strategy_has_a_row() -> None:
    rows = {row.name: row for row in noise.rows(count=1000, repeats=1, points=128)}
    assert {name for name in rows if name.endswith("-128")} == {f"{name}-128" for name in CURVES}
    assert all(row.rate > 0 for row in rows.values())
    for scale in (*noise.SCALES, "6-share"):
        assert rows[f"gaussian-{scale}"].ratios["discrete-laplace"] > 0
    assert rows["splines-128"].details["settle_seconds"] > 0
