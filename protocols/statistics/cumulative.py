"""Statistics of counts at thresholds: how many values are at most τ_1 < … < τ_N.

Thresholds come from the public range alone: a grid that ended at the data's minimum and maximum, as
S0 writes it, would not be private. A comparison key has one size for any number of them.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local import AUTO, RANDOMIZERS
from tallyroom.protocols.names import look_up
from tallyroom.protocols.plans.contract import NoisySum, Plan
from tallyroom.protocols.plans.encodings import UpToThresholds
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.thresholds import ThresholdGrid
from tallyroom.protocols.privacy.curves import MECHANISMS, CurveMechanism
from tallyroom.protocols.privacy.isotonic import monotone
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import BoundedColumn
from tallyroom.protocols.statistics.option import option
from tallyroom.protocols.statistics.release import ANYWHERE, Noise, Release

MAX_THRESHOLDS = 1 << 18
SPACINGS = ("linear", "log")
SMOOTHINGS = ("monotone", "none", "1", "2")
SOLVERS = ("interior-point", "cvxopt")


@dataclass(frozen=True)
class Cumulative(BoundedColumn):
    """Counts at `thresholds` points of the range; the last point is its upper end.

    `mechanism` names one of `protocols.privacy.curves`. `smooth` makes the curve non-decreasing
    again and spends nothing: `monotone` is the nearest such curve within [0, 1], which no run's
    error grows by; `1` and `2` are S0's Eq. 3 in that norm, within [0, 1] if `box`.
    """

    thresholds: int = option(64, "Points of the curve.")
    spacing: str = option("linear", "How the points are spaced.", choices=SPACINGS)
    mechanism: str = option(
        "hierarchy", "Which mechanism adds the noise.", choices=tuple(MECHANISMS)
    )
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

    mechanisms: ClassVar[tuple[str, ...]] = tuple(MECHANISMS)

    def __post_init__(self) -> None:
        super().__post_init__()
        for kind, known in (
            ("spacing", SPACINGS),
            ("mechanism", self.mechanisms),
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
        norms = MECHANISMS[self.mechanism].smoothings
        if self.smooth not in ("monotone", "none", *norms):
            raise LocalError(
                f"the {self.mechanism} is smoothed in the {norms[0]}-norm: --smooth {norms[0]}, "
                "or --mechanism tree"
            )

    @cached_property
    def grid(self) -> ThresholdGrid:
        return ThresholdGrid(*self.bounds, self.thresholds, self.spacing)

    @property
    def x(self) -> Column:
        """τ_1 < … < τ_N, as doubles that values are compared with."""
        return self.grid.values

    @cached_property
    def strategy(self) -> CurveMechanism:
        return MECHANISMS[self.mechanism](self.thresholds)

    @property
    def encoding(self) -> UpToThresholds:
        return UpToThresholds(self.value, self.grid, self.strategy.hierarchy, self.randomizer)

    def plan(self, facts: Facts) -> Plan:
        """The same for all that is read off such a curve, so one release serves them all."""
        return NoisySum(self.encoding, self.strategy, reusable=True)

    def curve(self, release: Release) -> Column:
        """The distribution function at the thresholds, from what was released."""
        if release.noise is None:
            return release.integers / release.records
        if self.smooth == "none":
            return self.unsmoothed(release)
        if self.smooth == "monotone":
            return monotone(self.unsmoothed(release))
        values, norm = release.integers.astype(np.float64), int(self.smooth)
        return self.strategy.smoothed(values, release.records, norm, self.box, self.solver)

    def unsmoothed(self, release: Release) -> Column:
        """The unbiased curve, whose errors are those of the noise."""
        return self.strategy.estimate(release.integers.astype(np.float64), release.records)

    def band(self, release: Release, noise: Noise) -> Interval:
        """The interval of the unbiased curve at each threshold."""
        errors: Column = np.sqrt(self.strategy.count_variances(noise.variance)) / release.records
        width = noise.width(self.strategy.noises_in_count)
        return Interval.around(self.unsmoothed(release), errors, width, ANYWHERE)

    def true_curve(self, holdings: Holdings) -> Column:
        """On the raw records: those above the range are at most no threshold."""
        values = np.sort(self.raw(holdings))
        return np.searchsorted(values, self.x, side="right") / holdings.rows
