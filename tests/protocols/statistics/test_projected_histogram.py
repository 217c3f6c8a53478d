"""S4's projected histogram on a federation: exact without noise, private picks and cells."""

import csv
import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tallyroom.protocols.cells import encode_cells
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.plans.contract import Curated, CuratorMechanism, NoisySum, Plan
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.tables import CountedCells
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.privacy.projected import private_projection
from tallyroom.protocols.privacy.thresholded import ThresholdedHistogram, threshold_for
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings, deal
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.attributes import parse_attribute
from tallyroom.protocols.statistics.estimates import Counts
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.projected import (
    MAX_CELLS,
    CellsAbove,
    CuratedNextAttribute,
    CuratedProjectedCells,
    NextAttribute,
    Pick,
    Projected,
    ProjectedCells,
)
from tallyroom.protocols.statistics.sparse_cells import SparseNextAttribute
from tallyroom.protocols.statistics.synthetic_rows import SyntheticRows
from tallyroom.protocols.studies.contract import Answer
from tallyroom.protocols.studies.projected_histogram import ProjectedHistogram
from tallyroom.protocols.wire.messages import NONCE_BYTES
from tallyroom.simulation.federation import Federation

SCHEMA = ("age=0:90", "sex=f,m", "pay=low,high", "town=a,b,c", "job=1,2,3")


def people(records: int = 1500, seed: int = 0) -> Holdings:
    """`pay` follows age and job; sex and town tell nothing of it."""
    generator = np.random.default_rng(seed)
    age = generator.uniform(0, 90, records)
    job = generator.integers(1, 4, records)
    high = (age > 45) ^ (job == 2) ^ (generator.random(records) < 0.05)
    columns = {
        "age": age,
        "sex": encode_cells(generator.choice(["f", "m"], records).tolist()),
        "pay": encode_cells(np.where(high, "high", "low").tolist()),
        "town": encode_cells(generator.choice(["a", "b", "c", "elsewhere"], records).tolist()),
        "job": job.astype(float),
    }
    return deal(columns, 4)


def mechanism_of(plan: Plan) -> CuratorMechanism:
    assert isinstance(plan, Curated)
    return plan.mechanism


def coded(holdings: Holdings, names: tuple[str, ...], bins: int) -> np.ndarray:
    schema = {each.name: each for each in map(parse_attribute, SCHEMA)}
    return np.stack([schema[name].codes(holdings, bins) for name in names], axis=1)


def test_attributes_are_binned_and_named_as_the_schema_says() -> None:
    held = deal(
        {
            "age": np.array([-5.0, 0.0, 44.9, 45.0, 90.0, 99.0]),
            "town": encode_cells(["a", "c", "b", "x", "", "a"]),
            "job": np.array([1.0, 3.0, 2.0, 7.0, np.nan, 1.0]),
        },
        1,
    )
    age, town, job = (parse_attribute(SCHEMA[at]) for at in (0, 3, 4))
    assert age.codes(held, 2).tolist() == [0, 0, 0, 1, 1, 1]
    assert age.labels(2) == [22.5, 67.5]
    assert town.codes(held, 2).tolist() == [0, 2, 1, 3, 3, 0]
    assert job.codes(held, 2).tolist() == [0, 2, 1, 3, 3, 0]
    assert (age.clipped(held), town.clipped(held)) == (2, 2)


@pytest.mark.parametrize("chosen", [(), ("age",), ("job", "town")])
def test_scores_are_the_pairs_left_together(chosen: tuple[str, ...]) -> None:
    """By looking at all pairs of 60 records."""
    held = people(60)
    found = planned(NextAttribute(SCHEMA, "pay", chosen, 3)).noiseless(held)
    assert isinstance(found, Counts)
    classes = coded(held, ("pay",), 3)[:, 0]
    for name, score in zip(found.names, found.y, strict=True):
        rows = coded(held, (*chosen, name), 3)
        pairs = sum(
            bool((rows[i] == rows[j]).all() and classes[i] != classes[j])
            for i, j in itertools.combinations(range(60), 2)
        )
        assert score == -pairs


