"""Names that a user typed."""

import pytest

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.names import look_up
from tallyroom.protocols.statistics import statistic_named


def test_what_is_there_is_found() -> None:
    assert look_up("thing", "b", {"a": 1, "b": 2}) == 2


@pytest.mark.parametrize(
    ("typed", "near"),
    [("aditive", "additive"), ("additiv", "additive"), ("curater", "curator")],
)
def test_the_nearest_names_come_first(typed: str, near: str) -> None:
    with pytest.raises(LocalError, match=f"no aggregator '{typed}'; did you mean {near}"):
        aggregator_named(typed)


def test_without_a_near_name_all_are_listed() -> None:
    with pytest.raises(LocalError, match=r"there are anova, auc, .*collision-entropy, .*histogram"):
        statistic_named("zzzzzzzz")
