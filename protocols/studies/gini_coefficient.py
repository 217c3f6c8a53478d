"""The Gini coefficient: half the mean difference of two records, as a share of the mean.

`gini` is the mean difference E|x − x'|, in the unit of the values. The coefficient is
E|x − x'| / (2·E x), between 0 and 1 for values that are not negative. It takes two answers: the
mean difference of pairs, and the mean. For n records it is n/(n − 1) times the coefficient of the
sorted values that also pairs every record with itself.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.contract import Bounds
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.statistics.option import SUMS, option, role
from tallyroom.protocols.studies.contract import Ask, Finding, Steps, Study

OF_PAIRS = Fraction(3, 4)
"""The share of ε for the mean difference, whose noise is the larger."""


@dataclass(frozen=True)
class GiniCoefficient(Study):
    """The Gini coefficient of inequality: from the mean difference of pairs, and the mean."""

    value: str = role("value", "The column to compute it from.", bounded=True)
    lower: float | None = option(None, "Public lower bound of the values, 0 or more.")
    upper: float | None = option(None, "Public upper bound of the values.")
    pairs_per_party: str = option(
        "auto", "How many pairs each record is in: a number, all or auto."
    )

    name: ClassVar[str] = "gini-coefficient"
    topic: ClassVar[str] = SUMS
    span: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        self._mean()  # raises for invalid bounds
        if self.lower is not None and self.lower < 0:
            raise LocalError(
                f"--lower {self.lower:g}: the coefficient needs values that are not negative"
            )

    def _mean(self) -> Mean:
        return Mean(value=self.value, lower=self.lower, upper=self.upper)

    def _difference(self) -> Gini:
        return Gini(
            value=self.value,
            lower=self.lower,
            upper=self.upper,
            pairs_per_party=self.pairs_per_party,
        )

    def with_bounds(self, published: Mapping[str, Bounds]) -> Self:
        bounded = self._mean().with_bounds(published)
        return replace(self, lower=bounded.lower, upper=bounded.upper)

    def shares(self) -> tuple[Fraction, ...]:
        return (OF_PAIRS, 1 - OF_PAIRS)

    def may_ask(self) -> tuple[Ask, ...]:
        if self.lower is None or self.upper is None:
            raise LocalError(f"{self.name} needs public bounds: give --lower and --upper")
        return (Ask(self._difference(), OF_PAIRS), Ask(self._mean(), 1 - OF_PAIRS))

    def steps(self) -> Steps:
        of_pairs, of_mean = self.may_ask()
        difference = yield of_pairs
        mean = yield of_mean
        if mean.number <= 0:
            raise RunFailed(
                f"the private mean is {mean.number:.3g}, so there is no coefficient: "
                "ask with more ε, or with narrower bounds"
            )
        found = difference.number / (2 * mean.number)
        relative = math.hypot(
            float(difference.deviations[0]) / (2 * mean.number),
            found * float(mean.deviations[0]) / mean.number,
        )
        notes = (
            f"mean difference {difference.number:.6g}, mean {mean.number:.6g}",
            "the deviation is of first order, and of the noise alone",
        )
        return Finding(found, notes, np.array([relative]))

    def reference(self, holdings: Holdings) -> Estimate | None:
        values = np.sort(holdings.column(self.value))
        count = len(values)
        if count < 2 or values.sum() <= 0:
            return None
        ranks = 2 * np.arange(1, count + 1) - count - 1
        difference = 2 * float(ranks @ values) / (count * (count - 1))
        return difference / (2 * float(values.mean()))