@pytest.mark.parametrize("aggregator", ["curator", "additive"])
def test_without_noise_it_is_the_greedy_projection_and_the_exact_histogram(
    aggregator: str,
) -> None:
    held = people()
    study = ProjectedHistogram(SCHEMA, "pay", k=2, gamma=0.5, bins=3)
    with Federation(parties=4, data=held.columns, aggregator=aggregator) as federation:
        found = federation.run(study, epsilon="inf").estimate
    assert isinstance(found, SyntheticRows)
    names = ("age", "sex", "town", "job")
    table, classes = coded(held, names, 3), coded(held, ("pay",), 3)[:, 0]
    greedy = private_projection(table, classes, 2, None, Randomness.from_seed(0, ""))
    assert found.columns == [*(names[at] for at in greedy), "pay"]
    rows = coded(held, tuple(found.columns), 3)
    cells, counts = np.unique(rows, axis=0, return_counts=True)
    assert (found.codes == cells).all()
    assert (found.counts == counts).all()


def test_a_curators_pick_is_greedy_at_large_epsilon_and_uniform_at_tiny() -> None:
    """600 picks among four at ε = 10^-6: uniform by chi-square at α = 10^-6."""
    statistic = planned(CuratedNextAttribute(SCHEMA, "pay", (), 3))
    total, pick = statistic.total(people(200)), mechanism_of(statistic.plan)
    assert isinstance(pick, Pick)
    randomness = Randomness.from_seed(4, "picks")
    best = int(np.argmax(pick.scores(total)))
    sure = {int(pick.publish(total, Fraction(10**4), 0.0, randomness)[0]) for _ in range(9)}
    assert sure == {best}
    picks = [int(pick.publish(total, Fraction(1, 10**6), 0.0, randomness)[0]) for _ in range(600)]
    assert stats.chisquare(np.bincount(picks, minlength=4)).pvalue > 1e-6


TEN = (*(f"c{at}=0,1" for at in range(10)), "y=0,1")
PICKS = [
    CuratedNextAttribute(TEN, "y", (), 2),
    SparseNextAttribute(TEN, "y", (), 2),
]
TRIALS, ALPHA = 2200, 1e-7


def adjacent(other: bool) -> Holdings:
    """Six records, five of them alike. The last one is of another class, and differs in c0 from
    the rest; or it is replaced by one that differs in all but c0."""
    columns = {f"c{at}": np.array([0.0] * 5 + [float((at == 0) != other)]) for at in range(10)}
    return deal(columns | {"y": np.array([0.0] * 5 + [1.0])}, 1)


