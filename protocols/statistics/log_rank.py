"""Whether groups survive alike: the log-rank test, with a p-value that includes the noise.

A record counts in one cell: by its group, by whether the event happened, and by time. Groups' names
are public; records of other groups count apart, in no group. So the release is one histogram, and
any number of groups costs no more noise than one.

U holds, for each group, its events less those expected if all at risk had them alike. Without noise
UᵀV⁻¹U is χ² with a degree of freedom less than there are groups, V the hypergeometric covariance of
U (Mantel 1966). Noise adds to V; what it adds, and the law of the statistic, is found by drawing
groups that survive alike, as large as those released, with noise of the law that was drawn.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tallyroom.protocols.categories import parse_categories
from tallyroom.protocols.cells import places
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import NoisySum, PlainSum, Plan
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import finite_column
from tallyroom.protocols.statistics.contract import ReadsNames
from tallyroom.protocols.statistics.drawing import SEVERAL, Beside, Style
from tallyroom.protocols.statistics.estimates import Cells, Estimate, Heads, Shape, plain
from tallyroom.protocols.statistics.event_times import EventTimesByGroup
from tallyroom.protocols.statistics.life_table import (
    ACTUARIAL,
    PRODUCT_LIMIT,
    LifeTable,
    raw_life_table,
)
from tallyroom.protocols.statistics.noise_draws import drawn_noise, generator_of
from tallyroom.protocols.statistics.option import TESTS, option, role
from tallyroom.protocols.statistics.release import Answer, Noise, Release
from tallyroom.protocols.statistics.survival import OfEventTimes, points_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWS = 1000
MAX_GROUPS = 64
LEAST_POINTS = 3
INCLUDED = "the p-value includes the noise"


@dataclass(frozen=True)
class SurvivalTest(Shape):
    """The log-rank statistic with its degrees of freedom and p-value, and each group's observed and
    expected events and survival."""

    statistic: float
    freedom: int
    p_value: float
    names: tuple[str, ...]
    observed: Column
    expected: Column
    tables: tuple[LifeTable, ...]

    def values(self) -> Column:
        return np.array([self.statistic, self.p_value])

    def as_json(self) -> object:
        return plain(
            {
                "statistic": self.statistic,
                "freedom": self.freedom,
                "p_value": self.p_value,
                "groups": {
                    name: {"observed": float(seen), "expected": float(due)}
                    for name, seen, due in zip(
                        self.names, self.observed, self.expected, strict=True
                    )
                },
            }
        )

    def table(self) -> tuple[Heads, Cells]:
        rows: Cells = [
            [name, float(each.at_risk[0]), float(seen), float(due)]
            for name, each, seen, due in zip(
                self.names, self.tables, self.observed, self.expected, strict=True
            )
        ]
        return ["group", "records", "observed", "expected"], rows

    def in_rows(self, numbers: Column) -> dict[str, Column]:
        return {}

    def draw(self, axes: "Axes", truth: Estimate | None, beside: Beside) -> None:
        """The survival of each group, and its truth dashed."""
        for place, (name, table) in enumerate(zip(self.names, self.tables, strict=True)):
            colour = SEVERAL[place % len(SEVERAL)]
            _line(axes, table, colour, 1.6, "-", name)
            if isinstance(truth, SurvivalTest) and truth.names == self.names:
                _line(axes, truth.tables[place], colour, 1.0, "--", f"{name}, truth")
        axes.set_xlim(self.tables[0].start, self.tables[0].ends[-1])
        axes.set_ylim(0.0, 1.02)
        axes.plot([], [], " ", label=f"p {_p(self.p_value)}")
        axes.set_xlabel(beside.style.across)
        axes.set_ylabel(beside.style.up)

    def __str__(self) -> str:
        return f"χ² {self.statistic:.4g} with {self.freedom} df, p {_p(self.p_value)}"


def _p(value: float) -> str:
    return f"= {value:.3g}" if value >= 1e-4 or math.isnan(value) else "< 0.0001"


def _line(
    axes: "Axes", table: LifeTable, colour: str, width: float, dashes: str, label: str
) -> None:
    x, y = np.append(table.start, table.ends), np.append(1.0, table.survival)
    if table.method == PRODUCT_LIMIT:
        axes.step(x, y, where="post", color=colour, lw=width, ls=dashes, label=label)
    else:
        axes.plot(x, y, color=colour, lw=width, ls=dashes, label=label, marker="o", ms=3)


@dataclass(frozen=True)
class Contrast:
    """U and V of groups' events, from counts of shape (…, groups, 2, cells): the censored, then the
    events, of each; the last cell holds those followed beyond."""

    cells: Column
    method: str

    @cached_property
    def events(self) -> Column:
        found: Column = self.cells[..., 1, :-1]
        return found

    @cached_property
    def exposed(self) -> Column:
        """How many of each group are at risk in each interval."""
        held = self.cells.sum(axis=-2)
        at_risk = np.cumsum(held[..., ::-1], axis=-1)[..., ::-1][..., :-1]
        half = 0.5 if self.method == ACTUARIAL else 0.0
        found: Column = np.maximum(at_risk - half * self.cells[..., 0, :-1], 0.0)
        return found

    @cached_property
    def shares(self) -> Column:
        """Each group's share of those at risk; equal shares of nobody."""
        whole = self.exposed.sum(axis=-2, keepdims=True)
        groups = self.exposed.shape[-2]
        even = np.full_like(self.exposed, 1 / groups)
        found: Column = np.divide(self.exposed, whole, out=even, where=whole > 0)
        return found

    @property
    def expected(self) -> Column:
        """The events of each group if all at risk had them alike, by interval."""
        found: Column = self.shares * self.events.sum(axis=-2, keepdims=True)
        return found

    @property
    def under_the_null(self) -> Column:
        """Cells of groups of the same sizes, censored in the same shares, whose events in each
        interval are the same share of those at risk; of one draw alone."""
        found = np.zeros_like(self.cells)
        held = np.maximum(self.cells, 0.0)
        left = held.sum(axis=(1, 2))
        gone = np.cumsum(held.sum(axis=1)[:, ::-1], axis=1)[:, ::-1]
        half = 0.5 if self.method == ACTUARIAL else 0.0
        for at in range(held.shape[-1] - 1):
            share = np.divide(
                held[:, 0, at], gone[:, at], out=np.zeros_like(left), where=gone[:, at] > 0
            )
            exposed = left * (1 - half * share)
            rate = held[:, 1, at].sum() / max(float(exposed.sum()), 1e-9)
            found[:, 1, at] = np.minimum(rate, 1.0) * exposed
            found[:, 0, at] = np.minimum(share * left, left - found[:, 1, at])
            left = left - found[:, :, at].sum(axis=1)
        found[:, 0, -1] = left
        return found

    @property
    def excess(self) -> Column:
        """U, of all groups but the last, whose is what the others' leave."""
        found: Column = (self.events - self.expected).sum(axis=-1)[..., :-1]
        return found

    @property
    def covariance(self) -> Column:
        """V, of all groups but the last."""
        whole, events = self.exposed.sum(axis=-2), np.maximum(self.events.sum(axis=-2), 0.0)
        spare = np.maximum(whole - events, 0.0)
        ties = np.divide(spare, whole - 1, out=np.zeros_like(whole), where=whole > 1)
        weight, shares = events * ties, self.shares[:-1]
        found: Column = np.diag(shares @ weight) - (shares * weight) @ shares.T
        return found


