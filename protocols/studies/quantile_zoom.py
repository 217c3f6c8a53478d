"""A quantile by report noisy max, in two questions: first roughly, then finely.

A quantile that two servers choose among N cells is no finer than a cell. Where there are records
enough for the ε at hand, a small share of it tells first where to look closer.

With many records, that is two thresholds around the quantile, quantiles themselves whose ranks lie
a margin below and above: so wide a margin that the noise of the first question seldom crosses it.
The second question has most of its N cells between the two, and some on either side: where the
first was wrong, it is the resolution that suffers.

With fewer, it is the quantile itself, told roughly. The second question has a quarter of its cells
in the cell that was found, and fans the others out from it: however wrong the first was, cells are
a small part of that error wide. It must only not be lost among the cells that no record is in.

With fewer still, it is two thresholds again for a larger share of ε, or one: a side with less than
twice the margin of records keeps its public bound. Where that is so on both sides, noise is coarser
than cells are likely to be, and one question with all of ε is asked.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np

from tallyroom.protocols.plans.thresholds import LEAST_IN_PARTS
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.contract import Bounds, Statistic
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.ecdf import UNITS_OF_A_RANK, Quantile
from tallyroom.protocols.statistics.estimates import Estimate, shape_of
from tallyroom.protocols.studies.contract import Answer, Ask, Finding, Steps, Study

END_SHARES = (Fraction(1, 40), Fraction(1, 20), Fraction(1, 10))
"""Shares of ε for each end of the range that the second question looks into; the smallest that
suffices is taken."""
COARSE = 1024
"""The most cells of the first question."""
FINE = 1024
"""The most cells of the second question between two ends."""
SPARE = 5.0
"""The margin in scales of noise, past the logarithm of the cells: noise crosses it once in e^5
questions at most."""
ROUGH_SHARES = (Fraction(3, 100), Fraction(1, 20))
"""Shares of ε for a rough answer to the quantile itself; the smallest that suffices is taken."""
ROUGH = 256
"""The most cells of the question for a rough answer."""
ROUGH_SPARE = 10.0
"""How far the quantile must be from either end of all records, in scales of noise past the
logarithm of the cells: noise then chooses an empty cell once in e^10 questions at most."""


@dataclass(frozen=True)
class QuantileZoom(Study):
    """One quantile of `records` records, whose rank lies `margin` from those of the ends, each of
    which takes `end_share` of ε. With a margin of 0, it is asked for itself, and looked for around
    what is found."""

    statistic: Quantile
    records: int
    margin: int
    end_share: Fraction

    name: ClassVar[str] = "quantile-zoom"
    style: ClassVar[Style] = Quantile.style

    @property
    def title(self) -> str:
        return self.statistic.name

    @property
    def columns(self) -> tuple[str, ...]:
        return self.statistic.columns

    @property
    def ends(self) -> tuple[float, ...]:
        """The ends as quantiles, as far as they exist."""
        if not self.margin:
            return self.statistic.quantile
        rank = math.ceil(self.statistic.quantile[0] * self.records)
        sides = ((rank - self.margin, rank), (rank + self.margin, self.records - rank))
        return tuple(end / self.records for end, room in sides if room >= 2 * self.margin)

    def shares(self) -> tuple[Fraction, ...]:
        first = self.end_share * len(self.ends)
        return first, 1 - first

    def steps(self) -> Steps:
        first, rest = self.shares()
        found = yield Ask(self._around(), first)
        lower, upper = self._range(found)
        inner = self._inner((lower, upper))
        answer = yield Ask(inner, rest)
        note = f"looked for around [{lower:g}, {upper:g}], found for {float(first):g} of ε"
        return Finding(answer.estimate, (note,), answer.deviations, inner)

    def may_ask(self) -> tuple[Ask, ...]:
        first, rest = self.shares()
        inner = self._inner(self.statistic.bounds)
        return Ask(self._around(), first), Ask(inner, rest)

    def reference(self, holdings: Holdings) -> Estimate:
        return self.statistic.reference(holdings)

    def with_bounds(self, published: Mapping[str, Bounds]) -> Self:
        return replace(self, statistic=self.statistic.with_bounds(published))

    def _inner(self, within: Bounds) -> Quantile:
        """Between two ends lie about twice the margin of ranks, and cells of a few ranks each are
        chosen better than finer ones, of which more compete."""
        one_sided = len(self.ends) == 1 and self.margin
        most = self.statistic.thresholds if one_sided else FINE
        cells = min(self.statistic.thresholds, most)
        return replace(self.statistic, thresholds=cells, within=within, fanned=not self.margin)

    def _around(self) -> Quantile:
        cells = min(self.statistic.thresholds, COARSE if self.margin else ROUGH)
        return replace(self.statistic, quantile=self.ends, thresholds=cells)

    def _range(self, found: Answer) -> Bounds:
        """The range from the outer side of one cell to that of the other, or one whole cell."""
        around = self._around()
        edges = np.concatenate([[around.bounds[0]], around.x])
        cells = np.searchsorted(edges, shape_of(found.estimate).values()) - 1
        lower, upper = float(edges[cells.min()]), float(edges[cells.max() + 1])
        if len(cells) == 2 or not self.margin:
            return lower, upper
        below = self.ends[0] < self.statistic.quantile[0]
        return (lower, around.bounds[1]) if below else (around.bounds[0], upper)


def zoomed(
    asked: Statistic | Study, epsilon: Fraction | None, records: int, records_per_unit: int = 1
) -> Statistic | Study:
    """The study, where that is asked which it answers better than a single question does."""
    if not isinstance(asked, Quantile) or not asked.by_max or epsilon is None:
        return asked
    if len(asked.quantile) != 1 or asked.thresholds < LEAST_IN_PARTS or asked.within:
        return asked
    scale = UNITS_OF_A_RANK * records_per_unit / float(epsilon)

    def around(share: Fraction) -> QuantileZoom:
        cells = min(asked.thresholds, COARSE)
        margin = math.ceil(scale / share * (math.log(cells) + SPARE))
        return QuantileZoom(asked, records, margin, share)

    best = around(END_SHARES[0])
    if len(best.ends) == 2:
        return best
    rank = math.ceil(asked.quantile[0] * records)
    least = scale * (math.log(min(asked.thresholds, ROUGH)) + ROUGH_SPARE)
    for share in ROUGH_SHARES:
        if min(rank, records - rank) >= least / share:
            return QuantileZoom(asked, records, 0, share)
    studies = [around(share) for share in END_SHARES]
    best = max(studies, key=lambda study: len(study.ends))  # the first of those with most
    return best if best.ends else asked
