"""What a study may spend: declared before its first question, and held to at every one."""

import math
from dataclasses import dataclass
from fractions import Fraction

from protocols.errors import LocalError
from protocols.privacy.ledger import as_written
from protocols.studies.contract import Ask, Study

MAX_QUESTIONS = 1024
"""Of one study."""


@dataclass(frozen=True)
class Grant:
    """What one question spends, and what the rest of its study may still spend after it.

    `epsilon` None is no noise; then nothing follows that could be counted.
    """

    epsilon: Fraction | None
    delta: float
    later_epsilon: Fraction = Fraction(0)
    later_delta: float = 0.0


class Budget:
    """A study's ε and δ. Raises `LocalError` for a study that declares more than the whole."""

    def __init__(self, study: Study, epsilon: Fraction | None, delta: float) -> None:
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
        self._name = study.name
        self._epsilon = epsilon
        self._delta = delta
        self._left = sum(declared, Fraction(0))
        self.most_questions = len(declared)
        self.asked = 0

    def grant(self, ask: Ask) -> Grant:
        """Takes a question's share. Raises `LocalError` past what was declared."""
        if self.asked == self.most_questions or ask.share > self._left:
            raise LocalError(
                f"{self._name} asks for more than it declared: {ask.share} of ε for question "
                f"{self.asked + 1} of {self.most_questions}, and {self._left} is left"
            )
        self.asked += 1
        self._left -= ask.share
        last = self.asked == self.most_questions
        later = Fraction(0) if last else self._left
        return Grant(
            None if self._epsilon is None else self._epsilon * ask.share,
            _part(self._delta, ask.share),
            Fraction(0) if self._epsilon is None else self._epsilon * later,
            0.0 if self._epsilon is None else _part(self._delta, later),
        )


def _part(delta: float, share: Fraction) -> float:
    """A share of δ, rounded down: parts never come to more than the whole."""
    exact = as_written(delta) * share
    part = float(exact)
    while as_written(part) > exact:
        part = math.nextafter(part, 0.0)
    return part
