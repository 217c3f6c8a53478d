"""Studies on a federation: one ε, set aside before the first question and charged by and by."""

import copy
import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest

from tallyroom.protocols.errors import LocalError, RunFailed, TallyError
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.records import Column
from tallyroom.protocols.run.policy import parse_policy
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.studies.budget import Grant
from tallyroom.protocols.studies.contract import Ask, Finding, Steps, Study
from tallyroom.protocols.studies.gini_coefficient import GiniCoefficient
from tallyroom.protocols.studies.private_bounds import PrivateBounds
from tallyroom.protocols.studies.quantile_search import QuantileSearchStudy
from tallyroom.simulation.asking import AskingOptions, Setting
from tallyroom.simulation.federation import Federation
from tallyroom.simulation.result import Result
from tallyroom.simulation.runtimes import Progress
from tallyroom.simulation.study import StudyQuestion
from tallyroom.simulation.verification import verify

MEAN = Mean("score", lower=0.0, upper=1.0)
HALF = Fraction(1, 2)
generator = np.random.default_rng(3)
SHAPES: dict[str, Column] = {
    "positive": generator.lognormal(3, 0.4, 3000),
    "negative": -generator.gamma(9.0, 2.0, 3000),
    "both signs": generator.normal(1, 5, 3000),
    "large offset": 1e6 + generator.normal(0, 100, 3000),
    "outliers": np.concatenate([generator.uniform(4, 8, 2997), [1e5, -1e5, 3e4]]),
    "all zero": np.zeros(3000),
}


@dataclass(frozen=True)
class Greedy(Study):
    """Declares a half, and asks twice for it."""

    name: ClassVar[str] = "greedy"

    def shares(self) -> tuple[Fraction, ...]:
        return (HALF,)

    def may_ask(self) -> tuple[Ask, ...]:
        return (Ask(MEAN, HALF),)

    def steps(self) -> Steps:
        yield Ask(MEAN, HALF)
        yield Ask(MEAN, HALF)
        return Finding(0.0)


@dataclass(frozen=True)
class Early(Study):
    """May ask three times, and stops after the first."""

    name: ClassVar[str] = "early"

    def shares(self) -> tuple[Fraction, ...]:
        return (Fraction(1, 4), Fraction(1, 4), HALF)

    def may_ask(self) -> tuple[Ask, ...]:
        return Ask(MEAN, Fraction(1, 4)), Ask(MEAN, HALF)

    def steps(self) -> Steps:
        answer = yield Ask(MEAN, Fraction(1, 4))
        return Finding(answer.estimate, deviations=answer.deviations)


def spends(federation: Federation) -> list[list[str]]:
    """The ε of each release, in every ledger of the federation."""
    return [[row[2] for row in ledger.rows()] for ledger in federation.runtime._ledgers]  # type: ignore[attr-defined]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_mean_with_private_bounds_against_numpy(shape: str) -> None:
    """As far off as what was clipped, and 12 deviations of the noise: a sum of two Laplace noises
    is further off once in 10^6."""
    values = SHAPES[shape]
    with Federation(parties=5, data={"value": values}, seed=4) as federation:
        result = federation.run(PrivateBounds(Mean()), epsilon=2)
    assert result.truth == pytest.approx(float(np.mean(values)))
    bounds = result.data["bounds"]
    assert isinstance(bounds, list)
    lower, upper = map(float, bounds)
    clipped = float(np.mean(np.clip(values, lower, upper)))
    assert result.noiseless == pytest.approx(clipped, abs=1e-6 * max(1.0, abs(clipped)))
    asked = result.questions[-1]
    assert asked.interval is not None
    off = abs(float(result.estimate) - clipped)  # type: ignore[arg-type]
    assert off <= 12 * asked.deviations[0] + 1e-6 * abs(clipped)
    assert result.interval is not None
    if np.isfinite(result.interval.errors).all():
        without = "what clipping to the bounds that were found did"
        assert result.interval == dataclasses.replace(asked.interval, without=without)
    else:  # as many records may be outside as matter to the mean, under this noise
        assert "hide" in result.interval.unknown
    outside = np.count_nonzero((values < lower) | (values > upper))
    assert outside <= 0.1 * len(values)


