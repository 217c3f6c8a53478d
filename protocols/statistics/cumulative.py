"""Statistics of counts at thresholds: how many values are at most τ_1 < … < τ_N.

Thresholds come from the public range alone: a grid that ended at the data's minimum and maximum, as
S0 writes it, would not be private. The size of a comparison key does not depend on their number.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local import AUTO, RANDOMIZERS
from tallyroom.protocols.offers import Offer
from tallyroom.protocols.plans.contract import NoisySum, Plan
from tallyroom.protocols.plans.encodings import UpToThresholds
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.groups import Groups, UpToByGroup
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.thresholds import ThresholdGrid, quantiles
from tallyroom.protocols.privacy.curves import (
    CURVES,
    NOT_IN_A_NORM,
    STRATEGIES,
    CurveStrategy,
    HierarchyStrategy,
    curve_strategy,
)
from tallyroom.protocols.privacy.group_curves import GroupCurves
from tallyroom.protocols.privacy.isotonic import monotone
from tallyroom.protocols.privacy.mechanisms import LAPLACE
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.statistics.bounded import BoundedColumn
from tallyroom.protocols.statistics.contract import ReadInParts
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Curve, Estimate
from tallyroom.protocols.statistics.option import option
from tallyroom.protocols.statistics.release import ANYWHERE, Noise, Release

MAX_THRESHOLDS = 1 << 18
SPACINGS = ("linear", "log")
SMOOTHINGS = ("monotone", "none", "1", "2")
SOLVERS = ("interior-point", "cvxopt")


def strategy_option(help: str, choices: tuple[str, ...] = tuple(STRATEGIES)) -> Any:
    """The option `--strategy`, which was called `--mechanism` before."""
    return option("hierarchy", help, choices=choices, former="mechanism")


def curve_option(help: str, *others: str) -> Any:
    """The same where one curve is released: `auto` goes by the law of the noise."""
    return option(AUTO, help, choices=(AUTO, *CURVES, *others), former="mechanism")


@dataclass(frozen=True)
class Cumulative(BoundedColumn):
    """Counts at `thresholds` points of the range; the last point is its upper end.

    `strategy` names one of `protocols.privacy.curves`. `smooth` makes the curve non-decreasing
    again and spends nothing: `monotone` is the nearest such curve within [0, 1], which no run's
    error grows by; `1` and `2` are S0's Eq. 3 in that norm, within [0, 1] if `box`.
    """

    thresholds: int = option(64, "Points of the curve.")
    spacing: str = option("linear", "How the points are spaced.", choices=SPACINGS)
    strategy: str = curve_option("Which counts get noise; auto takes the least variance.")
    smooth: str = option(
        "monotone",
        "How the curve is made non-decreasing again: the nearest such, or by a norm of the noise.",
        choices=SMOOTHINGS,
    )
    box: bool = option(True, "Keep a curve smoothed in a norm within [0, 1].")
    solver: str = option(
        "interior-point", "Which solver computes the smoothing in a norm.", choices=SOLVERS
    )
    randomizer: str = option(
        AUTO,
        "In the local model: what randomizes reports; auto takes the least variance.",
        choices=(AUTO, *RANDOMIZERS),
    )

    strategies: ClassVar[tuple[str, ...]] = (AUTO, *CURVES)

    def __post_init__(self) -> None:
        super().__post_init__()
        for kind, known in (
            ("spacing", SPACINGS),
            ("strategy", self.strategies),
            ("smooth", SMOOTHINGS),
            ("solver", SOLVERS),
            ("randomizer", (AUTO, *RANDOMIZERS)),
        ):
            look_up(kind, getattr(self, kind), dict.fromkeys(known))
        if not 1 <= self.thresholds <= MAX_THRESHOLDS:
            raise LocalError(
                f"--thresholds must be between 1 and {MAX_THRESHOLDS}, not {self.thresholds}"
            )
        self._check_smoothing()
        if self.spacing == "log" and self.lower is not None and self.lower <= 0:
            raise LocalError(f"a logarithmic grid needs --lower above 0, not {self.lower:g}")

    def _check_smoothing(self) -> None:
        kind = HierarchyStrategy if self.strategy == AUTO else CURVES[self.strategy]
        if not (norms := kind.smoothings) and self.smooth in ("1", "2"):
            raise LocalError(NOT_IN_A_NORM)
        if self.smooth not in ("monotone", "none", *norms):
            raise LocalError(
                f"the {kind.name} is smoothed in the {norms[0]}-norm: --smooth {norms[0]}, "
                "or --strategy tree"
            )

    @cached_property
    def grid(self) -> ThresholdGrid:
        return ThresholdGrid(*self.bounds, self.thresholds, self.spacing)

    @property
    def x(self) -> Column:
        """τ_1 < … < τ_N, as doubles that values are compared with."""
        return self.grid.values

    @cached_property
    def curve_strategy(self) -> CurveStrategy:
        """The strategy under Laplace noise."""
        return curve_strategy(self.strategy, self.thresholds, LAPLACE, self._norm)

    @property
    def _norm(self) -> str:
        return self.smooth if self.smooth in ("1", "2") else ""

    def strategy_by(self, facts: Facts) -> CurveStrategy:
        """The strategy under noise of the law that is asked for. Local randomizers know no other
        than a hierarchy."""
        if Offer.RANDOMIZE in facts.offers:
            name = HierarchyStrategy.name if self.strategy == AUTO else self.strategy
            return CURVES[name](self.thresholds)
        return curve_strategy(self.strategy, self.thresholds, facts.law, self._norm)

    def strategy_of(self, release: Release) -> CurveStrategy:
        """The strategy by which something was released."""
        found = release.plan.strategy if isinstance(release.plan, NoisySum) else None
        return found if isinstance(found, CurveStrategy) else self.curve_strategy

    @property
    def encoding(self) -> UpToThresholds:
        return self.encoding_for(self.curve_strategy)

    def encoding_for(self, strategy: CurveStrategy) -> UpToThresholds:
        return UpToThresholds(self.value, self.grid, strategy.hierarchy, self.randomizer)

    def plan(self, facts: Facts) -> Plan:
        """One plan for all statistics that are read off such a curve, so one release serves them
        all."""
        strategy = self.strategy_by(facts)
        return NoisySum(self.encoding_for(strategy), strategy, reusable=True)

    def curve(self, release: Release) -> Column:
        """The distribution function at the thresholds, from what was released; NaN of a group that
        has no records."""
        if release.noise is None:
            nobody = np.full(self.thresholds, np.nan)
            return release.integers / release.records if release.records else nobody
        if self.smooth == "none":
            return self.unsmoothed(release)
        if self.smooth == "monotone":
            return monotone(self.unsmoothed(release))
        values, norm = release.integers.astype(np.float64), int(self.smooth)
        strategy = self.strategy_of(release)
        return strategy.smoothed(values, release.records, norm, self.box, self.solver)

    def unsmoothed(self, release: Release) -> Column:
        """The unbiased curve, whose errors are those of the noise."""
        values = release.integers.astype(np.float64)
        return self.strategy_of(release).estimate(values, release.records)

    def band(self, release: Release, noise: Noise) -> Interval:
        """The interval of the unbiased curve at each threshold."""
        errors = self.errors_of_counts(release, noise) / release.records
        width = noise.width(self.strategy_of(release).noises_in_count)
        return Interval.around(self.unsmoothed(release), errors, width, ANYWHERE)

    def errors_of_counts(self, release: Release, noise: Noise) -> Column:
        """Standard deviations of the count at each threshold, less what an error of the number of
        records adds to it at that share of them."""
        strategy = self.strategy_of(release)
        variances = strategy.count_variances(noise.variance)
        if release.size_variance and (shape := strategy.hierarchy) is not None:
            off = shape.total_shares - monotone(self.unsmoothed(release))
            variances = variances + off**2 * release.size_variance * noise.variance
        errors: Column = np.sqrt(variances)
        return errors

    def true_curve(self, holdings: Holdings) -> Column:
        """The curve of the raw records; values above the range are at most none of the
        thresholds."""
        values = np.sort(self.raw(holdings))
        return np.searchsorted(values, self.x, side="right") / holdings.rows


@dataclass(frozen=True)
class CurveOfGroups(ReadInParts, Cumulative):
    """Curves that are read alike of all records and of a group of them."""

    def curves(self, groups: Groups) -> GroupCurves:
        """The strategy for all of them; `auto` is a hierarchy, whatever the law of the noise."""
        name = HierarchyStrategy.name if self.strategy == AUTO else self.strategy
        return GroupCurves(self.thresholds, groups.count, name)

    def plan_of(self, facts: Facts, groups: Groups) -> NoisySum:
        curves, plan = self.curves(groups), self.plan(facts)
        assert isinstance(plan, NoisySum)
        assert isinstance(plan.encoding, UpToThresholds)
        one = replace(plan.encoding, shape=curves.curve.hierarchy)
        return replace(plan, encoding=UpToByGroup(one, groups), strategy=curves)

    def parts_of(self, release: Release, groups: Groups) -> list[Release]:
        parts = exact_parts if release.exact else noisy_parts
        return parts(release, self.curves(groups))


def exact_parts(release: Release, curves: GroupCurves) -> list[Release]:
    """What is about each group, of exact counts in cells 1..i of the whole row."""
    rows = release.values[:-1].reshape(curves.groups, curves.points)
    before = np.append(np.uint64(0), rows[:-1, -1])
    return [
        replace(release, values=row - base, records=int(row[-1] - base))
        for row, base in zip(rows, before, strict=True)
    ]


def noisy_parts(release: Release, curves: GroupCurves) -> list[Release]:
    """What is about each group, of a release with noise."""
    assert isinstance(release.plan, NoisySum)
    plan = replace(release.plan, strategy=curves.curve)
    sizes, variance = curves.sizes(release.integers.astype(np.float64), release.records)
    parts = (release.part(*curves.curve_part(group)) for group in range(curves.groups))
    return [
        replace(part, plan=plan, records=size, size_variance=variance)
        for part, size in zip(parts, sizes, strict=True)
    ]


# --- quantiles ---


def at_quantiles(wanted: tuple[float, ...], values: list[float]) -> Estimate:
    """The value at each quantile: one number, or a curve where several are wanted."""
    return values[0] if len(values) == 1 else Curve(list(wanted), values)


@dataclass(frozen=True)
class OfQuantiles(BoundedColumn):
    """Quantiles of a column. Name it before the base that says how they are found."""

    quantile: tuple[float, ...] = option((0.5,), "Which quantile; repeat it for more.")

    style: ClassVar[Style] = Style("marks", "quantile", "value")

    def __post_init__(self) -> None:
        super().__post_init__()
        for quantile in self.quantile:
            if not 0 <= quantile <= 1:
                raise LocalError(f"a quantile is between 0 and 1, not {quantile:g}")
        if not self.quantile:
            raise LocalError("say which quantile: --quantile 0.5")

    def reference(self, holdings: Holdings) -> Estimate:
        """The quantiles of the raw records; a threshold lies up to one step above."""
        return at_quantiles(self.quantile, quantiles(self.raw(holdings), self.quantile))
