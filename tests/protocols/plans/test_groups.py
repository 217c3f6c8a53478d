"""What a record moves in every encoding by group, by enumeration: it may be replaced by any other,
in its group, in another, or in none."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.algebra.ring import signed
from tallyroom.protocols.cells import encode_cells
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Encoding
from tallyroom.protocols.plans.encodings import ClippedNumber, EqualBins, Names, UpToThresholds
from tallyroom.protocols.plans.groups import (
    MAX_GROUPS,
    ByGroup,
    Division,
    Groups,
    MeanByGroup,
    SumByGroup,
    UpToByGroup,
)
from tallyroom.protocols.plans.thresholds import ThresholdGrid
from tallyroom.protocols.privacy.group_curves import GroupCurves
from tallyroom.protocols.records import Holdings, deal

INSIDE = Groups('sex = "F"')
SEXES = Groups(by=(Division("sex", ("F", "M")),))
ADULTS = Groups("age >= 18", (Division("sex", ("F", "M")), Division("arm", ("0", "1"))))
ALL = (INSIDE, SEXES, ADULTS)


def every_record(values: tuple[float, ...]) -> Holdings:
    """A party for each record that there can be, of so many values."""
    cells = list(product(("F", "M", "", "X"), ("0", "1", "2"), (17.0, 18.0), values))
    sex, arm, age, value = zip(*cells, strict=True)
    columns = {
        "sex": encode_cells(sex),
        "arm": encode_cells(arm),
        "age": np.array(age),
        "value": np.array(value),
    }
    return deal(columns, len(cells))


def moves(encoding: Encoding, values: tuple[float, ...]) -> tuple[int, int]:
    """The most that any record moves the sum when any other takes its place: in the L1 norm, and in
    the square of the L2 norm."""
    codes = np.unique(signed(encoding.encode(every_record(values))), axis=0)
    found = [(one - two).tolist() for one in codes for two in codes]
    return max(sum(map(abs, m)) for m in found), max(sum(x * x for x in m) for m in found)


def encodings(groups: Groups, lower: float, upper: float) -> Iterator[Encoding]:
    yield SumByGroup("value", lower, upper, groups)
    yield MeanByGroup(ClippedNumber("value", lower, upper), groups)
    for bins in (1, 3):
        yield ByGroup(EqualBins("value", lower, upper, bins), groups)
    yield ByGroup(Names("value", ("0", "1")), groups)


BOUNDS = ((0.0, 1.0), (-1.0, 2.0), (-3.0, -1.0), (5.0, 6.0), (-1.0, 1.0), (0.3, 0.7))


@pytest.mark.parametrize("groups", ALL, ids=["where", "by", "both"])
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_the_sensitivity_is_the_most_that_a_record_moves(
    groups: Groups, bounds: tuple[float, float]
) -> None:
    """Exactly: less would not be private, and more would be noise for nothing."""
    lower, upper = bounds
    middle = (lower + upper) / 2
    for encoding in encodings(groups, lower, upper):
        found = moves(encoding, (lower - 1, lower, middle, upper, upper + 1))
        stated = (encoding.sensitivity.l1, encoding.sensitivity.squared_l2)
        assert found == stated, encoding


@pytest.mark.parametrize("groups", ALL, ids=["where", "by", "both"])
@pytest.mark.parametrize("points", [1, 2, 9, 64])
@pytest.mark.parametrize("strategy", ["hierarchy", "hb"])
def test_so_do_curves_by_group(groups: Groups, points: int, strategy: str) -> None:
    """In what is released under noise, and in what parties submit."""
    grid = ThresholdGrid(0.0, 1.0, points)
    encoding = UpToByGroup(UpToThresholds("value", grid), groups)
    curves = GroupCurves(points, groups.count, strategy)
    assert points < 64 or strategy == "hb" or curves.curve.shape.height > 1
    values = tuple((grid.values[:: max(1, points // 8)] - 0.001).tolist())
    assert moves(encoding, values)[0] == encoding.sensitivity.l1
    codes = np.unique(encoding.encode(every_record(values)), axis=0)
    released = signed(np.stack([curves.measure(code) for code in codes]))
    assert released.shape[1] == curves.released
    apart = [(one - two).tolist() for one in released for two in released]
    assert max(sum(map(abs, each)) for each in apart) == curves.sensitivity.l1
    assert max(sum(x * x for x in each) for each in apart) == curves.sensitivity.squared_l2


@pytest.mark.parametrize("groups", ALL, ids=["where", "by", "both"])
def test_a_condition_moves_no_count_by_more_than_one_record_does(groups: Groups) -> None:
    """Whatever a condition is about, a replaced record changes counts by one up and one down."""
    encoding = ByGroup(EqualBins("value", 0.0, 1.0, 4), groups)
    codes = np.unique(signed(encoding.encode(every_record((0.1, 0.6)))), axis=0)
    assert (codes.sum(axis=1) == 1).all()
    assert ((codes == 0) | (codes == 1)).all()


def test_groups_are_those_of_pandas() -> None:
    holdings = every_record((0.0,))
    group = ADULTS.of(holdings)
    sex, arm, age = (holdings.column(name) for name in ("sex", "arm", "age"))
    female, male = encode_cells(["F", "M"]).view(np.uint64)
    for at, (name, number) in enumerate(ADULTS.labels):
        code = female if name == "F" else male
        inside = (sex.view(np.uint64) == code) & (arm == float(number)) & (age >= 18)
        assert ((group == at) == inside).all()
    assert (group[age < 18] == ADULTS.count).all()


def test_a_sum_of_time_stamps_has_room() -> None:
    """A record outside counts 0, which is far from them; the sum of many must not wrap around."""
    lower, upper = 1.7e9, 1.7e9 + 1
    encoding = SumByGroup("value", lower, upper, INSIDE)
    assert encoding.sensitivity.l1 < 2**31
    assert encoding.grid.step * encoding.sensitivity.l1 == pytest.approx(upper, rel=1e-8)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, "by a condition or by columns"),
        ({"where": "age>=18"}, "canonical"),
        ({"by": (Division("sex", ("F",)), Division("sex", ("M",)))}, "each once"),
        (
            {"by": tuple(Division(c, tuple(map(str, range(20)))) for c in "abc")},
            f"{MAX_GROUPS} at most",
        ),
    ],
)
def test_what_are_no_groups_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        Groups(**wrong)


@pytest.mark.parametrize("text", ["sex", "=F", "sex=", "sex=F,F", "sex=F,,M"])
def test_what_is_no_division_is_refused(text: str) -> None:
    with pytest.raises(LocalError):
        Division.parse(text)
