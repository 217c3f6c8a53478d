"""The statistics of pairs by name: each the mean of a kernel, on the grid that its columns need."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.kernels import bundled as kernels
from tallyroom.protocols.kernels.contract import Grid, Integers, Kernel
from tallyroom.protocols.kernels.expression import Expression
from tallyroom.protocols.kernels.ordered_grid import OrderedGrid
from tallyroom.protocols.kernels.registry import KernelKind, kernel_named
from tallyroom.protocols.local.every_level import ASKED
from tallyroom.protocols.names import look_up
from tallyroom.protocols.offers import Offer, Offers
from tallyroom.protocols.privacy.curves import MECHANISMS
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.bounded import OneColumn
from tallyroom.protocols.statistics.contract import Bounds, Statistic
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.labels import is_positive, positives_of
from tallyroom.protocols.statistics.option import option, role
from tallyroom.protocols.statistics.pairwise import Pairs

LABELS = ("private", "public")
AUC_METHODS = ("pairs", "curve", "smooth")

MOST_TIED = 0.05
"""The share of distinct values that may be tied by rounding where there are no bounds. Few are tied
by chance; of time stamps, nearly all."""


@dataclass(frozen=True)
class Gini(Pairs, OneColumn):
    """Gini's mean difference of two values: the coefficient is that over twice the mean."""

    name: ClassVar[str] = "gini"

    def build_kernel(self) -> Kernel:
        return kernels.Gini([self.grid])


@dataclass(frozen=True)
class Variance(Gini):
    """The sample variance, as the mean of (x − y)²/2."""

    name: ClassVar[str] = "variance"

    def build_kernel(self) -> Kernel:
        return kernels.Variance([self.grid])


@dataclass(frozen=True)
class Ordered(Pairs):
    """A statistic of order and equality alone: without bounds, all numbers are in range."""

    @property
    def bounded(self) -> tuple[str, ...]:
        return ()

    @property
    def bounds(self) -> tuple[float, float]:
        if self.lower is None or self.upper is None:
            return -math.inf, math.inf
        return self.lower, self.upper

    @property
    def grid(self) -> Grid:
        if self.lower is None or self.upper is None:
            return OrderedGrid()
        return Grid.reals(self.lower, self.upper, self.bits)

    @property
    def grid_step(self) -> float:
        """Without bounds it is relative to each value, 2^-24 of it."""
        return 0.0 if isinstance(self.grid, OrderedGrid) else self.grid.step

    @property
    def grid_words(self) -> str:
        if isinstance(self.grid, OrderedGrid):
            return "values are rounded to 24 significant bits; bounds would round to their range"
        return super().grid_words

    def tied_by_rounding(self, holdings: Holdings) -> int:
        tied = 0
        for name, grid in zip(self.columns, self.kernel.grids, strict=True):
            column = np.clip(holdings.column(name), *self.bounds)
            tied += len(np.unique(column)) - len(np.unique(grid.encode(column)))
        return tied

    def check_resolution(self, holdings: Holdings) -> None:
        """Bounds that were given are as coarse as somebody wants them; without, nobody chose."""
        if not isinstance(self.grid, OrderedGrid):
            return
        distinct = sum(len(np.unique(holdings.column(name))) for name in self.columns)
        if (tied := self.tied_by_rounding(holdings)) > distinct * MOST_TIED:
            raise LocalError(
                f"{tied} of {distinct} distinct values cannot be told apart in 24 significant "
                "bits: give --lower and --upper, and they are compared within that range"
            )


@dataclass(frozen=True)
class CollisionEntropy(Ordered, OneColumn):
    """Rényi's entropy of order 2: −ln of the probability that two records are equal."""

    name: ClassVar[str] = "collision-entropy"
    linear: ClassVar[bool] = False

    def build_kernel(self) -> Kernel:
        return kernels.CollisionEntropy([self.grid])


@dataclass(frozen=True)
class KendallTau(Ordered):
    """Kendall's rank correlation of two columns: tau-a, or with `--tau b` tau-b, made for ties."""

    x: str = role("x", "The first column.")
    y: str = role("y", "The second column.")
    tau: str = option("a", "tau-a, or tau-b, which is made for ties.", choices=("a", "b"))

    name: ClassVar[str] = "kendall-tau"
    span: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tau not in ("a", "b"):
            raise LocalError(f"--tau is a or b, not {self.tau!r}")

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.x, self.y)

    def build_kernel(self) -> Kernel:
        kind = kernels.KendallTau if self.tau == "a" else kernels.KendallTauB
        return kind([self.grid, self.grid])


