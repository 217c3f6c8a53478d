"""What a keeper grants in all, and how spends count against it."""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from tallyroom.protocols.errors import LocalError

DEFAULT_CAP_DELTA = 1e-5
"""The most δ in all that a deployed keeper grants if nobody says."""


class Composition(StrEnum):
    """How spends add up against the cap."""

    SUM = "sum"  # ε and δ each by their plain sums, whoever chooses them and when
    TIGHT = "tight"  # the least ε at the cap's δ, of questions that were fixed beforehand


@dataclass(frozen=True)
class Caps:
    """The most that may be spent in all; None is no cap."""

    epsilon: Fraction | None = None
    delta: float | None = None
    composition: Composition = Composition.SUM

    def __post_init__(self) -> None:
        if self.delta is not None and not 0 <= self.delta < 1:
            raise LocalError(f"a cap of delta is from 0 to below 1, not {self.delta}")
        if self.composition is Composition.TIGHT and not self.delta:
            raise LocalError("tight composition needs a cap of delta above 0: give --cap-delta")