@dataclass(frozen=True)
class LogRank(ReadsNames, OfEventTimes):
    """Whether two groups or more survive alike: the log-rank test."""

    group: str = role("group", "The column of groups.")
    groups: str = option("", "The names of the groups, as A,B,C; public.")

    name: ClassVar[str] = "log-rank"
    topic: ClassVar[str] = TESTS
    style: ClassVar[Style] = Style("falls", "time", "share that survives")

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.columns)) < 3:
            raise LocalError("--time, --event and --group are three columns")
        if self.groups:
            _ = self.names

    @property
    def names(self) -> tuple[str, ...]:
        if not self.groups:
            raise LocalError("log-rank needs the public names of the groups: --groups A,B")
        names = parse_categories(self.groups)
        if not 2 <= len(names) <= MAX_GROUPS:
            raise LocalError(f"log-rank compares 2 to {MAX_GROUPS} groups, not {len(names)}")
        return names

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.time, self.event, self.group)

    @property
    def named_columns(self) -> tuple[str, ...]:
        return (self.group,)

    def plan(self, facts: Facts) -> Plan:
        """Fewer points than for a curve: events of all intervals add up, and so does noise."""
        points = points_for(facts.records, facts.record_epsilon)
        chosen = points if facts.epsilon is None else max(points // 3, LEAST_POINTS)
        grid = self.grid(self.thresholds or chosen)
        counts = EventTimesByGroup(self.time, self.event, self.mark, grid, self.group, self.names)
        return NoisySum(counts, PlainSum.of(counts), reusable=True)

    def read(self, release: Release) -> Answer:
        plan = release.plan
        assert isinstance(plan, NoisySum)
        assert isinstance(plan.encoding, EventTimesByGroup)
        grid, released = plan.encoding.grid, release.integers.astype(np.float64)
        released = released + (release.records - released.sum()) / len(released)
        cells = released[:-1].reshape(len(self.names), 2, grid.cells)
        noise, variance = release.noise, 0.0
        if noise is not None:
            variance = float(np.mean(noise.deviations(len(released)) ** 2))
        tables = tuple(
            LifeTable(
                grid.lower,
                grid.x,
                np.maximum(each[1, :-1], 0.0),
                np.maximum(each[0, :-1], 0.0),
                max(float(each[:, -1].sum()), 0.0),
                self.method,
                variance,
            )
            for each in cells
        )
        contrast = Contrast(cells, self.method)
        if noise is None:
            test = exact_test(contrast, self.names, tables)
            return Answer(test, None, release.records, foretold=True)
        statistic, p_value = self._with_noise(contrast, release, noise)
        degrees = len(self.names) - 1
        test = test_of(contrast, self.names, tables, statistic, p_value, degrees)
        return release.without_errors(test, INCLUDED)

    def _with_noise(
        self, contrast: Contrast, release: Release, noise: Noise
    ) -> tuple[float, float]:
        """The statistic, and the share of draws from the null whose statistic is as large."""
        generator = generator_of(release.values)
        alike = contrast.under_the_null
        drawn = drawn_noise(noise, (DRAWS, alike.size + 1), generator)
        drawn -= drawn.mean(axis=1, keepdims=True)  # the number of records is exact
        drawn = drawn[:, :-1].reshape(DRAWS, *alike.shape)
        of_noise = Contrast(alike + drawn, self.method).excess
        groups = len(self.names) - 1
        sampling = Contrast(alike, self.method).covariance
        varied = of_noise + generator.multivariate_normal(
            np.zeros(groups), sampling, size=DRAWS, method="eigh"
        )
        whole = np.linalg.pinv(np.atleast_2d(np.cov(varied.T)))
        null = np.einsum("di,ij,dj->d", varied, whole, varied)
        statistic = float(contrast.excess @ whole @ contrast.excess)
        return statistic, float((1 + np.count_nonzero(null >= statistic)) / (1 + DRAWS))

    def reference(self, holdings: Holdings) -> Estimate:
        """The test on all raw times."""
        times, happened = finite_column(holdings, self.time), self.happened(holdings)
        group = places(holdings.column(self.group), self.names)
        ends = np.unique(times)
        counted = np.zeros((len(self.names), 2, len(ends) + 1))
        inside = group < len(self.names)
        at = (group[inside], happened[inside].astype(int), np.searchsorted(ends, times[inside]))
        np.add.at(counted, at, 1.0)
        empty = LifeTable(0.0, ends[:1], np.zeros(1), np.zeros(1), 0.0, PRODUCT_LIMIT)
        tables = tuple(
            raw_life_table(times[group == each], happened[group == each])
            if (group == each).any()
            else empty
            for each in range(len(self.names))
        )
        return exact_test(Contrast(counted, PRODUCT_LIMIT), self.names, tables)


def exact_test(
    contrast: Contrast, names: tuple[str, ...], tables: tuple[LifeTable, ...]
) -> SurvivalTest:
    """The test without noise; NaN where no two groups are at risk together, or no event happens."""
    from scipy.stats import chi2  # slow to load, and needed without noise alone

    covariance = contrast.covariance
    freedom = int(np.linalg.matrix_rank(covariance, hermitian=True))
    if not freedom:
        return test_of(contrast, names, tables, math.nan, math.nan, len(names) - 1)
    excess = contrast.excess
    statistic = float(excess @ np.linalg.pinv(covariance, hermitian=True) @ excess)
    return test_of(contrast, names, tables, statistic, float(chi2.sf(statistic, freedom)), freedom)


def test_of(
    contrast: Contrast,
    names: tuple[str, ...],
    tables: tuple[LifeTable, ...],
    statistic: float,
    p_value: float,
    freedom: int,
) -> SurvivalTest:
    observed, expected = contrast.events.sum(axis=-1), contrast.expected.sum(axis=-1)
    return SurvivalTest(statistic, freedom, p_value, names, observed, expected, tables)
