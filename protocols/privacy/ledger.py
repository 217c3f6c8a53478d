"""The rule of the ledger: whether one more loss fits. Shells keep the ledger durable.

A keeper counts everything it ever released about the federation's data against one cap, whatever
name the coordinator gives that data: a coordinator that renames a data set gains nothing.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.composition import composed_epsilon
from tallyroom.protocols.privacy.loss import NO_LOSS, PrivacyLoss, as_written

DEFAULT_CAP_DELTA = 1e-5
"""The most δ in all that a deployed keeper grants if nobody says."""

Charges = Mapping[PrivacyLoss, int]
"""How often each loss was spent."""


@dataclass(frozen=True)
class Totals:
    """The plain sum of all losses with noise, and the number of releases without."""

    noisy: PrivacyLoss
    exact: int

    @classmethod
    def of(cls, charges: Charges) -> "Totals":
        noisy = [loss * count for loss, count in charges.items() if loss.bounded]
        exact = sum(count for loss, count in charges.items() if not loss.bounded)
        return cls(sum(noisy, NO_LOSS), exact)

    def epsilon(self, delta: float = 0.0) -> float:
        """The ε of everything, at a total of `delta` if it is known as ρ. Infinite as soon as one
        release had no noise."""
        found = self.noisy.at(delta) if self.noisy.rho is not None else self.noisy
        return math.inf if self.exact or found.epsilon is None else float(found.epsilon)


class LedgerRefusal(LocalError):  # noqa: N818 - a decision, not a mistake
    """A spend past the cap. Nothing was released."""


class Composition(StrEnum):
    """How losses add up against the cap."""

    SUM = "sum"  # plain sums, whoever chooses the losses and when
    TIGHT = "tight"  # the least ε at the cap's δ, if the questions were fixed beforehand


NO_CAP = PrivacyLoss(None, Fraction(1))


@dataclass(frozen=True)
class Filter:
    """Decides whether a loss fits beside all that was spent. It alone decides, for every ledger.

    `cap` is the most in all. Its δ is a cap even if its ε is none; a δ of 1 is no cap.
    """

    cap: PrivacyLoss = NO_CAP
    composition: Composition = Composition.SUM

    def __post_init__(self) -> None:
        granted = self.cap.rho is None and 0 < self.cap.delta < 1
        if self.composition is Composition.TIGHT and not granted:
            raise LocalError("tight composition needs a cap of delta above 0: give --cap-delta")

    @classmethod
    def of(
        cls,
        epsilon: Fraction | None,
        delta: float | None = None,
        composition: Composition = Composition.SUM,
    ) -> "Filter":
        """From caps as people give them; None is no cap. Raises `LocalError`."""
        if delta is not None and not 0 <= delta < 1:
            raise LocalError(f"a cap of delta is from 0 to below 1, not {delta}")
        most = Fraction(1) if delta is None else as_written(delta)
        return cls(PrivacyLoss(epsilon, most), composition)

    def check(self, loss: PrivacyLoss, charges: Charges) -> None:
        """Raises `LedgerRefusal` unless `loss` fits under the cap after `charges`."""
        cap, spent = self.cap, Totals.of(charges)
        if cap.bounded and spent.exact:
            raise LedgerRefusal(
                f"nothing is left of the cap {cap.size:g}: the ledger has "
                f"{spent.exact} {'release' if spent.exact == 1 else 'releases'} without noise"
            )
        if cap.bounded and not loss.bounded:
            raise LedgerRefusal(f"an answer without noise is refused: the cap is {cap.size:g}")
        if self.composition is Composition.TIGHT:
            self._check_tight(loss, charges)
            return
        if cap.rho is None:
            self._check_sum(loss, spent.noisy)
        else:  # in ρ term by term: the ρ of a sum of ε would be larger
            each = (known.as_concentrated() * count for known, count in charges.items())
            self._check_sum(loss.as_concentrated(), sum(each, NO_LOSS))

    def _check_sum(self, loss: PrivacyLoss, spent: PrivacyLoss) -> None:
        cap, after = self.cap, spent + loss
        if cap.delta >= 1:  # no cap of δ, and none that a concentrated loss could be converted at
            cap = PrivacyLoss(cap.epsilon, after.delta, cap.rho)
        if after.delta > cap.delta:
            raise LedgerRefusal(
                f"delta {float(loss.delta):g} refused: {float(cap.delta - spent.delta):g} of "
                f"{float(cap.delta):g} is left in the ledger"
            )
        if after <= cap:
            return
        if len({each.measure for each in (loss, spent, cap) if not each.nothing}) > 1:
            raise LedgerRefusal(f"{loss} refused: with it the ledger would be past its cap, {cap}")
        raise LedgerRefusal(
            f"{cap.measure} {loss.size:g} refused: {cap.size - spent.size:g} of {cap.size:g} is "
            "left in the ledger"
        )

    def _check_tight(self, loss: PrivacyLoss, charges: Charges) -> None:
        after = composed_epsilon({**charges, loss: charges.get(loss, 0) + 1}, float(self.cap.delta))
        allowed = self.cap.size
        if after > allowed or (math.isinf(after) and loss.bounded):
            raise LedgerRefusal(
                f"epsilon {loss.size:g}, delta {float(loss.delta):g} refused: with it the ledger "
                f"would come to epsilon {after:g} at delta {float(self.cap.delta):g}, and "
                f"{allowed:g} is the cap"
            )


ANYTHING = Filter()
"""Lets everything be spent."""
