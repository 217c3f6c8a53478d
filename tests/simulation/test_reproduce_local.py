"""The figures of S1's local protocols: their closed forms, and a small run of each."""

from pathlib import Path

import numpy as np
import pytest

from tallyroom.simulation.bench import local as bench
from tallyroom.simulation.reproduce import s1_auc
from tallyroom.simulation.reproduce.contract import Scale


def test_the_small_figure_of_auc_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_DATA", str(tmp_path / "none"))
    outcome = s1_auc.run(tmp_path, Scale.SMALL)
    assert outcome.figures["positives"] == 693
    assert outcome.figures["data"] == "synthetic scores"
    assert outcome.criteria["the mean square error is within Theorem 3's bound everywhere"]
    assert all(path.exists() for path in outcome.files)


def test_newton_fits_a_logistic_regression() -> None:
    """The weights are those that the labels were drawn with."""
    rng = np.random.default_rng(2)
    features = rng.standard_normal((20_000, 2))
    chance = 1 / (1 + np.exp(-(0.5 + features @ np.array([1.0, -2.0]))))
    labels = (rng.random(20_000) < chance).astype(np.int64)
    found = s1_auc.logistic_scores(features, labels, features)
    assert np.abs(found - chance).max() < 0.05


def test_the_benchmark_has_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "TURNS", 1)
    *oracles, auc, every = bench.rows(reports=1000, records=900, every=800)
    names = ["response-1000", "unary-900", "hadamard-900", "hashing-900"]
    assert [row.name for row in oracles] == names
    assert (auc.name, every.name) == ("auc-900x20", "auc-every-800x20")
    assert all(row.ratios.keys() == {"sum"} for row in oracles)
    for row in (auc, every):
        assert row.ratios.keys() == {"twice_n", "twice_depth", "twice_both"}
        assert row.details["working_bytes"] > 0
