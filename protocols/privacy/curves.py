"""Strategies that release the counts at N thresholds under noise, by name.

A strategy says which linear functions of the counts are measured (so shares can be measured too),
how many noises there are and how they add to the measured values, how far replacing one record
moves those noises, and how a curve is estimated from the noisy values. `CURVES` lists them all,
`STRATEGIES` those that curves of classes know.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy import hb
from tallyroom.protocols.privacy.hierarchy import (
    Hierarchy,
    best_branching,
    equal_noises,
    fewest_noises,
)
from tallyroom.protocols.privacy.noise_law import NoiseLaw, Sensitivity, noise_law_named
from tallyroom.protocols.privacy.smoothing import smooth
from tallyroom.protocols.privacy.smoothing.counts import smooth_counts
from tallyroom.protocols.privacy.splines import WEIGHT, Splines
from tallyroom.protocols.privacy.square_root import SquareRootFactor
from tallyroom.protocols.privacy.strategies import Strategy
from tallyroom.protocols.privacy.tree import Tree

Shares = NDArray[np.uint64]
Reals = NDArray[np.float64]


@dataclass(frozen=True)
class CurveStrategy(Strategy):
    """A strategy over counts at `points` thresholds. Curves can be smoothed in the norms that
    `smoothings` lists.

    Noise of a law that is calibrated to `sensitivity`, on each of `noises` integers, makes the
    release private.
    """

    points: int

    name: ClassVar[str]
    smoothings: ClassVar[tuple[str, ...]]

    @abstractmethod
    def estimate(self, released: Reals, records: int) -> Reals:
        """The distribution function at the thresholds."""

    @abstractmethod
    def smoothed(self, released: Reals, records: int, norm: int, box: bool, solver: str) -> Reals:
        """Like `estimate`, and non-decreasing. Raises `LocalError` if the solver is missing."""

    @abstractmethod
    def count_variances(self, noise_variance: float) -> Reals:
        """The variance of every estimated count."""

    def mean_variance(self, noise_variance: float) -> float:
        return float(self.count_variances(noise_variance).mean())

    @property
    @abstractmethod
    def noises_in_count(self) -> float:
        """How many noises of equal weight an estimated count contains (`equal_noises`): the
        smallest number over some counts."""

    @property
    @abstractmethod
    def noisy(self) -> str:
        """The values that noise is added to."""

    def words(self, law: NoiseLaw) -> str:
        return f"{self.name}: {law.words()} on {self.noisy}"

    @property
    def hierarchy(self) -> Hierarchy | None:
        """The hierarchy whose node counts are measured, if they are."""
        return None


@dataclass(frozen=True)
class HierarchyStrategy(CurveStrategy):
    """A b-ary hierarchy of counts, of least mean variance, with best linear unbiased estimates."""

    name: ClassVar[str] = "hierarchy"
    smoothings: ClassVar[tuple[str, ...]] = ("2",)

    @cached_property
    def shape(self) -> Hierarchy:
        return Hierarchy(self.points, best_branching(self.points))

    @property
    def hierarchy(self) -> Hierarchy | None:
        return self.shape

    @property
    def sensitivity(self) -> Sensitivity:
        return self.shape.sensitivity

    @property
    def noises(self) -> int:
        return self.shape.nodes

    @property
    def released(self) -> int:
        return self.shape.nodes

    def measure(self, counts: Shares) -> Shares:
        return self.shape.node_counts(counts)

    def place(self, noise: Shares) -> Shares:
        return noise

    def estimate(self, released: Reals, records: int) -> Reals:
        return self.shape.prefix_counts(released, records) / records

    def smoothed(self, released: Reals, records: int, norm: int, box: bool, solver: str) -> Reals:
        return smooth_counts(self.shape, released, records).curve / records

    def count_variances(self, noise_variance: float) -> Reals:
        return self.shape.prefix_variances(noise_variance)

    @cached_property
    def noises_in_count(self) -> float:
        last = self.points - 1  # that count is public
        return equal_noises(self.shape, last) if last else 1.0

    @property
    def noisy(self) -> str:
        shape = self.shape
        levels = "one level" if shape.height == 1 else f"{shape.height} levels"
        return f"{shape.nodes} counts of {levels}, {shape.branching}-ary"


@dataclass(frozen=True)
class HbStrategy(HierarchyStrategy):
    """The hierarchy with Qardaji, Yang and Li's branching: best for ranges rather than curves."""

    name: ClassVar[str] = "hb"

    @cached_property
    def shape(self) -> Hierarchy:
        return hb.line(self.points)


@dataclass(frozen=True)
class TreeStrategy(CurveStrategy):
    """S0's binary tree of noises (Theorem 1): counts are published, each with those of its path."""

    name: ClassVar[str] = "tree"
    smoothings: ClassVar[tuple[str, ...]] = ("1", "2")
    measures: ClassVar[bool] = False

    @property
    def shape(self) -> Tree:
        return Tree(self.points)

    @property
    def sensitivity(self) -> Sensitivity:
        """So many nodes explain a shift of an interval, each by one (S0, Theorem 1)."""
        return Sensitivity.of_counts(self.shape.levels + 1)

    @property
    def noises(self) -> int:
        return int(2 ** (self.shape.levels + 1)) - 1

    @property
    def released(self) -> int:
        return self.points

    def measure(self, counts: Shares) -> Shares:
        return counts

    def place(self, noise: Shares) -> Shares:
        return self.shape.whole_noise(noise)

    def estimate(self, released: Reals, records: int) -> Reals:
        return released / records

    def smoothed(self, released: Reals, records: int, norm: int, box: bool, solver: str) -> Reals:
        curve, levels = released / records, self.shape.levels
        if solver == "cvxopt":
            try:
                from tallyroom.protocols.privacy.smoothing.reference import smooth_by_cvxopt
            except ImportError:
                raise LocalError("--solver cvxopt needs the package cvxopt") from None
            return smooth_by_cvxopt(curve, p=norm, levels=levels, box=box).curve
        return smooth(curve, p=norm, levels=levels, box=box).curve

    def count_variances(self, noise_variance: float) -> Reals:
        return np.full(self.points, self.shape.count_variance(noise_variance))

    @property
    def noises_in_count(self) -> float:
        return self.shape.count_variance(1.0)

    @property
    def noisy(self) -> str:
        return f"the nodes of S0's binary tree of {self.shape.levels} levels"


