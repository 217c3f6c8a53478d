"""What a coordinator knows when it decides what a statistic leaves open."""

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Circumstances:
    """What is known before a statistic is asked, all of it public.

    `epsilon` is None where there is no noise; `inside` tells that pairs of parties draw it in their
    circuits. What is drawn at random is drawn from `seed`. Each released integer has `noises` times
    the noise of one mechanism (`mechanisms.noises_in`), which hides `records_per_unit` records.
    """

    records: int
    max_records_per_party: int
    epsilon: Fraction | None
    inside: bool
    seed: bytes
    noises: Fraction = Fraction(1)
    records_per_unit: int = 1

    @property
    def record_epsilon(self) -> Fraction | None:
        """What replacing one record may cost: noise of scale Δ over it, where that moves values by
        Δ, is `epsilon`-private for the unit."""
        return None if self.epsilon is None else self.epsilon / self.records_per_unit
