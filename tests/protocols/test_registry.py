"""Entry points of every kind, found and loaded one by one."""

import pytest

from protocols import registry
from protocols.errors import LocalError
from protocols.statistics import statistic_named, statistic_names, statistics
from protocols.statistics.histogram import Histogram
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


@pytest.mark.parametrize("value", [f"{__name__}:Misnamed", "math:pi", "pathlib:Path"])
def test_what_is_no_statistic_of_that_name_is_refused(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, registry.STATISTICS, "mine", value)
    with pytest.raises(LocalError, match="statistic 'mine' is none"):
        statistic_named("mine")
