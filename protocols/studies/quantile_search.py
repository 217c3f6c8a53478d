"""Quantiles by binary search (S0 Algorithm 1): ask how many values are below the middle, halve.

Over `fss` servers hold a tree of noise that answers any number of such questions for one ε, and the
search is a single question of 32 steps (`protocols.statistics.on_demand`). Elsewhere each step is a
release of its own, so ε is divided among the steps: a few bits of the quantile, each well told,
where a whole curve (`quantile`) would reveal more than is wanted.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Self

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.offers import Offer, Offers
from tallyroom.protocols.plans.thresholds import quantiles
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.statistics.contract import Bounds, Statistic
from tallyroom.protocols.statistics.cumulative import SPACINGS, at_quantiles
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Curve, Estimate
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.on_demand import QuantileSearch
from tallyroom.protocols.statistics.option import DISTRIBUTIONS, option, role
from tallyroom.protocols.studies.budget import MAX_QUESTIONS
from tallyroom.protocols.studies.contract import Answer, Ask, Finding, Steps, Study


@dataclass(frozen=True)
class QuantileSearchStudy(Study):
    """Quantiles by binary search: over fss from one stored tree, else in several questions."""

    value: str = role("value", "The column to compute it from.", bounded=True)
    lower: float | None = option(None, "Public lower bound of the values.")
    upper: float | None = option(None, "Public upper bound of the values.")
    quantile: tuple[float, ...] = option((0.5,), "Which quantile; repeat it for more.")
    spacing: str = option("linear", "How the range is divided.", choices=SPACINGS)
    halvings: int = option(
        8, "How often the range is halved for each quantile, with its part of ε; over fss, 32."
    )

    name: ClassVar[str] = "quantile-search"
    topic: ClassVar[str] = DISTRIBUTIONS
    style: ClassVar[Style] = Style("marks", "quantile", "value")

    def __post_init__(self) -> None:
        self.stored()  # raises for invalid bounds, quantiles and spacings
        look_up("spacing", self.spacing, dict.fromkeys(SPACINGS))
        most = MAX_QUESTIONS // len(self.quantile)
        if not 1 <= self.halvings <= min(most, 32):
            raise LocalError(
                f"--halvings is between 1 and {min(most, 32)} for {len(self.quantile)} quantiles, "
                f"not {self.halvings}"
            )

    def stored(self) -> QuantileSearch:
        """The statistic that searches a stored tree."""
        return QuantileSearch(
            value=self.value,
            lower=self.lower,
            upper=self.upper,
            spacing=self.spacing,
            quantile=self.quantile,
        )

    def with_bounds(self, published: Mapping[str, Bounds]) -> Self:
        bounded = self.stored().with_bounds(published)
        return replace(self, lower=bounded.lower, upper=bounded.upper)

    def asked_of(self, offers: Offers) -> Study | Statistic:
        return self.stored() if Offer.COMPARE in offers else self

    def shares(self) -> tuple[Fraction, ...]:
        questions = self.halvings * len(self.quantile)
        return (Fraction(1, questions),) * questions

    def steps(self) -> Steps:
        found = []
        widest = 0.0
        for quantile in self.quantile:
            low, high = self.stored().bounds
            for share in self.shares()[: self.halvings]:
                half = self._half(low, high)
                answer = yield Ask(half, share)
                middle = float(half.edges[1])
                below = share_below(answer)
                low, high = (low, middle) if below >= quantile and below > 0 else (middle, high)
            found.append(self._middle(low, high))
            widest = max(widest, high - low)
        note = (
            f"{self.halvings} halvings place a quantile in an interval of {widest:.3g}, of which "
            "this is the middle; a step that noise led astray is not taken back"
        )
        return Finding(at_quantiles(self.quantile, found), (note,))

    def may_ask(self) -> tuple[Ask, ...]:
        """The first half, and the last ones at either end of the range, where the grid of doubles
        is coarsest: if those can be told from their neighbours, all can."""
        return tuple(Ask(half, self.shares()[0]) for half in self._farthest())

    def _farthest(self) -> list[Histogram]:
        low, high = self.stored().bounds
        try:
            first = lowest = highest = self._half(low, high)
            for _ in range(1, self.halvings):
                lowest = self._half(low, float(lowest.edges[1]))
                highest = self._half(float(highest.edges[1]), high)
        except RunFailed as error:
            raise LocalError(str(error)) from None
        return [first, lowest, highest] if self.halvings > 1 else [first]

    def reference(self, holdings: Holdings) -> Estimate:
        found = quantiles(holdings.column(self.value), self.quantile)
        return at_quantiles(self.quantile, found)

    def _middle(self, low: float, high: float) -> float:
        return math.sqrt(low) * math.sqrt(high) if self.spacing == "log" else (low + high) / 2

    def _half(self, low: float, high: float) -> Histogram:
        """Two bins that meet in the middle; what is outside is counted in the nearer one."""
        middle = self._middle(low, high)
        reach = middle - low
        if not middle - reach < middle < middle + reach:
            raise RunFailed(f"there is nothing left to halve at {middle:g}: use fewer --halvings")
        return Histogram(value=self.value, lower=middle - reach, upper=middle + reach, bins=2)


def share_below(answer: Answer) -> float:
    """The share of records in the first of two bins. How many there are in all is known, so both
    counts tell of it, and the mean of the two has half the variance."""
    if not isinstance(answer.estimate, Curve) or len(answer.estimate.y) != 2:
        raise RunFailed("the halves came back as another shape than two counts")
    first, second = answer.estimate.y
    return (first + answer.records - second) / 2 / answer.records
