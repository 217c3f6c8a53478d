"""Logistic regression on whitened columns: its sensitivity, its start, and how near it comes."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression as Plain

from tallyroom.protocols.records import Column, deal
from tallyroom.protocols.statistics.coefficients import Coefficients
from tallyroom.protocols.statistics.gaussian_start import GaussianStart
from tallyroom.protocols.statistics.logistic_step import STEPS, LogisticStep, ReadsDerivatives
from tallyroom.protocols.statistics.whitened_step import Reach, WhitenedStep
from tallyroom.protocols.studies.logistic_regression import LogisticRegression
from tallyroom.simulation.federation import Federation

NAMES = ("a", "b", "c")
RANGES = tuple(f"{name}=-1:1" for name in NAMES)


@pytest.mark.parametrize("size", [0.5, 3.0, 40.0])
def test_no_record_reaches_farther_than_the_sensitivity_says(size: float) -> None:
    """20,000 records under 25 matrices and coefficients: near ones, typical ones and far ones."""
    generator = np.random.default_rng(0)
    reach, farthest = Reach(4), 0.0
    for _ in range(25):
        columns = {name: generator.uniform(-1, 1, 800) for name in NAMES}
        columns["label"] = generator.integers(0, 2, 800).astype(float)
        step = WhitenedStep(
            RANGES,
            NAMES,
            centre=tuple(generator.uniform(-1, 1, 3).tolist()),
            whitening=tuple(generator.normal(0, size, 9).tolist()),
            at=tuple(generator.normal(0, 3, 4).tolist()),
        )
        told = step.derivatives.sensitivity
        found = step.derivatives.real(deal(columns, 1))
        ones, twos = np.abs(found).sum(axis=1), (found**2).sum(axis=1)
        assert 2 * ones.max() * STEPS <= told.l1
        assert 4 * twos.max() * STEPS**2 <= told.squared_l2
        farthest = max(farthest, float(ones.max()))
    if size == 3.0:  # the bound is no larger than it must be
        assert farthest > 0.97 * reach.one_norm


def test_the_start_is_the_model_where_columns_are_normal() -> None:
    """Of 400,000 records: coefficients of a logistic model on normal columns, to 3 %."""
    generator = np.random.default_rng(1)
    z = generator.multivariate_normal([0.1, -0.2], [[0.04, 0.02], [0.02, 0.09]], 400_000)
    truth = np.array([-1.0, 4.0, -3.0])
    chance = 1 / (1 + np.exp(-(truth[0] + z @ truth[1:])))
    label = np.where(generator.random(len(z)) < chance, 1.0, -1.0)
    entries = np.column_stack([np.ones(len(z)), z, label])
    start = GaussianStart.of(entries.T @ entries, 0.0)
    slopes = start.whitening @ start.at[1:]
    found = np.append(start.at[0] - slopes @ start.centre, slopes)
    np.testing.assert_allclose(found, truth, rtol=0.03)


def data(records: int, seed: int) -> dict[str, Column]:
    """A skewed column, a normal one within bounds ten times as wide, and one of two values."""
    generator = np.random.default_rng(seed)
    a = np.clip(generator.exponential(0.2, records) - 1, -1, 1)
    b = np.clip(generator.normal(0, 0.1, records), -1, 1)
    c = generator.choice([-1.0, 1.0], records)
    chance = 1 / (1 + np.exp(-(3 + 4 * a - 8 * b + 0.5 * c)))
    return {"a": a, "b": b, "c": c, "label": (generator.random(records) < chance).astype(float)}


def excess(columns: dict[str, Column], coefficients: list[float]) -> float:
    """How much more the mean loss is than scikit-learn's without privacy."""
    design = np.column_stack([columns[name] for name in NAMES])
    plain = Plain(C=np.inf, tol=1e-10, max_iter=1000).fit(design, columns["label"])
    losses = []
    for intercept, slopes in (
        (coefficients[0], np.array(coefficients[1:])),
        (plain.intercept_[0], plain.coef_[0]),
    ):
        score = intercept + design @ slopes
        losses.append(np.mean(np.logaddexp(0, score) - columns["label"] * score))
    return float(losses[0] - losses[1])


def test_it_is_far_ahead_of_newton_steps_on_the_columns_as_they_are() -> None:
    """The mean of 6 runs at ε = 2 with 30,000 records, on two servers."""
    columns = data(30_000, 3)
    found: dict[str, list[float]] = {"whitened": [], "newton": []}
    for method, losses in found.items():
        for seed in range(6):
            study = LogisticRegression(NAMES, "label", ranges=RANGES, method=method)
            with Federation(parties=3, data=columns, seed=seed) as federation:
                result = federation.run(study, epsilon=2)
            assert isinstance(result.estimate, Coefficients)
            assert result.privacy.epsilon == pytest.approx(2)
            losses.append(excess(columns, result.estimate.coefficients))
    assert np.mean(found["whitened"]) < 0.002
    assert np.mean(found["whitened"]) < np.mean(found["newton"]) / 5


@pytest.mark.parametrize("kind", [LogisticStep, WhitenedStep])
def test_a_record_counts_the_same_whoever_is_beside_it(kind: type[ReadsDerivatives]) -> None:
    """Bit for bit, before it is rounded: matrix products round by how many rows they have."""
    rng = np.random.default_rng(7)
    d, many = 7, 101
    names = tuple("abcdefg")
    options: dict[str, Any] = {"at": tuple(rng.normal(size=d + 1).tolist())}
    if kind is WhitenedStep:
        options |= {"centre": (0.1,) * d, "whitening": tuple(rng.normal(size=d * d).tolist())}
    step = kind(tuple(f"{name}=-1:1" for name in names), names, "label", 1.0, **options)
    columns = {name: rng.uniform(-1, 1, many) for name in names}
    columns["label"] = rng.integers(0, 2, many).astype(np.float64)
    together = step.derivatives.real(deal(columns, 1))
    for at in range(many):
        alone = step.derivatives.real(deal({k: v[at : at + 1] for k, v in columns.items()}, 1))
        assert alone.tobytes() == together[at : at + 1].tobytes()
