"""S4's projected histogram: attributes that tell classes apart, then synthetic rows of them."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.offers import Offer, Offers
from tallyroom.protocols.plans.contract import Plan
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.privacy.projected import PublicShape, estimated_gamma, estimated_k
from tallyroom.protocols.privacy.thresholded import MAX_SPACE
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.statistics.attributes import MAX_BINS, Attribute, outside_of, parse_schema
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Counts, Estimate
from tallyroom.protocols.statistics.option import DISTRIBUTIONS, option, role
from tallyroom.protocols.statistics.projected import (
    MAX_CELLS,
    CuratedNextAttribute,
    CuratedProjectedCells,
    NextAttribute,
    NextByMax,
    ProjectedCells,
)
from tallyroom.protocols.statistics.sparse_cells import SparseCells, SparseNextAttribute
from tallyroom.protocols.statistics.synthetic_rows import MOST_ROWS, SyntheticRows
from tallyroom.protocols.studies.contract import Answer, Ask, Finding, Steps, Study

PICKS_BY = ("scores", "max")
MOST_WAYS = 64
"""How many ways of picking so many attributes are checked beforehand; if there are more, some from
the smallest to the largest tables."""
SIMULATED = 20_000
"""The most records with which §2.3's choice of k and γ is simulated."""


@dataclass(frozen=True)
class ProjectedHistogram(Study):
    """Synthetic rows of the attributes that best tell a target's classes apart."""

    attributes: tuple[str, ...] = option(
        (),
        "A column and its public values, COLUMN=LOWER:UPPER or COLUMN=NAME,NAME; repeat.",
        flag="--attribute",
    )
    target: str = role("target", "The attribute whose classes are to be told apart.")
    k: int = option(
        0, "How many attributes to keep beside the target; 0 estimates the best number."
    )
    gamma: float = option(0.0, "The share of ε for the histogram; 0 estimates the best share.")
    bins: int = option(
        0, "How many bins a numeric attribute has; 0 chooses by the number of records."
    )
    picks_by: str = option(
        "scores",
        "Without a curator: by noisy scores, or max: two servers open an index and nothing else.",
        choices=PICKS_BY,
    )
    records: int = 0
    curated: bool = False

    name: ClassVar[str] = "projected-histogram"
    topic: ClassVar[str] = DISTRIBUTIONS
    style: ClassVar[Style] = Style("marks", "value", "share")

    def __post_init__(self) -> None:
        look_up("picks-by", self.picks_by, dict.fromkeys(PICKS_BY))
        predictors, _ = self._schema
        if not 0 <= self.k <= len(predictors):
            count = len(predictors)
            there = "is 1 attribute" if count == 1 else f"are {count} attributes"
            raise LocalError(f"--k {self.k}: there {there} besides the target")
        if not 0 <= self.gamma < 1:
            raise LocalError(f"--gamma is between 0 and 1, not {self.gamma:g}")
        if not 0 <= self.bins <= MAX_BINS:
            raise LocalError(f"--bins is from 1 to {MAX_BINS}, not {self.bins}")

    @cached_property
    def _schema(self) -> tuple[list[Attribute], Attribute]:
        return parse_schema(self.attributes, self.target)

    @property
    def columns(self) -> tuple[str, ...]:
        predictors, target = self._schema
        return (*(each.name for each in predictors), target.name)

    def asked_of(self, offers: Offers) -> "ProjectedHistogram":
        return dataclasses.replace(self, curated=Offer.CURATE in offers)

    def of_records(self, records: int) -> Self:
        return dataclasses.replace(self, records=records)

    # --- what public numbers decide ---

    def _shape(self, most: int | None = None) -> PublicShape:
        if not self.records:
            raise LocalError("the number of records is not known: give --k, --gamma and --bins")
        predictors, target = self._schema
        records = min(self.records, most or self.records)
        return PublicShape(records, len(predictors), max(2, target.size(self._bins_of(records))))

    def _bins_of(self, records: int) -> int:
        return self.bins or PublicShape(records, len(self._schema[0]), 2).bins

    @cached_property
    def chosen_bins(self) -> int:
        return self.bins or self._shape().bins

    @cached_property
    def chosen_k(self) -> int:
        """S4 §2.3, from simulated data of the same public shape."""
        return self.k or estimated_k(self._shape(SIMULATED), np.random.default_rng(0))

    @cached_property
    def chosen_gamma(self) -> Fraction:
        found = self.gamma or estimated_gamma(
            self._shape(), self.chosen_k, np.random.default_rng(0)
        )
        return Fraction(min(max(round(found, 4), 0.05), 0.95)).limit_denominator(10_000)

    @property
    def picks(self) -> int:
        """The number of attributes to pick; 0 if all are kept."""
        return 0 if self.chosen_k == len(self._schema[0]) else self.chosen_k

    def shares(self) -> tuple[Fraction, ...]:
        if not self.picks:
            return (Fraction(1),)
        return *((1 - self.chosen_gamma) / self.picks,) * self.picks, self.chosen_gamma

    def _next(self, chosen: tuple[str, ...]) -> NextAttribute | SparseNextAttribute:
        given = (self.attributes, self.target, chosen, self.chosen_bins)
        if not self.curated:
            return NextByMax(*given) if self._by_max(chosen) else NextAttribute(*given)
        if self._fits(chosen, all):
            return CuratedNextAttribute(*given)
        return SparseNextAttribute(*given)

    def _cells(self, chosen: tuple[str, ...]) -> ProjectedCells | SparseCells:
        given = (self.attributes, self.target, chosen, self.chosen_bins)
        if self.curated and self._held(chosen) > MAX_CELLS:
            return SparseCells(*given)
        return CuratedProjectedCells(*given) if self.curated else ProjectedCells(*given)

    def clipped(self, holdings: Holdings) -> int:
        predictors, target = self._schema
        return outside_of([*predictors, target], holdings)

    def steps(self) -> Steps:
        *shares, last = self.shares()
        chosen: tuple[str, ...] = ()
        if not self.picks:
            chosen = tuple(each.name for each in self._schema[0])
        for share in shares:
            if not self._goes_on(chosen):
                break
            counted = yield Ask(self._next(chosen), share)
            chosen = (*chosen, _best(counted))
        last += sum(shares[len(chosen) :], Fraction(0)) if self.picks else 0
        answer = yield Ask(self._cells(chosen), last)
        if not isinstance(answer.estimate, SyntheticRows):
            raise RunFailed("the projected histogram came back as another shape than rows")
        if not answer.estimate.records:
            raise RunFailed(
                "no cell is above the threshold, so there is no synthetic row: use a larger "
                "--epsilon or a smaller --k"
            )
        notes = [
            f"kept {', '.join(chosen)}: k = {len(chosen)}, γ = {float(last):.3g}, "
            f"{self.chosen_bins} bins, {answer.estimate.records} synthetic records for "
            f"{answer.records}"
        ]
        if answer.estimate.records >= MOST_ROWS * answer.records:
            notes.append(
                f"noise makes most of the rows: no more than {MOST_ROWS} for a record are kept; "
                "use a larger --epsilon"
            )
        if self.picks > len(chosen):
            most = "2^60 cells" if self.curated else f"{MAX_CELLS} counts: a curator takes 2^60"
            notes.append(f"no further attribute of {self.picks} fits into {most}")
        if isinstance(asked := self._cells(chosen), SparseCells):
            notes.append(
                f"{asked.codes.space.size:.3g} cells are too many for a vector: the curator has "
                "every record's codes, and a threshold that lets few empty cells pass"
            )
        by_max = sum(self._by_max(chosen[:at]) for at in range(len(chosen))) if self.picks else 0
        if by_max:
            notes.append(
                f"picked by two servers, by noisy max for {float(shares[0]):.3g} of ε each: "
                f"{', '.join(chosen[:by_max])}"
            )
        if self.picks > by_max and not self.curated:
            candidates = len(self._schema[0])
            notes.append(
                f"without a curator the tables of up to {candidates} candidates share the ε of a "
                f"pick: {'other ' if by_max else ''}attributes are chosen by noisy scores"
            )
        return Finding(answer.estimate, tuple(notes))

    def may_ask(self) -> tuple[Ask, ...]:
        """The largest question of each kind over all ways in which attributes may be picked, as far
        as these differ in size, and the histogram with the least and the most that may be left of
        ε."""
        *shares, last = self.shares()
        if not self.picks:
            return (Ask(self._cells(tuple(each.name for each in self._schema[0])), last),)
        asked: list[Ask] = []
        ways: list[tuple[str, ...]] = [()]
        for at, share in enumerate(shares):
            ended = [chosen for chosen in ways if not self._goes_on(chosen)]
            going = [chosen for chosen in ways if self._goes_on(chosen)]
            left = sum(shares[at:], last)
            asked += [Ask(self._cells(chosen), left) for chosen in ended]
            questions = [self._next(chosen) for chosen in going]
            asked += [Ask(question, share) for question in questions]
            ways = self._picked(list(zip(going, questions, strict=True)))
        asked += [Ask(self._cells(chosen), last) for chosen in ways]
        return _largest(asked)

    def _picked(
        self, asked: list[tuple[tuple[str, ...], NextAttribute | SparseNextAttribute]]
    ) -> list[tuple[str, ...]]:
        """The attributes that may be chosen after one more pick, once for each combination of
        sizes."""
        found: dict[tuple[int, ...], tuple[str, ...]] = {}
        sizes = {each.name: each.size(self.chosen_bins) for each in self._schema[0]}
        for chosen, question in asked:
            for each in question.candidates:
                way = (*chosen, each.name)
                found.setdefault(tuple(sorted(sizes[name] for name in way)), way)
        ways = sorted(found.values(), key=self._held)
        if len(ways) <= MOST_WAYS:
            return ways
        spread = np.linspace(0, len(ways) - 1, MOST_WAYS).round().astype(int)
        return [ways[at] for at in spread.tolist()]

    def _by_max(self, chosen: tuple[str, ...]) -> bool:
        """Whether two servers pick, which the public schema decides: if they could not square all
        counts, scores get noise instead."""
        if self.curated or self.picks_by != "max":
            return False
        given = (self.attributes, self.target, chosen, self.chosen_bins)
        return NextAttribute(*given).can_be_squared

    def _goes_on(self, chosen: tuple[str, ...]) -> bool:
        """Whether a further attribute fits, by the public schema. The first must fit."""
        if not chosen:
            return True
        if self.curated:
            sizes = self._left(chosen)
            return any(size * self._held(chosen) <= MAX_SPACE for size in sizes)
        return self._fits(chosen, any)

    def _fits(self, chosen: tuple[str, ...], which: Callable[[Iterable[bool]], bool]) -> bool:
        """Whether tables of the attributes that are left can be sent as vectors of all counts."""
        most = MAX_CELLS // len(self._schema[0]) // self._held(chosen)
        return which(size <= most for size in self._left(chosen))

    def _held(self, chosen: tuple[str, ...]) -> int:
        """Cells of the chosen attributes and the target."""
        predictors, target = self._schema
        sizes = {each.name: each.size(self.chosen_bins) for each in predictors}
        return math.prod(sizes[name] for name in chosen) * target.size(self.chosen_bins)

    def _left(self, chosen: tuple[str, ...]) -> list[int]:
        left = [each for each in self._schema[0] if each.name not in chosen]
        return [each.size(self.chosen_bins) for each in left]

    def reference(self, holdings: Holdings) -> Estimate:
        """The raw records in all their attributes, binned alike."""
        predictors, target = self._schema
        every = [*predictors, target]
        bins = self.chosen_bins if self.records or self.bins else 2
        codes = np.stack([each.codes(holdings, bins) for each in every], axis=1)
        rows, counts = np.unique(codes, axis=0, return_counts=True)
        labels = [each.labels(bins) for each in every]
        return SyntheticRows([each.name for each in every], labels, rows, counts)


def _largest(asked: list[Ask]) -> tuple[Ask, ...]:
    """The longest and the most sensitive question of each kind and share."""
    kinds: dict[tuple[type[Statistic], Fraction], list[Ask]] = {}
    for ask in asked:
        kinds.setdefault((type(ask.statistic), ask.share), []).append(ask)
    found = []
    for alike in kinds.values():
        longest = max(alike, key=lambda ask: _plan(ask).length)
        most = max(alike, key=lambda ask: _plan(ask).sensitivity.l1)
        found += [longest] if longest is most else [longest, most]
    return tuple(found)


def _plan(ask: Ask) -> Plan:
    """The plan for a few records; the number of records does not change its length."""
    return ask.statistic.plan(Facts.of_one_server(2))


def _best(answer: Answer) -> str:
    if not isinstance(answer.estimate, Counts) or not answer.estimate.names:
        raise RunFailed("the pick came back without names of attributes")
    scores = answer.estimate.values()
    if not np.isfinite(scores).all():
        raise RunFailed("noise leaves no score finite: use a larger --epsilon")
    return answer.estimate.names[int(np.argmax(scores))]
