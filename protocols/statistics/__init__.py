"""Statistics by name: encoded at the party, decoded at the coordinator, with a reference."""

from protocols.names import look_up
from protocols.statistics.contract import Curve, Estimate, Statistic
from protocols.statistics.ecdf import CumulativeHistogram, Ecdf, Quantile
from protocols.statistics.histogram import Histogram
from protocols.statistics.moments import Mean, Sum
from protocols.statistics.of_pairs import (
    Auc,
    CollisionEntropy,
    Gini,
    KendallTau,
    Pairwise,
    Variance,
)
from protocols.statistics.on_demand import EcdfPoints, QuantileSearch
from protocols.statistics.pairwise import Pairs
from protocols.statistics.running_sum import RunningSum

_KINDS = (
    Sum,
    Mean,
    Histogram,
    Ecdf,
    Quantile,
    CumulativeHistogram,
    EcdfPoints,
    QuantileSearch,
    RunningSum,
    Gini,
    Variance,
    CollisionEntropy,
    KendallTau,
    Auc,
    Pairwise,
)
STATISTICS: dict[str, type[Statistic]] = {kind.name: kind for kind in _KINDS}


def statistic_named(name: str) -> type[Statistic]:
    return look_up("statistic", name, STATISTICS)


__all__ = [
    "STATISTICS",
    "Auc",
    "CollisionEntropy",
    "CumulativeHistogram",
    "Curve",
    "Ecdf",
    "EcdfPoints",
    "Estimate",
    "Gini",
    "Histogram",
    "KendallTau",
    "Mean",
    "Pairs",
    "Pairwise",
    "Quantile",
    "QuantileSearch",
    "RunningSum",
    "Statistic",
    "Sum",
    "Variance",
    "statistic_named",
]