@pytest.mark.parametrize("statistic", PICKS, ids=lambda each: each.name)
def test_no_more_than_epsilon_is_measured_of_a_pick_and_half_of_the_noise_is_caught(
    statistic: Projected, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ε = 2, 2200 picks on each of two adjacent data. The weights of c0 to each of nine others are
    e to 1 and 1 to e, so its chances are 0.232 and 0.0393, of which ln p/p' is 1.78. With half of
    the noise they are 0.451 and 0.0148, and Clopper-Pearson bounds at confidence 1 − 2·10^-7 prove
    about 2.4: 33 of 2200 are expected, and 66 would still do. Chances are held to their values by
    binomial tests at α = 10^-7."""
    randomness = Randomness.from_seed(5, statistic.name)
    plan = planned(statistic, Facts.of_one_server(6, 6)).plan
    pick = mechanism_of(plan)
    assert isinstance(pick, Pick)

    def picks_of_c0(epsilon: int) -> list[int]:
        found = []
        for other in (False, True):
            total = plan.encode(adjacent(other))[0]
            scores = pick.scores(total)
            with monkeypatch.context() as patched:
                patched.setattr(
                    type(pick), "scores", lambda *_, scores=scores: scores
                )  # the same each time
                picked = [
                    int(pick.publish(total, Fraction(epsilon), 0.0, randomness)[0])
                    for _ in range(TRIALS)
                ]
            found.append(picked.count(0))
        return found

    def proven(first: int, second: int) -> float:
        least = stats.beta.ppf(ALPHA, first, TRIALS - first + 1)
        most = stats.beta.ppf(1 - ALPHA, second + 1, TRIALS - second)
        return math.log(least / most)

    counts = picks_of_c0(2)
    for count, chance in zip(counts, (math.e / (math.e + 9), 1 / (1 + 9 * math.e)), strict=True):
        assert stats.binomtest(count, TRIALS, chance).pvalue > ALPHA
    assert proven(*counts) < 2
    assert proven(*picks_of_c0(4)) > 2


@pytest.mark.parametrize("epsilon", ["inf", "400"])
def test_two_servers_pick_what_a_curator_does(epsilon: str) -> None:
    """Where noise leaves no choice; and the result says what the picks cost."""
    held = people(400)
    study = ProjectedHistogram(SCHEMA, "pay", k=2, gamma=0.5, bins=3, picks_by="max")
    names = [text.partition("=")[0] for text in SCHEMA if not text.startswith("pay")]
    table, classes = coded(held, tuple(names), 3), coded(held, ("pay",), 3)[:, 0]
    greedy = private_projection(table, classes, 2, None, Randomness.from_seed(0, ""))
    with Federation(parties=4, data=held.columns, aggregator="additive", seed=3) as federation:
        result = federation.run(study, epsilon=epsilon)
    assert isinstance(result.estimate, SyntheticRows)
    assert result.estimate.columns == [*(names[at] for at in greedy), "pay"]
    assert any("by noisy max for 0.25 of ε each: " in note for note in result.notes)
    assert not any("noisy scores" in note for note in result.notes)
    if epsilon != "inf":
        assert result.privacy.epsilon == pytest.approx(400)
        assert 0 < result.privacy.delta < 1e-9
    with (
        Federation(parties=4, data=held.columns, aggregator="masking") as federation,
        pytest.raises(LocalError, match="additive or fss"),
    ):
        federation.run(study)


def test_where_tables_are_too_large_to_square_scores_are_noisy() -> None:
    wide = tuple(f"c{at}={','.join(map(str, range(120)))}" for at in range(3))
    study = ProjectedHistogram((*wide, "y=0,1"), "y", k=2, gamma=0.5, bins=2, picks_by="max")
    data = {f"c{at}": np.arange(40.0) % 7 for at in range(3)} | {"y": np.arange(40.0) % 2}
    with Federation(parties=2, data=data, aggregator="additive", seed=1) as federation:
        result = federation.run(study, epsilon=50)
    assert any("by noisy max for 0.25 of ε each: c" in note for note in result.notes)
    assert any("other attributes are chosen by noisy scores" in note for note in result.notes)
    with pytest.raises(LocalError, match="picks-by"):
        ProjectedHistogram(SCHEMA, "pay", picks_by="most")


def test_a_curators_cells_are_those_of_the_sampler_that_enumerates() -> None:
    """Counts of cells passed over 400 draws in a space of 12 cells, each against 400 draws with a
    noise on every cell: chi-square of two samples at α = 10^-6, for the number of cells."""
    plan = planned(CuratedProjectedCells(("a=0,1,2", "y=0,1"), "y", ("a",), 2)).plan
    columns = {"a": np.array([0.0] * 6 + [1.0] * 3), "y": np.array([1.0] * 5 + [0.0] * 4)}
    total, cells = plan.encode(deal(columns, 1))[0], CellsAbove(plan.length, 3)
    mechanism = ThresholdedHistogram.spending(Fraction(1, 2), 3)
    randomness = Randomness.from_seed(8, "cells")
    drawn = np.zeros((2, plan.length + 1))
    for _ in range(400):
        found = cells.publish(total, Fraction(1, 2), 0.0, randomness)
        every = total.astype(np.int64) + mechanism.noise.draw(plan.length, randomness)
        for at, passing in enumerate((found > 0, every > 3)):
            drawn[at, int(passing.sum())] += 1
    seen = drawn[:, drawn.sum(axis=0) >= 10]
    assert stats.chi2_contingency(seen).pvalue > 1e-6


@pytest.mark.parametrize("aggregator", ["curator", "additive", "masking"])
def test_private_rows_keep_what_tells_classes_apart(aggregator: str, tmp_path: Path) -> None:
    held = people(4000)
    with Federation(parties=4, data=held.columns, aggregator=aggregator, seed=3) as federation:
        result = federation.run(ProjectedHistogram(SCHEMA, "pay", k=2, bins=6), epsilon=4)
    assert isinstance(result.estimate, SyntheticRows)
    assert set(result.estimate.columns) == {"age", "job", "pay"}
    assert result.privacy.epsilon == pytest.approx(4)
    assert result.error is not None
    assert result.error["max"] < 0.1
    assert any("k = 2" in note for note in result.notes)
    result.write(tmp_path)
    with (tmp_path / "estimate.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == result.estimate.records
    assert {row["pay"] for row in rows} <= {"low", "high", "other"}


def test_k_and_gamma_follow_from_public_numbers() -> None:
    study = ProjectedHistogram(SCHEMA, "pay").of_records(1500)
    assert 1 <= study.chosen_k <= 4
    assert 0 < study.chosen_gamma < 1
    assert sum(study.shares()) == 1
    assert study.shares() == ProjectedHistogram(SCHEMA, "pay").of_records(1500).shares()
    with pytest.raises(LocalError, match="the number of records is not known"):
        ProjectedHistogram(SCHEMA, "pay").shares()


def test_attributes_that_do_not_fit_are_no_candidates() -> None:
    """By the public schema, before anything is asked; the ε of picks that fall away is not lost."""
    wide = tuple(f"c{at}={','.join(map(str, range(700)))}" for at in range(4))
    study = ProjectedHistogram((*wide, "y=0,1"), "y", k=3, gamma=0.5, bins=2)
    data = {f"c{at}": np.arange(40.0) % 7 for at in range(4)} | {"y": np.arange(40.0) % 2}
    with Federation(parties=2, data=data, aggregator="additive", seed=1) as federation:
        result = federation.run(study, epsilon=50)
    assert isinstance(result.estimate, SyntheticRows)
    assert len(result.estimate.columns) == 2
    assert result.privacy.epsilon == pytest.approx(50)
    assert any("fits into" in note for note in result.notes)
    assert planned(NextAttribute((*wide, "y=0,1"), "y", ())).plan.length <= MAX_CELLS


def test_bad_input_is_one_clear_line() -> None:
    for schema, target, changes, words in (
        (SCHEMA, "pay", {"k": 5}, "4 attributes besides the target"),
        (SCHEMA, "pay", {"gamma": 1.0}, "gamma is between"),
        (SCHEMA, "pay", {"bins": -1}, "bins is from"),
        (SCHEMA, "wage", {}, "the target needs its values"),
        (("pay=low,high",), "pay", {}, "besides the target"),
        (("age", "pay=low,high"), "pay", {}, "COLUMN=NAME,NAME"),
        (("age=9:1", "pay=low,high"), "pay", {}, "must be below"),
        (("age=0:9", "age=0:8", "pay=low,high"), "pay", {}, "each attribute has one"),
    ):
        with pytest.raises(LocalError, match=words):
            ProjectedHistogram(schema, target, **changes)
    names = [f"c{at}" for at in range(13)]
    wide = (*(f"{name}=0:1" for name in names), "y=0:1")
    with pytest.raises(LocalError, match="past 2"):
        ProjectedCells(wide, "y", tuple(names), 32)
    unknown = ProjectedHistogram((*SCHEMA, "none=0:1"), "pay", k=1, gamma=0.5, bins=2)
    with (
        Federation(parties=2, data=people(60).columns, aggregator="curator") as federation,
        pytest.raises(LocalError, match="no column"),
    ):
        federation.run(unknown)


def test_noise_makes_no_more_than_two_rows_for_a_record() -> None:
    """At a tiny ε a noise that passes would make millions: n is public, and says they are none."""
    study = ProjectedHistogram(SCHEMA, "pay", k=1, gamma=0.5, bins=2)
    steps = study.steps()
    picked = steps.send(None)  # type: ignore[arg-type]  # how a generator begins
    cells = steps.send(
        Answer.told(planned(picked.statistic).noiseless(people(60)), np.zeros(4), 60)
    )
    asked = planned(cells.statistic)
    much = np.zeros(asked.plan.length, dtype=np.uint64)
    much[3] = 10**7
    with pytest.raises(StopIteration) as stop:
        steps.send(Answer.told(asked.decode(much, 60), np.zeros(1), 60))
    found = stop.value.value
    assert len(found.estimate.table()[1]) == found.estimate.records == 120
    assert any("noise makes most of the rows" in note for note in found.notes)


@pytest.mark.parametrize("aggregator", ["additive", "curator"])
def test_at_a_tiny_epsilon_there_is_a_line_and_no_crash(aggregator: str) -> None:
    study = ProjectedHistogram(SCHEMA, "pay", k=1, gamma=0.5, bins=2)
    with (
        Federation(parties=2, data=people(60).columns, aggregator=aggregator, seed=1) as asked,
        pytest.raises(RunFailed, match="no synthetic row: use a larger --epsilon"),
    ):
        asked.run(study, epsilon=1e-6)


def test_too_many_rows_are_cut_down_in_proportion() -> None:
    codes = np.arange(4)[:, None]
    rows = SyntheticRows(["a"], [[0.0, 1.0, 2.0, 3.0]], codes, np.array([10, 1, 5, 4]) * 10**15)
    assert rows.at_most(10).counts.tolist() == [5, 1, 2, 2]
    few = rows.at_most(2)
    assert (few.codes.ravel().tolist(), few.counts.tolist()) == ([0, 2], [1, 1])
    assert rows.at_most(10**17) is rows


def test_no_cell_above_the_threshold_is_said_and_no_crash() -> None:
    study = ProjectedHistogram(SCHEMA, "pay", k=1, gamma=0.5, bins=2)
    steps = study.steps()
    picked = steps.send(None)  # type: ignore[arg-type]  # how a generator begins
    held = people(60)
    cells = steps.send(Answer.told(planned(picked.statistic).noiseless(held), np.zeros(4), 60))
    asked = planned(cells.statistic)
    nothing = asked.decode(np.zeros(asked.plan.length, dtype=np.uint64), 60)
    with pytest.raises(RunFailed, match="no synthetic row"):
        steps.send(Answer.told(nothing, np.zeros(1), 60))


@pytest.mark.parametrize(
    ("noise", "servers", "honest", "unit", "noises", "records"),
    [
        (Placement.CURATOR, 2, 0, "record", 1, 1),
        (Placement.JOINT, 2, 0, "record", 1, 1),
        (Placement.EACH_SERVER, 2, 0, "record", 2, 1),
        (Placement.EACH_SERVER, 3, 0, "record", 3, 1),
        (Placement.SHARED, 3, 3, "record", 1, 1),
        (Placement.SHARED, 5, 2, "record", 3, 1),  # 5/2, rounded up
        (Placement.PARTIES, 2, 0, "record", 2, 1),
        (Placement.EACH_SERVER, 2, 0, "party", 2, 30),
    ],
)
def test_the_threshold_knows_all_of_the_noise_and_nobody_else_sets_it(
    noise: Placement, servers: int, honest: int, unit: str, noises: int, records: int
) -> None:
    asked = ProjectedCells(("a=0,1,2", "y=0,1"), "y", ("a",), 2)
    question = Question(asked, "additive", Fraction(1), noise, unit=unit, honest=honest)
    query = question.query(bytes(NONCE_BYTES), 40, servers, 1000, 30)
    plan = query.plan
    assert isinstance(plan, NoisySum)
    assert isinstance(plan.strategy, CountedCells)
    assert plan.strategy.threshold == threshold_for(12, 1000, Fraction(1, records), noises)
    assert question.difference(query) is None
    with pytest.raises(LocalError, match="no parameter 'threshold'"):
        ProjectedCells.from_parameters(asked.parameters() | {"threshold": 1})


def test_noise_of_each_server_makes_no_more_rows_than_it_should() -> None:
    """60 × 60 × 3 cells, 8 of them with records, ε = 1/2 for all: 5 empty ones should pass,
    with 198 rows together. 1000 rows would be 9 deviations more, some 25 cells. At S4's threshold
    noise made 3626 of 4000 rows."""
    generator = np.random.default_rng(4)
    data = {name: generator.integers(0, 2, 2000).astype(float) for name in "aby"}
    names = ",".join(map(str, range(59)))
    study = ProjectedHistogram((f"a={names}", f"b={names}", "y=0,1"), "y", k=2, gamma=0.5, bins=2)
    with Federation(parties=4, data=data, aggregator="additive", seed=2) as federation:
        found = federation.run(study, epsilon=Fraction(1, 2)).estimate
    assert isinstance(found, SyntheticRows)
    held = (found.codes[:, :2] < 2).all(axis=1)
    assert found.counts[held].sum() == pytest.approx(2000, abs=400)
    assert found.counts[~held].sum() < 1000
