"""What a study concluded is checked again, with the answers that servers signed for."""

import copy
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.errors import TallyError
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.ecdf import Quantile
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.studies import BY_OPTION, Study, study_names
from tallyroom.protocols.studies.cox import Cox
from tallyroom.protocols.studies.gini_coefficient import GiniCoefficient
from tallyroom.protocols.studies.hosmer_lemeshow import HosmerLemeshow
from tallyroom.protocols.studies.logistic_regression import LogisticRegression
from tallyroom.protocols.studies.multinomial_regression import MultinomialRegression
from tallyroom.protocols.studies.private_bounds import PrivateBounds
from tallyroom.protocols.studies.projected_histogram import ProjectedHistogram
from tallyroom.protocols.studies.quantile_search import QuantileSearchStudy
from tallyroom.protocols.studies.residual_plot import ResidualPlot
from tallyroom.protocols.studies.roc_medians import RocMedians
from tallyroom.simulation.federation import Federation
from tallyroom.simulation.replay import described, study_of
from tallyroom.simulation.verification import verify

RECORDS = 4000
SCHEMA = ("a=0:1", "b=0:1", "y=0:1")
ASKED: list[Study | Statistic] = [
    QuantileSearchStudy(lower=0.0, upper=1.0, halvings=5),
    ResidualPlot(coefficients=(0.1, 0.5), least_reach=0.25, side=4),
    ResidualPlot(ranges=("x=0:1", "y=0:1"), method="hb", side=4, doublings=8),
    ProjectedHistogram(SCHEMA, "y", 1, 0.5, 3),
    LogisticRegression(("a", "b"), "label", ranges=("a=0:1", "b=0:1"), newton_steps=3),
    LogisticRegression(
        ("a", "b"), "label", ranges=("a=0:1", "b=0:1"), newton_steps=3, method="newton"
    ),
    MultinomialRegression(SCHEMA, "y", k=1, gamma=0.5, bins=3),
    Cox(("a",), time="value", event="label", ranges=("a=0:1",), upper=1.0, newton_steps=2),
    GiniCoefficient(value="value", lower=0.0, upper=1.0, pairs_per_party="1"),
    HosmerLemeshow(groups=4, thresholds=64),
    RocMedians(bins=8, thresholds=64),
    PrivateBounds(Mean()),
    PrivateBounds(Mean(), method="sparse-vector"),
    Quantile(lower=0.0, upper=1.0, strategy="max", thresholds=65536, quantile=(0.5,)),
]


@cache
def document(index: int) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    names = ("value", "x", "y", "a", "b", "score")
    columns = {name: rng.uniform(0.0, 1.0, RECORDS) for name in names}
    columns["label"] = (rng.uniform(size=RECORDS) < columns["score"]).astype(np.float64)
    with Federation(parties=4, seed=1, data=columns) as federation:
        result = federation.run(ASKED[index], epsilon=20)
    written: dict[str, Any] = json.loads(json.dumps(result.as_json(), allow_nan=False))
    return written


def _name(index: int) -> str:
    return f"{ASKED[index].name}-{index}"


@pytest.mark.parametrize("index", range(len(ASKED)), ids=_name)
def test_what_any_study_concluded_is_what_it_concludes_again(index: int) -> None:
    assert verify(document(index)).receipts


@pytest.mark.parametrize("index", range(len(ASKED)), ids=_name)
def test_a_conclusion_that_is_changed_is_found_out(index: int) -> None:
    """The first number in it, by a hundredth or so."""
    changed = copy.deepcopy(document(index))
    changed["estimate"] = _moved(changed["estimate"])
    assert changed["estimate"] != document(index)["estimate"]
    with pytest.raises(TallyError, match="not what the study concludes"):
        verify(changed)


@pytest.mark.parametrize(
    ("index", "share", "other"),
    [(1, "reach_share", 0.5), (2, "fit_share", 0.2), (3, "gamma", 0.9), (6, "gamma", 0.9)],
)
def test_shares_of_epsilon_that_are_changed_are_found_out(
    index: int, share: str, other: float
) -> None:
    """The estimate is still what follows from the answers, but the study divided ε otherwise."""
    changed = copy.deepcopy(document(index))
    assert changed["study"]["parameters"][share] != other
    changed["study"]["parameters"][share] = other
    with pytest.raises(TallyError, match=r"divided its ε in another way|not have asked"):
        verify(changed)


def _moved(value: Any) -> Any:
    match value:
        case bool() | str() | None:
            return value
        case int() | float():
            return value * 1.001 + 0.0123
        case dict():
            for key, each in value.items():
                if (moved := _moved(each)) != each:
                    return {**value, key: moved}
        case list():
            for place, each in enumerate(value):
                if (moved := _moved(each)) != each:
                    return [*value[:place], moved, *value[place + 1 :]]
    return value


def _forget_study(stated: dict[str, Any]) -> None:
    del stated["study"]


LIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "no study": _forget_study,
    "another study": lambda d: d["study"].update(name="gini-coefficient", parameters={}),
    "none that there is": lambda d: d["study"].update(name="nothing"),
    "another share": lambda d: d["study"]["parameters"].update(method="sparse-vector"),
    "another column": lambda d: d["study"]["parameters"]["statistic"]["parameters"].update(
        value="x"
    ),
    "another statistic": lambda d: d["study"]["parameters"]["statistic"].update(name="sum"),
    "other fields": lambda d: d["study"].update(parameters=[]),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_study_that_would_have_asked_something_else_is_found_out(lie: str) -> None:
    changed = copy.deepcopy(document(_BOUNDS))
    LIES[lie](changed)
    with pytest.raises(TallyError, match="does not hold"):
        verify(changed)


_BOUNDS = next(i for i, each in enumerate(ASKED) if isinstance(each, PrivateBounds))


def test_every_installed_study_is_tried_and_comes_back_from_its_description() -> None:
    found = {document(index)["study"]["name"] for index in range(len(ASKED))}
    assert found == {*study_names(), *BY_OPTION}
    for each in ASKED:
        if isinstance(each, Study):
            assert study_of(json.loads(json.dumps(described(each)))) == each
