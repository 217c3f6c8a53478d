"""What statistics of pairs are asked as in the local model: each record quantized and reported.

A form holds the statistic that the user asked for, by name and parameters; columns, bounds, kernel
and truth are that one's.
"""

import json
import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.cells import numbers
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local import LocalBudget, LocalRandomizer
from tallyroom.protocols.local.auc import MAX_DEPTH
from tallyroom.protocols.local.pairs import FIXED_POINT, Rounding, mean_over_pairs
from tallyroom.protocols.local.pairs_by_oracle import pair_randomizer
from tallyroom.protocols.offers import Offer
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.measurement import Measurement
from tallyroom.protocols.plans.scores_and_labels import ScoresAndLabels
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.contract import Bounds
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.labels import is_positive
from tallyroom.protocols.statistics.legacy import Legacy
from tallyroom.protocols.statistics.pairwise import Pairs

MAX_CELLS = 1 << 10
"""Of all columns together: the kernel is a matrix over them."""
FINE_BITS = 20
EXACT_DEPTH = 16
"""Without ε, vectors of counts are added up, which are no longer than this many bits of a score."""


@dataclass(frozen=True)
class LocalForm(Legacy):
    """`of` names a statistic of pairs, `asked` has its parameters as canonical JSON."""

    of: str = "gini"
    asked: str = "{}"

    way_of: ClassVar[str] = "pairwise"
    needs: ClassVar[Offer | None] = Offer.RANDOMIZE

    def __post_init__(self) -> None:
        if encoded(self.inner) != self.asked:
            raise LocalError(f"the parameters of {self.of} are not in their canonical form")

    @cached_property
    def inner(self) -> Pairs:
        from tallyroom.protocols.statistics import statistic_named

        kind = statistic_named(self.of)
        try:
            built = kind.from_parameters(json.loads(self.asked))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise LocalError(f"{self.of} cannot be asked like that: {error}") from None
        if not isinstance(built, Pairs):
            raise LocalError(f"{self.of} is no statistic of pairs")
        return built

    @property
    def asked_as(self) -> str:
        return self.of

    @property
    def columns(self) -> tuple[str, ...]:
        return self.inner.columns

    @property
    def bounded(self) -> tuple[str, ...]:
        return self.inner.valued

    @property
    def positive(self) -> float | None:
        """The label of positive records, if somebody named it."""
        return getattr(self.inner, "positive", None)

    @property
    def column_bounds(self) -> Mapping[str, Bounds]:
        return self.inner.column_bounds

    def with_bounds(self, published: Mapping[str, Bounds]) -> Self:
        """A statistic of order alone does without bounds elsewhere; bins need them."""
        found = {published.get(name) for name in self.inner.valued}
        if self.column_bounds or len(found) != 1 or (bounds := found.pop()) is None:
            return self
        bounded = replace(self.inner, lower=bounds[0], upper=bounds[1])
        return replace(self, asked=encoded(bounded))

    def check_bounds(self) -> None:
        if not self.column_bounds:
            raise LocalError(
                f"{self.of} is quantized in the local model: give --lower and --upper "
                "(bounds taken from the data would not be private)"
            )

    def reference(self, holdings: Holdings) -> Estimate:
        return self.inner.reference(holdings)

    @property
    def sensitivity(self) -> int:
        """Of the counts of cells."""
        return 2

    @property
    def measures(self) -> bool:
        return True

    @property
    def noises(self) -> int:
        return self.released

    def encode(self, holdings: Holdings) -> Vector:
        """Each party's counts of cells."""
        return holdings.count_by_party(self.exact_cells(holdings), self.length)

    @abstractmethod
    def exact_cells(self, holdings: Holdings) -> NDArray[np.int64]:
        """Where each record counts if nothing is randomized."""

    def measure(self, total: Vector) -> Vector:
        raise LocalError(f"{self.name} is estimated from reports, not from a noisy sum")

    def places(self, holdings: Holdings, name: str) -> Column:
        """A column's values as a part of their range, from 0 to 1; 0 for what is no number."""
        self.check_bounds()
        lower, upper = self.column_bounds[name]
        values = numbers(holdings.column(name), lower)
        return np.asarray((np.clip(values, lower, upper) - lower) / (upper - lower))


