"""Quantiles that are looked for: when they are, what is asked, and how near it comes."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tallyroom.parties.data import Dataset
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.ecdf import Quantile
from tallyroom.protocols.statistics.estimates import Curve
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.studies.budget import Budget
from tallyroom.protocols.studies.contract import Answer, Ask, Finding, Study
from tallyroom.protocols.studies.quantile_zoom import (
    END_SHARES,
    QuantileZoom,
    RankSearch,
    search_for,
)
from tallyroom.protocols.studies.settling import PublicSetting, settled
from tallyroom.simulation import Federation

ASKED = Quantile(lower=0.0, upper=64.0, quantile=(0.5,), strategy="max", thresholds=64)


def setting(records: int, epsilon: Fraction | None = Fraction(1), **more: Any) -> PublicSetting:
    where = PublicSetting(True, True, False, 2, records, 1, epsilon)
    return replace(where, **more)


def put_for(asked: Statistic, where: PublicSetting) -> Statistic | Study:
    return settled(asked, where, {})


def search(records: int, quantile: float = 0.5, epsilon: int = 1, unit: int = 1) -> RankSearch:
    return search_for(replace(ASKED, quantile=(quantile,)), Fraction(epsilon), records, unit)


def study_of(found: RankSearch) -> QuantileZoom:
    """The study whose one search, with what is left for it, is this one."""
    study = QuantileZoom(found.statistic, found.records, Fraction(1))
    study.__dict__["searches"] = (found,)
    return study


def test_it_is_looked_for_first_where_records_are_enough_for_the_margin() -> None:
    """At ε = 1 the margin is 80·(ln 64 + 5) = 733 ranks, with four times the share 184; there must
    be twice as many records on that side."""
    found = search(10_000)
    assert found.margin == 733
    assert found.ends == (0.4267, 0.5733)
    assert found.first_share == Fraction(1, 20)
    upper = search(10_000, quantile=0.99)
    assert upper.ends == (0.9167,)
    assert upper.first_share == END_SHARES[0]
    fewest = search(1000)
    assert fewest.margin == 184
    assert fewest.first_share == Fraction(1, 5)
    assert not search(300).first_share
    assert search(6000, unit=6).margin == 1100  # 20·6·(ln 64 + 5), rounded up
    assert not search(10_000, unit=14).first_share


def test_with_fewer_it_is_asked_for_itself() -> None:
    """At ε = 1 it must have 2/0.03·(ln 64 + 10) = 944 records on either side, or 567 for a
    twentieth of ε. The second question has a quarter of its cells in the cell that was found."""
    for records, share in ((2000, Fraction(3, 100)), (1500, Fraction(1, 20))):
        found = search(records)
        assert found.margin == 0
        assert found.ends == (0.5,)
        assert found.first_share == share
        second, _, _ = answered(found, [12.5])
        assert isinstance(second.statistic, Quantile)
        assert second.statistic.within == (12.0, 13.0)
        assert second.statistic.fanned
        assert second.statistic.thresholds == 64
        Budget(study_of(found), PrivacyLoss.of(Fraction(1)))
    assert search(10_000, unit=6).first_share == Fraction(1, 20)
    assert search(1100).margin


@pytest.mark.parametrize("records", [100, 300, 1500, 10_000])
@pytest.mark.parametrize("wanted", [(0.5,), (0.1, 0.5, 0.99)], ids=["one", "three"])
def test_its_questions_share_all_of_epsilon(wanted: tuple[float, ...], records: int) -> None:
    study = QuantileZoom(replace(ASKED, quantile=wanted), records, Fraction(1))
    assert sum(study.shares()) == 1
    listed = study.may_ask()
    assert tuple(ask.share for ask in listed) == study.shares()
    Budget(study, PrivacyLoss.of(Fraction(1)))


def test_one_or_a_few_are_chosen_where_that_errs_less() -> None:
    """A curve's counts err by 25/ε ranks with 1024 thresholds; a choice by 4 scales of 2k/ε."""
    auto = Quantile(lower=0.0, upper=64.0)
    assert auto.strategy == "auto"
    for quantiles, chosen in ((1, True), (2, True), (8, False)):
        asked = replace(auto, quantile=tuple(np.linspace(0.1, 0.9, quantiles).tolist()))
        assert (put_for(asked, setting(1000)) is not asked) == chosen
    many = replace(auto, quantile=tuple(np.linspace(0.1, 0.9, 8).tolist()))
    assert put_for(many, setting(10**6)) is not many  # cells of the curve hold 1000 records each
    assert put_for(auto, setting(10**6, None)) is auto
    assert put_for(auto, setting(10**6, choose=False)) is auto


