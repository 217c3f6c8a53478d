"""Statistics of counts at thresholds: how many values are at most τ_1 < … < τ_N.

Thresholds come from the public range alone: a grid that ended at the data's minimum and maximum, as
S0 writes it, would not be private. A comparison key has one size for any number of them.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local import AUTO, RANDOMIZERS
from tallyroom.protocols.names import look_up
from tallyroom.protocols.plans.measurement import Measurement, Step
from tallyroom.protocols.plans.thresholds import threshold_values
from tallyroom.protocols.privacy.curves import MECHANISMS, CurveMechanism
from tallyroom.protocols.privacy.isotonic import monotone
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import BoundedColumn
from tallyroom.protocols.statistics.legacy import Legacy
from tallyroom.protocols.statistics.option import option

MAX_THRESHOLDS = 1 << 18
SPACINGS = ("linear", "log")
SMOOTHINGS = ("monotone", "none", "1", "2")
SOLVERS = ("interior-point", "cvxopt")


@dataclass(frozen=True)
class Cumulative(Legacy, BoundedColumn):
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

    def __post_init__(self) -> None:
        super().__post_init__()
        for kind, known in (
            ("spacing", SPACINGS),
            ("mechanism", MECHANISMS),
            ("smooth", SMOOTHINGS),
            ("solver", SOLVERS),
            ("randomizer", (AUTO, *RANDOMIZERS)),
        ):
            look_up(kind, getattr(self, kind), dict.fromkeys(known))
        if not 1 <= self.thresholds <= MAX_THRESHOLDS:
            raise LocalError(
                f"--thresholds must be between 1 and {MAX_THRESHOLDS}, not {self.thresholds}"
            )
        norms = MECHANISMS[self.mechanism].smoothings
        if self.smooth not in ("monotone", "none", *norms):
            raise LocalError(
                f"the {self.mechanism} is smoothed in the {norms[0]}-norm: --smooth {norms[0]}, "
                "or --mechanism tree"
            )
        if self.spacing == "log" and self.lower is not None and self.lower <= 0:
            raise LocalError(f"a logarithmic grid needs --lower above 0, not {self.lower:g}")

    # --- the thresholds ---

    @cached_property
    def x(self) -> Column:
        """τ_1 < … < τ_N, as doubles that values are compared with."""
        return threshold_values(*self.bounds, self.thresholds, self.spacing)

    @property
    def measurement(self) -> Measurement:
        """A key knows the value's place among the thresholds, so x ≤ τ_i is decided between the two
        doubles, whatever the domain."""
        return Step(self.thresholds, self.curve_mechanism.hierarchy, self.randomizer)

    def measured(self, holdings: Holdings) -> NDArray[np.int64]:
        return self.cells(holdings.column(self.value)).astype(np.int64)

    def cells(self, values: Column) -> NDArray[np.intp]:
        """For each value the first threshold that it is at most, by its index."""
        return np.searchsorted(self.x, self.clip(values), side="left")

    def release_key(self) -> str:
        points = (*self.bounds, self.value, self.thresholds, self.spacing)
        return repr((*points, self.mechanism, self.randomizer))

    @property
    def reuse_key(self) -> str | None:
        return self.release_key()

    # --- pointwise ---

    @property
    def length(self) -> int:
        return self.thresholds

    def encode(self, holdings: Holdings) -> Vector:
        """Each party's own counts at the thresholds: S0 §4.1, for any `sum` aggregator."""
        cells = self.cells(holdings.column(self.value))
        return np.cumsum(holdings.count_by_party(cells, self.length), axis=1)

    # --- noise ---

    @cached_property
    def curve_mechanism(self) -> CurveMechanism:
        return MECHANISMS[self.mechanism](self.thresholds)

    @property
    def measures(self) -> bool:
        return self.curve_mechanism.measures

    @property
    def sensitivity(self) -> int:
        return self.curve_mechanism.sensitivity

    @property
    def noises(self) -> int:
        return self.curve_mechanism.noises

    @property
    def released(self) -> int:
        return self.curve_mechanism.released

    def measure(self, total: Vector) -> Vector:
        return self.curve_mechanism.measure(total)

    def place(self, noise: Vector) -> Vector:
        return self.curve_mechanism.place(noise)

    def deviations(self, noise_variance: float, records: int) -> Column:
        variances = self.curve_mechanism.count_variances(noise_variance)
        deviations: Column = np.sqrt(variances) / records
        return deviations

    def noises_in_value(self, records: int) -> float:
        return self.curve_mechanism.noises_in_count

    def mechanism_words(self, scale: float) -> str:
        where = self.curve_mechanism.words
        return f"{self.mechanism}: discrete Laplace of scale {scale:.6g} on {where}"

    # --- the curve ---

    def curve(self, released: Vector, records: int, exact: bool) -> Column:
        """The distribution function at the thresholds, from what was released."""
        values = signed(released).astype(np.float64)
        if exact:
            return values / records
        mechanism = self.curve_mechanism
        if self.smooth == "none":
            return mechanism.estimate(values, records)
        if self.smooth == "monotone":
            return monotone(mechanism.estimate(values, records))
        return mechanism.smoothed(values, records, int(self.smooth), self.box, self.solver)

    def unsmoothed(self, released: Vector, records: int) -> Column:
        """The unbiased curve, whose errors are those of the noise."""
        return self.curve_mechanism.estimate(signed(released).astype(np.float64), records)

    def band(
        self, released: Vector, records: int, noise_variance: float, width: float
    ) -> tuple[Column, Column]:
        """Ends of the interval of the curve at each threshold."""
        curve = self.unsmoothed(released, records)
        half = width * Cumulative.deviations(self, noise_variance, records)
        return curve - half, curve + half

    def true_curve(self, holdings: Holdings) -> Column:
        """On the raw records: those above the range are at most no threshold."""
        values = np.sort(self.raw(holdings))
        return np.searchsorted(values, self.x, side="right") / holdings.rows
