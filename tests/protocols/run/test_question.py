"""A question and the queries that ask what it does."""

from dataclasses import replace
from fractions import Fraction

import pytest

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.classifier_curves import Roc
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean


@pytest.mark.parametrize(
    "statistic",
    [
        Ecdf(lower=0, upper=1, thresholds=8),
        Histogram(lower=0, upper=1, bins=8),
        Mean(lower=0, upper=1),
        Roc(lower=0, upper=1, thresholds=8),
    ],
    ids=lambda statistic: statistic.name,
)
def test_whole_numbers_as_bounds_ask_for_the_same_as_real_ones(statistic: Statistic) -> None:
    """A coordinator that is told 0 and 1 puts a query with 0.0 and 1.0: that is what was asked."""
    question = Question(statistic, "additive", Fraction(1), Placement.EACH_SERVER)
    put = Question.decode(question.encode()).query(b"nonce678", 3, 2, 12, 4)
    assert question.difference(put) is None
    parameters = put.statistic.parameters() | {"upper": 2.0}
    other = replace(put, statistic=put.statistic.from_parameters(parameters))
    assert question.difference(other) == "statistic"


@pytest.mark.parametrize("bound", [7, 2**53 + 1, int("5" * 27), int("7" * 110)])
def test_whole_numbers_off_the_wire_are_the_nearest_real_ones(bound: int) -> None:
    """Whatever their size: else one question had two names."""
    asked = Question(Ecdf(lower=0.0, upper=1.0), "additive", Fraction(1), Placement.EACH_SERVER)
    text = asked.encode().replace('"upper": 1.0', f'"upper": {bound}')
    found = Question.decode(text)
    assert found.statistic.parameters()["upper"] == float(bound)
    assert isinstance(found.statistic, Ecdf)
    assert type(found.statistic.upper) is float
    assert Question.decode(found.encode()) == found


def test_a_number_past_all_real_ones_is_one_line() -> None:
    with pytest.raises(LocalError, match="a number is too large"):
        Ecdf.from_parameters({"upper": 10**400})
