"""The contract of a study: ask, look at the answer, ask again, conclude.

A study does no input or output. `steps` is a generator: it yields an `Ask`, is sent the `Answer`,
and returns its `Finding`. The caller puts the questions to a federation, charges each one and holds
the study to the budget that it declared (`protocols.studies.budget`).

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
from tallyroom.protocols.statistics.option import Parametrized
from tallyroom.protocols.statistics.release import Answer as Answer
from tallyroom.protocols.statistics.release import Intervals

BOUNDS_METHODS = ("histogram", "sparse-vector")
"""How private bounds are found: in counts that are released, or as indices that two servers
choose."""
BOUNDS_SHARE = 0.2
"""Of ε: the counts need be told from noise only, the statistic is what is wanted."""


@dataclass(frozen=True)
class Ask:
    """A question: a statistic, with its share of the study's ε and of its δ.

    `aggregator` is the aggregator that the question needs, as on the command line; None leaves the
    choice to the user."""

    statistic: Statistic
    share: Fraction
    aggregator: str | None = None

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise LocalError(f"a question's share of ε is above 0 and at most 1, not {self.share}")


@dataclass(frozen=True)
class Finding:
    """The conclusion of a study. `deviations` are those of `Answer`; None if they are not known.

    If the conclusion is the estimate of a single question, `statistic` is the statistic of that
    question: it knows the truth to compare with, and how to draw the estimate. `notes` are for the
    user to read; `without` is what the interval leaves out, and `unknown` why there is none, if the
    study knows of something. `intervals` are those of the conclusion by what they cover, where the
    study has made them of its answers."""

    estimate: Estimate
    notes: tuple[str, ...] = ()
    deviations: Column | None = None
    statistic: Statistic | None = None
    without: str = ""
    unknown: str = ""
    intervals: Intervals | None = None


Steps = Generator[Ask, Answer, Finding]


@dataclass(frozen=True)
class Study(Parametrized, ABC):
    """Questions to a federation, of which later ones may follow from earlier answers."""

    span: ClassVar[Bounds] = (-math.inf, math.inf)
    """The range that findings lie in."""

    @abstractmethod
    def shares(self) -> tuple[Fraction, ...]:
        """A share of ε and δ for each question that the study may ask, at most 1 together.

        There must be room for the whole before the first question. A study whose number of
        questions depends on the answers declares the most there can be, and pays for those that
        it asks. Questions may divide the sum otherwise than is said here.
        """

    @abstractmethod
    def may_ask(self) -> tuple[Ask, ...]:
        """Every kind of question that the study may ask, with its share. Raises `LocalError` if the
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
        """The finding on the raw records, as numpy or scipy compute it; None if there is no plain
        counterpart. Simulations report the error against it."""
        return None

    def clipped(self, holdings: Holdings) -> int:
        """The number of records with a value outside the public bounds or names. Only a simulation
        can report it; in a deployed federation nobody knows it."""
        return 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the data that the study reads: those that its roles name."""
        return tuple(str(getattr(self, each.name)) for each in self.options() if each.role)

    @property
    def title(self) -> str:
        """The name of the study in its result."""
        return self.name

    def asked_of(self, offers: Offers) -> "Study | Statistic":
        """The study or statistic that is put to a federation whose aggregator offers `offers`.

        Most studies are the same everywhere. If a single release of some aggregator answers a
        study, the study becomes that statistic there."""
        return self

    def with_bounds(self, published: Mapping[str, Bounds]) -> Self:
        """The study with bounds that a data set publishes, where it has none of its own."""
        return self

    def of_records(self, records: int) -> Self:
        """The study once it is known how many records there are, which is public."""
        return self
