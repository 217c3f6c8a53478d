"""Whether groups have the same mean: t-tests and the analysis of variance, with p-values that
include the noise.

A value v within public bounds becomes z = (v − middle)/half. Of each group a record adds its count,
z and z², the count and z² at half the weight of z: what a mean errs by comes from the noise in Σz
first. Records of other groups add nothing.

**Sensitivity**, in units of z. A record that changes its group leaves (½, z, z²/2) and enters the
same: ½ + 1 + ½ each at most, 4 together in the L1 norm and 3 in the square of the L2 norm. Within a
group z moves by 2 at most, 4 in the square, and z² then not at all: |Δz| + |Δz²|/2 ≤ 2.

**The null** is drawn from released values alone: groups as large and as spread as those released,
with the mean of all, whose sample means and variances are those of normal samples, and noise of the
law that was drawn. The statistic counts the noise in the means as part of their errors.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.categories import parse_categories
from tallyroom.protocols.cells import places
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Encoding, NoisySum, PlainSum, Plan
from tallyroom.protocols.plans.encodings import sum_by_party
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.scaled import ScaledColumn
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import BoundedColumn
from tallyroom.protocols.statistics.contract import ReadsNames
from tallyroom.protocols.statistics.drawing import PRIVATE, TRUTH, Beside
from tallyroom.protocols.statistics.estimates import Cells, Estimate, Heads, Shape, plain
from tallyroom.protocols.statistics.linear_regression import MAX_RECORDS, STEPS
from tallyroom.protocols.statistics.noise_draws import drawn_noise, generator_of
from tallyroom.protocols.statistics.option import TESTS, option, role
from tallyroom.protocols.statistics.release import ANYWHERE, Answer, Noise, Release

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HALF = STEPS // 2
DRAWS = 2000
MAX_GROUPS = 256
LEAST_RECORDS = 2.0


@dataclass(frozen=True)
class GroupMoments(Encoding):
    """Of each group the count, Σz and Σz², on a grid of `STEPS` in 1; of all records together
    Σz and Σz² alone, where no names are given."""

    scaled: ScaledColumn
    group: str = ""
    names: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.scaled.name, self.group) if self.names else (self.scaled.name,)

    @property
    def length(self) -> int:
        return 3 * len(self.names) or 2

    @property
    def sensitivity(self) -> Sensitivity:
        """See the module's documentation."""
        return Sensitivity((4 if self.names else 2) * STEPS, 4 * STEPS**2)

    def encode(self, holdings: Holdings) -> Vector:
        z = np.rint(self.scaled.of(holdings) * STEPS).astype(np.int64)
        square = (z**2 + STEPS) // (2 * STEPS)
        if not self.names:
            return sum_by_party(np.stack([z, square], axis=1).view(np.uint64), holdings)
        group = places(holdings.column(self.group), self.names)
        rows = np.zeros((holdings.rows, len(self.names) + 1, 3), dtype=np.int64)
        at = np.arange(holdings.rows)
        rows[at, group] = np.stack([np.full_like(z, HALF), z, square], axis=1)
        flat = rows[:, :-1].reshape(holdings.rows, -1)
        return sum_by_party(np.ascontiguousarray(flat).view(np.uint64), holdings)

    @property
    def measurement(self) -> None:
        return None

    @property
    def grid_step(self) -> float:
        return self.scaled.half / STEPS

    @property
    def grid_words(self) -> str:
        return f"values are rounded to multiples of {self.grid_step:.3g}"


@dataclass(frozen=True)
class ComparedGroups:
    """Sizes, means and variances of groups; the last axis is that of the groups. `errors` are the
    variances that noise adds to the means."""

    sizes: Column
    means: Column
    variances: Column
    errors: Column

    @classmethod
    def of(cls, sums: Column, spread: float) -> "ComparedGroups":
        """From (…, groups, 3) counts, Σz and Σz²/2, whose noise has the deviation `spread` in units
        of z. A group has two records at least, and a variance that noise alone would show."""
        sizes = np.maximum(2 * sums[..., 0], LEAST_RECORDS if spread else 1e-9)
        means = np.clip(sums[..., 1] / sizes, -1.0, 1.0)
        squares = 2 * sums[..., 2] / sizes - means**2
        least = 2 * spread / sizes
        variances = np.maximum(squares, least) * sizes / np.maximum(sizes - 1, 1.0)
        return cls(sizes, means, variances, (spread / sizes) ** 2 * (1 + 4 * means**2))

    def drawn(self, mean: float, generator: np.random.Generator) -> Column:
        """Sums of groups of this size and spread that have one mean."""
        freedom, shape = np.maximum(self.sizes - 1, 1.0), (DRAWS, len(self.sizes))
        means = mean + generator.normal(size=shape) * np.sqrt(self.variances / self.sizes)
        squares = (
            self.variances
            * generator.chisquare(freedom, size=shape)
            / freedom
            * (np.maximum(self.sizes - 1, 0.0))
        )
        halves = (squares + self.sizes * means**2) / 2
        return np.stack([np.broadcast_to(self.sizes / 2, shape), self.sizes * means, halves], -1)


