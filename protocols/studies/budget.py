"""The budget of a study: declared before its first question, and enforced at every one."""

from dataclasses import dataclass
from fractions import Fraction

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.loss import NO_LOSS, PrivacyLoss
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.studies.contract import Ask, Study

MAX_QUESTIONS = 1024
"""The most questions of one study."""


@dataclass(frozen=True)
class Grant:
    """The loss granted to one question, and what the rest of its study may still spend after it.
    Without noise, nothing that follows is counted."""

    loss: PrivacyLoss
    later: PrivacyLoss = NO_LOSS


class Budget:
    """Divides the loss granted to a study among its questions. Raises `LocalError` for a study that
    declares more than the whole, or lists nothing.

    `listed` are the kinds of questions that it may ask.
    """

    def __init__(self, study: Study, whole: PrivacyLoss) -> None:
        declared = study.shares()
        if not 1 <= len(declared) <= MAX_QUESTIONS:
            raise LocalError(
                f"{study.name} declares {len(declared)} questions: there must be 1 to "
                f"{MAX_QUESTIONS}"
            )
        if min(declared) <= 0 or sum(declared) > 1:
            raise LocalError(
                f"{study.name} declares {sum(declared)} of its ε: shares are above 0, and 1 at "
                "most together"
            )
        self.listed = study.may_ask()
        if not self.listed:
            raise LocalError(f"{study.name} lists no question that it may ask")
        self._shares: dict[_Kind, list[Fraction]] = {}
        for ask in self.listed:
            self._shares.setdefault(_kind_of(ask), []).append(ask.share)
        self._name = study.name
        self._whole = whole
        self._left = sum(declared, Fraction(0))
        self.most_questions = len(declared)
        self.asked = 0
        self._numeric_delta = 0.0

    def foresee(self, numeric_delta: float) -> None:
        """Sets the most δ that the arithmetic of a sampler costs per question where the user grants
        none (`Query.loss`)."""
        self._numeric_delta = numeric_delta

    def rehearsal(self, ask: Ask) -> Grant:
        """The grant that a listed question would get if it came first. Takes nothing from the
        budget."""
        self._check_listed(ask)
        if ask.share > self._left:
            raise LocalError(f"{self._name} declares {self._left} of ε and lists {ask.share}")
        return self._grant(ask, self._left - ask.share, self.most_questions - 1)

    def grant(self, ask: Ask) -> Grant:
        """Takes a question's share. Raises `LocalError` past what was declared or listed."""
        if self.asked == self.most_questions or ask.share > self._left:
            raise LocalError(
                f"{self._name} asks for more than it declared: {ask.share} of ε for question "
                f"{self.asked + 1} of {self.most_questions}, and {self._left} is left"
            )
        self._check_listed(ask)
        self.asked += 1
        self._left -= ask.share
        return self._grant(ask, self._left, self.most_questions - self.asked)

    def _check_listed(self, ask: Ask) -> None:
        shares = self._shares.get(_kind_of(ask))
        if shares is None:
            of = f" of {ask.aggregator}" if ask.aggregator else ""
            raise LocalError(
                f"{self._name} asks for {ask.statistic.name}{of}, which it did not list"
            )
        if not min(shares) <= ask.share <= max(shares):
            raise LocalError(
                f"{self._name} asks for {ask.statistic.name} with {ask.share} of ε, and listed "
                f"{' to '.join(dict.fromkeys(map(str, (min(shares), max(shares)))))}"
            )

    def _grant(self, ask: Ask, left: Fraction, questions: int) -> Grant:
        """Grants a question its share, with `left` of the whole for so many later questions."""
        mine = self._whole.share(ask.share)
        if not questions or not self._whole.bounded:
            return Grant(mine)
        later = self._whole.share(left)
        if not self._whole.delta:
            later += PrivacyLoss.of(0, self._numeric_delta * questions)
        return Grant(mine, later)


_Kind = tuple[type[Statistic], str | None]


def _kind_of(ask: Ask) -> _Kind:
    return type(ask.statistic), ask.aggregator
