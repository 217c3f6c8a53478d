"""A study again, from answers that are there: its conclusion follows from those and its fields."""

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from tallyroom.protocols import studies
from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.plans.interval import NOISE, NOT_SAMPLED, POPULATION, WIDEST, Interval
from tallyroom.protocols.query import Query
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics import Statistic, statistic_named
from tallyroom.protocols.statistics.bounded import known_bounds, with_published_bounds
from tallyroom.protocols.statistics.estimates import shape_of
from tallyroom.protocols.statistics.option import as_plain, wire_name
from tallyroom.protocols.statistics.release import Intervals
from tallyroom.protocols.studies import BY_OPTION, study_named
from tallyroom.protocols.studies.contract import Answer, Ask, Finding, Study

UNKNOWN = "how the noise in its questions moves the finding is not known"


def described(study: Study) -> dict[str, object]:
    """All that it takes to have it again, as JSON."""
    written = {
        wire_name(each): _written(getattr(study, each.name), each.type)
        for each in dataclasses.fields(study)
    }
    return {"name": study.name, "parameters": written}


def study_of(document: dict[str, Any]) -> Study:
    """Reads `described` back. Raises `LocalError` where there is no such study here."""
    name, parameters = document["name"], document["parameters"]
    if name not in BY_OPTION:
        return study_named(name).from_parameters(parameters)
    kind: type[Study] = getattr(studies, BY_OPTION[name])
    read = {each.name: _read(parameters[each.name], each.type) for each in dataclasses.fields(kind)}
    return kind(**read)


def concluded(
    study: Study, asked: Sequence[tuple[Query, Statistic, Answer]]
) -> tuple[Finding, int | None]:
    """What it finds, given that these queries were put and answered in this order, and read off by
    these statistics; and which of them it is the answer to (`answering`). Raises `RunFailed` where
    it would have asked something else, or for other parts of its ε."""
    steps = study.steps()
    left = list(asked)
    wholes = set()
    asks = []
    try:
        ask = next(steps)
        while left:
            query, statistic, answer = left.pop(0)
            if not _is_asked(ask, query, statistic):
                raise RunFailed(f"{study.name} would not have asked this {statistic.name}")
            asks.append(ask)
            wholes.add(None if query.epsilon is None else query.epsilon / ask.share)
            if len(wholes) > 1:
                raise RunFailed(f"{study.name} would have divided its ε in another way")
            ask = steps.send(answer)
    except StopIteration as stop:
        if left or not isinstance(stop.value, Finding):
            raise RunFailed(f"{study.name} would not have asked as much") from None
        return stop.value, answering(stop.value, asks)
    finally:
        steps.close()
    raise RunFailed(f"{study.name} would have asked more")


def answering(finding: Finding, asks: Sequence[Ask]) -> int | None:
    """The last question that was about what the finding is; None if there is none."""
    about = [place for place, ask in enumerate(asks) if ask.statistic == finding.statistic]
    return about[-1] if about else None


def finding_intervals(
    study: Study,
    finding: Finding,
    answers: Sequence[Answer],
    whole: int | None,
    private: bool,
) -> Intervals:
    """Those of a finding: of the question which it is the answer to, or else, of the noise of its
    questions, by the deviations that the study tells."""
    values = shape_of(finding.estimate).values()
    not_sampled = Interval.none(len(values), NOT_SAMPLED, POPULATION)
    if private and finding.unknown:
        return {NOISE: Interval.none(len(values), finding.unknown), POPULATION: not_sampled}
    if private and finding.intervals is not None:
        return finding.intervals
    if whole is not None:
        found = shape_of(answers[whole].estimate).values()
        if np.array_equal(found, values, equal_nan=True):
            found_intervals = answers[whole].intervals
            return {kind: _without(each, finding.without) for kind, each in found_intervals.items()}
    interval = _finding_interval(study, finding, answers) if private else None
    return {NOISE: interval, POPULATION: not_sampled}


def _finding_interval(study: Study, finding: Finding, answers: Sequence[Answer]) -> Interval:
    values = shape_of(finding.estimate).values()
    if finding.deviations is None or not np.isfinite(finding.deviations).all():
        return Interval.none(len(values), UNKNOWN)
    around = Interval.around(values, finding.deviations, WIDEST, study.span)
    beside = [each.interval.without for each in answers if each.interval is not None]
    return replace(around, without=", ".join(dict.fromkeys(filter(None, beside))))


def _without(interval: Interval | None, more: str) -> Interval | None:
    """The interval, which says that it leaves out one thing more."""
    if interval is None or not more:
        return interval
    return replace(interval, without=", ".join(filter(None, [interval.without, more])))


def _is_asked(ask: Ask, query: Query, told: Statistic) -> bool:
    """Whether a query is what a study asks for, as far as it says: bounds and categories that a
    data set publishes are filled in elsewhere."""
    unit = "record" if query.records_per_unit == 1 else "party"
    offers = aggregator_named(query.aggregator).offers
    statistic = with_published_bounds(ask.statistic, known_bounds(told), offers)
    question = Question(statistic, query.aggregator, query.epsilon, query.noise, unit=unit)
    asked = replace(question, honest=query.honest, delta=query.delta).as_put(query).statistic
    found = told.parameters()
    return asked.name == told.name and all(
        found[name] == value
        for name, value in asked.parameters().items()
        if value not in (None, "", ())
    )


def _written(value: Any, annotation: object) -> object:
    if isinstance(value, Statistic):
        return {"name": value.name, "parameters": value.parameters()}
    return str(value) if isinstance(value, Fraction) else as_plain(value, annotation)


def _read(value: Any, annotation: object) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, Statistic):
        statistic = statistic_named(value["name"]).from_parameters(value["parameters"])
        if not isinstance(statistic, annotation):
            raise LocalError(f"{statistic.name} is not what such a study is about")
        return statistic
    return Fraction(value) if annotation is Fraction else value
