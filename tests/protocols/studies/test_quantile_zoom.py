"""A quantile in two questions: when it is one, what it asks, and how near it comes."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from parties.data import Dataset
from protocols.errors import LocalError
from protocols.statistics.choices import QuantileByMax
from protocols.statistics.ecdf import Quantile
from protocols.statistics.moments import Mean
from protocols.studies.budget import Budget
from protocols.studies.contract import Answer, Ask, Finding
from protocols.studies.quantile_zoom import END_SHARES, QuantileZoom, zoomed
from simulation import Federation

ASKED = Quantile(lower=0.0, upper=64.0, quantile=(0.5,), mechanism="max", thresholds=64)


def asked_as(records: int, quantile: float = 0.5, epsilon: int = 1, unit: int = 1) -> QuantileZoom:
    study = zoomed(replace(ASKED, quantile=(quantile,)), Fraction(epsilon), records, unit)
    assert isinstance(study, QuantileZoom)
    return study


def test_it_is_asked_in_two_where_records_are_enough_for_the_margin() -> None:
    """At ε = 1 the margin is 80·(ln 64 + 5) = 733 ranks, with twice the share 367; there must be
    twice as many records on that side."""
    study = asked_as(10_000)
    assert study.margin == 733
    assert study.ends == (0.4267, 0.5733)
    assert study.shares() == (Fraction(1, 20), Fraction(19, 20))
    fewer = asked_as(1500)
    assert fewer.margin == 367
    assert fewer.shares() == (Fraction(1, 10), Fraction(9, 10))
    upper = asked_as(10_000, quantile=0.99)
    assert upper.ends == (0.9167,)
    assert upper.shares()[0] == END_SHARES[0]
    fewest = asked_as(1000)
    assert fewest.margin == 184
    assert fewest.shares()[0] == Fraction(1, 5)
    assert zoomed(ASKED, Fraction(1), 300) is ASKED
    assert asked_as(10_000, unit=6).margin == 2199  # 40·6·(ln 64 + 5), rounded up
    assert zoomed(ASKED, Fraction(1), 10_000, 14) is ASKED


def test_nothing_else_is() -> None:
    several = Quantile(quantile=(0.1, 0.5), mechanism="max")
    curve = Quantile(quantile=(0.5,))
    for asked in (several, curve, Mean(lower=0.0, upper=1.0)):
        assert zoomed(asked, Fraction(1), 10**6) is asked
    assert zoomed(ASKED, None, 10**6) is ASKED


def answered(study: QuantileZoom, first: list[float]) -> tuple[Ask, Finding]:
    """What it asks second, and finds, where the ends are told by these numbers."""
    from protocols.statistics.estimates import Curve

    steps = study.steps()
    asked = next(steps)
    assert isinstance(asked.statistic, QuantileByMax)
    assert asked.statistic.quantile == study.ends
    told = Curve(list(study.ends), first) if len(first) > 1 else first[0]
    second = steps.send(Answer(told, np.full(len(first), np.nan), 10_000))
    with pytest.raises(StopIteration) as over:
        steps.send(Answer(17.25, np.full(1, np.nan), 10_000))
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
    assert isinstance(second.statistic, QuantileByMax)
    assert second.statistic.within == bounds
    assert second.statistic.bounds == (0.0, 64.0)
    assert second.statistic.quantile == (0.5,)
    assert finding.estimate == 17.25
    Budget(study, Fraction(1), 0.0)


@pytest.mark.parametrize(("quantile", "bounds"), [(0.02, (0.0, 13.0)), (0.98, (12.0, 64.0))])
def test_a_side_without_margin_keeps_its_bound(
    quantile: float, bounds: tuple[float, float]
) -> None:
    second, _ = answered(asked_as(10_000, quantile), [12.5])
    assert isinstance(second.statistic, QuantileByMax)
    assert second.statistic.within == bounds
    assert second.statistic.bounds == (0.0, 64.0)


def test_cells_are_finer_within_and_fill_the_range() -> None:
    inner = QuantileByMax(lower=0.0, upper=64.0, thresholds=64, within=(12.0, 24.0))
    expected = [np.arange(1, 9) * 1.5, 12 + np.arange(1, 49) / 4, 24 + np.arange(1, 9) * 5]
    assert inner.x.tolist() == np.concatenate(expected).tolist()
    to_the_end = QuantileByMax(lower=0.0, upper=64.0, thresholds=64, within=(8.0, 64.0))
    assert to_the_end.x.tolist() == [*range(1, 9), *range(9, 65)]
    for within, words in (((3.0,), "two ends"), ((3.0, 3.0), "no part"), ((3.0, 65.0), "no part")):
        with pytest.raises(LocalError, match=words):
            QuantileByMax(lower=0.0, upper=64.0, thresholds=64, within=within)


def test_it_comes_nearer_than_a_cell_through_real_servers() -> None:
    """Cells are 4 wide; around the quantile they are far less. The rank errs by more than 30/ε once
    in 10^5: 15 ranks are 0.75 here."""
    values = np.random.default_rng(2).uniform(0, 256, 5000)
    data = Dataset("uniform", {"value": values}, {"value": (0.0, 256.0)})
    with Federation(parties=4, hosts=1, data=data, seed=3, cap=2) as federation:
        asked = Quantile(value="value", quantile=(0.5,), mechanism="max", thresholds=64)
        result = federation.run(asked, 2)
    assert result.statistic == "quantile"
    assert [each.statistic for each in result.questions] == ["quantile", "quantile"]
    assert result.privacy.epsilon == 2
    assert result.truth == np.quantile(values, 0.5, method="inverted_cdf")
    cell = 80 / 48  # ± 458 ranks and two cells, by 48 of the 64
    assert abs(float(result.estimate) - float(result.truth)) < 0.75 + cell  # type: ignore[arg-type]
    assert any("looked for around" in note for note in result.notes)
