"""A question put to public records in place of the private ones: whole, or in a smaller federation.

Parties that meet in pairs take up to a tenth of a second a meeting, so few meetings are rehearsed:
their bill is linear in parties, meetings and pairs, and how many there will be is known beforehand.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tallyroom.parties.dataset import Dataset
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Plan
from tallyroom.protocols.plans.pairs import PairSample, PairwiseMean
from tallyroom.protocols.query import Query
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.studies.contract import Study
from tallyroom.simulation.federation import Federation
from tallyroom.simulation.in_the_clear import InTheClear
from tallyroom.simulation.planning.outcomes import Outcomes, outcomes, outcomes_of_study
from tallyroom.simulation.result import Result

MOST_PARTIES = 2000
MOST_RECORDS = 20_000
MOST_MEETINGS = 20
MOST_PAIRS = 2000
"""More meetings or pairs than these are not rehearsed."""
FEW_RECORDS = 24
"""Records of a party where meetings are rehearsed in part."""
DRAWS = 8
"""Draws of pairs, of which the whole is expected to take as many as on average."""
FEW = 100
"""So many parties tell what kind of plan a question has."""
OF_A_QUERY = ("noise", "unit", "delta", "noise_law", "security", "questions")
"""Ways of asking that a query says."""

Founding = Callable[[Dataset, str, int | None, int], Federation]
"""A federation in one process, given data, an aggregator, parties and a seed."""


class Part(NamedTuple):
    """The size of a federation."""

    parties: int
    rows: int


@dataclass
class Rehearsal:
    """`records` are public: as many as there are private ones, and held by as many. `asking` is how
    the question is put; its ε and the parties that it needs are told anew. Errors are those against
    the truth or, without `against_truth`, those of the noise alone.

    A plan `on_paper` is for so many parties of one record each, more than there are records to
    deal. It is rehearsed at smaller sizes alone, on `records` that stand in for theirs."""

    question: Statistic | Study
    records: Dataset
    parties: int | None
    found: Founding
    asking: Any
    against_truth: bool = True
    on_paper: int | None = None
    _queries: dict[tuple[str, str, Part], Query | None] = field(default_factory=dict)

    @cached_property
    def whole(self) -> Part:
        if self.on_paper is not None:
            return Part(self.on_paper, self.on_paper)
        return Part(len(self.records.deal(self.parties).ids), self.records.rows)

    def __call__(
        self, spec: str, epsilon: float | str, seed: int, part: Part | None = None
    ) -> Result:
        """Raises as a run does."""
        how = dict(self.asking) | {"epsilon": epsilon, "min_parties": None}
        with self._federation(spec, part or self.whole, seed) as federation:
            return federation.run(self.question, **how)

    def outcomes(self, spec: str, epsilon: float | str) -> Outcomes | None:
        """Drawn in the clear, at the full size; None where they cannot be."""
        if self.on_paper is not None:
            return None
        query = self._query(spec, epsilon, self.whole)
        if query is not None:
            return outcomes(query, self.records.deal(self.parties))
        how = {name: self.asking[name] for name in OF_A_QUERY}
        federation = self._federation(spec, self.whole, 0)
        return outcomes_of_study(InTheClear(federation, how), self.question, epsilon)

    def size(
        self, spec: str, epsilon: float | str, part: Part, result: Result | None = None
    ) -> tuple[float, ...]:
        """What the bill is linear in: 1, parties, and where records meet in pairs, meetings of
        parties and pairs: those of the rehearsal with this result, or on average over draws."""
        on_paper = part.parties == self.on_paper
        query = self._query(spec, epsilon, Part(FEW, FEW) if on_paper else part)
        plan = None if query is None else query.plan
        if on_paper:
            self._check_on_paper(plan, spec, epsilon)
            return 1.0, part.parties
        if not isinstance(plan, PairwiseMean):
            return 1.0, part.parties
        if plan.by_servers:
            return 1.0, part.parties, 0.0, plan.sample.count(part.rows)
        holdings = self._records(part).deal(self._parties(part))
        if result is not None and result.proof is not None:
            asked = result.proof.plan(result.proof.evidence.asked_query)
            assert isinstance(asked, PairwiseMean)
            return 1.0, part.parties, *_met(asked.sample, holdings)
        seeds = (each.to_bytes(len(plan.sample.seed), "little") for each in range(DRAWS))
        samples = (dataclasses.replace(plan.sample, seed=seed) for seed in seeds)
        meetings, pairs = np.mean([_met(each, holdings) for each in samples], axis=0).tolist()
        return 1.0, part.parties, meetings, pairs

    def _check_on_paper(self, plan: Plan | None, spec: str, epsilon: float | str) -> None:
        """Raises `LocalError` where the plan for many records is another than that for few."""
        if isinstance(plan, PairwiseMean):
            raise LocalError("pairs of records are planned only for as many parties as records")
        larger = self._query(spec, epsilon, Part(MOST_PARTIES, MOST_PARTIES))
        if plan is not None and larger is not None and larger.plan.length != plan.length:
            raise LocalError("what is counted depends on the number of records: give --thresholds")

    def parts(self, spec: str, epsilon: float | str) -> list[Part]:
        """The sizes to rehearse, the largest first: the whole alone, or several smaller ones."""
        size, whole = self.size(spec, epsilon, self.whole), self.whole
        if len(size) > 2:
            if size[2] <= MOST_MEETINGS and size[3] <= MOST_PAIRS:
                return [whole]
            most = min(FEW_RECORDS, max(2, whole.rows // whole.parties))
            sizes = ((6, most), (4, most), (3, most), (4, most // 2))
            return [Part(parties, parties * each) for parties, each in sizes]
        if self.on_paper is not None:
            return [Part(MOST_PARTIES, MOST_PARTIES), Part(MOST_PARTIES // 2, MOST_PARTIES // 2)]
        share = min(1.0, MOST_PARTIES / whole.parties, MOST_RECORDS / whole.rows)
        if share == 1 or self.records.owner is not None:
            return [whole]
        return [self._share(share), self._share(share / 2)]

    def _share(self, share: float) -> Part:
        parties = max(1, round(self.whole.parties * share))
        return Part(parties, max(parties, round(self.whole.rows * share)))

    def _query(self, spec: str, epsilon: float | str, part: Part) -> Query | None:
        key = (spec, str(epsilon), part)
        if key not in self._queries:
            how = {name: self.asking[name] for name in OF_A_QUERY}
            federation = self._federation(spec, part, 0)
            put = federation.understood(self.question, epsilon, **how)
            self._queries[key] = (
                federation.query(put, epsilon, **how) if isinstance(put, Statistic) else None
            )
        return self._queries[key]

    def _federation(self, spec: str, part: Part, seed: int) -> Federation:
        return self.found(self._records(part), spec, self._parties(part), seed)

    def _parties(self, part: Part) -> int | None:
        return self.parties if part == self.whole else part.parties

    def _records(self, part: Part) -> Dataset:
        if part == self.whole or part.rows == self.records.rows:
            return self.records
        columns = {name: column[: part.rows] for name, column in self.records.columns.items()}
        return dataclasses.replace(self.records, columns=columns, owner=None)


def _met(sample: PairSample, holdings: Holdings) -> tuple[int, int]:
    """How many meetings of parties there are, and pairs in them."""
    parties = len(holdings.ids)
    party = np.repeat(np.arange(parties), holdings.counts)
    ends = np.sort(party[sample.pairs_of_parties(holdings.counts)], axis=1)
    between = ends[ends[:, 0] != ends[:, 1]]
    return len(np.unique(between[:, 0] * parties + between[:, 1])), len(between)


def repeated(records: Dataset, rows: int) -> Dataset:
    """So many records, the same ones again where there are fewer."""
    drawn = np.arange(rows) % records.rows
    columns = {name: column[drawn] for name, column in records.columns.items()}
    return dataclasses.replace(records, columns=columns, owner=None)


def like(public: Dataset, data: Dataset) -> Dataset:
    """As many public records as there are private ones, held by as many: all of them if they are as
    many, else drawn from them."""
    if public.rows == data.rows:
        drawn = np.arange(data.rows)
    else:
        drawn = np.random.default_rng(1).integers(public.rows, size=data.rows)
    owner = None if data.owner is None else np.sort(data.owner)
    columns = {name: column[drawn] for name, column in public.columns.items()}
    return dataclasses.replace(public, columns=columns, owner=owner)