@dataclass(frozen=True)
class SquareRootStrategy(CurveStrategy):
    """The square-root factorisation of counts up to a threshold: the better, the more thresholds
    there are, under noise that is calibrated to the L2 norm."""

    name: ClassVar[str] = "square-root"
    smoothings: ClassVar[tuple[str, ...]] = ()

    @cached_property
    def factor(self) -> SquareRootFactor:
        return SquareRootFactor(self.points)

    @cached_property
    def sensitivity(self) -> Sensitivity:
        return self.factor.of_record

    @property
    def noises(self) -> int:
        return self.points

    @property
    def released(self) -> int:
        return self.points

    def measure(self, counts: Shares) -> Shares:
        return self.factor.measure(counts)

    def place(self, noise: Shares) -> Shares:
        return noise

    def estimate(self, released: Reals, records: int) -> Reals:
        """The number of records is public: what the last count is off by tells of the others."""
        counts = self.factor.prefix_sums(released)
        curve: Reals = (counts + self.factor.with_total * (records - counts[-1])) / records
        return curve

    def smoothed(self, released: Reals, records: int, norm: int, box: bool, solver: str) -> Reals:
        raise LocalError(NOT_IN_A_NORM)

    def count_variances(self, noise_variance: float) -> Reals:
        factor = self.factor
        left = factor.variances - factor.with_total**2 * factor.variances[-1]
        left[-1] = 0.0
        variances: Reals = noise_variance * left
        return variances

    @cached_property
    def noises_in_count(self) -> float:
        last = self.points - 1  # that count is public
        return fewest_noises(lambda at: self.factor.weights(at, True), last) if last else 1.0

    def words(self, law: NoiseLaw) -> str:
        return f"{self.name}: {law.words(1 / self.factor.one)} on {self.noisy}"

    @property
    def noisy(self) -> str:
        return f"{self.points} weighted sums of counts"


@dataclass(frozen=True)
class SplineStrategy(CurveStrategy):
    """Counts of overlapping blocks, with best linear unbiased estimates."""

    name: ClassVar[str] = "splines"
    smoothings: ClassVar[tuple[str, ...]] = ()

    @cached_property
    def shape(self) -> Splines:
        return Splines(self.points)

    @property
    def sensitivity(self) -> Sensitivity:
        return self.shape.sensitivity

    @property
    def noises(self) -> int:
        return self.shape.released

    @property
    def released(self) -> int:
        return self.shape.released

    def measure(self, counts: Shares) -> Shares:
        return self.shape.measure(counts)

    def place(self, noise: Shares) -> Shares:
        return noise

    def estimate(self, released: Reals, records: int) -> Reals:
        return self.shape.prefix_counts(released, records) / records

    def smoothed(self, released: Reals, records: int, norm: int, box: bool, solver: str) -> Reals:
        raise LocalError(NOT_IN_A_NORM)

    def count_variances(self, noise_variance: float) -> Reals:
        return noise_variance * self.shape.variances

    @cached_property
    def noises_in_count(self) -> float:
        last = self.points - 1  # that count is public
        return fewest_noises(self.shape.weights, last) if last else 1.0

    def words(self, law: NoiseLaw) -> str:
        return f"{self.name}: {law.words(1 / WEIGHT)} on {self.noisy}"

    @property
    def noisy(self) -> str:
        high, blocks = len(self.shape.levels), self.shape.rows
        levels = "one level" if high == 1 else f"{high} levels"
        return f"{self.points} counts of cells" + (
            f" and {blocks} of blocks that overlap, on {levels}" if blocks else ""
        )


NOT_IN_A_NORM = (
    "curves by splines and by the square root are not smoothed in a norm: leave --smooth out, or "
    "take --strategy hierarchy"
)

STRATEGIES: Mapping[str, type[CurveStrategy]] = {
    kind.name: kind for kind in (HierarchyStrategy, TreeStrategy, HbStrategy)
}
CURVES: Mapping[str, type[CurveStrategy]] = {
    **STRATEGIES,
    SquareRootStrategy.name: SquareRootStrategy,
    SplineStrategy.name: SplineStrategy,
}
SPLINES_WITHIN = range(48, (1 << 16) + 1)
"""Numbers of thresholds at which splines have less variance than a hierarchy; beyond, it takes more
than seconds to know their variances."""
AUTO = "auto"


def curve_strategy(name: str, points: int, law: str, norm: str = "") -> CurveStrategy:
    """The strategy of that name. `auto` is the one of least mean variance under noise of `law`,
    among those that are smoothed in `norm` where one is given."""
    if name != AUTO:
        return CURVES[name](points)
    blocks = SplineStrategy if points in SPLINES_WITHIN and not norm else HierarchyStrategy
    if norm or not noise_law_named(law).of_l2:
        return blocks(points)
    return min((blocks(points), SquareRootStrategy(points)), key=_variance_under_l2)


def _variance_under_l2(strategy: CurveStrategy) -> float:
    return strategy.sensitivity.squared_l2 * strategy.mean_variance(1.0)
