"""The sentence about adjacency against all pairs of records: what it promises to protect moves no
statistic further than its noise is for, and what is released without noise is named.

Vectors add up over records, so replacing a record of any data set moves the sum by what the two
records' own vectors differ in. How far that is, is the least L1 norm of noises that make up for it:
none do where something is released without noise.
"""

import dataclasses
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from scipy.optimize import linprog

from tallyroom.protocols.algebra.ring import signed
from tallyroom.protocols.cells import encode_cells
from tallyroom.protocols.plans.contract import NoisySum, Points
from tallyroom.protocols.privacy.mechanisms import laplace_scale
from tallyroom.protocols.query import Adjacency
from tallyroom.protocols.records import Column, deal
from tallyroom.protocols.run.promise import promise_of
from tallyroom.protocols.statistics import Statistic, statistic_names
from tallyroom.protocols.statistics.areas import AveragePrecision
from tallyroom.protocols.statistics.classifier_curves import PrCurve, Roc
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.of_pairs import Auc
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.running_sum import RunningSum
from tests.every_statistic import EVERY
from tests.protocols.statistics.local_form_samples import form_of
from tests.samples import a_query

UNIT = {"lower": 0.0, "upper": 1.0}
MORE: tuple[Statistic, ...] = (
    RunningSum(lower=0.0, upper=1.0, steps=8),
    RunningSum(lower=-1.0, upper=1.0, steps=4),
    RunningSum(lower=-1.0, upper=1.0, steps=4, strategy="tree"),
    Roc(lower=0.0, upper=1.0, thresholds=4, labels="public"),
    PrCurve(lower=0.0, upper=1.0, thresholds=4, labels="public", strategy="tree"),
    AveragePrecision(lower=0.0, upper=1.0, thresholds=4, strategy="hb"),
    Ecdf(lower=0.0, upper=1.0, thresholds=4, strategy="tree"),
    Ecdf(lower=0.0, upper=1.0, thresholds=4, strategy="hb"),
)
CELLS = encode_cells(["0", "1", "0.3", "0.7", "2", "3", "5", "-9", "inf", "", "a word"])
MOST_FREE = 3
"""Columns that are walked through all cells; others follow them."""


def on_the_sum(statistic: Statistic) -> bool:
    """Whether noise of a fixed size is added to the sum of all vectors. Kernels, choices, local
    randomizers and curators have enumerations of their own."""
    plan = planned(statistic).plan
    return type(plan) is not Points and isinstance(plan, NoisySum) and plan.needs is None


def told_of(statistic: Statistic, whole_party: bool = False) -> Adjacency:
    return Adjacency.of(planned(statistic).plan, statistic.columns, whole_party)


SUMS = [each for each in (*EVERY, *MORE) if on_the_sum(each)]


class Records:
    """All records whose cells are of `CELLS`, and how far apart they are in the noise's metric."""

    def __init__(self, statistic: Statistic) -> None:
        self.statistic = statistic
        free = list(dict.fromkeys(statistic.columns))
        cells = CELLS if len(free) < MOST_FREE else CELLS[[0, 1, 2, 8, 10]]
        walked = np.array(list(product(range(len(cells)), repeat=min(len(free), MOST_FREE))))
        self.columns: dict[str, Column] = {
            name: cells[walked[:, at % MOST_FREE]] for at, name in enumerate(free)
        }
        plan = planned(statistic).plan
        vectors = plan.encode(deal(self.columns, len(walked)))
        self.measured = np.array([signed(plan.measure(row)) for row in vectors], dtype=object)
        units = np.eye(plan.noises, dtype=np.uint64)
        self._noises = np.array([signed(plan.place(unit)) for unit in units]).T
        self._plain = self._noises.shape == units.shape and np.array_equal(self._noises, units)
        self._found: dict[tuple[int, ...], float] = {}

    def pairs(self, kept: tuple[str, ...]) -> Iterator[tuple[int, int]]:
        """Of records that agree in these columns."""
        alike: dict[bytes, list[int]] = {}
        for at in range(len(self.measured)):
            key = b"".join(self.columns[name][at].tobytes() for name in kept)
            alike.setdefault(key, []).append(at)
        for group in alike.values():
            yield from combinations(group, 2)

    def apart(self, one: int, two: int) -> float:
        moved = self.measured[one] - self.measured[two]
        if self._plain:
            return float(np.abs(moved).sum())
        key = tuple(moved.tolist())
        if key not in self._found:
            self._found[key] = self._least(moved.astype(np.float64))
        return self._found[key]

    def _least(self, moved: Column) -> float:
        """The least Σ|z| of noises z that are placed where `moved` is; infinite if none are."""
        both = np.hstack([self._noises, -self._noises])
        found = linprog(np.ones(both.shape[1]), A_eq=both, b_eq=moved)
        return np.inf if found.fun is None else float(found.fun)

    def farthest(self, kept: tuple[str, ...]) -> float:
        return max((self.apart(*pair) for pair in self.pairs(kept)), default=0.0)


