"""Logistic regression by private Newton steps: scikit-learn's coefficients without noise."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression as Plain

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics.coefficients import Coefficients
from tallyroom.protocols.studies.logistic_regression import LogisticRegression
from tallyroom.simulation.federation import Federation

RANGES = ("a=-4:4", "b=0:10")


def data(records: int = 3000, seed: int = 0) -> dict[str, Column]:
    generator = np.random.default_rng(seed)
    a, b = np.clip(generator.normal(size=records), -4, 4), generator.uniform(0, 10, records)
    chance = 1 / (1 + np.exp(-(0.8 * a - 0.5 * b + 2)))
    return {"a": a, "b": b, "label": (generator.random(records) < chance).astype(float)}


STUDY = LogisticRegression(("a", "b"), "label", ranges=RANGES, method="newton")


@pytest.mark.parametrize("aggregator", ["curator", "additive"])
def test_without_noise_it_is_scikit_learns(aggregator: str) -> None:
    columns = data()
    with Federation(parties=4, data=columns, aggregator=aggregator) as federation:
        result = federation.run(STUDY, epsilon="inf")
    design = np.column_stack([columns["a"], columns["b"]])
    plain = Plain(C=np.inf, tol=1e-10, max_iter=1000).fit(design, columns["label"])
    wanted = [*plain.intercept_, *plain.coef_[0]]
    for found in (result.estimate, result.truth):
        assert isinstance(found, Coefficients)
        np.testing.assert_allclose(found.coefficients, wanted, rtol=1e-4)
    probability = plain.predict_proba(design)[:, 1]
    full = np.column_stack([np.ones(3000), design])
    information = full.T @ ((probability * (1 - probability))[:, None] * full)
    assert isinstance(result.estimate, Coefficients)
    errors = np.sqrt(np.diag(np.linalg.inv(information)))
    np.testing.assert_allclose(result.estimate.errors, errors, rtol=1e-3)


def test_noise_moves_coefficients_as_far_as_it_says() -> None:
    """4 runs at ε = 8: every coefficient within 6 of its deviations of the one without noise."""
    columns = data(20_000, 1)
    design = np.column_stack([columns["a"], columns["b"]])
    plain = Plain(C=np.inf, tol=1e-10, max_iter=1000).fit(design, columns["label"])
    wanted = np.array([*plain.intercept_, *plain.coef_[0]])
    for seed in range(4):
        with Federation(parties=4, data=columns, seed=seed) as federation:
            result = federation.run(STUDY, epsilon=8)
        assert isinstance(result.estimate, Coefficients)
        assert result.privacy.epsilon == pytest.approx(8)
        far = np.abs(result.estimate.values() - wanted) / result.deviations
        assert far.max() < 6


def test_separable_classes_and_tiny_epsilon_end_in_finite_coefficients_and_a_note() -> None:
    columns = data(400)
    columns["label"] = (columns["a"] > 0).astype(float)
    with Federation(parties=2, data=columns, seed=1) as federation:
        exact = federation.run(
            LogisticRegression(
                ("a",), "label", ranges=RANGES[:1], newton_steps=40, method="newton"
            ),
            epsilon="inf",
        )
        noisy = federation.run(STUDY, epsilon=0.01)
    assert any("separable" in note for note in exact.notes)
    assert exact.truth is None
    for each in (exact, noisy):
        assert np.isfinite(each.shape.values()).all()
    assert any("noise" in note for note in noisy.notes)


@pytest.mark.parametrize("case", ["collinear", "one value"])
def test_columns_that_tell_nothing_of_their_own_are_not_blamed_on_noise(case: str) -> None:
    for seed in range(4):  # what rounding leaves of a spread that is not there may be above 0
        columns = data(300, seed)
        columns["b"] = columns["a"] + 4 if case == "collinear" else np.full(300, 0.25)
        with Federation(parties=2, data=columns, seed=1) as federation:
            exact = federation.run(STUDY, epsilon="inf")
        assert any("collinear" in note for note in exact.notes)
        assert not any("noise hides" in note for note in exact.notes)
        assert np.isfinite(exact.shape.values()).all()


def test_bad_input_is_one_clear_line() -> None:
    for changes, words in (
        ({"newton_steps": 0}, "newton.steps is from"),
        ({"x": ()}, "one column or more"),
        ({"x": ("label",)}, "none is .label"),
        ({"ranges": ("c=0:1",)}, "not about that column"),
    ):
        with pytest.raises(LocalError, match=words):
            LogisticRegression(**({"x": ("a",), "label": "label"} | changes))
    three = data(90) | {"label": np.arange(90.0) % 3}
    with Federation(parties=2, data=three) as federation:
        with pytest.raises(LocalError, match="needs public bounds"):
            federation.run(LogisticRegression(("a",), "label"))
        with pytest.raises(LocalError, match="labels are 0 or 1"):
            federation.run(STUDY)
