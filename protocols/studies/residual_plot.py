"""S2's private residual plot: coefficients, how far the axes reach, and counts of cells."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np

from protocols.errors import LocalError, RunFailed
from protocols.names import look_up
from protocols.offers import Offer, Offers
from protocols.privacy.dawa import PARTITION_SHARE, partition_of_noisy
from protocols.privacy.ledger import as_written
from protocols.privacy.prirp import SIDES, PlotGrid, side_for
from protocols.records import Column, Holdings
from protocols.statistics.coefficients import Coefficients
from protocols.statistics.contract import Bounds
from protocols.statistics.drawing import Style
from protocols.statistics.estimates import Estimate, Rows
from protocols.statistics.first_above import JointReach
from protocols.statistics.linear_regression import LinearRegression, least_squares
from protocols.statistics.option import option, role
from protocols.statistics.residual_estimates import ResidualCounts, plot_of
from protocols.statistics.residuals import (
    METHODS,
    CuratedCells,
    CuratedReach,
    ResidualCells,
    ResidualReach,
    fitted_and_residuals,
)
from protocols.studies.contract import Answer, Ask, Finding, Steps, Study

REACHES = ("counts", "sparse-vector")


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
    method: str = option("dawa", "How cells are counted.", choices=METHODS)
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
    reach_share: float = option(0.2, "The share of ε for finding how far the axes reach.")
    reach_by: str = option(
        REACHES[0],
        "How the reach is found: in noisy counts, or by an index that two servers choose; a "
        "curator needs neither.",
        choices=REACHES,
    )
    curated: bool = False

    name: ClassVar[str] = "residual-plot"
    style: ClassVar[Style] = Style("marks", "fitted value", "residual")

    def __post_init__(self) -> None:
        look_up("method", self.method, dict.fromkeys(METHODS))
        look_up("reach-by", self.reach_by, dict.fromkeys(REACHES))
        if self.side and not SIDES[0] <= self.side <= SIDES[1]:
            raise LocalError(f"--side is from {SIDES[0]} to {SIDES[1]}, not {self.side}")
        for share in (self.fit_share, self.reach_share, 1 - self.fit_share - self.reach_share):
            if not 0 < share < 1:
                raise LocalError("--fit-share and --reach-share are above 0, and below 1 together")
        if (self.fitted_reach is None) != (self.residual_reach is None):
            raise LocalError("--fitted-reach and --residual-reach go together")
        if self.coefficients and self.ranges:
            raise LocalError("--range is for a fit: leave it out where coefficients are given")
        if not self.coefficients:
            self._fit()
        self._reach(self._stand_in)
        self._cells(self._stand_in, self._given or (1.0, 1.0))

    @property
    def _stand_in(self) -> tuple[float, ...]:
        return self.coefficients or (0.0,) * (len(self.x) + 1)

    @property
    def _given(self) -> Bounds | None:
        if self.fitted_reach is None or self.residual_reach is None:
            return None
        return self.fitted_reach, self.residual_reach

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.x, self.y)

    def asked_of(self, offers: Offers) -> "ResidualPlot":
        """A curator may see exact counts: bounds by the sparse vector technique, DAWA whole."""
        return dataclasses.replace(self, curated=Offer.CURATE in offers)

    def with_bounds(self, published: Mapping[str, Bounds]) -> Self:
        if self.coefficients:
            return self
        return dataclasses.replace(self, ranges=self._fit().with_bounds(published).ranges)

    # --- what is asked ---

    def shares(self) -> tuple[Fraction, ...]:
        first = () if self.coefficients else (as_written(self.fit_share),)
        second = () if self._given else (as_written(self.reach_share),)
        rest = 1 - sum((*first, *second), Fraction(0))
        if self.method == "dawa" and not self.curated:
            return *first, *second, PARTITION_SHARE * rest, (1 - PARTITION_SHARE) * rest
        return *first, *second, rest

    def _fit(self) -> LinearRegression:
        return LinearRegression(self.ranges, self.x, self.y)

    def _reach(self, coefficients: tuple[float, ...]) -> ResidualReach:
        chosen = JointReach if self.reach_by == "sparse-vector" else ResidualReach
        kind = CuratedReach if self.curated else chosen
        return kind(self.x, self.y, coefficients, self.least_reach, self.doublings)

    def _cells(
        self,
        coefficients: tuple[float, ...],
        reaches: Bounds,
        method: str | None = None,
        side: int | None = None,
        share: Fraction = Fraction(1),
        lengths: tuple[float, ...] = (),
    ) -> ResidualCells:
        whole = self.curated and (method or self.method) == "dawa"
        kind = CuratedCells if whole else ResidualCells
        return kind(
            self.x,
            self.y,
            coefficients,
            *reaches,
            method or self.method,
            self.side if side is None else side,
            float(share),
            lengths,
        )

    def clipped(self, holdings: Holdings) -> int:
        """For the fit: residuals are of the columns as they are."""
        return 0 if self.coefficients else self._fit().clipped(holdings)

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
            reaches = _reaches(found)
        if self.method != "dawa" or self.curated:
            asked = self._cells(coefficients, reaches, share=last)
        else:
            share = next(left)
            counted = yield Ask(self._cells(coefficients, reaches, "laplace", share=share), share)
            plot = _plot(counted)
            lengths = _buckets(plot, float(np.max(counted.deviations)), last / share)
            side = plot.grid.side
            asked = self._cells(coefficients, reaches, side=side, share=last, lengths=lengths)
            notes.append(
                f"without a curator, DAWA chose its buckets by noisy counts: {len(lengths)} buckets"
            )
        answer = yield Ask(asked, last)
        estimate = _plot(answer)
        if not estimate.counts.any():
            raise RunFailed("noise leaves no point in any cell: use a larger --epsilon")
        outside = max(0.0, float(estimate.noisy[-1]))
        if outside > answer.records / 4:
            way = "use a larger --epsilon, or give --fitted-reach and --residual-reach"
            if self._given:
                way = "give larger --fitted-reach and --residual-reach"
            notes.append(
                f"about {outside:.0f} of {answer.records} records lie outside the plot: {way}"
            )
        return Finding(estimate, tuple(notes))

    def examples(self) -> tuple[Ask, ...]:
        *_, last = self.shares()
        asked = [] if self.coefficients else [Ask(self._fit(), as_written(self.fit_share))]
        if self._given is None:
            asked.append(Ask(self._reach(self._stand_in), as_written(self.reach_share)))
        method = "dawa" if self.method == "dawa" and self.curated else None
        stand_in = method or ("hb" if self.method == "dawa" else self.method)
        cells = self._cells(self._stand_in, self._given or (1.0, 1.0), stand_in, share=last)
        return *asked, Ask(cells, last)

    def reference(self, holdings: Holdings) -> Estimate:
        """The plot of raw records, around coefficients by least squares where none are given."""
        coefficients = self.coefficients
        if not coefficients:
            raw = {name: holdings.column(name) for name in self.columns}
            coefficients = tuple(least_squares(self.y, raw).coefficients)
        fitted, residuals = fitted_and_residuals(holdings, self.x, self.y, coefficients)
        across, up = self._given or (_reach_of(fitted), _reach_of(residuals))
        grid = PlotGrid(across, up, self.side or side_for(holdings.rows, None))
        return plot_of(fitted, residuals, grid)


def _reach_of(values: Column) -> float:
    return max(float(np.abs(values).max()), 1e-300)


def _coefficients(answer: Answer) -> Coefficients:
    if not isinstance(answer.estimate, Coefficients):
        raise RunFailed("a fit has coefficients")
    if not all(map(math.isfinite, answer.estimate.coefficients)):
        raise RunFailed("noise leaves no coefficient finite: use a larger --epsilon")
    return answer.estimate


def _reaches(answer: Answer) -> Bounds:
    if not isinstance(answer.estimate, Rows):
        raise RunFailed("how far the axes reach is told in rows")
    fitted, residual = answer.estimate.values().tolist()
    return fitted, residual


def _plot(answer: Answer) -> ResidualCounts:
    if not isinstance(answer.estimate, ResidualCounts):
        raise RunFailed("counts of cells are a plot")
    return answer.estimate


def _buckets(plot: ResidualCounts, deviation: float, times: Fraction) -> tuple[float, ...]:
    """From cells that were released with noise of that deviation; the buckets' counts have `times`
    their ε. Two at the least: of a single one nothing is left to ask."""
    noisy = np.rint(plot.noisy).astype(np.int64)
    if not deviation:
        return (1.0,) * len(noisy)
    if not 0 < deviation < 1 << 20 or np.abs(noisy).sum() > 1 << 39:
        raise RunFailed("the noise is too large for a plot: use a larger --epsilon")
    scale = deviation / math.sqrt(2)
    lengths = partition_of_noisy(noisy, scale, times * Fraction(2 / scale)).lengths
    if len(lengths) < 2:
        lengths = np.array([len(noisy) - 1, 1])
    return tuple(float(each) for each in lengths)
