"""What statistics of quantiles have in common, however they find them."""

from dataclasses import dataclass
from typing import ClassVar

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.thresholds import quantiles
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.bounded import BoundedColumn
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Curve, Estimate
from tallyroom.protocols.statistics.option import option


def at_quantiles(wanted: tuple[float, ...], values: list[float]) -> Estimate:
    """The value at each quantile: one number, or a curve where several are wanted."""
    return values[0] if len(values) == 1 else Curve(list(wanted), values)


@dataclass(frozen=True)
class OfQuantiles(BoundedColumn):
    """To be named before the base that says how they are found."""

    quantile: tuple[float, ...] = option((0.5,), "Which quantile; repeat it for more.")

    style: ClassVar[Style] = Style("marks", "quantile", "value")

    def __post_init__(self) -> None:
        super().__post_init__()
        for quantile in self.quantile:
            if not 0 <= quantile <= 1:
                raise LocalError(f"a quantile is between 0 and 1, not {quantile:g}")
        if not self.quantile:
            raise LocalError("say which quantile: --quantile 0.5")

    def reference(self, holdings: Holdings) -> Estimate:
        """Of the raw records; a threshold lies up to one step above."""
        return at_quantiles(self.quantile, quantiles(self.raw(holdings), self.quantile))