@pytest.mark.parametrize("aggregator", ["curator", "masking", "shamir", "prio3"])
def test_bounds_are_found_with_any_aggregator_of_histograms(aggregator: str) -> None:
    data = {"value": np.linspace(5.0, 7.9, 600)}
    with Federation(parties=4, aggregator=aggregator, data=data, seed=1) as federation:
        result = federation.run(PrivateBounds(Mean()), epsilon=20)
    assert result.data["bounds"] == [4.0, 8.0]
    assert result.federation["aggregator"] == aggregator
    assert [question.statistic for question in result.questions] == ["magnitudes", "mean"]


def test_each_question_is_charged_its_share_and_told() -> None:
    seen: list[Progress] = []
    with Federation(parties=4, seed=1, cap=1) as federation:
        result = federation.run(PrivateBounds(Mean("score")), epsilon=1, report=seen.append)
        assert spends(federation) == [["1/5", "4/5"]] * len(spends(federation))
        with pytest.raises(LocalError, match="refused"):
            federation.run(MEAN, epsilon="0.001")
    document = result.as_json()
    told = [
        {key: each[key] for key in ("statistic", "epsilon", "bytes")}
        for each in document["questions"]  # type: ignore[attr-defined]
    ]
    sizes = [question.bill.total.bytes for question in result.questions]
    assert told == [
        {"statistic": "magnitudes", "epsilon": 0.2, "bytes": sizes[0]},
        {"statistic": "mean", "epsilon": 0.8, "bytes": sizes[1]},
    ]
    assert document["statistic"] == "mean"
    assert result.privacy.epsilon == 1
    assert result.bill.total.bytes == sum(sizes) > 0
    assert result.bill.rounds == sum(question.bill.rounds for question in result.questions)
    parties = [question.bill.party_bytes() for question in result.questions]
    assert result.bill.party_bytes().tolist() == sum(parties).tolist()  # type: ignore[union-attr]
    assert {progress.question for progress in seen} == {"question 1 of 2", "question 2 of 2"}


def test_a_cap_that_cannot_hold_the_whole_refuses_before_the_first_question() -> None:
    with Federation(parties=4, seed=1, cap="0.9") as federation:
        federation.run(Mean("score"), epsilon="0.1")
        before = spends(federation)
        with pytest.raises(LocalError, match=r"epsilon 0\.9 refused"):
            federation.run(PrivateBounds(Mean("score")), epsilon="0.9")
        assert spends(federation) == before
        # Nothing is held back for what was refused, nor for what a study did not use.
        federation.run(Early(), epsilon="0.4")
        federation.run(Mean("score"), epsilon="0.7")
        assert [sum(map(Fraction, each)) for each in spends(federation)] == [Fraction(9, 10)] * 3


def test_parties_whose_ledgers_cannot_hold_it_do_not_answer_the_first_question() -> None:
    policy = parse_policy("epsilon_in_all = 0.9")
    with Federation(parties=4, seed=1, policy=policy) as federation:
        with pytest.raises(RunFailed, match="no room for the epsilon or delta of this study"):
            federation.run(PrivateBounds(Mean("score")), epsilon=1)
        assert not any(spends(federation))
        federation.run(PrivateBounds(Mean("score")), epsilon="0.9")


def test_a_study_cannot_ask_for_more_than_it_declared() -> None:
    with Federation(parties=4, seed=1) as federation:
        with pytest.raises(RunFailed, match=r"greedy asks for more than it.*ε 0\.5 is spent"):
            federation.run(Greedy(), epsilon=1)
        assert spends(federation) == [["1/2"]] * 3