def test_nothing_else_is() -> None:
    curve = Quantile(quantile=(0.5,), strategy="hierarchy")
    smoothed = Quantile(quantile=(0.5,), smooth="none")
    few = Quantile(quantile=(0.5,), thresholds=8)
    nine = replace(ASKED, quantile=tuple(np.linspace(0.1, 0.9, 9).tolist()))
    inner = replace(ASKED, within=(12.0, 13.0))
    for asked in (curve, smoothed, few, nine, inner, Mean(lower=0.0, upper=1.0)):
        assert put_for(asked, setting(10**6)) is asked
    assert put_for(ASKED, setting(10**6, None)) is ASKED
    assert put_for(ASKED, setting(10**6, choose=False)) is not ASKED  # it is refused for what it is


def answered(found: RankSearch, first: list[float]) -> tuple[Ask, Ask, Finding]:
    """What it asks second and third, and finds, where the ends are told by these numbers."""
    steps = study_of(found).steps()
    asked = next(steps)
    assert isinstance(asked.statistic, Quantile)
    assert asked.statistic.quantile == found.ends
    told = Curve(list(found.ends), first) if len(first) > 1 else first[0]
    second = steps.send(Answer.told(told, np.full(len(first), np.nan), 10_000))
    third = steps.send(Answer.told(17.25, np.full(1, np.nan), 10_000))
    counted = Interval(np.ones(1), np.array([17.5]), np.array([21.0]))
    with pytest.raises(StopIteration) as over:
        steps.send(Answer(18.0, counted, 10_000))
    return second, third, over.value.value


@pytest.mark.parametrize(
    ("first", "bounds"),
    [([12.5, 20.5], (12.0, 21.0)), ([20.5, 12.5], (12.0, 21.0)), ([12.5, 12.5], (12.0, 13.0))],
    ids=["in order", "crossed by noise", "the same cell"],
)
def test_the_second_looks_between_the_cells_of_the_first(
    first: list[float], bounds: tuple[float, float]
) -> None:
    found = search(10_000)
    second, third, finding = answered(found, first)
    assert isinstance(second.statistic, Quantile)
    assert second.statistic.within == bounds
    assert second.statistic.bounds == (0.0, 64.0)
    assert second.statistic.quantile == (0.5,)
    assert isinstance(third.statistic, Quantile)
    assert (third.statistic.within, third.statistic.strategy) == (bounds, "hierarchy")
    assert third.statistic.thresholds == 32
    assert finding.estimate == 17.25
    assert finding.intervals is not None
    assert (interval := finding.intervals["noise"]) is not None
    assert (float(interval.low[0]), float(interval.high[0])) == (
        17.25,
        21.0,
    )  # it holds what is told


@pytest.mark.parametrize(("quantile", "bounds"), [(0.02, (0.0, 13.0)), (0.98, (12.0, 64.0))])
def test_a_side_without_margin_keeps_its_bound(
    quantile: float, bounds: tuple[float, float]
) -> None:
    second, _, _ = answered(search(10_000, quantile), [12.5])
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
    assert [each.statistic for each in result.questions] == ["quantile"] * 3
    assert result.privacy.epsilon == 2
    assert result.truth == np.quantile(values, 0.5, method="inverted_cdf")
    error = abs(float(result.estimate) - float(result.truth))  # type: ignore[arg-type]
    assert error < 15 * 256 / records + cell
    assert any("looked for around" in note for note in result.notes)
    assert result.interval is not None
    truth = float(result.truth)  # type: ignore[arg-type]
    assert result.interval.low[0] <= truth <= result.interval.high[0]
