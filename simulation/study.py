"""Carries out a study: puts its questions one after another, and adds up what they cost.

The same for a simulated federation and a deployed one, which differ in how a question is put.
"""

import dataclasses
import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.plans.interval import NOISE, POPULATION
from tallyroom.protocols.privacy.loss import NO_LOSS, PrivacyLoss
from tallyroom.protocols.records import Column
from tallyroom.protocols.run.promise import together
from tallyroom.protocols.statistics.estimates import Estimate, shape_of
from tallyroom.protocols.studies.budget import Budget, Grant
from tallyroom.protocols.studies.contract import Answer, Ask, Finding, Study
from tallyroom.protocols.wire.meter import Bill
from tallyroom.simulation.replay import answering, described, finding_intervals
from tallyroom.simulation.result import Result
from tallyroom.simulation.runtimes.contract import Progress, Report
from tallyroom.simulation.times import Roles


@dataclass(frozen=True)
class StudyQuestion:
    """A question of a study as it is to be put: what it asks, what it may spend, and its name.

    `salt` names it by the study's key and by how many questions were before it. Its own digest
    completes the key (`simulation.asking`): a study that is run again under its key is given
    the answers that are there, and a question that differs is never taken for an old one.
    """

    ask: Ask
    grant: Grant
    salt: str
    report: Report


PutQuestion = Callable[[StudyQuestion], Result]
Rehearse = Callable[[StudyQuestion], float]
"""The δ that such a question would spend. Raises `LocalError` where it cannot be asked, by the same
check that a run makes. It asks nothing."""
Truth = Callable[[], Estimate | None]


def conduct(
    study: Study,
    whole: PrivacyLoss,
    key: str,
    put: PutQuestion,
    rehearse: Rehearse,
    report: Report,
    truth: Truth = lambda: None,
) -> Result:
    """What the study finds, for the loss `whole`. Raises `LocalError` where it cannot be asked,
    and `RunFailed` where it does not come to an end, with what was spent until then."""
    budget = Budget(study, whole)
    budget.foresee(
        max(
            rehearse(StudyQuestion(ask, budget.rehearsal(ask), "", report)) for ask in budget.listed
        )
    )
    truth()  # it refuses data that the study cannot be of
    asked: list[tuple[Ask, Result]] = []
    steps = study.steps()
    try:
        ask = next(steps)
        while True:
            result = _put(ask, budget, key, put, report)
            asked.append((ask, result))
            ask = steps.send(_answer(result))
    except StopIteration as stop:
        finding = stop.value
    except RunFailed as error:
        raise type(error)(_failed(study, asked, str(error)), error.proof) from None
    except LocalError as error:
        if not asked:
            raise
        raise RunFailed(_failed(study, asked, str(error))) from None  # something is spent
    finally:
        steps.close()
    if not isinstance(finding, Finding) or not asked:
        raise LocalError(f"{study.name} ends without a question or without a finding")
    return _concluded(study, finding, asked, key, truth())


def _put(ask: Ask, budget: Budget, key: str, put: PutQuestion, report: Report) -> Result:
    grant = budget.grant(ask)
    which = f"question {budget.asked} of {budget.most_questions}"

    def tell(progress: Progress) -> None:
        report(dataclasses.replace(progress, question=which))

    return put(StudyQuestion(ask, grant, salt_of(key, budget.asked), tell))


def new_key() -> str:
    return f"study-{os.urandom(16).hex()}"


def is_study_key(key: str) -> bool:
    """Whether `new_key` made it."""
    return re.fullmatch(r"study-[0-9a-f]{32}", key) is not None


def salt_of(key: str, index: int) -> str:
    """The same in every run of a study under one key, and nothing that others could guess from the
    keys of its questions."""
    text = f"{index} {key}".encode()
    return hashlib.blake2s(text, digest_size=16, person=b"study").hexdigest()


def _answer(result: Result) -> Answer:
    if result.proof is None:
        raise RunFailed("an answer came without receipts")
    noise, population = result.intervals[NOISE], result.intervals[POPULATION]
    records = result.proof.records
    return Answer(result.estimate, noise, records, notes=result.notes, population=population)


def _failed(study: Study, asked: list[tuple[Ask, Result]], reason: str) -> str:
    if not asked:
        return reason
    spent = sum((each.privacy.loss for _, each in asked if not each.reused), NO_LOSS)
    words = f"; {spent.letter} {spent.size:g} is spent" if spent.bounded else ""
    return f"{study.title}, after {len(asked)} answered: {reason}{words}"


def _concluded(
    study: Study,
    finding: Finding,
    asked: list[tuple[Ask, Result]],
    key: str,
    truth: Estimate | None,
) -> Result:
    results = [result for _, result in asked]
    last = results[-1]
    place = answering(finding, [ask for ask, _ in asked])
    whole = None if place is None else results[place]
    private = any(result.privacy.loss.bounded for result in results)
    answers = [_answer(result) for result in results]
    intervals = finding_intervals(study, finding, answers, place, private)
    notes = dict.fromkeys([*finding.notes, *(note for each in results for note in each.notes)])
    return Result(
        study.title,
        finding.estimate,
        truth,
        together([(result.statistic, result.privacy) for result in results]),
        last.federation,
        Bill.in_sequence([result.bill for result in results]),
        _added([result.seconds for result in results]),
        _deviations(finding),
        tuple(notes),
        unsmoothed=None if whole is None else whole.unsmoothed,
        caught=tuple(dict.fromkeys(each for result in results for each in result.caught)),
        server_cpu_seconds=sum(result.server_cpu_seconds for result in results),
        waiting_seconds=sum(result.waiting_seconds for result in results),
        refusals=tuple(dict.fromkeys(each for result in results for each in result.refusals)),
        noiseless=None if whole is None else whole.noiseless,
        data=(last if whole is None else whole).data,
        lost_pairs=sum(result.lost_pairs for result in results),
        key=key if last.key else "",
        style=study.style if finding.statistic is None else finding.statistic.style,
        questions=tuple(results),
        study=described(study),
        roles=together_of_roles([result.roles for result in results]),
        interval=intervals[NOISE],
        intervals=intervals,
    )


def together_of_roles(uses: list[Roles]) -> Roles:
    """CPU adds up; the peak is that of the largest."""
    found: Roles = {}
    for each in uses:
        for role, use in each.items():
            whole = found.setdefault(role, dict.fromkeys(use, 0))
            for name, value in use.items():
                add = name == "cpu_seconds"
                whole[name] = whole[name] + value if add else max(whole[name], value)
    return found


def _deviations(finding: Finding) -> Column:
    if finding.deviations is not None:
        return finding.deviations
    return np.full(len(shape_of(finding.estimate).values()), np.nan)


def _added(seconds: list[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for each in seconds for name in each)
    return {name: sum(each.get(name, 0.0) for each in seconds) for name in names}
