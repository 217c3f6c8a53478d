"""What a user may set of a statistic, told by the statistic."""

import dataclasses
from typing import Any

import pytest

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.statistics import statistics
from tallyroom.protocols.statistics.choices import Mode
from tallyroom.protocols.statistics.ecdf import Ecdf, Quantile
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.of_pairs import Auc, Gini, Pairwise
from tallyroom.protocols.statistics.option import Option, option, options_of, role, wire_name
from tallyroom.protocols.studies import studies

ALL: tuple[Any, ...] = (*statistics().values(), *studies().values())


def flags(kind: type) -> list[str]:
    return [each.flag for each in options_of(kind)]


def test_options_are_the_fields_that_say_so() -> None:
    @dataclasses.dataclass(frozen=True)
    class Own:
        value: str = role("value", "A column.", bounded=True)
        at: tuple[float, ...] = option((), "Where.")
        least: float | None = option(None, "From.")
        kernel_name: str = option("a", "Which.", choices=("a", "b"), flag="--kernel")
        filled_in: int = 0

    assert Own() == Own("value", (), None, "a", 0)
    assert options_of(Own) == (
        Option("value", "--value", str, "value", "A column.", role=True, bounded=True),
        Option("at", "--at", float, (), "Where.", multiple=True),
        Option("least", "--least", float, None, "From."),
        Option("kernel_name", "--kernel", str, "a", "Which.", choices=("a", "b")),
    )


def test_what_the_coordinator_fills_in_is_no_option() -> None:
    bounds = ["--value", "--lower", "--upper"]
    of_bins = ["--bins", "--nonnegative", "--categories", "--randomizer"]
    assert flags(Histogram) == [*bounds, "--weights", "--weight-upper", *of_bins]
    assert flags(Mode) == [*bounds, *of_bins]
    local = ["--bins", "--rounding", "--randomizer"]
    of_pairs = ["--pairs-per-party", "--bits", "--meet", "--meetings", "--outputs"]
    assert flags(Gini) == [*bounds, *of_pairs, *local]
    assert "--kernel" in flags(Pairwise)
    assert "--value" not in flags(Auc)
    assert {"--score", "--label"} <= set(flags(Auc))


def test_a_default_of_a_statistic_is_its_own() -> None:
    defaults = [
        {each.name: each.default for each in kind.options()}["thresholds"]
        for kind in (Ecdf, Quantile)
    ]
    assert defaults == [64, 1024]


@pytest.mark.parametrize("kind", statistics().values(), ids=statistics())
def test_every_option_is_told_and_can_be_set(kind: type) -> None:
    for each in options_of(kind):
        assert each.help.endswith(".")
        assert each.kind in (str, int, float, bool)
        assert each.flag.startswith("--")
        if each.choices:
            assert each.default in each.choices


RENAMED = [
    kind
    for kind in ALL
    for each in dataclasses.fields(kind)
    if (wire_name(each), each.name) == ("mechanism", "strategy")
]


def test_the_strategy_of_a_curve_was_called_mechanism() -> None:
    assert {kind.name for kind in RENAMED} == {
        *("auc", "average-precision", "classifier-table", "cumulative-histogram", "ecdf"),
        *(
            "ecdf-points",
            "hosmer-lemeshow",
            "pr-curve",
            "quantile",
            "quantile-search",
            "roc",
            "roc-medians",
        ),
    }


@pytest.mark.parametrize("kind", RENAMED, ids=[kind.name for kind in RENAMED])
def test_former_names_are_taken_and_kept_on_the_wire(kind: Any) -> None:
    """So results and receipts from before are verified as they stand."""
    needed = {"ecdf-points": {"at": (0.5,)}}.get(kind.name, {})
    value = "hb" if kind.name not in ("ecdf-points", "quantile-search") else "tree"
    old, new = kind(mechanism=value, **needed), kind(strategy=value, **needed)
    assert old == new
    assert old.strategy == value
    assert "strategy" not in new.parameters()
    assert new.parameters()["mechanism"] == value
    assert kind.from_parameters(new.parameters()) == new
    assert kind.from_parameters({"strategy": value, **needed}) == new
    with pytest.raises(LocalError, match="mechanism is the former name of strategy"):
        kind(mechanism=value, strategy=value, **needed)
    with pytest.raises(LocalError, match="former name"):
        kind.from_parameters({"mechanism": value, "strategy": value, **needed})
