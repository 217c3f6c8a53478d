"""Projected histograms past a vector of all cells: a curator has codes, and draws what passes."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.plans.contract import Curated, CuratorMechanism
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.query import MAX_LENGTH
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Column, deal
from tallyroom.protocols.statistics import statistic_named
from tallyroom.protocols.statistics.planned import AskedOf, planned
from tallyroom.protocols.statistics.projected import (
    MAX_CELLS,
    CellsAbove,
    CuratedNextAttribute,
    CuratedProjectedCells,
    Pick,
)
from tallyroom.protocols.statistics.sparse_cells import (
    ListedCells,
    SparseCells,
    SparseNextAttribute,
)
from tallyroom.protocols.statistics.synthetic_rows import SyntheticRows
from tallyroom.protocols.studies.projected_histogram import ProjectedHistogram
from tallyroom.simulation.federation import Federation

SCHEMA = ("a=0:1", "b=0:1", "c=0:1", "y=0,1")
WIDE = tuple(f"c{at}={','.join(map(str, range(120)))}" for at in range(4))


def data(records: int = 120) -> dict[str, Column]:
    generator = np.random.default_rng(0)
    columns = {name: generator.uniform(0, 1, records) for name in "abc"}
    return columns | {"y": (columns["b"] > 0.5).astype(float)}


def listed(chosen: tuple[str, ...], bins: int, threshold: int, capacity: int) -> AskedOf:
    """Of one party with 12 records; its plan has this threshold and capacity, whatever follows from
    public numbers."""

    class Given(SparseCells):
        def _limits(self, facts: Facts) -> tuple[int, int]:
            return threshold, capacity

    return planned(Given(SCHEMA, "y", chosen, bins), Facts.of_one_server(12, 12))


def mechanism_of(asked: AskedOf) -> CuratorMechanism:
    plan = asked.plan
    assert isinstance(plan, Curated)
    return plan.mechanism


@pytest.mark.parametrize("chosen", [(), ("b",), ("c", "a")])
def test_scores_are_those_of_the_dense_tables(chosen: tuple[str, ...]) -> None:
    held = deal(data(), 3)
    facts = Facts.of_one_server(120, 40)
    dense = planned(CuratedNextAttribute(SCHEMA, "y", chosen, 3), facts)
    sparse = planned(SparseNextAttribute(SCHEMA, "y", chosen, 3), facts)
    picks = mechanism_of(dense), mechanism_of(sparse)
    sent = dense.total(held), sparse.plan.encode(held).ravel()
    of_tables, of_codes = (
        pick.scores(each) for pick, each in zip(picks, sent, strict=True) if isinstance(pick, Pick)
    )
    assert of_codes == of_tables


def test_cells_pass_as_from_the_dense_vector() -> None:
    """How many pass in 400 draws of either kind, in 24 cells at ε = ½: chi-square at α = 10^-6."""
    held = deal(data(12), 1)
    dense, sparse = (
        planned(CuratedProjectedCells(SCHEMA, "y", ("a", "b"), 2)),
        listed(("a", "b"), 2, threshold=3, capacity=24),
    )
    cells = dense.plan.length
    kinds = (dense, CellsAbove(cells, 3)), (sparse, mechanism_of(sparse))
    randomness = Randomness.from_seed(8, "cells")
    drawn = np.zeros((2, cells + 1))
    for _ in range(400):
        for at, (asked, mechanism) in enumerate(kinds):
            total = asked.plan.encode(held).ravel()
            found = mechanism.publish(total, Fraction(1, 2), 0.0, randomness)
            drawn[at, int(found[0]) if at else int((found > 0).sum())] += 1
    seen = drawn[:, drawn.sum(axis=0) >= 10]
    assert stats.chi2_contingency(seen).pvalue > 1e-6


@pytest.mark.parametrize("epsilon", ["inf", "60"])
def test_a_study_goes_past_a_vector_of_all_cells_with_a_curator(epsilon: str) -> None:
    """121³ · 3 cells, of which 140 records are in 7."""
    columns = {f"c{at}": np.arange(140.0) % 7 for at in range(4)} | {"y": np.arange(140.0) % 7 % 2}
    study = ProjectedHistogram((*WIDE, "y=0,1"), "y", k=3, gamma=0.9, bins=2)
    with Federation(parties=2, data=columns, aggregator="curator", seed=1) as federation:
        result = federation.run(study, epsilon=epsilon)
    found = result.estimate
    assert isinstance(found, SyntheticRows)
    assert len(found.columns) == 4
    assert any("too many for a vector" in note for note in result.notes)
    if epsilon == "inf":
        assert found.counts.tolist() == [20] * 7
        assert (found.codes[:, 0] == np.arange(7)).all()
    else:
        assert result.privacy.epsilon == pytest.approx(60)
        assert np.abs(found.records - 140) < 30


def test_records_in_cells_of_their_own_have_an_answer() -> None:
    """What a simulation compares with has no threshold: counts of 1 are below every other."""
    columns = data(300)
    study = ProjectedHistogram(SCHEMA, "y", k=2, gamma=0.9, bins=1024)
    with Federation(parties=2, data=columns, aggregator="curator", seed=2) as federation:
        result = federation.run(study, epsilon=2)
    assert isinstance(result.estimate, SyntheticRows)
    assert result.privacy.epsilon == pytest.approx(2)


def test_what_does_not_fit_a_message_goes_by_codes() -> None:
    """600² · 2 cells: counts that no message holds."""
    assert MAX_CELLS <= MAX_LENGTH
    names = ",".join(map(str, range(599)))
    columns = {name: np.arange(140.0) % 7 for name in "ab"} | {"y": np.arange(140.0) % 7 % 2}
    study = ProjectedHistogram((f"a={names}", f"b={names}", "y=0"), "y", k=2, bins=2)
    with Federation(parties=2, data=columns, aggregator="curator", seed=1) as federation:
        result = federation.run(study, epsilon=60)
    assert any("too many for a vector" in note for note in result.notes)
    with (
        Federation(parties=2, data=columns, aggregator="additive") as federation,
        pytest.raises(LocalError, match="720000 counts are too many to send, 500000 at most"),
    ):
        federation.run(study)


def test_past_2_to_the_60_is_refused_or_left_out_in_one_line() -> None:
    names = [f"d{at}" for at in range(13)]
    with pytest.raises(LocalError, match="past 2"):
        SparseCells(
            attributes=(*(f"{name}=0:1" for name in names), "y=0:1"),
            target="y",
            chosen=tuple(names),
            bins=32,
        )


def test_hostile_codes_are_codes_and_a_lying_curator_is_found_out() -> None:
    held = deal(data(12), 1)
    asked = listed(("a",), 3, threshold=2, capacity=5)
    total, mechanism = asked.plan.encode(held).ravel(), mechanism_of(asked)
    assert isinstance(mechanism, ListedCells)
    total[0], total[1:] = 2**63, 2**63 + 5
    assert (mechanism.codes.taken(total, 12) == 0).all()
    mechanism.publish(total, Fraction(1), 0.0, Randomness.from_seed(0, ""))
    good = np.zeros(11, dtype=np.uint64)
    good[:3], good[6:8] = (2, 1, 4), (9, 3)
    assert asked.decode(good, 12).records == 12  # type: ignore[union-attr]
    for at, value in ((0, 6), (0, 2**64 - 1), (1, 4), (1, 2**63), (2, 99), (6, 2), (7, 2**63)):
        bad = good.copy()
        bad[at] = value
        with pytest.raises(RunFailed, match="the curator published"):
            asked.decode(bad, 12)
    one = planned(SparseNextAttribute(SCHEMA, "y", (), 3))
    for picked in (3, 2**64 - 1):
        with pytest.raises(RunFailed, match="not there"):
            one.decode(np.array([picked], dtype=np.uint64), 12)


def test_parameters_go_over_the_wire_and_sizes_are_bounded() -> None:
    statistic = SparseCells(SCHEMA, "y", ("a",), 3)
    assert statistic_named(statistic.name).from_parameters(statistic.parameters()) == statistic
    for wrong, value in (("capacity", 5), ("threshold", 2), ("max_records", 12), ("bins", 0)):
        with pytest.raises(LocalError):
            type(statistic).from_parameters(statistic.parameters() | {wrong: value})
    with pytest.raises(LocalError, match="each once"):
        replace(statistic, chosen=("a", "a"))
