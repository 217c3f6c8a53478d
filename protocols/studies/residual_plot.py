"""S2's private residual plot: coefficients, how far the axes reach, and counts of cells."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.offers import Offer, Offers
from tallyroom.protocols.privacy.loss import as_written
from tallyroom.protocols.privacy.prirp import REACH_SHARE, SIDES, Axis, PlotGrid, side_for
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.statistics.bounded import clipped_records, parse_ranges
from tallyroom.protocols.statistics.coefficients import Coefficients
from tallyroom.protocols.statistics.contract import Bounds
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Estimate, Rows
from tallyroom.protocols.statistics.linear_regression import LinearRegression, least_squares
from tallyroom.protocols.statistics.option import RELATIONS, option, role
from tallyroom.protocols.statistics.residual_estimates import ResidualCounts, plot_of
from tallyroom.protocols.statistics.residuals import (
    METHODS,
    CuratedCells,
    CuratedReach,
    JointReach,
    LinearModel,
    ResidualCells,
    ResidualReach,
)
from tallyroom.protocols.studies.contract import Answer, Ask, Finding, Steps, Study

REACHES = ("counts", "sparse-vector")
ROUNDING = 1e-9
"""The part of its size by which a fitted value may be rounded beyond what its columns allow."""

Reaches = tuple[Axis, float]
"""The axis of fitted values, and how far residuals reach from 0."""
STAND_IN: Reaches = (-1.0, 1.0), 1.0


@dataclass(frozen=True)
class ResidualPlot(Study):
    """Residuals against fitted values: whether a linear model fits."""

    x: tuple[str, ...] = role(("x",), "A column that predicts; repeat it for more.")
    y: str = role("y", "The column that is predicted.")
    coefficients: tuple[float, ...] = option(
        (),
        "A public coefficient, the intercept's first; repeat. Fitted privately, if left out.",
        flag="--coefficient",
    )
    ranges: tuple[str, ...] = option(
        (), "Public bounds of a column for the fit, as COLUMN=LOWER:UPPER; repeat.", flag="--range"
    )
    method: str = option(
        METHODS[0],
        "How cells are counted: one by one, in a hierarchy, or as S2 does, by a curator.",
        choices=METHODS,
    )
    side: int = option(0, "Cells along each side; 0 chooses by the number of records and ε.")
    fitted_reach: float | None = option(
        None, "How far fitted values reach from 0; found privately, if left out."
    )
    residual_reach: float | None = option(
        None, "How far residuals reach from 0; found privately, if left out."
    )
    least_reach: float = option(
        1.0, "The least reach of an axis; it is doubled until it holds the points."
    )
    doublings: int = option(32, "How often the reach is doubled at most.")
    fit_share: float = option(0.3, "The share of ε for fitting coefficients, where none are given.")
    reach_share: float = option(
        float(REACH_SHARE), "The share of ε for finding how far the axes reach."
    )
    reach_by: str = option(
        REACHES[0],
        "How the reach is found: in noisy counts, or by an index that two servers choose; a "
        "curator needs neither.",
        choices=REACHES,
    )
    curated: bool = False

    name: ClassVar[str] = "residual-plot"
    topic: ClassVar[str] = RELATIONS
    style: ClassVar[Style] = Style("marks", "fitted value", "residual")

    def __post_init__(self) -> None:
        look_up("method", self.method, dict.fromkeys(METHODS))
        look_up("reach-by", self.reach_by, dict.fromkeys(REACHES))
        if self.side and not SIDES[0] <= self.side <= SIDES[1]:
            raise LocalError(f"--side is from {SIDES[0]} to {SIDES[1]}, not {self.side}")
        for share in (self.fit_share, self.reach_share, 1 - self.fit_share - self.reach_share):
            if not 0 < share < 1:
                raise LocalError(
                    "--fit-share and --reach-share must be above 0, and together below 1"
                )
        if (self.fitted_reach is None) != (self.residual_reach is None):
            raise LocalError("--fitted-reach and --residual-reach go together")
        if self.coefficients and self.ranges:
            raise LocalError("--range is for a fit: leave it out where coefficients are given")
        if not self.coefficients and self._fit().numbers != self.x:
            raise LocalError("residual-plot takes columns of numbers only, and no products")
        self._reach(self._stand_in)
        self._cells(self._stand_in, self._given or STAND_IN)

    @property
    def _stand_in(self) -> tuple[float, ...]:
        return self.coefficients or (0.0,) * (len(self.x) + 1)

    @property
    def _given(self) -> Reaches | None:
        if self.fitted_reach is None or self.residual_reach is None:
            return None
        return (-self.fitted_reach, self.fitted_reach), self.residual_reach

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.x, self.y)

    def asked_of(self, offers: Offers) -> "ResidualPlot":
        """A curator may see exact counts: bounds by the sparse vector technique."""
        return dataclasses.replace(self, curated=Offer.CURATE in offers)

    def with_bounds(self, published: Mapping[str, Bounds]) -> Self:
        if self.coefficients:
            return self
        return dataclasses.replace(self, ranges=self._fit().with_bounds(published).ranges)

    # --- what is asked ---

    def shares(self) -> tuple[Fraction, ...]:
        first = () if self.coefficients else (as_written(self.fit_share),)
        second = () if self._given else (as_written(self.reach_share),)
        return *first, *second, 1 - sum((*first, *second), Fraction(0))

    def _fit(self) -> LinearRegression:
        return LinearRegression(self.ranges, self.x, self.y)

    def _reach(self, coefficients: tuple[float, ...]) -> ResidualReach:
        chosen = JointReach if self.reach_by == "sparse-vector" else ResidualReach
        kind = CuratedReach if self.curated else chosen
        return kind(self.x, self.y, coefficients, self.least_reach, self.doublings)

    def _cells(
        self, coefficients: tuple[float, ...], reaches: Reaches, share: Fraction = Fraction(1)
    ) -> ResidualCells:
        kind = CuratedCells if self.method == "dawa" else ResidualCells
        fitted, residual = reaches
        return kind(
            self.x, self.y, coefficients, *fitted, residual, self.method, self.side, float(share)
        )

    def _cut(self, fitted: Axis, coefficients: tuple[float, ...]) -> Axis:
        """Cuts the axis to the values that a fit can take, if the ranges of all columns are public.
        It costs nothing, and the axis is often shorter than the power of two that holds them."""
        ranges = parse_ranges(self.ranges)
        if not set(self.x) <= ranges.keys():
            return fitted
        intercept, *slopes = coefficients
        ends = [
            sorted(slope * end for end in ranges[name])
            for name, slope in zip(self.x, slopes, strict=True)
        ]
        least, most = (intercept + sum(each) for each in zip(*ends, strict=True))
        rounding = ROUNDING * (abs(least) + abs(most))
        lower, upper = max(fitted[0], least - rounding), min(fitted[1], most + rounding)
        return (lower, upper) if lower < upper else fitted

    def clipped(self, holdings: Holdings) -> int:
        """The records that the fit clips; residuals are computed from the raw columns."""
        return 0 if self.coefficients else clipped_records(self._fit(), holdings)

    def steps(self) -> Steps:
        *first, last = self.shares()
        left = iter(first)
        coefficients, notes = self.coefficients, []
        if not coefficients:
            fitted = yield Ask(self._fit(), next(left))
            coefficients = tuple(_coefficients(fitted).coefficients)
            if _coefficients(fitted).weak:
                notes.append("noise hides how far the columns spread: coefficients are shrunk")
        reaches = self._given
        if reaches is None:
            found = yield Ask(self._reach(coefficients), next(left))
            fitted_axis, residual = _reaches(found)
            reaches = self._cut(fitted_axis, coefficients), residual
        answer = yield Ask(self._cells(coefficients, reaches, last), last)
        estimate = _plot(answer)
        if self.method == "laplace":
            estimate = _merged(estimate, float(np.max(answer.deviations)))
        way = "use a larger --epsilon, or give --fitted-reach and --residual-reach"
        if self._given:
            way = "give larger --fitted-reach and --residual-reach, or use a larger --epsilon"
        if not estimate.counts.any():
            raise RunFailed(f"noise leaves no point in any cell: {way}")
        if estimate.outside > answer.records / 4:
            notes.append(
                f"about {estimate.outside} of {answer.records} records lie outside the plot: {way}"
            )
        return Finding(estimate, tuple(notes))

    def may_ask(self) -> tuple[Ask, ...]:
        *_, last = self.shares()
        asked = [] if self.coefficients else [Ask(self._fit(), as_written(self.fit_share))]
        if self._given is None:
            asked.append(Ask(self._reach(self._stand_in), as_written(self.reach_share)))
        return *asked, Ask(self._cells(self._stand_in, self._given or STAND_IN, last), last)

    def reference(self, holdings: Holdings) -> Estimate:
        """The plot of raw records, around coefficients by least squares where none are given."""
        coefficients = self.coefficients
        if not coefficients:
            raw = {name: holdings.column(name) for name in self.columns}
            coefficients = tuple(least_squares(self.y, raw).coefficients)
        fitted, residuals = LinearModel(self.x, self.y, coefficients).points(holdings)
        reach = _reach_of(fitted)
        across, up = self._given or ((-reach, reach), _reach_of(residuals))
        grid = PlotGrid(across, up, self.side or side_for(holdings.rows, None))
        return plot_of(fitted, residuals, grid)


def _reach_of(values: Column) -> float:
    return max(float(np.abs(values).max()), 1e-300)


def _coefficients(answer: Answer) -> Coefficients:
    if not isinstance(answer.estimate, Coefficients):
        raise RunFailed("the fit came back without coefficients")
    if not all(map(math.isfinite, answer.estimate.coefficients)):
        raise RunFailed("noise leaves no coefficient finite: use a larger --epsilon")
    return answer.estimate


def _reaches(answer: Answer) -> Reaches:
    if not isinstance(answer.estimate, Rows):
        raise RunFailed("the reach of the axes came back as another shape than rows")
    lower, upper, _, residual = answer.estimate.values().tolist()
    return (lower, upper), residual


def _plot(answer: Answer) -> ResidualCounts:
    if not isinstance(answer.estimate, ResidualCounts):
        raise RunFailed("the counts of cells came back as another shape than a plot")
    return answer.estimate


def _merged(plot: ResidualCounts, deviation: float) -> ResidualCounts:
    """The plot from cells that were released with noise of that deviation."""
    if not deviation:
        return plot
    if not 0 < deviation < 1 << 20 or np.abs(plot.noisy).sum() > 1 << 39:
        raise RunFailed("the noise is too large for a plot: use a larger --epsilon")
    return plot.merged(deviation / math.sqrt(2))