@dataclass(frozen=True)
class Auc(Ordered):
    """Area under the ROC curve: how often a positive record has the larger score; ties count ½."""

    score: str = role("score", "The column of scores.")
    label: str = role("label", "The column of labels, 0 or 1.")
    positive: float | None = option(None, "The label of positive records, if it is not 1.")
    method: str = option(
        "pairs", "In pairs, from the ROC curve, or by smooth sensitivity.", choices=AUC_METHODS
    )
    thresholds: int = option(
        0,
        "How many points the curve has; 0 chooses by the number of records and ε. A curator uses "
        "at least 1024.",
    )
    mechanism: str = option(
        "hierarchy", "Which mechanism adds the noise to it.", choices=tuple(MECHANISMS)
    )
    labels: str = option(
        "private", "In the local model: whether labels are hidden too.", choices=LABELS
    )
    levels: str = option(
        "auto",
        "In the local model: whether a report tells of one level of scores, which takes no δ, or "
        "of all, within --delta; auto takes what errs less.",
        choices=tuple(ASKED),
    )

    name: ClassVar[str] = "auc"
    span: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        look_up("method", self.method, dict.fromkeys(AUC_METHODS))
        look_up("mechanism", self.mechanism, dict.fromkeys(MECHANISMS))
        look_up("labels", self.labels, dict.fromkeys(LABELS))
        look_up("levels", self.levels, ASKED)
        if self.positive is not None and not math.isfinite(self.positive):
            raise LocalError(f"--positive is a finite number, not {self.positive}")

    def asked_of(self, offers: Offers) -> Statistic:
        """In pairs as it is, or in the local model from hierarchical histograms (S1 §4); by other
        methods as a statistic of both classes' counts."""
        if self.method == "pairs" and Offer.RANDOMIZE in offers:
            from tallyroom.protocols.statistics.local_forms import LocalAuc, encoded

            return LocalAuc(self.name, encoded(self))
        if self.method == "pairs":
            return self
        from tallyroom.protocols.statistics.areas import AucOfCounts

        return AucOfCounts(
            lower=self.lower,
            upper=self.upper,
            score=(self.score,),
            label=self.label,
            positive=self.positive,
            thresholds=self.thresholds,
            labels=self.labels,
            mechanism=self.mechanism,
            method=self.method,
        )

    def planned_by(self, pilot: Holdings, bounds: Mapping[str, Bounds]) -> Self:
        if self.method != "pairs":
            raise LocalError(f"--pilot plans pairs: leave it out with --method {self.method}")
        return super().planned_by(pilot, bounds)

    @property
    def bounded(self) -> tuple[str, ...]:
        """Curves need public bounds of the scores; pairs compare any numbers."""
        return super().bounded if self.method == "pairs" else self.valued

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.score, self.label)

    def build_kernel(self) -> Kernel:
        return kernels.Auc([self.grid, Grid.integers(0, 1)])

    def records_of(self, holdings: Holdings) -> Integers:
        return super().records_of(self._labelled(holdings))

    def reference(self, holdings: Holdings) -> Estimate:
        positives_of(holdings.column(self.label), self.label, self.positive)  # refuses what is none
        return super().reference(self._labelled(holdings))

    def tied_by_rounding(self, holdings: Holdings) -> int:
        return super().tied_by_rounding(self._labelled(holdings))

    def _labelled(self, holdings: Holdings) -> Holdings:
        """With 1 for the label of positive records and 0 for all others, as a kernel takes them."""
        label = is_positive(holdings.column(self.label), self.positive).astype(np.float64)
        return replace(holdings, columns=holdings.columns | {self.label: label})

    @property
    def valued(self) -> tuple[str, ...]:
        return (self.score,)


@dataclass(frozen=True)
class Pairwise(Pairs, OneColumn):
    """The mean of a kernel over pairs of records; the kernel is given by name or as a formula."""

    kernel_name: str = option("gini", "The kernel's name, or its formula.", flag="--kernel")
    x: str = role("x", "The column that the kernel calls x.", bounded=True)
    y: str = role("y", "The column that the kernel calls y.", bounded=True)
    score: str = role("score", "The column that the kernel calls score.", bounded=True)
    label: str = role("label", "The column that the kernel calls label, 0 or 1.")

    name: ClassVar[str] = "pairwise"
    linear: ClassVar[bool] = False

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, object]) -> Self:
        """On the command line `--kernel` names it."""
        named = dict(parameters)
        if "kernel" in named:
            named["kernel_name"] = named.pop("kernel")
        return super().from_parameters(named)

    @property
    def columns(self) -> tuple[str, ...]:
        known = {"value": self.value, "x": self.x, "y": self.y}
        known |= {"score": self.score, "label": self.label}
        return tuple(known.get(name, name) for name in self._kind.columns)

    @property
    def valued(self) -> tuple[str, ...]:
        pairs = zip(self.columns, self._kind.columns, strict=True)
        return tuple(column for column, role in pairs if role != "label")

    @cached_property
    def _kind(self) -> KernelKind:
        """A kernel by name, or one that is written out, which speaks of a's and b's columns."""
        if "a." in self.kernel_name and "b." in self.kernel_name:
            return Expression("written", self.kernel_name)
        return kernel_named(self.kernel_name)

    def build_kernel(self) -> Kernel:
        kind = self._kind
        labels = Grid.integers(0, 1)
        return kind([labels if name == "label" else self.grid for name in kind.columns])
