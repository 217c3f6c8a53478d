"""The suite that every statistic must pass; other packages import it too.

    from tallyroom.extend import StatisticContract

    class TestMine(StatisticContract):
        statistic = Mine(lower=0.0, upper=1.0)

It needs pytest. A statistic whose records need columns beyond uniform ones brings `holdings`.
"""

import dataclasses
import json
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.cells import encode_cells
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import NoisySum, Plan, Points
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics import statistic_named
from tallyroom.protocols.statistics.bounded import known_bounds
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.estimates import plain, shape_of
from tallyroom.protocols.statistics.option import wire_name
from tallyroom.protocols.statistics.planned import AskedOf, planned

ANYTHING = (
    *("unknown", "", "?", "NA", "inf", "-inf", "nan", "1e308", "-1e308", "5e-324", "1e999", "0.0"),
    *(
        "-0",
        "1",
        "Yes",
        "YES",
        'a "quoted", one',
        "2020-02-30",
        "2020-02-29",
        "2020-02-29T12:30+02:00",
        "1_000",
        "1,5",
        "true",
        "-",
        "None",
        "9007199254740993",
        "\N{ARABIC-INDIC DIGIT ONE}",
    ),
)
"""Cells that a file may hold."""


def encodings(plan: Plan, holdings: Holdings) -> Iterator[NDArray[np.integer]]:
    """The encoding of each record, with one record per party: all that parties base their answers
    on."""
    if plan.pairs is not None:
        yield plan.measured(holdings)
        return
    if plan.measurement is not None:
        yield plan.measured(holdings)
    yield plan.encode(holdings)


def check_one_record(statistic: Statistic, before: Holdings, after: Holdings) -> None:
    """Checks two holdings with one record per party that differ in the first record: all others are
    encoded alike, and the sum, if noise is added to it, moves no further than the noise is scaled
    for."""
    plan = planned(statistic, Facts.of_one_server(before.rows)).plan
    old, new = (list(encodings(plan, each)) for each in (before, after))
    for one, two in zip(old, new, strict=True):
        assert (one[1:] == two[1:]).all(), f"{statistic.name}: other records are encoded otherwise"
    on_the_sum = isinstance(plan, NoisySum) and plan.noises == plan.released
    if plan.needs is not None or not on_the_sum:
        return
    moved = plan.measure((new[-1] - old[-1]).sum(axis=0, dtype=np.uint64))
    check_moved(plan, moved)


def check_moved(plan: Plan, moved: Vector) -> None:
    """What replacing one record moved is within the plan's sensitivity, in both norms."""
    exact = [abs(each) for each in signed(moved).tolist()]
    assert sum(exact) <= plan.sensitivity.l1
    assert sum(each**2 for each in exact) <= plan.sensitivity.squared_l2


