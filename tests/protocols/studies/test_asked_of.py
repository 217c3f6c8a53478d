"""Studies go by what an aggregator offers."""

from functools import partial
from typing import Any

import pytest

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.offers import Offer
from tallyroom.protocols.statistics.on_demand import EcdfPoints, QuantileSearch
from tallyroom.protocols.studies.contract import Study
from tallyroom.protocols.studies.multinomial_regression import MultinomialRegression
from tallyroom.protocols.studies.projected_histogram import ProjectedHistogram
from tallyroom.protocols.studies.quantile_search import QuantileSearchStudy
from tallyroom.protocols.studies.residual_plot import ResidualPlot

SCHEMA = ("target=a,b", "colour=red,green")


def test_stored_keys_are_searched_in_one_question_and_sums_in_many() -> None:
    study = QuantileSearchStudy(lower=0.0, upper=1.0)
    assert isinstance(study.asked_of(frozenset({Offer.COMPARE})), QuantileSearch)
    assert study.asked_of(frozenset({Offer.SUM})) is study


@pytest.mark.parametrize(
    "study",
    [
        ResidualPlot(),
        ProjectedHistogram(attributes=SCHEMA),
        MultinomialRegression(attributes=SCHEMA),
    ],
    ids=lambda study: str(study.name),
)
def test_a_curator_is_whoever_says_so(study: Study) -> None:
    for offers, curated in (({Offer.SUM}, False), ({Offer.SUM, Offer.CURATE}, True)):
        assert study.asked_of(frozenset(offers)).parameters()["curated"] is curated


@pytest.mark.parametrize(
    "given",
    [
        {"thresholds": 8},
        {"smooth": "monotone"},
        {"box": False},
        {"solver": "cvxopt"},
        {"randomizer": "unary"},
    ],
    ids=str,
)
def test_points_on_demand_refuse_what_is_of_curves(given: dict[str, Any]) -> None:
    (name,) = given
    for ask in (partial(EcdfPoints, at=(0.5,)), QuantileSearch):
        with pytest.raises(LocalError, match=f"leave --{name} out"):
            ask(lower=0.0, upper=1.0, **given)
