"""Quantiles by report noisy max: first roughly, then finely, and an interval from counts.

A quantile that two servers choose among N cells is no finer than a cell. Where there are records
enough for the ε at hand, a small share of it tells first where to look closer (`RankSearch`).

With many records, that is two thresholds around the quantile, quantiles themselves whose ranks lie
a margin below and above: so wide a margin that the noise of the first question seldom crosses it.
The second question has most of its N cells between the two, and some on either side: where the
first was wrong, it is the resolution that suffers.

With fewer, it is the quantile itself, told roughly. The second question has a quarter of its cells
in the cell that was found, and fans the others out from it: however wrong the first was, cells are
a small part of that error wide. It must only not be lost among the cells that no record is in.

With fewer still, it is two thresholds again for a larger share of ε, or one: a side with less than
twice the margin of records keeps its public bound. Where that is so on both sides, noise is coarser
than cells are likely to be, and the quantile is chosen at once.

How sure a choice is depends on scores that nobody sees. So a last share of ε counts records at a
few thresholds where the choice was looked for: the interval is that of the quantile read from those
counts, which holds whatever the values are (`Quantile._within`).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from tallyroom.protocols.plans.interval import NOISE, POPULATION, Interval
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.contract import Bounds
from tallyroom.protocols.statistics.cumulative import at_quantiles
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.ecdf import AUTO_STRATEGY, UNITS_OF_A_RANK, Quantile
from tallyroom.protocols.statistics.estimates import Estimate, shape_of
from tallyroom.protocols.statistics.release import Intervals
from tallyroom.protocols.studies.contract import Answer, Ask, Finding, Steps, Study

END_SHARES = (Fraction(1, 40), Fraction(1, 20), Fraction(1, 10))
"""Shares of ε for each end of the range that the second question looks into; the smallest that
suffices is taken."""
COARSE = 512
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
COUNTED_SHARE, COUNTED_SHARE_OF_FEW = Fraction(1, 10), Fraction(1, 4)
"""Of ε: what counts the records around the answer. With few records for the ε at hand, an interval
from a tenth would be most of the range."""
COUNTED = 32
"""The thresholds of those counts: more would have more noise, fewer would be farther apart."""
MOST_CHOSEN = 8
"""The most quantiles that are looked for one by one, each for its part of ε."""


@dataclass(frozen=True)
class RankSearch:
    """How one quantile of `records` records is looked for: its rank lies `margin` from those of the
    ends, each of which takes `end_share` of the search's ε. With a margin of 0, it is asked for
    itself, and looked for around what is found; with an `end_share` of 0 it is chosen at once."""

    statistic: Quantile
    records: int
    margin: int
    end_share: Fraction

    @property
    def ends(self) -> tuple[float, ...]:
        """The ends as quantiles, as far as they exist."""
        if not self.margin:
            return self.statistic.quantile
        rank = math.ceil(self.statistic.quantile[0] * self.records)
        sides = ((rank - self.margin, rank), (rank + self.margin, self.records - rank))
        return tuple(end / self.records for end, room in sides if room >= 2 * self.margin)

    @property
    def first_share(self) -> Fraction:
        return self.end_share * len(self.ends)

    @property
    def counted_share(self) -> Fraction:
        """Of all ε of the quantile: what its interval takes."""
        return COUNTED_SHARE if 0 < self.end_share < END_SHARES[-1] else COUNTED_SHARE_OF_FEW

    @cached_property
    def around(self) -> Quantile:
        """The first question."""
        cells = min(self.statistic.thresholds, COARSE if self.margin else ROUGH)
        return replace(self.statistic, quantile=self.ends, thresholds=cells)

    def inner(self, within: Bounds | None) -> Quantile:
        """The second question. Between two ends lie about twice the margin of ranks, and cells of a
        few ranks each are chosen better than finer ones, of which more compete."""
        if within is None:
            return self.statistic
        one_sided = len(self.ends) == 1 and self.margin
        most = self.statistic.thresholds if one_sided else FINE
        cells = min(self.statistic.thresholds, most)
        return replace(self.statistic, thresholds=cells, within=within, fanned=not self.margin)

    def counted(self, within: Bounds | None, chosen: float) -> Quantile:
        """The question for counts around the answer. Where the range was not narrowed on both
        sides, thresholds fan out from the cell that was chosen."""
        inner = self.inner(within)
        if within is None or (self.margin and len(self.ends) == 1):
            inner = replace(inner, within=_cells_of(inner, np.array([chosen])), fanned=True)
        cells = min(inner.thresholds, COUNTED)
        return replace(inner, strategy=AUTO_STRATEGY, thresholds=cells, smooth="none")

    def range_of(self, found: Answer) -> Bounds:
        """The range from the outer side of one cell to that of the other, or one whole cell."""
        cells = shape_of(found.estimate).values()
        lower, upper = _cells_of(self.around, cells)
        if len(cells) == 2 or not self.margin:
            return lower, upper
        below = self.ends[0] < self.statistic.quantile[0]
        return (lower, self.around.bounds[1]) if below else (self.around.bounds[0], upper)


def _cells_of(asked: Quantile, values: Column) -> Bounds:
    """From where the first of the cells with these values begins to where the last ends."""
    edges = np.concatenate([[asked.bounds[0]], asked.x])
    cells = np.searchsorted(edges, values) - 1
    return float(edges[cells.min()]), float(edges[cells.max() + 1])


def search_for(
    asked: Quantile, epsilon: Fraction, records: int, records_per_unit: int
) -> RankSearch:
    """The search for one quantile that suits so many records and ε."""
    scale = UNITS_OF_A_RANK * records_per_unit / float(epsilon)

    def around(share: Fraction) -> RankSearch:
        cells = min(asked.thresholds, COARSE)
        margin = math.ceil(scale / share * (math.log(cells) + SPARE))
        return RankSearch(asked, records, margin, share)

    best = around(END_SHARES[0])
    if len(best.ends) == 2:
        return best
    rank = math.ceil(asked.quantile[0] * records)
    least = scale * (math.log(min(asked.thresholds, ROUGH)) + ROUGH_SPARE)
    for share in ROUGH_SHARES:
        if min(rank, records - rank) >= least / share:
            return RankSearch(asked, records, 0, share)
    searches = [around(share) for share in END_SHARES]
    best = max(searches, key=lambda search: len(search.ends))  # the first of those with most
    return best if best.ends else RankSearch(asked, records, 0, Fraction(0))


@dataclass(frozen=True)
class QuantileZoom(Study):
    """Quantiles of `records` records, each looked for with its part of `epsilon`, of which a unit
    of privacy has so many records."""

    statistic: Quantile
    records: int
    epsilon: Fraction
    records_per_unit: int = 1

    name: ClassVar[str] = "quantile-zoom"
    style: ClassVar[Style] = Quantile.style

    @property
    def title(self) -> str:
        return self.statistic.name

    @property
    def columns(self) -> tuple[str, ...]:
        return self.statistic.columns

    @cached_property
    def searches(self) -> tuple[RankSearch, ...]:
        part = self.epsilon / len(self.statistic.quantile)
        asked = replace(self.statistic, strategy="max", smooth="monotone")
        return tuple(
            search_for(replace(asked, quantile=(q,)), part, self.records, self.records_per_unit)
            for q in self.statistic.quantile
        )

    def _parts(self, search: RankSearch) -> tuple[Fraction, Fraction, Fraction]:
        """Shares of the first question, of the second and of the counts."""
        part = Fraction(1, len(self.searches))
        chosen = part * (1 - search.counted_share)
        first = chosen * search.first_share
        return first, chosen - first, part * search.counted_share

    def shares(self) -> tuple[Fraction, ...]:
        return tuple(each for search in self.searches for each in self._parts(search) if each)

    def steps(self) -> Steps:
        found, notes = [], []
        for search in self.searches:
            first, second, last = self._parts(search)
            within = None
            if first:
                within = search.range_of((yield Ask(search.around, first)))
                lower, upper = within
                notes.append(f"looked for around [{lower:g}, {upper:g}], {float(first):.3g} of ε")
            inner = search.inner(within)
            chosen = yield Ask(inner, second)
            counted = yield Ask(search.counted(within, chosen.number), last)
            notes.append(f"the interval is from counts for {float(last):.3g} of ε")
            found.append((chosen, counted))
        values = np.array([chosen.number for chosen, _ in found])
        intervals: Intervals = {}
        for covers in (NOISE, POPULATION):
            joined = Interval.together([counted.intervals[covers] for _, counted in found])
            intervals[covers] = joined and joined.holding(values)
        noise = intervals[NOISE]
        return Finding(
            at_quantiles(self.statistic.quantile, values.tolist()),
            tuple(dict.fromkeys(notes)),
            deviations=None if noise is None else noise.errors,
            statistic=inner if len(found) == 1 else None,
            intervals=intervals,
        )

    def may_ask(self) -> tuple[Ask, ...]:
        return tuple(self._may_ask())

    def _may_ask(self) -> Iterator[Ask]:
        for search in self.searches:
            first, second, last = self._parts(search)
            within = search.statistic.bounds if first else None
            if first:
                yield Ask(search.around, first)
            yield Ask(search.inner(within), second)
            yield Ask(search.counted(within, sum(search.statistic.bounds) / 2), last)

    def reference(self, holdings: Holdings) -> Estimate:
        return self.statistic.reference(holdings)

    def with_bounds(self, published: Mapping[str, Bounds]) -> Self:
        return replace(self, statistic=self.statistic.with_bounds(published))
