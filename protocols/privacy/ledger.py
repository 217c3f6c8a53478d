"""The rule of the ledger: what may still be spent. Keeping it durable is the shells' work.

A server counts everything it ever released about the federation's data against one cap, whatever
name the coordinator gives that data: a coordinator that renames a data set gains nothing.
"""

from fractions import Fraction

from protocols.errors import LocalError
from protocols.machine import Spend


class LedgerRefusal(LocalError):  # noqa: N818 - a decision, not a mistake
    """A spend past the cap. Nothing was released."""


def check_spend(spend: Spend, spent: Fraction, cap: Fraction | None) -> None:
    """Raises `LedgerRefusal` unless `spend` fits under `cap` after `spent`; no cap is None."""
    if cap is None:
        return
    left = cap - spent
    if spend.epsilon is None:
        raise LedgerRefusal(
            f"an answer without noise is refused: the cap is {float(cap):g}, {float(left):g} left"
        )
    if spend.epsilon > left:
        raise LedgerRefusal(
            f"epsilon {float(spend.epsilon):g} refused: "
            f"{float(left):g} of {float(cap):g} is left in the ledger"
        )