def encoded(statistic: Pairs) -> str:
    return json.dumps(statistic.parameters(), sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class LocalPairs(LocalForm):
    """A U-statistic of degree 2 by S1's Algorithm 1. `bins` per column are for the coordinator to
    fill in (`prepared`)."""

    bins: int = 0

    name: ClassVar[str] = "local-pairs"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bins and not (self.bins >= 2 and self.cells <= MAX_CELLS):
            raise LocalError(
                f"{self.bins} bins a column make {self.cells} cells; there must be 2 to {MAX_CELLS}"
                " cells, and 2 bins at least: with one, all records are alike"
            )

    def prepared(self, known: Facts) -> Self:
        """`auto` is Corollary 1's k = n^¼·√(Lε) with L = 1, of all columns together."""
        if known.records < 2:
            raise LocalError(f"{self.of} needs at least two records")
        if self.inner.bins != "auto":
            return replace(self, bins=int(self.inner.bins))
        valued = max(1, len(self.inner.valued))
        labels = 2 ** (len(self.columns) - len(self.inner.valued))
        k = corollary_1(known.records, 1.0 if known.epsilon is None else float(known.epsilon))
        most_bins = math.floor((MAX_CELLS / labels) ** (1 / valued) + 1e-9)
        return replace(self, bins=max(2, min(round(k ** (1 / valued)), most_bins)))

    @property
    def column_bins(self) -> tuple[int, ...]:
        """Labels are what they are; all other columns have as many bins."""
        return tuple(self.bins if name in self.inner.valued else 2 for name in self.columns)

    @property
    def cells(self) -> int:
        return math.prod(self.column_bins)

    @property
    def rounding(self) -> Rounding:
        bins = self.column_bins
        if self.inner.rounding == "simple":
            return Rounding(bins, (1,) * len(bins))
        room = 60 - sum(each.bit_length() for each in bins)
        fine = 1 << max(1, min(FINE_BITS, room // len(bins)))
        valued = self.inner.valued
        return Rounding(bins, tuple(fine if name in valued else 1 for name in self.columns))

    def measured(self, holdings: Holdings) -> NDArray[np.int64]:
        """Bins of equal width under simple rounding; places between points under randomized."""
        rounding = self.rounding
        codes = np.zeros(holdings.rows, dtype=np.int64)
        for column, name in enumerate(self.columns):
            bins, fine = rounding.bins[column], rounding.fine[column]
            if name not in self.inner.valued:
                digits = is_positive(holdings.column(name), self.positive).astype(np.int64)
            elif fine > 1:
                digits = np.rint(self.places(holdings, name) * ((bins - 1) * fine)).astype(np.int64)
            else:
                cut = np.floor(self.places(holdings, name) * bins).astype(np.int64)
                digits = np.minimum(cut, bins - 1)
            codes = codes * rounding.radix(column) + digits
        return codes

    def exact_cells(self, holdings: Holdings) -> NDArray[np.int64]:
        none = np.zeros((holdings.rows, 0), dtype=np.uint64)
        return self.rounding.cells(self.measured(holdings), none)

    @cached_property
    def kernels(self) -> NDArray[np.float64]:
        """A of each output, at the middle of bins or at points, on the kernel's own grid."""
        self.check_bounds()
        kernel, axes = self.inner.kernel, []
        for name, bins, grid in zip(self.columns, self.column_bins, kernel.grids, strict=True):
            if name not in self.inner.valued:
                axes.append(np.arange(bins))
                continue
            lower, upper = self.column_bounds[name]
            middles = (np.arange(bins) + 0.5) / bins
            points = np.arange(bins) / (bins - 1)
            places = middles if self.inner.rounding == "simple" else points
            axes.append(grid.encode(lower + (upper - lower) * places))
        rows = np.stack([each.ravel() for each in np.meshgrid(*axes, indexing="ij")], axis=1)
        k = len(rows)
        values = kernel.reference(np.repeat(rows, k, axis=0), np.tile(rows, (k, 1)))
        return np.ascontiguousarray(values.T.reshape(-1, k, k).astype(np.float64))

    @property
    def ranges(self) -> tuple[float, ...]:
        return tuple(float(each.high - each.low) for each in self.inner.kernel.outputs)

    @cached_property
    def measurement(self) -> Measurement:
        if self.bins < 2:
            raise LocalError(f"the bins of {self.of} are not decided yet")
        return QuantizedPairs(self.cells, self)

    @property
    def length(self) -> int:
        return self.cells

    @property
    def released(self) -> int:
        return len(self.inner.kernel.outputs)

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        if exact:
            return self.inner.kernel.decode(mean_over_pairs(self.kernels, signed(released)), True)
        means = signed(released) / FIXED_POINT * np.array(self.ranges)
        return self.inner.kernel.decode(means)

    def deviations(self, noise_variance: float, records: int) -> Column:
        """Unknown where the statistic is not linear in one output."""
        if len(self.ranges) > 1 or not self.inner.linear:
            return np.full(1, np.nan)
        decode = self.inner.kernel.decode
        unit, zero = (decode(np.array([at]), exact=True) for at in (1.0, 0.0))
        scale = self.ranges[0] / FIXED_POINT
        return np.array([abs(unit - zero) * scale * math.sqrt(noise_variance)])

    @property
    def grid_words(self) -> str:
        bins = " × ".join(map(str, self.column_bins)) if self.bins else "by n and ε"
        return f"values are quantized by {self.inner.rounding} rounding; bins: {bins}"


@dataclass(frozen=True)
class QuantizedPairs(Measurement):
    """A record is in one of k cells; what is asked is the mean of a kernel over pairs of cells."""

    form: LocalPairs | None = None

    def randomizer(self, budget: LocalBudget) -> LocalRandomizer | None:
        if (form := self.form) is None:
            return None
        return pair_randomizer(
            form.inner.randomizer, budget, form.rounding, form.kernels, form.ranges
        )


def corollary_1(records: int, epsilon: float, lipschitz: float = 1.0) -> float:
    """k = n^¼·√(Lε), which balances the errors of quantization and of randomized response."""
    return float(records**0.25 * math.sqrt(lipschitz * epsilon))


@dataclass(frozen=True)
class LocalAuc(LocalForm):
    """The area under the ROC curve from hierarchical histograms (S1 §4). The `depth` of the tree is
    for the coordinator to fill in."""

    of: str = "auc"
    depth: int = 0

    name: ClassVar[str] = "local-auc"
    way_of: ClassVar[str] = "auc"
    span: ClassVar[Bounds] = (0.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.of != "auc" or not 0 <= self.depth <= MAX_DEPTH:
            raise LocalError(f"a domain of scores has 2 to 2^{MAX_DEPTH} values")
        if self.inner.randomizer not in ("auto", "hadamard"):
            raise LocalError(
                "auc in the local model is asked by Hadamard response: leave --randomizer out, or "
                "ask for pairwise --kernel auc"
            )

    def prepared(self, known: Facts) -> Self:
        """A domain that is no power of two is padded to the next. `auto` is about √n scores, 16 to
        4096: the error grows with the number of levels, and less is lost to ties than to noise."""
        if self.inner.bins == "auto":
            return replace(self, depth=min(12, max(4, round(math.log2(known.records) / 2))))
        bins = int(self.inner.bins)
        if not 2 <= bins <= 1 << MAX_DEPTH:
            raise LocalError(f"--bins of scores are 2 to {1 << MAX_DEPTH}, not {bins}")
        return replace(self, depth=(bins - 1).bit_length())

    @property
    def private_labels(self) -> bool:
        return getattr(self.inner, "labels", "private") == "private"

    @property
    def taken_as_public(self) -> tuple[str, ...]:
        return () if self.private_labels else self.columns[1:]

    @property
    def released_exactly(self) -> str:
        """A report says a public label as it is."""
        return "" if self.private_labels else "the label of every record"

    @property
    def measurement(self) -> Measurement:
        if self.depth < 1:
            raise LocalError("the domain of scores is not decided yet")
        asked = getattr(self.inner, "levels", "auto")
        return ScoresAndLabels(None, self.depth, self.private_labels, asked)

    def measured(self, holdings: Holdings) -> NDArray[np.int64]:
        """A domain of d scores fills the first d cells of the tree."""
        score, label = self.columns
        cut = np.floor(self.places(holdings, score) * self.domain).astype(np.int64)
        cells = np.minimum(cut, self.domain - 1)
        return 2 * cells + is_positive(holdings.column(label), self.positive)

    @property
    def domain(self) -> int:
        """d, before it is padded."""
        return 1 << self.depth if self.inner.bins == "auto" else int(self.inner.bins)

    @property
    def _dropped(self) -> int:
        return max(0, self.depth - EXACT_DEPTH)

    def exact_cells(self, holdings: Holdings) -> NDArray[np.int64]:
        codes = self.measured(holdings)
        return 2 * (codes >> 1 >> self._dropped) + (codes & 1)

    @property
    def length(self) -> int:
        return 2 << (self.depth - self._dropped)

    @property
    def released(self) -> int:
        return 2

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        if not exact:
            return float(np.clip(signed(released)[0] / FIXED_POINT, 0.0, 1.0))
        negative, positive = signed(released).reshape(-1, 2).T.astype(np.float64)
        below = np.cumsum(negative) - negative
        pairs = negative.sum() * positive.sum()
        return float(positive @ (below + negative / 2) / pairs) if pairs else 0.5

    def deviations(self, noise_variance: float, records: int) -> Column:
        return np.array([math.sqrt(noise_variance) / FIXED_POINT])

    @property
    def grid_words(self) -> str:
        if self.inner.bins == "auto":
            many = f"2^{self.depth}" if self.depth else "about √n"
            return f"scores are cut into {many} values; equal ones count ½"
        bins, order = int(self.inner.bins), (int(self.inner.bins) - 1).bit_length()
        padded = f", padded to 2^{order}" if bins != 1 << order else ""
        return f"scores are cut into {bins} values{padded}; equal ones count ½"
