"""Statistics over data that n parties will not show to anybody: what users import, from one place.

    from tallyroom import Ecdf, Federation

    with Federation(parties=200, aggregator="fss") as federation:
        result = federation.run(Ecdf(value="score"), epsilon=1.0)

A name is loaded when it is first used: importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from protocols.errors import LocalError, PeerError, RunFailed, TallyError
    from protocols.statistics.areas import AveragePrecision
    from protocols.statistics.choices import Mode, TopK
    from protocols.statistics.classifier_curves import PrCurve, Roc
    from protocols.statistics.contract import Statistic
    from protocols.statistics.ecdf import CumulativeHistogram, Ecdf, Quantile
    from protocols.statistics.estimates import Curve
    from protocols.statistics.first_above import FirstAboveThreshold
    from protocols.statistics.histogram import Histogram
    from protocols.statistics.linear_regression import LinearRegression
    from protocols.statistics.magnitudes import Magnitudes
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
    from protocols.statistics.running_sum import RunningSum
    from protocols.studies.contract import Answer, Ask, Finding, Study
    from protocols.studies.gini_coefficient import GiniCoefficient
    from protocols.studies.hosmer_lemeshow import HosmerLemeshow
    from protocols.studies.logistic_regression import LogisticRegression
    from protocols.studies.multinomial_regression import MultinomialRegression
    from protocols.studies.private_bounds import PrivateBounds
    from protocols.studies.projected_histogram import ProjectedHistogram
    from protocols.studies.quantile_search import QuantileSearchStudy
    from protocols.studies.residual_plot import ResidualPlot
    from protocols.studies.roc_medians import RocMedians
    from simulation.deployment import Deployment
    from simulation.federation import Federation
    from simulation.result import Result

_HOMES = {
    "protocols.statistics.linear_regression": ("LinearRegression",),
    "protocols.studies.quantile_search": ("QuantileSearchStudy",),
    "protocols.studies.gini_coefficient": ("GiniCoefficient",),
    "protocols.studies.hosmer_lemeshow": ("HosmerLemeshow",),
    "protocols.studies.logistic_regression": ("LogisticRegression",),
    "protocols.studies.multinomial_regression": ("MultinomialRegression",),
    "protocols.studies.projected_histogram": ("ProjectedHistogram",),
    "protocols.studies.residual_plot": ("ResidualPlot",),
    "protocols.studies.roc_medians": ("RocMedians",),
    "protocols.statistics.classifier_curves": ("PrCurve", "Roc"),
    "protocols.statistics.choices": ("Mode", "TopK"),
    "protocols.statistics.first_above": ("FirstAboveThreshold",),
    "protocols.statistics.areas": ("AveragePrecision",),
    "protocols.errors": (
        "LocalError",
        "PeerError",
        "RunFailed",
        "TallyError",
    ),
    "protocols.statistics.contract": ("Statistic",),
    "protocols.statistics.estimates": ("Curve",),
    "protocols.statistics.ecdf": (
        "CumulativeHistogram",
        "Ecdf",
        "Quantile",
    ),
    "protocols.statistics.histogram": ("Histogram",),
    "protocols.statistics.magnitudes": ("Magnitudes",),
    "protocols.statistics.moments": (
        "Mean",
        "Sum",
    ),
    "protocols.statistics.of_pairs": (
        "Auc",
        "CollisionEntropy",
        "Gini",
        "KendallTau",
        "Pairwise",
        "Variance",
    ),
    "protocols.statistics.on_demand": (
        "EcdfPoints",
        "QuantileSearch",
    ),
    "protocols.statistics.running_sum": ("RunningSum",),
    "protocols.studies.contract": (
        "Answer",
        "Ask",
        "Finding",
        "Study",
    ),
    "protocols.studies.private_bounds": ("PrivateBounds",),
    "simulation.deployment": ("Deployment",),
    "simulation.federation": ("Federation",),
    "simulation.result": ("Result",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Answer",
    "Ask",
    "Auc",
    "AveragePrecision",
    "CollisionEntropy",
    "CumulativeHistogram",
    "Curve",
    "Deployment",
    "Ecdf",
    "EcdfPoints",
    "Federation",
    "Finding",
    "FirstAboveThreshold",
    "Gini",
    "GiniCoefficient",
    "Histogram",
    "HosmerLemeshow",
    "KendallTau",
    "LinearRegression",
    "LocalError",
    "LogisticRegression",
    "Magnitudes",
    "Mean",
    "Mode",
    "MultinomialRegression",
    "Pairwise",
    "PeerError",
    "PrCurve",
    "PrivateBounds",
    "ProjectedHistogram",
    "Quantile",
    "QuantileSearch",
    "QuantileSearchStudy",
    "ResidualPlot",
    "Result",
    "Roc",
    "RocMedians",
    "RunFailed",
    "RunningSum",
    "Statistic",
    "Study",
    "Sum",
    "TallyError",
    "TopK",
    "Variance",
]


if not TYPE_CHECKING:  # so that a type checker knows these names and no others

    def __getattr__(name: str) -> object:
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found: object = getattr(import_module(_HOME_OF[name]), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
