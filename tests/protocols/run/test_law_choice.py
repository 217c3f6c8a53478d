"""`--noise-law auto`: the law of less noise at the same cost, and why."""

import math
from fractions import Fraction

import pytest

from tallyroom import Federation
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.gaussian import most_rho
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.run.law_choice import with_law
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.running_sum import RunningSum

FEDERATION = (20, 2, 2000, 100)


def curve(thresholds: int) -> Ecdf:
    return Ecdf(lower=0.0, upper=1.0, thresholds=thresholds)


def chosen(
    statistic: Statistic, questions: int = 1, delta: float = 1e-6, epsilon: Fraction | None = None
) -> tuple[str, str]:
    asked = Question(
        statistic, "additive", epsilon or Fraction(1), Placement.EACH_SERVER, delta=delta
    )
    found = with_law(asked, questions, *FEDERATION)
    return found.question.law, found.why


@pytest.mark.parametrize(
    ("statistic", "questions", "delta", "law"),
    [
        (curve(64), 1, 1e-6, "laplace"),
        (curve(1024), 1, 1e-6, "laplace"),
        (curve(16384), 1, 1e-6, "gaussian"),
        (curve(1024), 1, 5e-6, "gaussian"),
        (curve(4096), 1, 1e-4, "gaussian"),
        (curve(4096), 1, 1e-9, "laplace"),
        (curve(256), 10, 1e-6, "gaussian"),
        (curve(16384), 1, 0.0, "laplace"),
        (RunningSum(lower=0.0, upper=1.0, steps=4096), 1, 1e-6, "laplace"),
        (RunningSum(lower=0.0, upper=1.0, steps=4096), 10, 1e-6, "gaussian"),
        (Mean(lower=0.0, upper=1.0), 1, 1e-6, "laplace"),
        (Mean(lower=0.0, upper=1.0), 100, 1e-6, "gaussian"),
        (Histogram(lower=0.0, upper=1.0, bins=5000), 1, 1e-6, "laplace"),
    ],
    ids=str,
)
def test_it_goes_by_size_questions_and_delta(
    statistic: Statistic, questions: int, delta: float, law: str
) -> None:
    found, why = chosen(statistic, questions, delta)
    assert found == law
    assert why.startswith(f"--noise-law auto took {law} noise: ")


def test_what_it_says_is_what_either_law_costs() -> None:
    """One curve, from the strategies' own variances; ten, where both cost (ε₁₀, δ) together."""
    _, why = chosen(curve(256))
    assert "noise of standard deviation 14.67 if it is gaussian, and 11.74 if it is laplace" in why
    _, why = chosen(curve(256), 10)
    laplace = float(why.split("gaussian, and ")[-1].split(" if it is laplace")[0])
    rho = most_rho(Fraction(1), Fraction(1, 10**6))
    # Splines on two levels move four values as far as one: ρ is ε²/8 of Laplace noise.
    by_sum, by_rho = PrivacyLoss(rho=10 * rho).at(1e-6).size / 10, math.sqrt(8 * rho)
    assert laplace == pytest.approx(11.74 / max(by_sum, by_rho), rel=1e-3)


def test_a_budget_in_rho_is_for_gaussian_noise_and_none_is_for_neither() -> None:
    asked = Question(curve(8), "additive", Fraction("0.2"), Placement.EACH_SERVER, rho="1/50")
    assert with_law(asked, 1, *FEDERATION).question.law == "gaussian"
    without = Question(curve(8), "additive", None, Placement.EACH_SERVER)
    assert "no noise is added" in with_law(without, 1, *FEDERATION).why


def test_where_gaussian_noise_cannot_be_drawn_it_says_so() -> None:
    asked = Question(curve(16384), "additive", Fraction(1), Placement.PARTIES, delta=1e-6)
    assert with_law(asked, 1, *FEDERATION).question.law == "gaussian"
    local = Question(curve(64), "local", Fraction(1), Placement.CURATOR, delta=1e-6)
    found = with_law(local, 1, 20, 1, 2000, 100)
    assert found.question.law == "laplace"
    assert "gaussian noise is not possible here" in found.why


def test_results_say_why_and_bad_input_is_one_line() -> None:
    with Federation(parties=4, data="synthetic:scores?n=400", seed=1, cap=1) as federation:
        for words, match in (
            ({"noise_law": "auto", "questions": 0}, "--questions is 1 or more, not 0"),
            ({"questions": 2}, "--questions is for --noise-law auto"),
        ):
            with pytest.raises(LocalError, match=match):
                federation.run(Mean(value="score"), 1, delta=1e-6, **words)
        found = federation.run(Mean(value="score"), 1, delta=1e-6, noise_law="auto")
    assert any("--noise-law auto took laplace noise" in note for note in found.notes)
