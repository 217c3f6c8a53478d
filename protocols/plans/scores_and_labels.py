"""What a report of the local model tells of a score and its label."""

from dataclasses import dataclass
from fractions import Fraction

from tallyroom.protocols.local import LocalBudget, LocalRandomizer
from tallyroom.protocols.local.every_level import auc_response
from tallyroom.protocols.plans.measurement import Measurement


@dataclass(frozen=True)
class ScoresAndLabels(Measurement):
    """A record is a score of `depth` bits and a label. `asked` is what a report tells of
    (`protocols.local.every_level`)."""

    depth: int = 1
    private_labels: bool = True
    asked: str = "auto"

    def randomizer(self, budget: LocalBudget) -> LocalRandomizer | None:
        return self.randomizer_by_itself(budget(None), Fraction(0))

    def randomizer_by_itself(self, epsilon: Fraction, delta: Fraction) -> LocalRandomizer | None:
        return auc_response(self.asked, epsilon, delta, self.depth, self.private_labels)
