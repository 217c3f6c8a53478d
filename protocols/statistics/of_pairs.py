"""The statistics of pairs by name. Each is the mean of a kernel, on the grid that its columns
need."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.kernels import bundled as kernels
from tallyroom.protocols.kernels.contract import Kernel, KernelKind, kernel_named
from tallyroom.protocols.kernels.expression import Expression
from tallyroom.protocols.local.auc_by_response import VALUES, best_values, predicted_of_tree
from tallyroom.protocols.local.every_level import ASKED
from tallyroom.protocols.local.pairs import FIXED_POINT
from tallyroom.protocols.offers import Offer
from tallyroom.protocols.plans.contract import Plan
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.local_pairs import (
    ExactPairs,
    FromReports,
    LabelledScores,
    Randomized,
)
from tallyroom.protocols.plans.pairs import KernelColumn, labels_grid
from tallyroom.protocols.privacy.curves import STRATEGIES
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.statistics.areas import AucOfCounts
from tallyroom.protocols.statistics.bounded import OneColumn
from tallyroom.protocols.statistics.contract import Bounds
from tallyroom.protocols.statistics.cumulative import strategy_option
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.labels import positives_of
from tallyroom.protocols.statistics.option import (
    CLASSIFIERS,
    DISTRIBUTIONS,
    PAIRS,
    RELATIONS,
    SUMS,
    option,
    role,
)
from tallyroom.protocols.statistics.pairwise import Ordered, OwnRanges, Pairs, estimated
from tallyroom.protocols.statistics.release import Answer, Release

AUC_LABELS = ("private", "public")
AUC_METHODS = ("auto", "pairs", "curve", "smooth")


@dataclass(frozen=True)
class Gini(Pairs, OneColumn):
    """Gini's mean difference of two values: the coefficient is that over twice the mean."""

    name: ClassVar[str] = "gini"
    topic: ClassVar[str] = SUMS

    def build_kernel(self) -> Kernel:
        return kernels.Gini([self.grid])


@dataclass(frozen=True)
class Variance(Gini):
    """The sample variance, as the mean of (x − y)²/2."""

    name: ClassVar[str] = "variance"
    topic: ClassVar[str] = SUMS

    def build_kernel(self) -> Kernel:
        return kernels.Variance([self.grid])


@dataclass(frozen=True)
class CollisionEntropy(Ordered, OneColumn):
    """Rényi's entropy of order 2: −ln of the probability that two records are equal."""

    name: ClassVar[str] = "collision-entropy"
    topic: ClassVar[str] = DISTRIBUTIONS
    linear: ClassVar[bool] = False

    def build_kernel(self) -> Kernel:
        return kernels.CollisionEntropy([self.grid])


@dataclass(frozen=True)
class KendallTau(OwnRanges, Ordered):
    """Kendall's rank correlation of two columns: tau-a, or with `--tau b` tau-b, made for ties."""

    x: str = role("x", "The first column.")
    y: str = role("y", "The second column.")
    tau: str = option("a", "tau-a, or tau-b, which is made for ties.", choices=("a", "b"))

    name: ClassVar[str] = "kendall-tau"
    topic: ClassVar[str] = RELATIONS
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
        return kind([self.grid_of(self.x), self.grid_of(self.y)])

    def with_bin_bounds(self, published: Mapping[str, Bounds]) -> Self:
        return super().with_bin_bounds(published).with_ranges(published)


