"""Models of classes: areas and fits as scikit-learn has them, S4's HLR, HMLR, PLR and PMLR."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.metrics import roc_auc_score

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.privacy.objective import GRID, STEPS
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Column, deal
from tallyroom.protocols.statistics import statistic_named
from tallyroom.protocols.statistics.by_objective import ObjectiveFit
from tallyroom.protocols.statistics.class_model import ClassModel, area, hand_till
from tallyroom.protocols.statistics.class_objective import ClassObjective
from tallyroom.protocols.statistics.logistic_objective import LogisticObjective
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.softmax import fit_softmax, softmax
from tallyroom.protocols.statistics.synthetic_rows import SyntheticRows
from tallyroom.protocols.studies.contract import Answer
from tallyroom.protocols.studies.multinomial_regression import MultinomialRegression
from tallyroom.simulation.federation import Federation

SCHEMA = ("class=0,1,2", "a=0:8", "b=0:5", "c=0:8", "d=0:3")


def iris(times: int = 1) -> dict[str, Column]:
    found = load_iris()
    columns = dict(zip("abcd", np.tile(found.data, (times, 1)).T, strict=True))
    return columns | {"class": np.tile(found.target, times).astype(float)}


def test_areas_are_scikit_learns_and_those_of_all_pairs() -> None:
    generator = np.random.default_rng(0)
    for classes in (2, 3, 5):
        labels = np.concatenate([np.arange(classes), generator.integers(0, classes, 60)])
        chances = softmax(np.round(generator.normal(size=(len(labels), classes)), 1))
        chances[:, 0] = np.round(chances[:, 0], 1)  # ties
        told = chances / chances.sum(axis=1, keepdims=True)
        if classes == 2:
            told[:, 1] = 1 - told[:, 0]
            wanted = roc_auc_score(labels, told[:, 1])
        else:
            wanted = roc_auc_score(labels, told, multi_class="ovo")
        assert hand_till(labels, told) == pytest.approx(wanted, abs=1e-12)
    scores, positive = np.round(generator.normal(size=40), 1), generator.random(40) < 0.3
    pairs = [
        (scores[i] > scores[j]) + 0.5 * (scores[i] == scores[j])
        for i, j in itertools.product(np.flatnonzero(positive), np.flatnonzero(~positive))
    ]
    assert area(scores, positive) == pytest.approx(np.mean(pairs))
    assert np.isnan(area(scores, np.ones(40, dtype=bool)))
    assert np.isnan(hand_till(np.zeros(3, dtype=int), np.ones((3, 2)) / 2))
    # a class that no record is of says nothing
    assert hand_till(np.array([0, 1, 0]), np.eye(3)[[0, 1, 0]]) == 1


def test_a_fit_is_scikit_learns_and_weights_count_as_copies() -> None:
    generator = np.random.default_rng(1)
    design = np.column_stack([np.ones(300), generator.normal(size=(300, 2))])
    scores = design @ np.array([[0, 1, 0], [0.3, -1, 1], [0, 0, -1]]).T
    classes = np.array([generator.choice(3, p=each) for each in softmax(scores)])
    found = fit_softmax(design, classes, np.ones(300), 3)
    plain = Plain(C=np.inf, tol=1e-10, max_iter=1000).fit(design[:, 1:], classes)
    np.testing.assert_allclose(
        softmax(design @ found.T), plain.predict_proba(design[:, 1:]), atol=1e-4
    )
    counts = generator.integers(1, 4, 300)
    rows, copied = np.repeat(design, counts, axis=0), np.repeat(classes, counts)
    weighted = fit_softmax(design, classes, counts.astype(np.float64), 3)
    plainly = fit_softmax(rows, copied, np.ones(len(rows)), 3)
    np.testing.assert_allclose(softmax(design @ weighted.T), softmax(design @ plainly.T), atol=1e-4)


def test_separable_collinear_and_missing_classes_have_a_fit() -> None:
    design = np.column_stack([np.ones(40), np.arange(40.0) - 20, np.arange(40.0) - 20])
    for classes in ((np.arange(40) > 19).astype(int), np.zeros(40, dtype=int)):
        found = fit_softmax(design, classes, np.ones(40), 3)
        assert np.isfinite(found).all()
        assert (softmax(design @ found.T).argmax(axis=1) == classes).all()


@pytest.mark.parametrize("aggregator", ["curator", "additive"])
def test_without_noise_a_model_of_rows_is_that_of_the_binned_records(aggregator: str) -> None:
    study = MultinomialRegression(SCHEMA, "class", k=2, gamma=0.5, bins=6)
    with Federation(parties=3, data=iris(), aggregator=aggregator) as federation:
        result = federation.run(study, epsilon="inf")
    model = result.estimate
    assert isinstance(model, ClassModel)
    columns = iris()
    binned = []
    for each in model.attributes:
        assert each.bounds is not None
        places = np.floor(columns[each.name] / each.bounds[1] * 6)
        binned.append((places + 0.5) / 6 * 2 - 1)
    design = np.stack(binned, axis=1)
    plain = Plain(C=1 / (150 * 1e-6), tol=1e-10, max_iter=5000).fit(design, columns["class"])
    np.testing.assert_allclose(
        model.predicted(np.column_stack([np.ones(150), design])),
        plain.predict_proba(design),
        atol=0.02,
    )
    assert result.error is not None
    assert result.error["area"] > 0.95
    assert result.error["area of a fit to raw records"] > 0.99


@pytest.mark.parametrize("method", ["histogram", "objective"])
@pytest.mark.parametrize("classes", [2, 3])
def test_private_models_tell_classes_apart(method: str, classes: int) -> None:
    columns = iris(20)
    kept = columns["class"] < classes
    columns = {name: column[kept] for name, column in columns.items()}
    schema = (f"class={','.join(map(str, range(classes)))}", *SCHEMA[1:])
    study = MultinomialRegression(schema, "class", method, bins=4)
    with Federation(parties=4, data=columns, aggregator="curator", seed=1) as federation:
        result = federation.run(study, epsilon=8)
    assert isinstance(result.estimate, ClassModel)
    assert result.error is not None
    assert result.error["area"] > 0.9
    assert result.privacy.epsilon == pytest.approx(8)
    fits = classes if classes > 2 else 1
    if method == "objective":
        assert len(result.questions) == fits
        assert result.estimate.coefficients.shape == (fits, 5)
    shown = result.estimate.predictions(result.truth.judged)  # type: ignore[union-attr]
    np.testing.assert_allclose(shown.sum(axis=1), 1)


def test_no_synthetic_row_at_tiny_epsilon_is_said_and_no_crash() -> None:
    """At ε = 10^-6 the threshold is 2.5 million, and noise seldom above; where rows are of no
    class, or none at all, there is one line."""
    study = MultinomialRegression(SCHEMA, "class", k=1, gamma=0.5, bins=2)
    said: list[str] = []
    with Federation(parties=3, data=iris(), aggregator="curator", seed=1) as federation:
        for epsilon in ("0.000001", "0.01", "0.1"):
            try:
                assert np.isfinite(federation.run(study, epsilon=epsilon).shape.values()).all()
            except RunFailed as error:
                said.append(str(error))
    assert all("use a larger --epsilon" in each for each in said)
    steps = study.steps()
    held = deal(iris(), 1)
    picked = steps.send(None)  # type: ignore[arg-type]  # how a generator begins
    cells = steps.send(Answer.told(planned(picked.statistic).noiseless(held), np.zeros(4), 150))
    rows = planned(cells.statistic).noiseless(held)
    assert isinstance(rows, SyntheticRows)
    other = replace(rows, codes=np.tile(np.array([0, 3]), (len(rows.codes), 1)))
    with pytest.raises(RunFailed, match="no synthetic row has a listed class"):
        steps.send(Answer.told(other, np.zeros(1), 150))


def test_rows_of_one_class_alone_make_a_model_and_a_note() -> None:
    study = MultinomialRegression(SCHEMA, "class", k=1, gamma=0.5, bins=2)
    steps = study.steps()
    held = deal(iris(), 1)
    picked = steps.send(None)  # type: ignore[arg-type]  # how a generator begins
    cells = steps.send(Answer.told(planned(picked.statistic).noiseless(held), np.zeros(4), 150))
    rows = planned(cells.statistic).noiseless(held)
    assert isinstance(rows, SyntheticRows)
    with pytest.raises(StopIteration) as stop:
        steps.send(
            Answer.told(replace(rows, codes=rows.codes * np.array([1, 0])), np.zeros(1), 150)
        )
    assert "no synthetic row is of class 1, 2" in stop.value.value.notes[-1]
    assert np.isfinite(stop.value.value.estimate.values()).all()


NAMED = ("y=0,1", "a=0:8", "town=1,2,3")


def mechanism_of(statistic: LogisticObjective | ClassObjective, max_records: int) -> ObjectiveFit:
    mechanism = statistic.plan(Facts.of_one_server(max_records, max_records)).mechanism
    assert isinstance(mechanism, ObjectiveFit)
    return mechanism


def test_names_are_entries_of_their_own_and_hostile_words_are_none() -> None:
    statistic = ClassObjective(attributes=NAMED, target="y", of_class=1)
    mechanism = mechanism_of(statistic, 3)
    rows, record = mechanism.rows, mechanism.record
    held = deal(
        {"y": np.array([0.0, 1, 1]), "a": np.array([0.0, 8, 99]), "town": np.array([2.0, 7, 3])}, 1
    )
    records, positive = record.records_of(rows.rows_of(rows.encode(held)[0]))
    assert (records / STEPS).tolist() == [[1, -1, 0, 1, 0], [1, 1, 0, 0, 0], [1, 1, 0, 0, 1]]
    assert positive.tolist() == [False, True, True]
    hostile = rows.encode(held)[0]
    hostile[1:] = 2**63 + 12345
    records, _ = record.records_of(rows.rows_of(hostile))
    assert (records / STEPS).tolist() == [[1, -1, 0, 0, 0]] * 3
    released = mechanism.publish(hostile, Fraction(1), 0.0, Randomness.from_seed(0, ""))
    assert (np.abs(released.view(np.int64)) < 1000 * GRID).all()
    assert statistic_named(statistic.name).from_parameters(statistic.parameters()) == statistic


def test_bad_input_is_one_clear_line() -> None:
    for changes, words in (
        ({"method": "none"}, "method"),
        ({"penalty": 1.0}, "applies only to --method objective"),
        ({"method": "objective", "k": 2}, "apply only to --method histogram"),
        ({"attributes": ("class=0", "a=0:1")}, "two classes or more"),
        ({"target": "z"}, "the target needs its values"),
        ({"k": 9}, "4 attributes besides"),
    ):
        with pytest.raises(LocalError, match=words):
            replace(MultinomialRegression(SCHEMA, "class"), **changes)
    for wrong in ({"of_class": 3}, {"of_class": -1}, {"bins": 0}, {"penalty": -1.0}):
        with pytest.raises(LocalError):
            ClassObjective(**({"attributes": SCHEMA, "target": "class"} | wrong))
    study = MultinomialRegression(SCHEMA, "class", "objective", bins=2)
    with (
        Federation(parties=3, data=iris(), aggregator="additive") as federation,
        pytest.raises(LocalError, match="--aggregator curator"),
    ):
        federation.run(study)


@pytest.mark.parametrize(
    "statistic",
    [
        LogisticObjective(ranges=("a=0:1", "b=0:1"), x=("a", "b")),
        ClassObjective(attributes=("a=0:1", "b=p,q,r", "y=0,1"), target="y"),
    ],
    ids=lambda each: each.name,
)
@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_a_curator_spends_epsilon_and_no_more_on_the_longest_record(
    statistic: LogisticObjective | ClassObjective, penalty: float
) -> None:
    """Noise of the mechanism that is built for a question, by its own map; and the square that the
    map goes by is that of the longest record there can be."""
    for epsilon in (Fraction(1, 100), Fraction(1), Fraction(20)):
        fit = mechanism_of(replace(statistic, penalty=penalty), 9)
        mechanism = fit.perturbation(epsilon, 9)
        assert 0.99 * float(epsilon) < mechanism.privacy_map() <= float(epsilon) * (1 + 1e-12)
        assert mechanism.terms == fit.released
    words = np.full((1, fit.rows.length), 2**40, dtype=np.uint64)
    words[0, 0] = 1
    if isinstance(statistic, ClassObjective):
        words[0, 2] = 1  # a name that is there
    longest, _ = fit.record.records_of(fit.rows.rows_of(words.ravel()))
    assert ((longest / STEPS) ** 2).sum() == mechanism.square


def test_the_grid_of_coefficients_is_told() -> None:
    plan = planned(ClassObjective(SCHEMA, "class")).plan
    assert plan.grid_step == 1 / GRID
    assert plan.grid_words == "values are rounded to multiples of 9.54e-07"
