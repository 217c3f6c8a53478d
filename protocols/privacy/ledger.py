"""The rule of the ledger: whether one more loss fits. Shells keep the ledger durable.

A keeper counts everything it ever released about the federation's data against one cap, whatever
name the coordinator gives that data: a coordinator that renames a data set gains nothing.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.composition import composed_epsilon
from tallyroom.protocols.privacy.loss import (
    MAX_TEXT,
    NO_LOSS,
    PrivacyLoss,
    as_written,
    parse_epsilon,
    parse_rho,
)

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
    RHO = "rho"  # each loss in ρ, whoever chooses it; the sum is held against (ε, δ)


NO_CAP = PrivacyLoss(None, Fraction(1))

Cap = Fraction | PrivacyLoss | None
"""As people give it (`parse_cap`): the most ε; or the most in ρ, or at a δ."""
_WITH_DELTA = re.compile(r"([^,]+),\s*delta\s*=\s*(\S+)")


def parse_cap(text: str) -> Cap:
    """A cap as a person writes it: `3`, `3, delta = 1e-6`, `rho 0.1`, or `inf`. Raises
    `LocalError`."""
    if text.startswith("rho "):
        return PrivacyLoss(rho=parse_rho(text.removeprefix("rho ").strip()))
    if (found := _WITH_DELTA.fullmatch(text[: 4 * MAX_TEXT])) is None:
        return parse_epsilon(text)
    epsilon = parse_epsilon(found[1].strip())
    try:
        delta = float(found[2])
    except ValueError:
        delta = math.nan
    if epsilon is None or not 0 < delta < 1:
        raise LocalError(
            "a cap with a delta is written `3, delta = 1e-6`, with a bounded epsilon and a "
            f"probability, not {text[:64]!r}"
        )
    return PrivacyLoss.of(epsilon, delta)


def cap_text(cap: Cap) -> str:
    """As `parse_cap` reads it."""
    if isinstance(cap, PrivacyLoss):
        return cap.text if cap.rho is not None else f"{cap.text}, delta = {cap.written_delta!r}"
    return "inf" if cap is None else str(cap)


@dataclass(frozen=True)
class Filter:
    """Decides whether a loss fits beside all that was spent. It alone decides, for every ledger.

    `cap` is the most in all. Its δ is a cap even if its ε is none; a δ of 1 is no cap.

    With `Composition.RHO` each loss counts by its ρ, and their sum, in (ε, δ) at the δ of the cap,
    must be within it. That holds whoever chooses the losses and when: where the sum of ρ is bounded
    in every course of events, all of it is of that ρ (Feldman and Zrnic 2021; Whitehouse, Ramdas,
    Rogers and Wu 2023, "Fully-adaptive composition in differential privacy", Theorem 1).
    """

    cap: PrivacyLoss = NO_CAP
    composition: Composition = Composition.SUM

    def __post_init__(self) -> None:
        granted = self.cap.rho is None and 0 < self.cap.delta < 1
        if self.composition is Composition.TIGHT and not granted:
            raise LocalError("tight composition needs a cap of delta above 0: give --cap-delta")
        if self.composition is Composition.RHO and not (granted and self.cap.bounded):
            raise LocalError("losses add up in rho under a cap as `3, delta = 1e-6`")

    @classmethod
    def of(
        cls,
        cap: Cap,
        delta: float | None = None,
        composition: Composition = Composition.SUM,
    ) -> "Filter":
        """From caps as people give them; None is no cap. A cap with a δ of its own has no use for
        `delta`. Raises `LocalError`."""
        if isinstance(cap, PrivacyLoss):
            return cls._in_rho(cap, delta, composition)
        epsilon = cap
        if delta is not None and not 0 <= delta < 1:
            raise LocalError(f"a cap of delta is from 0 to below 1, not {delta}")
        most = Fraction(1) if delta is None else as_written(delta)
        return cls(PrivacyLoss(epsilon, most), composition)

    @classmethod
    def _in_rho(cls, cap: PrivacyLoss, delta: float | None, composition: Composition) -> "Filter":
        if composition is Composition.TIGHT:
            raise LocalError(f"under the cap {cap_text(cap)} losses add up in rho, not tight")
        if cap.rho is None:
            return cls(cap, Composition.RHO)
        return cls(PrivacyLoss(None, Fraction(1) if delta is None else as_written(delta), cap.rho))

    @property
    def concentrated(self) -> bool:
        """Whether losses count by their ρ."""
        return self.cap.rho is not None or self.composition is Composition.RHO

    def counted(self, loss: PrivacyLoss, in_rho: PrivacyLoss) -> PrivacyLoss:
        """Of what is known of one loss, that by which it counts."""
        return in_rho if self.concentrated else loss

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
        if self.composition is Composition.RHO:
            self._check_rho(loss.as_concentrated(), _summed_in_rho(charges))
            return
        if cap.rho is None:
            self._check_sum(loss, spent.noisy)
        else:  # in ρ term by term: the ρ of a sum of ε would be larger
            self._check_sum(loss.as_concentrated(), _summed_in_rho(charges))

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
        if after.rho is not None and cap.epsilon is not None and after.delta == cap.delta:
            raise LedgerRefusal(
                f"{loss} refused: rho is not known in epsilon under a cap without delta; write the "
                f"cap as `{cap.size:g}, delta = 1e-6` or as `rho 0.1`"
            )
        if len({each.measure for each in (loss, spent, cap) if not each.nothing}) > 1:
            raise LedgerRefusal(f"{loss} refused: with it the ledger would be past its cap, {cap}")
        raise LedgerRefusal(
            f"{cap.measure} {loss.size:g} refused: {cap.size - spent.size:g} of {cap.size:g} is "
            "left in the ledger"
        )

    def _check_rho(self, loss: PrivacyLoss, spent: PrivacyLoss) -> None:
        after = (spent + loss).at(self.cap.delta)
        if not after <= self.cap:
            raise LedgerRefusal(
                f"rho {loss.size:g} refused: with it the ledger would come to epsilon "
                f"{after.size:g} at delta {float(self.cap.delta):g}, and {self.cap.size:g} is the "
                "cap"
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


def _summed_in_rho(charges: Charges) -> PrivacyLoss:
    """All of them in ρ, except those without noise."""
    noisy = [loss.as_concentrated() * count for loss, count in charges.items() if loss.bounded]
    return sum(noisy, NO_LOSS)


def adaptive_epsilon(in_rho: Charges, delta: float) -> float:
    """The ε at a total of `delta` of losses that are counted in ρ, whoever chose them and when.
    Infinite if one is unbounded, or where their δ use up `delta`."""
    if not all(loss.bounded for loss in in_rho):
        return math.inf
    return _summed_in_rho(in_rho).at(delta).size


ANYTHING = Filter()
"""Lets everything be spent."""
