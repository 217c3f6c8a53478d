"""The suite that every study must pass; other packages import it too.

    from tallyroom.extend import StudyContract

    class TestMine(StudyContract):
        study = Mine(lower=0.0, upper=1.0)

It needs pytest. Answers are those of the statistics without noise, and then with far too much. A
study whose records need other columns than uniform ones between its bounds brings `holdings`.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest

from tallyroom.protocols.cells import encode_cells
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.plans.contract import NoisyChoice
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.conformance import ANYTHING, check_one_record
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.estimates import plain, shape_of
from tallyroom.protocols.statistics.planned import AskedOf, laplace_noise, planned
from tallyroom.protocols.studies import study_named
from tallyroom.protocols.studies.budget import Budget
from tallyroom.protocols.studies.contract import Answer, Ask, Finding, Study

Answering = Callable[[Ask], Answer]


class StudySteps:
    """The tests of a study's steps, whether or not it is registered. `study` must have its bounds,
    as if asked of an aggregator of sums."""

    study: ClassVar[Study]

    def holdings(self, seed: int = 0, parties: int = 4, records: int = 400) -> Holdings:
        """Records within the bounds, dealt to parties evenly."""
        generator = np.random.default_rng(seed)
        lower, upper = (getattr(self.study, name, None) for name in ("lower", "upper"))
        low, high = (0.0 if lower is None else lower), (1.0 if upper is None else upper)
        columns = {name: generator.uniform(low, high, records) for name in self.study.columns}
        starts = np.arange(parties) * (records // parties)
        return Holdings(np.arange(parties, dtype=np.uint32), starts, columns)

    def exactly(self, ask: Ask) -> Answer:
        """The answer without noise."""
        estimate = _planned(ask.statistic, self.holdings()).noiseless(self.holdings())
        return Answer.told(
            estimate, np.zeros(len(shape_of(estimate).values())), self.holdings().rows
        )

    def drowned(self, generator: np.random.Generator) -> Answering:
        """Answers in which nothing is left but noise."""

        def answer(ask: Ask) -> Answer:
            holdings = self.holdings()
            asked = _planned(ask.statistic, holdings)
            plan, records = asked.plan, holdings.rows
            if plan.pairs is not None:  # no party has a vector of its own
                return Answer.told(float(generator.normal(0, 1e9)), np.array([1e9]), holdings.rows)
            if isinstance(plan, NoisyChoice):  # an index comes out
                chosen = generator.integers(0, plan.rule.candidates, plan.released)
                return asked.read(chosen.astype(np.uint64), records, laplace_noise(1.0))
            total = plan.measure(asked.total(holdings))
            drawn = generator.integers(-(1 << 30), 1 << 30, len(total)).astype(np.uint64)
            return asked.read(total + drawn, records, laplace_noise(2.0**60 / 3))

        return answer

    def test_it_declares_no_more_than_the_whole(self) -> None:
        shares = self.study.shares()
        assert shares
        assert all(isinstance(share, Fraction) and share > 0 for share in shares)
        assert sum(shares) <= 1

    def test_it_lists_what_it_may_ask_within_what_it_declares(self) -> None:
        listed = self.study.may_ask()
        assert listed
        assert all(ask.share <= sum(self.study.shares()) for ask in listed)
        assert listed == self.study.may_ask()

    def test_no_question_is_larger_than_those_listed(self) -> None:
        """The questions that are checked beforehand must be as large as those asked. `conducted`
        holds a study to the kinds and shares of its list; this test holds it to their sizes."""
        answers = [self.exactly, *(self.drowned(np.random.default_rng(seed)) for seed in range(20))]
        largest = self._sizes(self.study.may_ask())
        for answering in answers:
            for kind, sizes in self._sizes(_outcome(self.study, answering)[1]).items():
                assert all(one <= two for one, two in zip(sizes, largest[kind], strict=True))

    def _sizes(self, asked: Sequence[Ask]) -> dict[type[Statistic], tuple[int, ...]]:
        """The most of each kind: values that are sent, released and noised, and how far a record
        moves them."""
        found: dict[type[Statistic], tuple[int, ...]] = {}
        for ask in asked:
            plan = _planned(ask.statistic, self.holdings()).plan
            moved = plan.sensitivity
            sizes = (plan.length, plan.released, plan.noises, moved.l1, moved.squared_l2)
            before = found.get(type(ask.statistic), sizes)
            found[type(ask.statistic)] = tuple(map(max, sizes, before))
        return found

    def test_it_finds_what_the_reference_does_in_kind(self) -> None:
        finding, asked = conducted(self.study, self.exactly)
        assert 1 <= len(asked) <= len(self.study.shares())
        json.dumps(plain(finding.estimate), allow_nan=False)
        truth = self.study.reference(self.holdings())
        if truth is not None:
            assert type(shape_of(finding.estimate)) is type(shape_of(truth))
        if finding.deviations is not None:
            assert finding.deviations.shape == shape_of(finding.estimate).values().shape

    def test_a_record_that_is_anything_changes_itself_alone(self) -> None:
        """Checks every question that the study asks."""
        _, asked = conducted(self.study, self.exactly)
        before = self.holdings(parties=8, records=8)
        for statistic in {ask.statistic.name: ask.statistic for ask in asked}.values():
            for text in ANYTHING:
                cell = encode_cells([text])
                changed = {
                    name: np.append(cell, column[1:]) for name, column in before.columns.items()
                }
                check_one_record(statistic, before, replace(before, columns=changed))

    def test_the_same_answers_lead_to_the_same_questions(self) -> None:
        """Otherwise a study that is run again after an interruption would pay twice."""
        assert _outcome(self.study, self.exactly) == _outcome(self.study, self.exactly)
        runs = [_outcome(self.study, self.drowned(np.random.default_rng(1))) for _ in range(2)]
        assert runs[0] == runs[1]

    def test_whatever_the_noise_it_stays_within_what_it_declared(self) -> None:
        """`conducted` raises where it does not; giving up is allowed, in one line."""
        for seed in range(20):
            said, asked = _outcome(self.study, self.drowned(np.random.default_rng(seed)))
            assert said
            assert "\n" not in said
            assert 1 <= len(asked) <= len(self.study.shares())


class StudyContract(StudySteps):
    """A study that is installed, and chosen by its name."""

    def test_it_is_found_by_its_name(self) -> None:
        assert study_named(self.study.name) is type(self.study)

    def test_it_says_what_it_is_and_what_may_be_set(self) -> None:
        assert self.study.summary()
        for option in self.study.options():
            assert option.help
            assert not option.choices or option.default in option.choices

    def test_parameters_go_through_json_and_back(self) -> None:
        sent = json.loads(json.dumps(self.study.parameters(), allow_nan=False))
        assert type(self.study).from_parameters(sent) == self.study
        with pytest.raises(LocalError):
            type(self.study).from_parameters({"no such parameter": 1})


def conducted(study: Study, answering: Answering) -> tuple[Finding, list[Ask]]:
    """Runs a study on such answers within its budget; returns its finding, and what it asked."""
    asked: list[Ask] = []
    return _conclude(study, answering, asked), asked


def _conclude(study: Study, answering: Answering, asked: list[Ask]) -> Finding:
    budget = Budget(study, PrivacyLoss.of(1, 1e-6))
    steps = study.steps()
    try:
        ask = next(steps)
        while True:
            budget.grant(ask)
            asked.append(ask)
            ask = steps.send(answering(ask))
    except StopIteration as stop:
        finding: Finding = stop.value
        return finding


def _outcome(study: Study, answering: Answering) -> tuple[str, list[Ask]]:
    asked: list[Ask] = []
    try:
        return json.dumps(plain(_conclude(study, answering, asked).estimate)), asked
    except RunFailed as error:
        return str(error), asked


def _planned(statistic: Statistic, holdings: Holdings) -> AskedOf:
    most = int(holdings.counts.max())
    return planned(statistic, Facts.of_one_server(holdings.rows, most, Fraction(1)))
