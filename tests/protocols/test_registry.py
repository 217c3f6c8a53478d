"""Entry points of every kind, found and loaded one by one."""

from collections.abc import Callable

import pytest

from tallyroom.protocols import registry
from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.statistics import statistic_named, statistic_names, statistics
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.studies import study_named
from tallyroom.simulation.runtimes import runtime_named
from tests.registering import register


class Misnamed(Histogram):
    """Registered under a name that is not its own: its queries would be read as another's."""


def test_every_statistic_of_the_registry_loads_under_its_own_name() -> None:
    assert "histogram" in statistic_names()
    assert {name: kind.name for name, kind in statistics().items()} == {
        name: name for name in statistic_names()
    }


@pytest.mark.parametrize("group", registry.KINDS)
def test_a_broken_package_breaks_nothing_else(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = registry.loadable(group).keys()
    register(monkeypatch, group, "broken", "no.such.module:Broken")
    assert registry.loadable(group).keys() == there
    with pytest.raises(LocalError, match=f"{registry.KINDS[group]} 'broken' cannot be loaded"):
        registry.named(group, "broken")
    with pytest.raises(
        LocalError, match=f"no {registry.KINDS[group]} 'brokn'; did you mean broken"
    ):
        registry.named(group, "brokn")


@pytest.mark.parametrize(
    ("group", "look_up", "another"),
    [
        (registry.STATISTICS, statistic_named, f"{__name__}:Misnamed"),
        (
            registry.STUDIES,
            study_named,
            "tallyroom.protocols.studies.gini_coefficient:GiniCoefficient",
        ),
        (registry.RUNTIMES, runtime_named, "tallyroom.simulation.runtimes.contract:Runtime"),
    ],
)
def test_what_is_none_of_that_name_is_refused(
    group: str,
    look_up: Callable[[str], object],
    another: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What calls itself otherwise, what is no class, and a class of another kind."""
    kind = registry.KINDS[group]
    for name, value in (("one", another), ("two", "math:pi"), ("three", "pathlib:Path")):
        register(monkeypatch, group, name, value)
        reason = "must be registered under" if name == "one" else "is not a subclass of"
        with pytest.raises(LocalError, match=f"{kind} '{name}' {reason}"):
            look_up(name)


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
