"""Statistics over data that n parties will not show to anybody: what users import, from one place.

    from tallyroom import Ecdf, Federation

    with Federation(parties=200, aggregator="fss") as federation:
        result = federation.run(Ecdf(value="score"), epsilon=1.0)

A name is loaded when it is first used: importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tallyroom.protocols.errors import LocalError, PeerError, RunFailed, TallyError
    from tallyroom.protocols.statistics.areas import AveragePrecision
    from tallyroom.protocols.statistics.choices import Mode, TopK
    from tallyroom.protocols.statistics.classifier_curves import PrCurve, Roc
    from tallyroom.protocols.statistics.classifier_table import ClassifierTable
    from tallyroom.protocols.statistics.contract import Statistic
    from tallyroom.protocols.statistics.crosstab import ChiSquare, Crosstab
    from tallyroom.protocols.statistics.ecdf import CumulativeHistogram, Ecdf, Quantile
    from tallyroom.protocols.statistics.estimates import Curve
    from tallyroom.protocols.statistics.first_above import FirstAboveThreshold
    from tallyroom.protocols.statistics.histogram import Histogram
    from tallyroom.protocols.statistics.linear_regression import LinearRegression
    from tallyroom.protocols.statistics.log_rank import LogRank
    from tallyroom.protocols.statistics.magnitudes import Magnitudes
    from tallyroom.protocols.statistics.mean_tests import Anova, TTest
    from tallyroom.protocols.statistics.moments import Mean, Sum
    from tallyroom.protocols.statistics.of_pairs import (
        Auc,
        CollisionEntropy,
        Gini,
        KendallTau,
        Pairwise,
        Variance,
    )
    from tallyroom.protocols.statistics.on_demand import EcdfPoints, QuantileSearch
    from tallyroom.protocols.statistics.proportion import Proportion
    from tallyroom.protocols.statistics.running_sum import RunningSum
    from tallyroom.protocols.statistics.second_moments import Correlation, Covariance
    from tallyroom.protocols.statistics.survival import KaplanMeier, NelsonAalen
    from tallyroom.protocols.studies.contract import Answer, Ask, Finding, Study
    from tallyroom.protocols.studies.cox import Cox
    from tallyroom.protocols.studies.gini_coefficient import GiniCoefficient
    from tallyroom.protocols.studies.hosmer_lemeshow import HosmerLemeshow
    from tallyroom.protocols.studies.logistic_regression import LogisticRegression
    from tallyroom.protocols.studies.multinomial_regression import MultinomialRegression
    from tallyroom.protocols.studies.private_bounds import PrivateBounds
    from tallyroom.protocols.studies.projected_histogram import ProjectedHistogram
    from tallyroom.protocols.studies.quantile_search import QuantileSearchStudy
    from tallyroom.protocols.studies.residual_plot import ResidualPlot
    from tallyroom.protocols.studies.roc_medians import RocMedians
    from tallyroom.simulation.deployment import Deployment
    from tallyroom.simulation.federation import Federation
    from tallyroom.simulation.result import Result

_HOMES = {
    "tallyroom.protocols.statistics.linear_regression": ("LinearRegression",),
    "tallyroom.protocols.studies.quantile_search": ("QuantileSearchStudy",),
    "tallyroom.protocols.studies.cox": ("Cox",),
    "tallyroom.protocols.studies.gini_coefficient": ("GiniCoefficient",),
    "tallyroom.protocols.studies.hosmer_lemeshow": ("HosmerLemeshow",),
    "tallyroom.protocols.studies.logistic_regression": ("LogisticRegression",),
    "tallyroom.protocols.studies.multinomial_regression": ("MultinomialRegression",),
    "tallyroom.protocols.studies.projected_histogram": ("ProjectedHistogram",),
    "tallyroom.protocols.studies.residual_plot": ("ResidualPlot",),
    "tallyroom.protocols.studies.roc_medians": ("RocMedians",),
    "tallyroom.protocols.statistics.classifier_curves": ("PrCurve", "Roc"),
    "tallyroom.protocols.statistics.choices": ("Mode", "TopK"),
    "tallyroom.protocols.statistics.first_above": ("FirstAboveThreshold",),
    "tallyroom.protocols.statistics.areas": ("AveragePrecision",),
    "tallyroom.protocols.errors": (
        "LocalError",
        "PeerError",
        "RunFailed",
        "TallyError",
    ),
    "tallyroom.protocols.statistics.contract": ("Statistic",),
    "tallyroom.protocols.statistics.estimates": ("Curve",),
    "tallyroom.protocols.statistics.ecdf": (
        "CumulativeHistogram",
        "Ecdf",
        "Quantile",
    ),
    "tallyroom.protocols.statistics.histogram": ("Histogram",),
    "tallyroom.protocols.statistics.magnitudes": ("Magnitudes",),
    "tallyroom.protocols.statistics.moments": (
        "Mean",
        "Sum",
    ),
    "tallyroom.protocols.statistics.of_pairs": (
        "Auc",
        "CollisionEntropy",
        "Gini",
        "KendallTau",
        "Pairwise",
        "Variance",
    ),
    "tallyroom.protocols.statistics.on_demand": (
        "EcdfPoints",
        "QuantileSearch",
    ),
    "tallyroom.protocols.statistics.running_sum": ("RunningSum",),
    "tallyroom.protocols.statistics.classifier_table": ("ClassifierTable",),
    "tallyroom.protocols.statistics.proportion": ("Proportion",),
    "tallyroom.protocols.statistics.second_moments": ("Correlation", "Covariance"),
    "tallyroom.protocols.statistics.crosstab": ("ChiSquare", "Crosstab"),
    "tallyroom.protocols.statistics.log_rank": ("LogRank",),
    "tallyroom.protocols.statistics.mean_tests": ("Anova", "TTest"),
    "tallyroom.protocols.statistics.survival": ("KaplanMeier", "NelsonAalen"),
    "tallyroom.protocols.studies.contract": (
        "Answer",
        "Ask",
        "Finding",
        "Study",
    ),
    "tallyroom.protocols.studies.private_bounds": ("PrivateBounds",),
    "tallyroom.simulation.deployment": ("Deployment",),
    "tallyroom.simulation.federation": ("Federation",),
    "tallyroom.simulation.result": ("Result",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Anova",
    "Answer",
    "Ask",
    "Auc",
    "AveragePrecision",
    "ChiSquare",
    "ClassifierTable",
    "CollisionEntropy",
    "Correlation",
    "Covariance",
    "Cox",
    "Crosstab",
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
    "KaplanMeier",
    "KendallTau",
    "LinearRegression",
    "LocalError",
    "LogRank",
    "LogisticRegression",
    "Magnitudes",
    "Mean",
    "Mode",
    "MultinomialRegression",
    "NelsonAalen",
    "Pairwise",
    "PeerError",
    "PrCurve",
    "PrivateBounds",
    "ProjectedHistogram",
    "Proportion",
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
    "TTest",
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
