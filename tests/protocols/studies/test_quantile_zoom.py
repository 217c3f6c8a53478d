"""A quantile in two questions: when it is one, what it asks, and how near it comes."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tallyroom.parties.data import Dataset
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.statistics.ecdf import Quantile
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.studies.budget import Budget
from tallyroom.protocols.studies.contract import Answer, Ask, Finding
from tallyroom.protocols.studies.quantile_zoom import END_SHARES, QuantileZoom, zoomed
from tallyroom.simulation import Federation

ASKED = Quantile(lower=0.0, upper=64.0, quantile=(0.5,), strategy="max", thresholds=64)


def asked_as(records: int, quantile: float = 0.5, epsilon: int = 1, unit: int = 1) -> QuantileZoom:
    study = zoomed(replace(ASKED, quantile=(quantile,)), Fraction(epsilon), records, unit)
    assert isinstance(study, QuantileZoom)
    return study


def test_it_is_asked_in_two_where_records_are_enough_for_the_margin() -> None:
    """At ε = 1 the margin is 80·(ln 64 + 5) = 733 ranks, with four times the share 184; there must
    be twice as many records on that side."""
    study = asked_as(10_000)
    assert study.margin == 733
    assert study.ends == (0.4267, 0.5733)
    assert study.shares() == (Fraction(1, 20), Fraction(19, 20))
    upper = asked_as(10_000, quantile=0.99)
    assert upper.ends == (0.9167,)
    assert upper.shares()[0] == END_SHARES[0]
    fewest = asked_as(1000)
    assert fewest.margin == 184
    assert fewest.shares()[0] == Fraction(1, 5)
    assert zoomed(ASKED, Fraction(1), 300) is ASKED
    assert asked_as(6000, unit=6).margin == 1100  # 20·6·(ln 64 + 5), rounded up
    assert zoomed(ASKED, Fraction(1), 10_000, 14) is ASKED


def test_with_fewer_it_is_asked_for_itself() -> None:
    """At ε = 1 it must have 2/0.03·(ln 64 + 10) = 944 records on either side, or 567 for a
    twentieth of ε. The second question has a quarter of its cells in the cell that was found."""
    for records, share in ((2000, Fraction(3, 100)), (1500, Fraction(1, 20))):
        study = asked_as(records)
        assert study.margin == 0
        assert study.ends == (0.5,)
        assert study.shares() == (share, 1 - share)
        second, _ = answered(study, [12.5])
        assert isinstance(second.statistic, Quantile)
        assert second.statistic.within == (12.0, 13.0)
        assert second.statistic.fanned
        assert second.statistic.thresholds == 64
        Budget(study, PrivacyLoss.of(Fraction(1)))
    assert asked_as(10_000, unit=6).shares()[0] == Fraction(1, 20)
    assert asked_as(1100).margin


def test_nothing_else_is() -> None:
    several = Quantile(quantile=(0.1, 0.5), strategy="max")
    curve = Quantile(quantile=(0.5,))
    for asked in (several, curve, Mean(lower=0.0, upper=1.0)):
        assert zoomed(asked, Fraction(1), 10**6) is asked
    assert zoomed(ASKED, None, 10**6) is ASKED


def answered(study: QuantileZoom, first: list[float]) -> tuple[Ask, Finding]:
    """What it asks second, and finds, where the ends are told by these numbers."""
    from tallyroom.protocols.statistics.estimates import Curve

    steps = study.steps()
    asked = next(steps)
    assert isinstance(asked.statistic, Quantile)
    assert asked.statistic.quantile == study.ends
    told = Curve(list(study.ends), first) if len(first) > 1 else first[0]
    second = steps.send(Answer.told(told, np.full(len(first), np.nan), 10_000))
    with pytest.raises(StopIteration) as over:
        steps.send(Answer.told(17.25, np.full(1, np.nan), 10_000))
    return second, over.value.value


@pytest.mark.parametrize(
    ("first", "bounds"),
    [([12.5, 20.5], (12.0, 21.0)), ([20.5, 12.5], (12.0, 21.0)), ([12.5, 12.5], (12.0, 13.0))],
    ids=["in order", "crossed by noise", "the same cell"],
)
def test_the_second_looks_between_the_cells_of_the_first(
    first: list[float], bounds: tuple[float, float]
) -> None:
    study = asked_as(10_000)
    second, finding = answered(study, first)
    assert isinstance(second.statistic, Quantile)
    assert second.statistic.within == bounds
    assert second.statistic.bounds == (0.0, 64.0)
    assert second.statistic.quantile == (0.5,)
    assert finding.estimate == 17.25
    Budget(study, PrivacyLoss.of(Fraction(1)))


@pytest.mark.parametrize(("quantile", "bounds"), [(0.02, (0.0, 13.0)), (0.98, (12.0, 64.0))])
def test_a_side_without_margin_keeps_its_bound(
    quantile: float, bounds: tuple[float, float]
) -> None:
    second, _ = answered(asked_as(10_000, quantile), [12.5])
    assert isinstance(second.statistic, Quantile)
    assert second.statistic.within == bounds
    assert second.statistic.bounds == (0.0, 64.0)


def test_cells_are_finer_within_and_fill_the_range() -> None:
    inner = replace(ASKED, within=(12.0, 24.0))
    expected = [np.arange(1, 9) * 1.5, 12 + np.arange(1, 49) / 4, 24 + np.arange(1, 9) * 5]
    assert inner.x.tolist() == np.concatenate(expected).tolist()
    assert planned(inner).plan.grid_words.endswith("cell, up to 2.5 off, and 0.125 within [12, 24]")
    to_the_end = replace(ASKED, within=(8.0, 64.0))
    assert to_the_end.x.tolist() == [*range(1, 9), *range(9, 65)]
    for within, words in (((3.0,), "two ends"), ((3.0, 3.0), "no part"), ((3.0, 65.0), "no part")):
        with pytest.raises(LocalError, match=words):
            replace(ASKED, within=within)


@pytest.mark.parametrize("within", [(12.0, 14.0), (0.0, 2.0), (62.0, 64.0)])
def test_cells_that_are_fanned_out_are_a_small_part_of_their_distance_wide(
    within: tuple[float, float],
) -> None:
    """64 of 256 cells within, 96 on either side, or 160 where there is one side only; cells outside
    grow by one factor, the 96th root of the farthest distance over the nearest."""
    fan = replace(ASKED, thresholds=256, within=within, fanned=True)
    edges = np.concatenate([[0.0], fan.x])
    assert len(fan.x) == 256
    assert edges[-1] == 64.0
    middle, widths = sum(within) / 2, np.diff(edges)
    inside = (edges[:-1] >= within[0]) & (edges[1:] <= within[1])
    assert inside.sum() == (64 if within == (12.0, 14.0) else 160)
    assert widths[inside] == pytest.approx(2 / inside.sum())
    for side, outermost in ((edges[1:] <= within[0], middle), (edges[:-1] >= within[1], 0)):
        if side.any():
            reach = outermost or 64 - middle
            grown = reach ** (1 / 96) - 1
            nearest = np.minimum(np.abs(edges[:-1] - middle), np.abs(edges[1:] - middle))
            assert side.sum() == 96
            assert widths[side] == pytest.approx(grown * nearest[side])
    with pytest.raises(LocalError, match="give `within`"):
        replace(ASKED, fanned=True)
    near = (1.0, 1.0 + 2**-50)
    with pytest.raises(LocalError, match="cannot be told apart"):
        replace(ASKED, within=near, fanned=True)


@pytest.mark.parametrize(("records", "cell"), [(5000, 80 / 48), (1000, 3.6)], ids=["ends", "rough"])
def test_it_comes_nearer_than_a_cell_through_real_servers(records: int, cell: float) -> None:
    """Cells are 4 wide; around the quantile they are far less: ± 458 ranks and two cells by 48 of
    the 64; or a fifth of the distance from what was found roughly, and told by its middle. That is
    38 where the first question errs by 150 ranks, as it hardly ever does. The rank errs by more
    than 30/ε once in 10^5: 15 ranks are 0.75 here, or 3.8."""
    values = np.random.default_rng(2).uniform(0, 256, records)
    data = Dataset("uniform", {"value": values}, {"value": (0.0, 256.0)})
    with Federation(parties=4, hosts=1, data=data, seed=3, cap=2) as federation:
        asked = Quantile(value="value", quantile=(0.5,), strategy="max", thresholds=64)
        result = federation.run(asked, 2)
    assert result.statistic == "quantile"
    assert [each.statistic for each in result.questions] == ["quantile", "quantile"]
    assert result.privacy.epsilon == 2
    assert result.truth == np.quantile(values, 0.5, method="inverted_cdf")
    error = abs(float(result.estimate) - float(result.truth))  # type: ignore[arg-type]
    assert error < 15 * 256 / records + cell
    assert any("looked for around" in note for note in result.notes)
