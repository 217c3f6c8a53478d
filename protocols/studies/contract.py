"""The contract of a study: ask, look at the answer, ask again, conclude.

A study does no input or output. `steps` is a generator: it yields an `Ask`, is sent the `Answer`,
and returns its `Finding`. Whoever drives it puts the questions to a federation, charges each one
and holds the study to the budget that it declared (`protocols.studies.budget`).

    @dataclass(frozen=True)
    class TwoMeans(Study):
        \"\"\"The mean, and then the mean again.\"\"\"

        name: ClassVar[str] = "two-means"

        def shares(self) -> tuple[Fraction, ...]:
            return (Fraction(1, 2), Fraction(1, 2))

        def may_ask(self) -> tuple[Ask, ...]:
            return (Ask(Mean(lower=0.0, upper=1.0), Fraction(1, 2)),)

        def steps(self) -> Steps:
            (mean,) = self.may_ask()
            first = yield mean
            second = yield mean
            return Finding((first.number + second.number) / 2)

Every choice must follow from the fields and the answers alone. A study that was interrupted is run
again from its beginning; it asks the same, and is given the answers that are there already.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.offers import Offers
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.contract import Bounds, Statistic
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.parameters import Parametrized
from tallyroom.protocols.statistics.release import Answer as Answer


@dataclass(frozen=True)
class Ask:
    """A question: a statistic, with its share of the study's ε and of its δ.

    `aggregator` is one that it must be asked with, as on the command line; None leaves that to the
    user's choice.
    """

    statistic: Statistic
    share: Fraction
    aggregator: str | None = None

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise LocalError(f"a question's share of ε is above 0 and at most 1, not {self.share}")


@dataclass(frozen=True)
class Finding:
    """What a study concludes. `deviations` are as in `Answer`; None where nobody knows them.

    `statistic` is the one whose estimate this is, where it is the estimate of a single question: it
    knows the truth to compare with, and how it is drawn. `notes` are what the user must be told.
    """

    estimate: Estimate
    notes: tuple[str, ...] = ()
    deviations: Column | None = None
    statistic: Statistic | None = None


Steps = Generator[Ask, Answer, Finding]


@dataclass(frozen=True)
class Study(Parametrized, ABC):
    """Questions to a federation, of which later ones may follow from earlier answers."""

    span: ClassVar[Bounds] = (-math.inf, math.inf)
    """Where a finding can lie."""

    @abstractmethod
    def shares(self) -> tuple[Fraction, ...]:
        """The most that it can ask: a share of ε and δ for each question, at most 1 together.

        There must be room for the whole before the first question. A study whose number of
        questions depends on the answers declares the most there can be, and pays for those that
        it asks. Questions may divide the sum otherwise than is said here.
        """

    @abstractmethod
    def may_ask(self) -> tuple[Ask, ...]:
        """Every kind of question that it may ask, with its share. Raises `LocalError` where the
        options alone rule a question out.

        All of them are checked against the federation before the first is put: nothing is spent on
        a study of which a later question cannot be asked there. Where answers decide about a
        question, a stand-in is listed, as large as the question may become; where they decide about
        its share, it is listed with the smallest and with the largest.

        A study is held to its list (`protocols.studies.budget`): each question must be about a
        listed statistic, of the aggregator listed with it, for a share between those listed.
        """

    @abstractmethod
    def steps(self) -> Steps:
        """Asks and concludes. Raises `RunFailed` where the answers allow no conclusion."""

    def reference(self, holdings: Holdings) -> Estimate | None:
        """What it would find in the raw records, as numpy or scipy compute it; None if nothing
        plain compares. Simulations tell the error against it."""
        return None

    def clipped(self, holdings: Holdings) -> int:
        """How many records have a value outside the public bounds or names that it was given. A
        simulation tells; on a deployed federation nobody knows."""
        return 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the data that it is about: those that its roles name."""
        return tuple(str(getattr(self, each.name)) for each in self.options() if each.role)

    @property
    def title(self) -> str:
        """What its result is called."""
        return self.name

    def asked_of(self, offers: Offers) -> "Study | Statistic":
        """What is put to a federation whose aggregator offers that.

        Most studies are the same everywhere. One that a single release of some aggregator answers
        is asked as that statistic there.
        """
        return self

    def with_bounds(self, published: Mapping[str, Bounds]) -> Self:
        """The study with bounds that a data set publishes, where it has none of its own."""
        return self

    def of_records(self, records: int) -> Self:
        """The study once it is known how many records there are, which is public."""
        return self
