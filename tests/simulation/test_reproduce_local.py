"""The figures of S1's local protocols: their closed forms, and a small run of each."""

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tallyroom.simulation.bench import local as bench
from tallyroom.simulation.reproduce import s1_auc, s1_kendall
from tallyroom.simulation.reproduce.contract import Scale
from tallyroom.simulation.reproduce.s1_kendall_setups import S1_TAU, SetUp, set_ups
from tests.goodness import ALPHA


def test_closed_forms_are_the_spread_of_what_is_measured() -> None:
    """400 estimates from 3000 ratings: the ratio of deviations at ALPHA, deviation √(1/800)."""
    rng, runs = np.random.default_rng(1), 400
    cells = s1_kendall.synthetic(3000, rng)
    shares = np.bincount(cells, minlength=25) / 3000
    set_up = SetUp("", 5, shares)
    epsilon = Fraction(1)
    margin = stats.norm.isf(ALPHA / 2) * math.sqrt(1 / (2 * runs))
    response = s1_kendall.randomized_response(5)
    sample = s1_kendall.Sample(cells, {})
    found = [response(sample, epsilon, rng) for _ in range(runs)]
    assert abs(np.std(found) / set_up.response(epsilon, 3000) - 1) < margin
    one = s1_kendall.per_pair(1)
    pairs = [s1_kendall.Sample.of(cells, rng) for _ in range(runs)]
    drawn = [one(each, epsilon, rng) for each in pairs]
    assert abs(np.std(drawn) / set_up.one_pair(epsilon, 3000) - 1) < margin


def test_set_ups_differ_in_what_they_say() -> None:
    shares = np.bincount(s1_kendall.synthetic(2000, np.random.default_rng(1)), minlength=25) / 2000
    judged, wide, even, half = set_ups(shares, 5)
    assert judged.tau == pytest.approx(wide.tau)
    assert even.tau == pytest.approx(S1_TAU, abs=1e-3)
    assert wide.gain(Fraction(1), 10**5) > judged.gain(Fraction(1), 10**5)
    tiny = Fraction(1, 1000)  # noise is all that errs
    assert half.gain(tiny, 10**5) == pytest.approx(2 * even.gain(tiny, 10**5), rel=1e-3)


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
