"""The rule of the ledger: what may still be spent. Keeping it durable is the shells' work.

A keeper counts everything it ever released about the federation's data against one cap, whatever
name the coordinator gives that data: a coordinator that renames a data set gains nothing.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.caps import Caps, Composition
from tallyroom.protocols.privacy.composition import composed_epsilon
from tallyroom.protocols.privacy.loss import as_written
from tallyroom.protocols.wire.machine import Spend


@dataclass(frozen=True)
class Charge:
    """`count` equal spends; `epsilon` None were made without noise."""

    epsilon: Fraction | None
    delta: float
    count: int = 1


@dataclass(frozen=True)
class Totals:
    """Plain sums: `epsilon` of all releases with noise, beside the number of those without."""

    epsilon: Fraction
    delta: Fraction
    exact: int

    @classmethod
    def of(cls, charges: Iterable[Charge]) -> "Totals":
        charges = list(charges)
        return cls(
            sum(
                (charge.count * (charge.epsilon or Fraction(0)) for charge in charges), Fraction(0)
            ),
            sum((charge.count * as_written(charge.delta) for charge in charges), Fraction(0)),
            sum(charge.count for charge in charges if charge.epsilon is None),
        )

    @property
    def in_all(self) -> float:
        """The ε of everything: infinite as soon as one release had no noise."""
        return math.inf if self.exact else float(self.epsilon)


class LedgerRefusal(LocalError):  # noqa: N818 - a decision, not a mistake
    """A spend past the cap. Nothing was released."""


def check_spend(spend: Spend, charges: Iterable[Charge], caps: Caps) -> None:
    """Raises `LedgerRefusal` unless `spend` fits under the caps after `charges`."""
    charges = list(charges)
    spent = Totals.of(charges)
    if caps.epsilon is not None:
        _check_exact(spend, spent, caps.epsilon)
    if caps.composition is Composition.TIGHT:
        after = [*charges, Charge(spend.epsilon, spend.delta)]
        _check_tight(spend, tight_epsilon(after, caps.delta or 0.0), caps)
        return
    if caps.epsilon is not None and spend.epsilon is not None:
        left = caps.epsilon - spent.epsilon
        if spend.epsilon > left:
            raise LedgerRefusal(
                f"epsilon {float(spend.epsilon):g} refused: "
                f"{float(left):g} of {float(caps.epsilon):g} is left in the ledger"
            )
    if caps.delta is not None:
        most = as_written(caps.delta)
        if spent.delta + as_written(spend.delta) > most:
            raise LedgerRefusal(
                f"delta {spend.delta:g} refused: {float(most - spent.delta):g} of "
                f"{caps.delta:g} is left in the ledger"
            )


def tight_epsilon(charges: Iterable[Charge], delta: float) -> float:
    """The ε of all charges together at a total of `delta`, by optimal composition."""
    return composed_epsilon(
        (
            (math.inf if charge.epsilon is None else float(charge.epsilon), charge.delta)
            for charge in charges
            for _ in range(1 if charge.epsilon is None else charge.count)
        ),
        delta,
    )


def _check_exact(spend: Spend, spent: Totals, cap: Fraction) -> None:
    if spent.exact:
        raise LedgerRefusal(
            f"nothing is left of the cap {float(cap):g}: the ledger has "
            f"{spent.exact} {'release' if spent.exact == 1 else 'releases'} without noise"
        )
    if spend.epsilon is None:
        raise LedgerRefusal(
            f"an answer without noise is refused: the cap is {float(cap):g}, "
            f"{float(cap - spent.epsilon):g} left"
        )


def _check_tight(spend: Spend, after: float, caps: Caps) -> None:
    allowed = math.inf if caps.epsilon is None else float(caps.epsilon)
    if after > allowed or (math.isinf(after) and spend.epsilon is not None):
        epsilon = math.inf if spend.epsilon is None else float(spend.epsilon)
        raise LedgerRefusal(
            f"epsilon {epsilon:g}, delta {spend.delta:g} refused: with it the ledger "
            f"would come to epsilon {after:g} at delta {caps.delta:g}, and {allowed:g} is the cap"
        )