def test_what_a_later_question_cannot_be_is_refused_before_the_first() -> None:
    with Federation(parties=4, seed=1, aggregator="fss") as federation:
        federation.start()
        with pytest.raises(LocalError, match="it cannot do mean"):
            federation.run(PrivateBounds(Mean("score")), epsilon=1)
        assert not any(spends(federation))


def test_where_no_bounds_are_found_it_is_said_what_was_spent() -> None:
    with Federation(parties=4, seed=1) as federation:
        with pytest.raises(RunFailed, match=r"no bounds were found.*ε 0\.002 is spent"):
            federation.run(PrivateBounds(Mean("score")), epsilon="0.01")
        assert spends(federation)[0] == ["1/500"]


def test_a_finding_has_its_interval_or_says_why_not() -> None:
    columns = {"value": np.linspace(0.1, 0.9, 400)}
    with Federation(parties=4, data=columns, seed=2) as federation:
        coefficient = federation.run(GiniCoefficient(lower=0, upper=1), epsilon=20)
        searched = federation.run(QuantileSearchStudy(lower=0, upper=1, halvings=3), epsilon=20)
        everything = GiniCoefficient(lower=0, upper=1, pairs_per_party="all")
        exact = federation.run(everything, epsilon="inf")
    found = coefficient.interval
    assert found is not None
    assert found.low[0] < coefficient.estimate < found.high[0]
    assert found.high[0] - found.low[0] == pytest.approx(2 * 2.1183 * found.errors[0], rel=1e-3)
    assert "±" in coefficient.summary()
    assert "no interval: how the noise" in searched.summary()
    assert searched.as_json()["interval"]["low"] is None  # type: ignore[index]
    assert exact.interval is None


def test_without_noise_a_study_says_so() -> None:
    with Federation(parties=4, seed=1) as federation:
        result = federation.run(PrivateBounds(Mean("score")), epsilon="inf")
    assert result.privacy.epsilon is None
    assert any("NOT PRIVATE" in note for note in result.notes)
    assert result.as_json()["privacy"]["epsilon"] == "inf"  # type: ignore[index]


def test_under_one_seed_a_study_is_the_same_and_repeats_are_not() -> None:
    study = PrivateBounds(Mean("score"))

    def estimates() -> list[object]:
        with Federation(parties=4, seed=9) as federation:
            return [federation.run(study, epsilon=1).estimate for _ in range(2)]

    first, second = estimates(), estimates()
    assert first == second
    assert first[0] != first[1]


def test_quantiles_are_searched_by_halving_where_no_tree_is_stored() -> None:
    """Without noise: within the last interval, in which numpy's quantile is."""
    values = np.random.default_rng(8).gamma(2.0, 3.0, 500)
    study = QuantileSearchStudy(lower=0.0, upper=64.0, quantile=(0.1, 0.5, 0.99), halvings=10)
    with Federation(parties=5, data={"value": values}, seed=2) as federation:
        found = federation.run(study, epsilon="inf")
    true = np.quantile(values, [0.1, 0.5, 0.99], method="inverted_cdf")
    assert found.truth.y == pytest.approx(true.tolist())  # type: ignore[union-attr]
    assert np.abs(found.shape.values() - true).max() <= 64 / 2**10 / 2 + 1e-9
    assert len(found.questions) == 30


def test_over_fss_the_search_is_one_question_of_the_stored_tree() -> None:
    with Federation(parties=5, aggregator="fss", seed=2) as federation:
        found = federation.run(QuantileSearchStudy("score", quantile=(0.5,)), epsilon=5)
        again = federation.run(QuantileSearchStudy("score", quantile=(0.25,)), epsilon=5)
    assert (found.statistic, found.questions, found.privacy.epsilon) == ("quantile-search", (), 5)
    assert again.bill.total.bytes < found.bill.total.bytes / 10  # the tree is there already


