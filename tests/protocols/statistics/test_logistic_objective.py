"""`logistic-regression --method objective`: a curator has the records; hostile parties, too."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression as Plain

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.privacy.objective import GRID
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Column, deal, deal_by
from tallyroom.protocols.statistics import statistic_named
from tallyroom.protocols.statistics.by_objective import ObjectiveFit
from tallyroom.protocols.statistics.coefficients import Coefficients
from tallyroom.protocols.statistics.logistic_objective import LogisticObjective
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.studies.logistic_regression import LogisticRegression
from tallyroom.simulation.federation import Federation

RANGES = ("a=-4:4", "b=0:10")
STUDY = LogisticRegression(("a", "b"), "label", ranges=RANGES, method="objective")
OBJECTIVE = LogisticObjective(ranges=RANGES, x=("a", "b"))


def of_thirty(statistic: LogisticObjective) -> ObjectiveFit:
    """The mechanism for parties of 30 records at most."""
    mechanism = statistic.plan(Facts.of_one_server(60, 30)).mechanism
    assert isinstance(mechanism, ObjectiveFit)
    return mechanism


def data(records: int = 3000, seed: int = 0) -> dict[str, Column]:
    generator = np.random.default_rng(seed)
    a, b = np.clip(generator.normal(size=records), -4, 4), generator.uniform(0, 10, records)
    chance = 1 / (1 + np.exp(-(0.8 * a - 0.5 * b + 2)))
    return {"a": a, "b": b, "label": (generator.random(records) < chance).astype(float)}


def test_without_noise_it_is_scikit_learns() -> None:
    columns = data()
    with Federation(parties=4, data=columns, aggregator="curator") as federation:
        result = federation.run(STUDY, epsilon="inf")
    unlike = deal_by(columns, np.repeat([0, 1, 2], [1, 99, 2900]))
    asked = planned(OBJECTIVE, Facts.of_one_server(3000, 2900))
    gathered = asked.plan.without_noise(unlike)
    design = np.column_stack([columns["a"], columns["b"]])
    plain = Plain(C=np.inf, tol=1e-10, max_iter=1000).fit(design, columns["label"])
    for found in (result.estimate, result.truth, asked.decode(gathered, 3000, exact=True)):
        assert isinstance(found, Coefficients)
        np.testing.assert_allclose(
            found.coefficients, [*plain.intercept_, *plain.coef_[0]], rtol=1e-4
        )


def test_private_coefficients_come_near_for_one_epsilon() -> None:
    columns = data(20_000, 1)
    with Federation(parties=5, data=columns, aggregator="curator", seed=2) as federation:
        result = federation.run(STUDY, epsilon=1)
    assert result.privacy.epsilon == 1
    assert result.privacy.delta == 0
    assert isinstance(result.estimate, Coefficients)
    np.testing.assert_allclose(result.estimate.coefficients, [2, 0.8, -0.5], atol=0.25)
    assert result.estimate.table()[0] == ["term", "coefficient"]


def test_coefficients_that_the_penalty_alone_holds_back_are_noted() -> None:
    """Without noise, coefficients of separable classes were some 1200, and nothing was said."""
    columns = data(400)
    apart = columns | {"label": (columns["a"] > 0).astype(float)}
    for which, noted in ((columns, False), (apart, True)):
        with Federation(parties=2, data=which, aggregator="curator", seed=1) as federation:
            notes = federation.run(STUDY, epsilon="inf").notes
        assert any("separable" in note for note in notes) == noted


def test_separable_and_collinear_columns_have_an_answer() -> None:
    columns = data(400)
    columns |= {"label": (columns["a"] > 0).astype(float), "b": (columns["a"] + 4) * 1.25}
    with Federation(parties=4, data=columns, aggregator="curator", seed=1) as federation:
        for epsilon in ("inf", "1", "0.001"):
            result = federation.run(STUDY, epsilon=epsilon)
            assert np.isfinite(result.shape.values()).all()


def test_a_party_that_is_away_is_left_out_and_no_slot_of_it_counts() -> None:
    held = deal(data(90), 3)
    mechanism = of_thirty(OBJECTIVE)
    two = mechanism.rows.rows_of(mechanism.rows.encode(held)[1:].ravel())
    assert (two == mechanism.record.words_of(held)[30:]).all()


def test_what_a_hostile_party_sends_is_a_record_like_any_other() -> None:
    """A count beyond what it can hold, entries of 2^62, labels of any size: clipped."""
    held = deal(data(60), 2)
    mechanism = of_thirty(OBJECTIVE)
    vectors = mechanism.rows.encode(held)
    vectors[1, 0] = 2**64 - 1
    vectors[1, 1:] = 2**62
    hostile = mechanism.publish(vectors.ravel(), Fraction(1), 0.0, Randomness.from_seed(0, "noise"))
    within = vectors.copy()
    within[1, 0], within[1, 1:] = 30, 1 << 18
    same = mechanism.publish(within.ravel(), Fraction(1), 0.0, Randomness.from_seed(0, "noise"))
    assert (hostile == same).all()
    assert (np.abs(hostile.view(np.int64)) < 100 * GRID).all()


def test_its_parameters_go_over_the_wire_and_wrong_ones_are_refused() -> None:
    statistic = replace(OBJECTIVE, penalty=0.5)
    assert statistic_named(statistic.name).from_parameters(statistic.parameters()) == statistic
    for changes, words in (
        ({"penalty": -1.0}, "penalty is from"),
        ({"penalty": float("nan")}, "penalty is from"),
        ({"x": ("label",)}, "none is 'label'"),
        ({"x": tuple(f"c{at}" for at in range(70))}, "at most 64 terms"),
    ):
        with pytest.raises(LocalError, match=words):
            replace(statistic, **({"ranges": ()} | changes))
    with pytest.raises(LocalError, match="more than 30 records"):
        of_thirty(statistic).rows.encode(deal(data(62), 2))


def test_without_a_curator_it_is_refused_before_anything_is_sent() -> None:
    with (
        Federation(parties=3, data=data(60), aggregator="additive") as federation,
        pytest.raises(LocalError, match="--aggregator curator"),
    ):
        federation.run(STUDY)
    with pytest.raises(LocalError, match="applies only to --method objective"):
        LogisticRegression(("a",), "label", penalty=1.0)
    with pytest.raises(LocalError, match="method"):
        LogisticRegression(("a",), "label", method="exact")


def test_a_larger_penalty_leaves_the_noise_more_and_shrinks() -> None:
    with Federation(parties=2, data=data(500), aggregator="curator", seed=3) as federation:
        study = replace(STUDY, penalty=1e6)
        result = federation.run(study, epsilon=1)
    assert np.abs(result.shape.values()).max() < 0.1
