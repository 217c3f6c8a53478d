"""Statistics of counts at thresholds: how many values are at most τ_1 < … < τ_N.

Thresholds come from the public range alone: a grid that ended at the data's minimum and maximum, as
S0 writes it, would not be private. A comparison key has one size for any number of them.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from protocols.algebra.ring import Vector, signed
from protocols.errors import LocalError
from protocols.names import look_up
from protocols.privacy.hierarchy import Hierarchy, best_branching
from protocols.privacy.smoothing import smooth
from protocols.privacy.smoothing.counts import smooth_counts
from protocols.privacy.tree import Tree
from protocols.records import Column, Holdings
from protocols.statistics.contract import Statistic
from protocols.statistics.measurement import Measurement, Step
from protocols.statistics.option import option
from protocols.statistics.thresholds import threshold_values

MAX_THRESHOLDS = 1 << 18
SPACINGS = ("linear", "log")
MECHANISMS = ("hierarchy", "tree")
SMOOTHINGS = ("none", "1", "2")
SOLVERS = ("interior-point", "cvxopt")


@dataclass(frozen=True)
class Cumulative(Statistic):
    """Counts at `thresholds` points of the range; the last point is its upper end.

    `mechanism` is `hierarchy`, a b-ary hierarchy of counts with best linear unbiased estimates, or
    `tree`, that of S0's Theorem 1. `smooth` makes the curve non-decreasing again (S0 Eq. 3) in
    that norm, within [0, 1] if `box`; it spends nothing.
    """

    thresholds: int = option(64, "Points of the curve.")
    spacing: str = option("linear", "How the points are spaced.", choices=SPACINGS)
    mechanism: str = option("hierarchy", "Where noise is added.", choices=MECHANISMS)
    smooth: str = option(
        "none", "Make the curve non-decreasing again, in this norm.", choices=SMOOTHINGS
    )
    box: bool = option(True, "Keep a smoothed curve within [0, 1].")
    solver: str = option("interior-point", "What computes the smoothing.", choices=SOLVERS)

    def __post_init__(self) -> None:
        super().__post_init__()
        for kind, known in (
            ("spacing", SPACINGS),
            ("mechanism", MECHANISMS),
            ("smooth", SMOOTHINGS),
            ("solver", SOLVERS),
        ):
            look_up(kind, getattr(self, kind), dict.fromkeys(known))
        if not 1 <= self.thresholds <= MAX_THRESHOLDS:
            raise LocalError(
                f"--thresholds must be between 1 and {MAX_THRESHOLDS}, not {self.thresholds}"
            )
        if self.mechanism == "hierarchy" and self.smooth == "1":
            raise LocalError(
                "the hierarchy is smoothed in the 2-norm: --smooth 2, or --mechanism tree"
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
        return Step(self.thresholds)

    def measured(self, holdings: Holdings) -> NDArray[np.int64]:
        return self.cells(holdings.column(self.value)).astype(np.int64)

    def cells(self, values: Column) -> NDArray[np.intp]:
        """For each value the first threshold that it is at most, by its index."""
        return np.searchsorted(self.x, self.clip(values), side="left")

    def release_key(self) -> str:
        return repr((*self.bounds, self.value, self.thresholds, self.spacing, self.mechanism))

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
        parties = len(holdings.ids)
        party = np.repeat(np.arange(parties), holdings.counts)
        counts = np.bincount(party * self.length + cells, minlength=parties * self.length)
        return np.cumsum(counts.reshape(parties, self.length), axis=1).astype(np.uint64)

    # --- noise ---

    @property
    def hierarchy(self) -> Hierarchy:
        return Hierarchy(self.thresholds, best_branching(self.thresholds))

    @property
    def tree(self) -> Tree:
        return Tree(self.thresholds)

    @property
    def measures(self) -> bool:
        return self.mechanism == "hierarchy"

    @property
    def sensitivity(self) -> int:
        """Of the node counts (hierarchy), or of the node noises that explain a change (tree)."""
        return self.hierarchy.sensitivity if self.measures else self.tree.levels + 1

    @property
    def noises(self) -> int:
        return self.hierarchy.nodes if self.measures else 2 ** (self.tree.levels + 1) - 1

    @property
    def released(self) -> int:
        return self.hierarchy.nodes if self.measures else self.length

    def measure(self, total: Vector) -> Vector:
        return self.hierarchy.node_counts(total) if self.measures else total

    def place(self, noise: Vector) -> Vector:
        return noise if self.measures else self.tree.whole_noise(noise)

    def deviations(self, noise_variance: float, records: int) -> Column:
        if self.measures:
            variances = self.hierarchy.prefix_variances(noise_variance)
        else:
            variances = np.full(self.length, self.tree.count_variance(noise_variance))
        deviations: Column = np.sqrt(variances) / records
        return deviations

    def mechanism_words(self, scale: float) -> str:
        if self.measures:
            shape = self.hierarchy
            where = f"{shape.nodes} counts of {shape.height} levels, {shape.branching}-ary"
        else:
            where = f"the nodes of S0's binary tree of {self.tree.levels} levels"
        return f"{self.mechanism}: discrete Laplace of scale {scale:.6g} on {where}"

    # --- the curve ---

    def curve(self, released: Vector, records: int, exact: bool) -> Column:
        """The distribution function at the thresholds, from what was released."""
        values = signed(released).astype(np.float64)
        if exact:
            return values / records
        if self.measures:
            if self.smooth == "2":
                return smooth_counts(self.hierarchy, values, records).curve / records
            return self.hierarchy.prefix_counts(values, records) / records
        curve = values / records
        return curve if self.smooth == "none" else self._smoothed(curve)

    def _smoothed(self, curve: Column) -> Column:
        p = int(self.smooth)
        if self.solver == "cvxopt":
            try:
                from protocols.privacy.smoothing.reference import smooth_by_cvxopt
            except ImportError:
                raise LocalError("--solver cvxopt needs the package cvxopt") from None
            return smooth_by_cvxopt(curve, p=p, levels=self.tree.levels, box=self.box).curve
        return smooth(curve, p=p, levels=self.tree.levels, box=self.box).curve

    def true_curve(self, holdings: Holdings) -> Column:
        """On the raw records: those above the range are at most no threshold."""
        values = np.sort(self.raw(holdings))
        return np.searchsorted(values, self.x, side="right") / holdings.rows
