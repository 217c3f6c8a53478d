"""The ROC curve at given thresholds, which need not be evenly spaced."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np

from protocols.errors import LocalError
from protocols.records import Column
from protocols.statistics.classifier_curves import MAX_THRESHOLDS, Rates


@dataclass(frozen=True)
class RocAt(Rates):
    """As `roc`. `at` are all thresholds but the last, which is the upper bound."""

    at: tuple[float, ...] = ()

    name: ClassVar[str] = "roc-at"
    way_of: ClassVar[str] = "roc-medians"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.thresholds != len(self.at) + 1 or self.thresholds > MAX_THRESHOLDS:
            raise LocalError(f"--thresholds is {self.thresholds}, with {len(self.at)} given")
        lower, upper = self.bounds
        if not all(lower <= each < upper for each in self.at):
            raise LocalError(f"thresholds lie within [{lower:g}, {upper:g}], the last one apart")
        if any(one >= two for one, two in pairwise(self.at)):
            raise LocalError("thresholds must rise")

    @cached_property
    def x(self) -> Column:
        return np.array([*self.at, self.bounds[1]])

    @property
    def grid_words(self) -> str:
        return f"scores are compared with {self.thresholds} private thresholds"

    def release_key(self) -> str:
        return repr((super().release_key(), self.at))