@dataclass(frozen=True)
class MeanTest(Shape):
    """A statistic by its letter, with its degrees of freedom and p-value; the `effects` that it is
    about; and the groups' sizes, means and deviations."""

    letter: str
    statistic: float
    freedom: tuple[float, ...]
    p_value: float
    effects: dict[str, float]
    names: tuple[str, ...]
    sizes: tuple[float, ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]

    def values(self) -> Column:
        return np.array(list(self.effects.values()))

    def as_json(self) -> object:
        return plain(
            {
                self.letter: self.statistic,
                "freedom": list(self.freedom),
                "p_value": self.p_value,
                **self.effects,
                "groups": {
                    name: {"records": size, "mean": mean, "deviation": deviation}
                    for name, size, mean, deviation in self._rows
                },
            }
        )

    @property
    def _rows(self) -> list[tuple[str, float, float, float]]:
        return list(zip(self.names, self.sizes, self.means, self.deviations, strict=True))

    def table(self) -> tuple[Heads, Cells]:
        return ["group", "records", "mean", "deviation"], [list(row) for row in self._rows]

    def in_rows(self, numbers: Column) -> dict[str, Column]:
        return {"mean": numbers} if len(numbers) == len(self.names) > 1 else {}

    def draw(self, axes: "Axes", truth: Estimate | None, beside: Beside) -> None:
        """The effects, one below the other, with their intervals."""
        at, values = np.arange(len(self.effects)), self.values()
        if isinstance(truth, MeanTest):
            axes.plot(truth.values(), at, "|", ms=22, mew=2.4, color=TRUTH, label="truth")
        bars = beside.bars(values)
        words = beside.label if bars is None else f"private, {beside.bar_words}"
        axes.errorbar(values, at, xerr=bars, fmt="o", capsize=4, color=PRIVATE, label=words)
        axes.set_yticks(at, list(self.effects))
        axes.set_ylim(len(at) - 0.4, -0.6)
        axes.plot([], [], " ", label=f"p {told_p(self.p_value)}")

    def __str__(self) -> str:
        freedom = ", ".join(f"{each:.5g}" for each in self.freedom)
        effects = ", ".join(f"{name} {value:.6g}" for name, value in self.effects.items())
        return (
            f"{effects}; {self.letter}({freedom}) = {self.statistic:.4g}, p {told_p(self.p_value)}"
        )


def told_p(value: float) -> str:
    """A p-value for people."""
    return f"= {value:.3g}" if value >= 1e-3 or math.isnan(value) else "< 0.001"