def test_a_search_in_noise_is_as_good_as_its_counts() -> None:
    """At ε = 1 in 8 questions the mean of two counts of 2000 has deviation 16·2/√2 ≈ 23, a share
    0.011. A step is led astray by 8 of those with probability below 1e-6."""
    with Federation(parties=5, seed=6) as federation:
        found = federation.run(QuantileSearchStudy("score"), epsilon=1)
        scores = federation.holdings.column("score")
    share = float(np.mean(scores <= float(found.estimate)))  # type: ignore[arg-type]
    assert abs(share - 0.5) <= 0.011 * 8 + 0.02


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    with Federation(parties=4, seed=1, data={"value": np.linspace(5.0, 7.9, 400)}) as federation:
        result: Result = federation.run(PrivateBounds(Mean()), epsilon=8)
    written: dict[str, Any] = json.loads(json.dumps(result.as_json(), allow_nan=False))
    return written


def test_the_receipts_of_all_questions_hold(document: dict[str, Any]) -> None:
    assert [each.loss.text for each in verify(document).receipts] == ["8/5"] * 2 + ["32/5"] * 2


Change = Callable[[dict[str, Any]], object]
LIES: dict[str, Change] = {
    "a smaller epsilon": lambda d: d["privacy"].update(epsilon=4.0),
    "a question left out": lambda d: d["questions"].pop(0),
    "no questions": lambda d: d["questions"].clear(),
    "a question twice": lambda d: (
        d["questions"].append(d["questions"][1]),
        d["privacy"].update(epsilon=14.4),
    ),
    "a question's epsilon": lambda d: (
        d["questions"][0]["privacy"].update(epsilon=0.6),
        d["privacy"].update(epsilon=7.0),
    ),
    "a question's estimate": lambda d: d["questions"][1].update(estimate=1.0),
    "a question's interval": lambda d: d["questions"][1]["interval"].update(high=6.5),
    "no interval": lambda d: d["questions"][1].pop("interval"),
    "a study in a study": lambda d: d["questions"][0].update(questions=[]),
    "receipts of its own": lambda d: d.update(receipts=d["questions"][0]["receipts"]),
    "something else": lambda d: d.update(questions=7),
    "nothing": lambda d: d.update(questions=[None]),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_result_that_says_otherwise_does_not_hold(document: dict[str, Any], lie: str) -> None:
    changed = copy.deepcopy(document)
    LIES[lie](changed)
    with pytest.raises(TallyError, match="does not hold"):
        verify(changed)


def test_a_question_may_name_its_aggregator() -> None:
    @dataclass(frozen=True)
    class Elsewhere(Study):
        """Asks a histogram over fss, wherever it is asked."""

        name: ClassVar[str] = "elsewhere"

        def shares(self) -> tuple[Fraction, ...]:
            return (Fraction(1),)

        def may_ask(self) -> tuple[Ask, ...]:
            counts = Histogram("score", lower=0.0, upper=1.0, bins=2)
            return (Ask(counts, Fraction(1), "fss"),)

        def steps(self) -> Steps:
            (counts,) = self.may_ask()
            answer = yield counts
            return Finding(answer.estimate)

    with Federation(parties=4, seed=1) as federation:
        result = federation.run(Elsewhere(), epsilon=5)
    assert result.questions[0].federation["aggregator"] == "fss?verified=yes"
    assert np.isnan(result.deviations).all()
    assert dataclasses.replace(result, questions=()).as_json()["privacy"]


def test_a_loss_in_rho_is_not_asked_as_none() -> None:
    """It has no ε, which in a question means no noise."""
    options = AskingOptions(None, "record", None, 1.0, False, lambda _: None, "laplace")
    grant = Grant(PrivacyLoss.concentrated(Fraction(1, 10)))
    bounded = Mean(lower=0.0, upper=1.0)
    asked = Setting("additive", 4, 2, 1, 4).question(bounded, grant, options).question
    assert (asked.rho, asked.epsilon) == ("1/10", Fraction("0.447214"))
    ask = Ask(Mean(), Fraction(1))
    with pytest.raises(LocalError, match="a study is asked for an epsilon, not for ρ"):
        options.of(StudyQuestion(ask, grant, "", lambda _: None))