@dataclass(frozen=True)
class Auc(Ordered):
    """Area under the ROC curve: how often a positive record has the larger score; ties count ½."""

    score: str = role("score", "The column of scores.")
    label: str = role("label", "The column of labels, 0 or 1.")
    positive: float | None = option(None, "The label of positive records, if it is not 1.")
    method: str = option(
        "auto",
        "In pairs, from the ROC curve, or by smooth sensitivity; auto is the way of the first two "
        "that is predicted to err least, and the curve where that is close.",
        choices=AUC_METHODS,
    )
    thresholds: int = option(
        0,
        "How many points the curve has; 0 chooses by the number of records and ε. A curator uses "
        "at least 1024.",
    )
    strategy: str = strategy_option("Which counts get noise, with --method curve.")
    labels: str = option(
        "private",
        "In the local model: whether labels are hidden too.",
        choices=AUC_LABELS,
    )
    levels: str = option(
        "auto",
        "In the local model: whether a report tells of one level of scores, which takes no δ, or "
        "of all, within --delta; auto takes what errs less.",
        choices=tuple(ASKED),
    )

    name: ClassVar[str] = "auc"
    topic: ClassVar[str] = CLASSIFIERS
    span: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        look_up("method", self.method, dict.fromkeys(AUC_METHODS))
        look_up("strategy", self.strategy, dict.fromkeys(STRATEGIES))
        look_up("labels", self.labels, dict.fromkeys(AUC_LABELS))
        look_up("levels", self.levels, ASKED)
        if self.positive is not None and not math.isfinite(self.positive):
            raise LocalError(f"--positive is a finite number, not {self.positive}")

    @property
    def by_pairs(self) -> bool:
        """Whether it is computed in pairs; so it is by `auto`, unless that was settled before
        (`protocols.studies.settling`)."""
        return self.method in ("auto", "pairs")

    def has_set(self, options: tuple[str, ...]) -> bool:
        """Whether one of these options is not as it is if nobody says."""
        defaults = {each.name: each.default for each in fields(self)}
        return any(getattr(self, name) != defaults[name] for name in options)

    def plan(self, facts: Facts) -> Plan:
        """Plans pairs; in the local model whichever of S1's two protocols is predicted to err less;
        other methods plan both classes' counts."""
        if not self.by_pairs:
            return self._of_counts.plan(facts)
        if Offer.RANDOMIZE not in facts.offers:
            return super().plan(facts)
        if self.randomizer == "unary":
            raise LocalError(
                "auc in the local model is asked by randomized response or by Hadamard response: "
                "leave --randomizer out, or ask for pairwise --kernel auc"
            )
        if self.levels == "auto" and (exact := self.exact_pairs(facts)) is not None:
            return exact
        private, label = self.labels == "private", self.inputs[1]
        bounds, automatic = self.bin_bounds(), self.bins == "auto"
        values = self._values(facts)
        scores = LabelledScores(
            *(self.score, label, *bounds, values or self._domain(facts.records), private),
            *(self.levels, values > 0, automatic),
        )
        public = () if private else (self.label,)
        # A report contains a public label as it is.
        told = "" if private else "the label of every record"
        return Randomized(scores, FromReports(2), public, told)

    def _values(self, facts: Facts) -> int:
        """Among how many scores a record responds; 0 if it is asked about a tree of scores, because
        the user says so or because that is predicted to err less."""
        epsilon, private = facts.record_epsilon, self.labels == "private"
        if epsilon is None or self.randomizer == "hadamard" or self.levels != "auto":
            return 0
        choices = VALUES if self.bins == "auto" else [int(self.bins)]
        if max(choices) > VALUES[-1]:
            if self.randomizer == "response":
                raise LocalError(f"auc by randomized response takes at most {VALUES[-1]} --bins")
            return 0
        values, error = best_values(epsilon, facts.records, choices, private)
        if self.randomizer == "response":
            return values or choices[0]
        domain = self._domain(facts.records)
        tree = predicted_of_tree(epsilon, facts.records, domain, private, self.levels)
        return values if error < tree else 0

    def _domain(self, records: int) -> int:
        """Of a tree: `auto` is about √n scores, 16 to 4096, as the error grows with the number of
        levels, and less is lost to ties than to noise."""
        if self.bins == "auto":
            return 1 << min(12, max(4, round(math.log2(records) / 2)))
        return int(self.bins)

    @property
    def _of_counts(self) -> AucOfCounts:
        return AucOfCounts(
            lower=self.lower,
            upper=self.upper,
            score=(self.score,),
            label=self.label,
            positive=self.positive,
            thresholds=self.thresholds,
            labels=self.labels,
            strategy=self.strategy,
            method=self.method,
        )

    def read(self, release: Release) -> Answer:
        if not self.by_pairs:
            return self._of_counts.read(release)
        if isinstance(release.plan, Randomized) and not isinstance(release.plan, ExactPairs):
            return self._read_scores(release)
        return super().read(release)

    def _read_scores(self, release: Release) -> Answer:
        if release.noise is not None:
            found = float(np.clip(release.integers[0] / FIXED_POINT, 0.0, 1.0))
            error = release.noise.deviations(1) / FIXED_POINT
            return estimated(release, release.noise, found, error, self.span)
        negative, positive = release.integers.reshape(-1, 2).T.astype(np.float64)
        below = np.cumsum(negative) - negative
        pairs = negative.sum() * positive.sum()
        auc = float(positive @ (below + negative / 2) / pairs) if pairs else 0.5
        return Answer(auc, None, release.records, foretold=True)

    def planned_by(self, pilot: Holdings, bounds: Mapping[str, Bounds]) -> Self:
        if not self.by_pairs:
            raise LocalError(f"--pilot plans pairs: leave it out with --method {self.method}")
        return super().planned_by(pilot, bounds)

    @property
    def bounded(self) -> tuple[str, ...]:
        """Curves need public bounds of the scores; pairs compare any numbers."""
        return super().bounded if self.by_pairs else self.valued

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.score, self.label)

    def build_kernel(self) -> Kernel:
        return kernels.Auc([self.grid, labels_grid()])

    @property
    def inputs(self) -> tuple[KernelColumn, ...]:
        positive = 1.0 if self.positive is None else float(self.positive)
        return (KernelColumn(self.score), KernelColumn(self.label, positive))

    def reference(self, holdings: Holdings) -> Estimate:
        if not self.by_pairs:
            return self._of_counts.reference(holdings)
        positive = positives_of(holdings.column(self.label), self.label, self.positive)
        columns = holdings.columns | {self.label: positive.astype(np.float64)}
        return super().reference(replace(holdings, columns=columns))

    @property
    def valued(self) -> tuple[str, ...]:
        return (self.score,)


@dataclass(frozen=True)
class Pairwise(OwnRanges, OneColumn):
    """The mean of a kernel over pairs of records; the kernel is given by name or as a formula."""

    kernel_name: str = option("gini", "The kernel's name, or its formula.", flag="--kernel")
    x: str = role("x", "The column that the kernel calls x.", bounded=True)
    y: str = role("y", "The column that the kernel calls y.", bounded=True)
    score: str = role("score", "The column that the kernel calls score.", bounded=True)
    label: str = role("label", "The column that the kernel calls label, 0 or 1.")

    name: ClassVar[str] = "pairwise"
    topic: ClassVar[str] = PAIRS
    linear: ClassVar[bool] = False

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, object]) -> Self:
        """Takes `kernel`, as on the command line, for `kernel_name`."""
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
        """A kernel by name, or a formula over the columns of two records a and b."""
        if "a." in self.kernel_name and "b." in self.kernel_name:
            return Expression("written", self.kernel_name)
        return kernel_named(self.kernel_name)

    def build_kernel(self) -> Kernel:
        kind = self._kind
        roles = zip(self.columns, kind.columns, strict=True)
        return kind(
            [labels_grid() if role == "label" else self.grid_of(name) for name, role in roles]
        )
