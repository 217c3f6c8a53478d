"""A statistic of a part of the records, or of groups of them: `--where` and `--by`.

It is asked like any other statistic: what it is about is among its parameters, so everybody signs
it, and its plan has it in its identity. Which records are in a group is private, and so is how many
(`protocols.plans.groups`).
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Plan
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.groups import Division, Groups
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.predicates import canonical
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics import statistic_named
from tallyroom.protocols.statistics.contract import (
    AsksAnother,
    OfGroups,
    ReadInParts,
    ReadsNames,
    Statistic,
    asked_as,
)
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.group_estimates import OfEachGroup
from tallyroom.protocols.statistics.release import Answer, Release

MALFORMED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What parsing a text that somebody else wrote may raise."""


@dataclass(frozen=True)
class Grouped(AsksAnother, ReadsNames, Statistic):
    """Another statistic, of the records that meet a condition, and of each group of them.

    `of` names the statistic, and `given` has its parameters as canonical JSON. `where` is a
    condition in its canonical form; `by` has a COLUMN=NAME,NAME for each column that divides the
    records (`grouped` makes all that).
    """

    of: str = ""
    given: str = "{}"
    where: str = ""
    by: tuple[str, ...] = ()

    name: ClassVar[str] = "grouped"
    part_of: ClassVar[str] = "any statistic with --where or --by"

    def __post_init__(self) -> None:
        super().__post_init__()
        asked = self.asked
        check_groupable(asked)
        if tuple(map(str, self.groups.by)) != self.by or given_of(asked) != self.given:
            raise LocalError("groups are not told in their canonical form")

    @cached_property
    def asked(self) -> Statistic:
        if self.of == self.name:
            raise LocalError("groups are not divided again")
        try:
            parameters = json.loads(self.given)
            found: Statistic = statistic_named(self.of).from_parameters(parameters)
        except LocalError:
            raise
        except MALFORMED as error:
            raise LocalError(f"malformed parameters of {self.of[:40]!r}: {error}") from None
        return found

    @cached_property
    def groups(self) -> Groups:
        return Groups(self.where, tuple(map(Division.parse, self.by)))

    def asking(self, other: Statistic) -> Self:
        return type(self)(other.name, given_of(other), self.where, self.by)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.asked.columns, *self.groups.columns)))

    @property
    def named_columns(self) -> tuple[str, ...]:
        own = self.asked.named_columns if isinstance(self.asked, ReadsNames) else ()
        return (*own, *(each for each in self.groups.columns if each not in self.asked.columns))

    @property
    def _asked(self) -> OfGroups:
        assert isinstance(self.asked, OfGroups)
        return self.asked

    def plan(self, facts: Facts) -> Plan:
        if self.groups.count > facts.records:
            raise LocalError(
                f"{self.groups.count} groups of {facts.records} records: most would be empty; "
                "ask for fewer"
            )
        return self._asked.plan_of(facts, self.groups)

    def read(self, release: Release) -> Answer:
        answers = self._asked.read_of(release, self.groups)
        return answers[0] if not self.by else self._together(answers, release.records)

    def _together(self, answers: Sequence[Answer], records: int) -> Answer:
        said = (each.remarks for each in answers)
        return Answer(
            self._of_each([each.estimate for each in answers]),
            Interval.together([each.interval for each in answers]),
            records,
            remarks=tuple(dict.fromkeys(remark for remarks in said for remark in remarks)),
            foretold=all(each.foretold for each in answers),
            population=Interval.together([each.population for each in answers]),
        )

    def reference(self, holdings: Holdings) -> Estimate:
        group = self.groups.of(holdings)
        told = [self._reference(holdings, group == each) for each in range(self.groups.count)]
        return told[0] if not self.by else self._of_each(told)

    def _reference(
        self, holdings: Holdings, inside: "np.ndarray[tuple[int], np.dtype[np.bool_]]"
    ) -> Estimate:
        """Of a group without records: what numpy says of an empty array."""
        columns = {name: column[inside] for name, column in holdings.columns.items()}
        group = Holdings(holdings.ids[:1], np.zeros(1, dtype=np.intp), columns)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", RuntimeWarning)
            return self.asked.reference(group)

    def _of_each(self, estimates: list[Estimate]) -> OfEachGroup:
        columns = tuple(each.column for each in self.groups.by)
        return OfEachGroup(columns, self.groups.labels, estimates)


def answers_for_groups(kind: type[Statistic]) -> bool:
    """Whether a statistic says how it is asked of groups. One that plans or reads in a way of its
    own has to say so itself: that of the class that it is derived from would be another."""

    def place(method: str) -> int:
        return next(at for at, each in enumerate(kind.__mro__) if method in vars(each))

    if not issubclass(kind, OfGroups):
        return False
    reads = kind.read_of is ReadInParts.read_of or place("read_of") <= place("read")
    return reads and place("plan_of") <= place("plan")


def check_groupable(statistic: Statistic) -> None:
    """Raises `LocalError` for a statistic that is about all records."""
    if not answers_for_groups(type(statistic)):
        raise LocalError(f"{asked_as(statistic)} has no --where and no --by: it is of all records")


def grouped(
    statistic: Statistic,
    where: str = "",
    by: Sequence[str] = (),
    groups: Mapping[str, str] | None = None,
) -> Statistic:
    """The statistic of the records that meet the condition `where`, and for each group by the
    columns `by`, whose names `groups` tells. Raises `LocalError`."""
    if not (where or by):
        return statistic
    check_groupable(statistic)
    known = groups or {}
    if missing := [column for column in by if column not in known]:
        raise LocalError(
            f"--by {missing[0]} needs the groups, which are public: give --groups "
            f"{missing[0]}=NAME,NAME or a --schema"
        )
    divisions = [str(Division.parse(f"{column}={known[column]}")) for column in by]
    condition = canonical(where) if where else ""
    return Grouped(statistic.name, given_of(statistic), condition, tuple(divisions))


def given_of(statistic: Statistic) -> str:
    return json.dumps(statistic.parameters(), sort_keys=True, separators=(",", ":"))