@dataclass(frozen=True)
class MeansTest(ReadsNames, BoundedColumn):
    """A test of the means of groups."""

    group: str = role("group", "The column of groups.")
    groups: str = option("", "The names of the groups, as A,B,C; public.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups:
            _ = self.names
            if self.group == self.value:
                raise LocalError(f"column {self.value!r} cannot be both --value and --group")

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The groups that are compared. Raises `LocalError` for too few or too many."""

    @abstractmethod
    def statistic(self, groups: ComparedGroups) -> Column:
        """Large where groups differ; of many draws at once."""

    @abstractmethod
    def told(self, groups: ComparedGroups, p_value: float) -> MeanTest:
        """The test of groups in units of the values; without a p-value (NaN) it is that without
        noise."""

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.value, self.group) if self.names else (self.value,)

    @property
    def valued(self) -> tuple[str, ...]:
        return (self.value,)

    @property
    def named_columns(self) -> tuple[str, ...]:
        return (self.group,) if self.names else ()

    @cached_property
    def scaled(self) -> ScaledColumn:
        return ScaledColumn(self.value, *self.bounds)

    def plan(self, facts: Facts) -> Plan:
        if facts.records > MAX_RECORDS:
            raise LocalError(f"{self.name} takes up to {MAX_RECORDS} records, not {facts.records}")
        moments = GroupMoments(self.scaled, self.group if self.names else "", self.names)
        summed = "counts, values within [-1, 1] and their squares, by group"
        strategy = PlainSum.of(moments, unit=1 / STEPS, summed=summed)
        return NoisySum(moments, strategy, reusable=True)

    def read(self, release: Release) -> Answer:
        sums = release.integers / STEPS
        if not self.names:
            sums = np.append(release.records / 2, sums)
        sums = sums.reshape(-1, 3)
        if (noise := release.noise) is None:
            groups = ComparedGroups.of(sums, 0.0)
            test = self.told(self.in_units(groups), math.nan)
            sampling = self.errors(self.in_units(groups), False)
            population = Interval.sampled(test.values(), None, sampling, ANYWHERE)
            return Answer(test, None, release.records, foretold=True, population=population)
        spread = math.sqrt(noise.variance) / STEPS
        groups = ComparedGroups.of(sums, spread)
        drawn = groups.drawn(self.common(groups), generator_of(release.values))
        drawn = drawn + self._noise(noise, drawn.shape, generator_of(release.values[::-1]))
        null = self.statistic(ComparedGroups.of(drawn, spread))
        found = float(self.statistic(groups))
        p_value = float((1 + np.count_nonzero(null >= found)) / (1 + DRAWS))
        test = self.told(self.in_units(groups), p_value)
        values, units = test.values(), self.in_units(groups)
        interval = Interval.around(values, self.errors(units, True), noise.width(), ANYWHERE)
        population = Interval.sampled(values, interval, self.errors(units, False), ANYWHERE)
        return Answer(test, interval, release.records, population=population)

    def _noise(
        self, noise: Noise, shape: tuple[int, ...], generator: np.random.Generator
    ) -> Column:
        if self.names:
            return drawn_noise(noise, shape, generator, last=2) / STEPS
        found = np.zeros(shape)
        found[..., 0, 1:] = drawn_noise(noise, (shape[0], 2), generator) / STEPS
        return found

    def common(self, groups: ComparedGroups) -> float:
        """The mean of all groups under the null."""
        return float((groups.sizes @ groups.means) / groups.sizes.sum())

    def in_units(self, groups: ComparedGroups) -> ComparedGroups:
        """The groups in units of the values."""
        middle, half = self.scaled.middle, self.scaled.half
        return ComparedGroups(
            groups.sizes,
            middle + half * groups.means,
            half**2 * groups.variances,
            half**2 * groups.errors,
        )

    @abstractmethod
    def errors(self, groups: ComparedGroups, of_noise: bool) -> Column:
        """The standard errors of the effects, by the noise or by sampling."""

    def samples(self, holdings: Holdings) -> list[Column]:
        """The raw values of each group."""
        values = self.raw(holdings)
        if not self.names:
            return [values]
        group = places(holdings.column(self.group), self.names)
        return [values[group == each] for each in range(len(self.names))]

    def reference(self, holdings: Holdings) -> Estimate:
        """The test of the raw values."""
        found = [each if len(each) else np.array([np.nan]) for each in self.samples(holdings)]
        sizes = np.array([float(len(each)) for each in found])
        means = np.array([each.mean() for each in found])
        variances = np.array(
            [each.var(ddof=1) if len(each) > 1 else np.nan for each in found], dtype=np.float64
        )
        return self.told(ComparedGroups(sizes, means, variances, np.zeros(len(found))), math.nan)

    def _rows(self, groups: ComparedGroups) -> tuple[tuple[float, ...], ...]:
        columns = (groups.sizes, groups.means, np.sqrt(groups.variances))
        return tuple(tuple(each.tolist()) for each in columns)


@dataclass(frozen=True)
class TTest(MeansTest):
    """Whether a mean is a number, or two groups have the same: Student's and Welch's t-test."""

    mean: float = option(0.0, "The mean that one sample is compared with.")
    equal: bool = option(False, "Take the variances of both groups to be equal: Student's test.")

    name: ClassVar[str] = "t-test"
    topic: ClassVar[str] = TESTS

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite(self.mean):
            raise LocalError(f"--mean is a finite number, not {self.mean}")
        if self.groups and self.mean:
            raise LocalError("--mean is for one sample: leave it or --groups out")

    @property
    def names(self) -> tuple[str, ...]:
        if not self.groups:
            return ()
        names = parse_categories(self.groups)
        if len(names) != 2:
            raise LocalError(f"a t-test compares two groups, not {len(names)}: see anova")
        return names

    def common(self, groups: ComparedGroups) -> float:
        if self.names:
            return super().common(groups)
        return float(np.clip((self.mean - self.scaled.middle) / self.scaled.half, -1.0, 1.0))

    def difference(self, groups: ComparedGroups, mean: float) -> Column:
        means = groups.means
        found: Column = means[..., 0] - (means[..., 1] if self.names else mean)
        return found

    def squared_error(self, groups: ComparedGroups) -> Column:
        sizes, variances = groups.sizes, groups.variances
        if self.equal and self.names:
            freedom = np.maximum(sizes - 1, 0.0)
            pooled = (freedom * variances).sum(axis=-1) / np.maximum(freedom.sum(axis=-1), 1e-9)
            variances = np.broadcast_to(pooled[..., None], sizes.shape)
        found: Column = (variances / sizes).sum(axis=-1)
        return found

    def statistic(self, groups: ComparedGroups) -> Column:
        whole = self.squared_error(groups) + groups.errors.sum(axis=-1)
        mean = (self.mean - self.scaled.middle) / self.scaled.half
        found: Column = np.abs(self.difference(groups, mean)) / np.sqrt(whole)
        return found

    def errors(self, groups: ComparedGroups, of_noise: bool) -> Column:
        squared = groups.errors.sum() if of_noise else self.squared_error(groups)
        found: Column = np.sqrt(np.atleast_1d(squared))
        return found

    def freedom(self, groups: ComparedGroups) -> float:
        own = np.maximum(groups.sizes - 1, 0.0)
        if self.equal or not self.names:
            return float(own.sum())
        parts = groups.variances / groups.sizes
        with np.errstate(invalid="ignore", divide="ignore"):
            return float(parts.sum() ** 2 / (parts**2 / own).sum())

    def told(self, groups: ComparedGroups, p_value: float) -> MeanTest:
        from scipy.stats import t as student  # slow to load

        difference = float(self.difference(groups, self.mean))
        whole = float(self.squared_error(groups) + groups.errors.sum())
        with np.errstate(invalid="ignore", divide="ignore"):
            statistic = float(np.float64(difference) / np.sqrt(whole))
        freedom = self.freedom(groups)
        if math.isnan(p_value) and freedom > 0:
            p_value = float(2 * student.sf(abs(statistic), freedom))
        effect = "difference" if self.names or self.mean else "mean"
        names = self.names or (self.value,)
        rows = self._rows(groups)
        return MeanTest("t", statistic, (freedom,), p_value, {effect: difference}, names, *rows)


@dataclass(frozen=True)
class Anova(MeansTest):
    """Whether several groups have the same mean: the analysis of variance."""

    name: ClassVar[str] = "anova"
    topic: ClassVar[str] = TESTS

    @property
    def names(self) -> tuple[str, ...]:
        if not self.groups:
            raise LocalError("anova needs the public names of the groups: --groups A,B,C")
        names = parse_categories(self.groups)
        if not 2 <= len(names) <= MAX_GROUPS:
            raise LocalError(f"anova compares 2 to {MAX_GROUPS} groups, not {len(names)}")
        return names

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.value, self.group)

    @property
    def named_columns(self) -> tuple[str, ...]:
        return (self.group,)

    def statistic(self, groups: ComparedGroups) -> Column:
        """F, where noise adds to the variance within."""
        sizes, means = groups.sizes, groups.means
        known = sizes > 0
        whole = sizes.sum(axis=-1)
        centre = (sizes * means).sum(axis=-1) / whole
        between = (sizes * (means - centre[..., None]) ** 2).sum(axis=-1)
        freedom = np.maximum(sizes - 1, 0.0)
        within = (freedom * np.where(known, groups.variances, 0.0)).sum(axis=-1)
        own = within / np.maximum(whole - len(self.names), 1e-9)
        noisy = (sizes * groups.errors).mean(axis=-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            found: Column = between / (len(self.names) - 1) / (own + noisy)
        return found

    def errors(self, groups: ComparedGroups, of_noise: bool) -> Column:
        return np.sqrt(groups.errors if of_noise else groups.variances / groups.sizes)

    def told(self, groups: ComparedGroups, p_value: float) -> MeanTest:
        from scipy.stats import f  # slow to load

        statistic = float(self.statistic(groups))
        freedom = float(len(self.names) - 1), float(groups.sizes.sum() - len(self.names))
        if math.isnan(p_value) and freedom[1] > 0:
            p_value = float(f.sf(statistic, *freedom))
        effects = dict(zip(self.names, groups.means.tolist(), strict=True))
        return MeanTest("F", statistic, freedom, p_value, effects, self.names, *self._rows(groups))