class StatisticContract:
    """`statistic` must have its bounds."""

    statistic: ClassVar[Statistic]

    @property
    def plan(self) -> Plan:
        return self.planned.plan

    @property
    def planned(self) -> AskedOf:
        """The statistic with its plan for the records of `holdings`."""
        return planned(self.statistic, Facts.of_one_server(12, 12))

    def holdings(self, seed: int = 0, parties: int = 4, records: int = 12) -> Holdings:
        """Records within the bounds, dealt to parties that hold one at least."""
        generator = np.random.default_rng(seed)
        bounds = known_bounds(self.statistic)
        columns = {
            name: generator.uniform(*bounds.get(name, (0.0, 1.0)), records)
            for name in self.statistic.columns
        }
        starts = np.arange(parties) * (records // parties)
        return Holdings(np.arange(parties, dtype=np.uint32), starts, columns)

    def test_it_is_found_by_its_name(self) -> None:
        assert statistic_named(self.statistic.name) is type(self.statistic)

    def test_it_says_what_it_is_and_what_may_be_set(self) -> None:
        assert self.statistic.summary()
        for option in self.statistic.options():
            assert option.help
            assert not option.choices or option.default in option.choices

    def test_parameters_go_over_the_wire_and_back(self) -> None:
        kind = type(self.statistic)
        sent = json.loads(json.dumps(self.statistic.parameters(), allow_nan=False))
        again = kind.from_parameters(sent)
        assert again == self.statistic
        assert again.parameters() == self.statistic.parameters()
        assert planned(again).plan.identity == planned(self.statistic).plan.identity

    @pytest.mark.parametrize("value", [{}, [[]], "\0", None, 10**30, True])
    def test_parameters_of_another_type_are_refused(self, value: object) -> None:
        """Any value that comes over the wire is refused in one line, or taken as what it says."""
        for field in dataclasses.fields(self.statistic):
            parameters = {**self.statistic.parameters(), wire_name(field): value}
            try:
                built = type(self.statistic).from_parameters(parameters)
            except LocalError:
                continue
            found = getattr(built, field.name)
            expected = value
            if type(value) is int and type(found) is float:  # the nearest one
                expected = float(value)
            assert (type(found), found) == (type(expected), expected)

    def test_a_parameter_that_it_has_not_is_refused(self) -> None:
        with pytest.raises(LocalError):
            type(self.statistic).from_parameters({"no such parameter": 1})

    def test_vectors_have_the_stated_shape(self) -> None:
        holdings = self.holdings()
        vectors = self.plan.encode(holdings)
        assert vectors.shape == (len(holdings.ids), self.plan.length)
        assert vectors.dtype == np.uint64
        total = vectors.sum(axis=0, dtype=np.uint64)
        assert self.plan.measure(total).shape == (self.plan.released,)
        noise = np.zeros(self.plan.noises, dtype=np.uint64)
        assert self.plan.place(noise).shape == (self.plan.released,)

    def test_who_holds_a_record_changes_nothing(self) -> None:
        totals = [
            self.plan.encode(self.holdings(parties=parties)).sum(axis=0, dtype=np.uint64)
            for parties in (1, 2, 6)
        ]
        assert all((total == totals[0]).all() for total in totals)

    def test_measuring_is_linear_in_the_ring(self) -> None:
        generator = np.random.default_rng(7)
        one, two = generator.integers(0, 2**64, (2, self.plan.length), dtype=np.uint64)
        both = self.plan.measure(one) + self.plan.measure(two)
        assert (self.plan.measure(one + two) == both).all()

    def test_decoding_tells_what_noiseless_and_reference_do(self) -> None:
        """Within bounds, all three differ by the grid at most, and have one shape."""
        holdings = self.holdings()
        decoded = self.planned.decode(self.planned.total(holdings), holdings.rows, exact=True)
        assert plain(decoded) == plain(self.planned.noiseless(holdings))
        shape, truth = shape_of(decoded), shape_of(self.statistic.reference(holdings))
        assert type(shape) is type(truth)
        largest = shape.error(truth)["max"]
        assert largest <= self.plan.grid_step * holdings.rows * 1.001 + 1e-9
        json.dumps(plain(decoded), allow_nan=False)

    def test_deviations_are_of_the_values(self) -> None:
        holdings = self.holdings()
        values = self.plan.measure(self.planned.total(holdings))
        deviations = self.planned.deviations(values, 2.0, holdings.rows)
        assert deviations.shape == shape_of(self.statistic.reference(holdings)).values().shape

    def test_replacing_a_record_moves_no_more_than_the_sensitivity(self) -> None:
        """Checks the measured values where noise is added to them; a tree of noises has its own
        proof."""
        if self.plan.noises != self.plan.released:
            pytest.skip("its noise is not on what is measured: that has a proof of its own")
        for seed in range(20):
            holdings = self.holdings(seed)
            other = self.holdings(seed + 1000)
            columns = {name: values.copy() for name, values in holdings.columns.items()}
            for name, values in columns.items():
                values[0] = other.columns[name][0]
            replaced = dataclasses.replace(holdings, columns=columns)
            before, after = (
                self.plan.measure(self.plan.encode(each).sum(axis=0, dtype=np.uint64))
                for each in (holdings, replaced)
            )
            check_moved(self.plan, after - before)

    def test_a_record_that_is_anything_changes_itself_alone(self) -> None:
        """Whatever a record's cells hold, the party answers, other records are encoded as before,
        and the sum moves within the sensitivity."""
        before = self.holdings(parties=6, records=6)
        for text in ANYTHING:
            for name in self.statistic.columns:
                column = before.columns[name].copy()
                column[:1] = encode_cells([text])
                after = dataclasses.replace(before, columns={**before.columns, name: column})
                check_one_record(self.statistic, before, after)

    def test_what_a_record_is_adds_up_to_the_vectors(self) -> None:
        """Proofs, randomizers and keys rely on the measurement, so it must agree with the
        encoding."""
        measurement = self.plan.measurement
        if measurement is None or isinstance(self.plan, Points):
            pytest.skip("its records are nothing that is known")
        holdings = self.holdings()
        measured = self.plan.measured(holdings)
        total = self.plan.encode(holdings).sum(axis=0, dtype=np.uint64)
        if measurement.cells is None:
            assert int(measured.sum()) == int(signed(total)[0])
            return
        up_to = np.cumsum(np.bincount(measured, minlength=measurement.cells)).astype(np.uint64)
        assert (measurement.of_counts(up_to) == total).all()