@pytest.mark.parametrize("statistic", SUMS, ids=lambda each: each.name)
def test_what_is_promised_is_what_noise_is_for(statistic: Statistic) -> None:
    told, records = told_of(statistic), Records(statistic)
    assert set(told.protected) | set(told.public) == set(statistic.columns)
    assert not set(told.protected) & set(told.public)
    most = planned(statistic).plan.sensitivity.l1 * (1 + 1e-6)
    assert 0 < records.farthest(told.public) <= most
    public_alone = records.farthest(told.protected)
    assert bool(told.exactly) == (public_alone == np.inf)
    assert told.exactly in str(told)
    assert all(name in str(told) for name in told.public)


def test_every_statistic_is_enumerated_here_or_where_its_noise_is_not_on_a_sum() -> None:
    assert {each.name for each in EVERY} == set(statistic_names())
    rest = [each for each in EVERY if not on_the_sum(each)]
    assert not any(told_of(each).public for each in rest)
    assert len(SUMS) > 25


def test_a_report_of_a_public_label_says_so() -> None:
    """In the local model, code by code: reports of two scores are alike within ε, and the label is
    read off each."""
    auc = Auc(**UNIT, bins="4", labels="public")  # type: ignore[arg-type]
    told = Adjacency.of(form_of(auc).plan, auc.columns)
    assert (told.public, told.protected) == (("label",), ("score",))
    assert "the label of every record is released without noise" in str(told)


@pytest.mark.parametrize("statistic", MORE, ids=lambda each: each.name)
def test_a_whole_party_is_no_more_than_its_records_protected_columns(statistic: Statistic) -> None:
    """Two records of one party: all that it holds moves no further than twice the sensitivity while
    public columns stay, and the sentence says that they are not protected."""
    told, records = told_of(statistic, whole_party=True), Records(statistic)
    pairs = list(records.pairs(told.public))[::37]
    for one, two in zip(pairs, reversed(pairs), strict=True):
        moved = records.apart(*one) + records.apart(*two)
        assert moved <= 2 * planned(statistic).plan.sensitivity.l1 * (1 + 1e-6)
    query = a_query(
        statistic=statistic,
        epsilon=Fraction(1),
        records=8,
        records_per_unit=2,
        max_records_per_party=2,
    )
    said = promise_of(query).protects
    assert said == str(told)
    assert "all records of one party" in said
    if told.public:
        assert f"{told.public[0]} is taken as public" in said
        assert not said.startswith("all records of one party, replaced")
    assert query.noise_law is not None
    assert laplace_scale(query.noise_law) == 2 * query.plan.sensitivity.l1


def test_the_sentences() -> None:
    """As people read them."""
    running = RunningSum(lower=-1.0, upper=1.0, steps=4)
    assert str(told_of(running)) == (
        "value of one record, replaced by any other values; time is taken as public, and the "
        "number of records up to each time is released without noise"
    )
    assert told_of(dataclasses.replace(running, lower=0.0)).exactly == ""
    public = Roc(**UNIT, thresholds=4, labels="public")  # type: ignore[arg-type]
    assert str(told_of(public, whole_party=True)) == (
        "score of all records of one party, replaced by any other values; label is taken as "
        "public, and the number of positive records is released without noise"
    )
