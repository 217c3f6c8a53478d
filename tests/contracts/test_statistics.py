"""Every installed statistic under the contract."""

from dataclasses import replace

import numpy as np

from tallyroom.extend import StatisticContract
from tallyroom.protocols.cells import encode_cells
from tallyroom.protocols.plans.contract import NoisySum
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics import statistics
from tallyroom.protocols.statistics.areas import AveragePrecision
from tallyroom.protocols.statistics.calibration import CalibrationCounts
from tallyroom.protocols.statistics.classifier_curves import PrCurve, Roc
from tallyroom.protocols.statistics.classifier_table import ClassifierTable
from tallyroom.protocols.statistics.cox_step import CoxStep
from tallyroom.protocols.statistics.crosstab import ChiSquare, Crosstab
from tallyroom.protocols.statistics.ecdf import CumulativeHistogram, Ecdf, Quantile
from tallyroom.protocols.statistics.grouped import grouped
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.linear_regression import LinearRegression
from tallyroom.protocols.statistics.log_rank import LogRank
from tallyroom.protocols.statistics.logistic_moments import LogisticMoments
from tallyroom.protocols.statistics.logistic_step import LogisticStep
from tallyroom.protocols.statistics.magnitudes import Magnitudes
from tallyroom.protocols.statistics.mean_tests import Anova, TTest
from tallyroom.protocols.statistics.moments import Mean, Sum
from tallyroom.protocols.statistics.of_pairs import Auc
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.projected import NextAttribute, ProjectedCells
from tallyroom.protocols.statistics.proportion import Proportion
from tallyroom.protocols.statistics.residuals import ResidualCells, ResidualReach
from tallyroom.protocols.statistics.running_sum import RunningSum
from tallyroom.protocols.statistics.second_moments import Correlation, Covariance
from tallyroom.protocols.statistics.survival import KaplanMeier, NelsonAalen
from tallyroom.protocols.statistics.whitened_step import WhitenedStep
from tests.every_statistic import EVERY


class TestSum(StatisticContract):
    statistic = Sum(lower=-1.0, upper=2.0)


class TestMean(StatisticContract):
    statistic = Mean(lower=0.0, upper=1.0)


class TestWeightedMean(StatisticContract):
    statistic = Mean(lower=0.0, upper=1.0, weights="w", weight_upper=2.0)


class TestWeightedHistogram(StatisticContract):
    statistic = Histogram(lower=0.0, upper=1.0, bins=5, weights="w", weight_upper=2.0)


class TestProportion(StatisticContract):
    statistic = Proportion("value", "0.25,yes")


class TestCovariance(StatisticContract):
    statistic = Covariance(("a=0:1", "b=-2:5", "c=0:1"), ("a", "b", "c"))


class TestCorrelation(StatisticContract):
    statistic = Correlation(("a=0:1", "b=-2:5", "c=0:1"), ("a", "b", "c"))


class TestHistogram(StatisticContract):
    statistic = Histogram(lower=0.0, upper=1.0, bins=7)


class OfGroupsContract(StatisticContract):
    """Records of two sexes, and of none."""

    def holdings(self, seed: int = 0, parties: int = 4, records: int = 12) -> Holdings:
        found = super().holdings(seed, parties, records)
        generator = np.random.default_rng(seed)
        names = encode_cells(("F", "M", "")).view(np.uint64)
        sexes = names[np.append([0, 1, 2], generator.integers(0, 3, records - 3))].view(np.float64)
        return replace(found, columns={**found.columns, "sex": sexes})


class TestSumWhere(OfGroupsContract):
    statistic = grouped(Sum(lower=-1.0, upper=2.0), "value > 0.2 or sex = 'F'")


class TestSumByGroup(OfGroupsContract):
    statistic = grouped(Sum(lower=0.5, upper=2.0), by=("sex",), groups={"sex": "F,M"})


class TestMeanWhere(OfGroupsContract):
    statistic = grouped(Mean(lower=1.0, upper=4.0), "sex = 'F'")


class TestMeanByGroup(OfGroupsContract):
    statistic = grouped(Mean(lower=0.0, upper=1.0), by=("sex",), groups={"sex": "F,M,X"})


class TestWeightedMeanByGroup(OfGroupsContract):
    statistic = grouped(
        Mean(lower=0.0, upper=1.0, weights="w", weight_upper=2.0),
        by=("sex",),
        groups={"sex": "F,M"},
    )


class TestProportionByGroup(OfGroupsContract):
    statistic = grouped(Proportion("sex", "F"), "other < 0.9", ("sex",), {"sex": "F,M"})


class TestHistogramByGroup(OfGroupsContract):
    statistic = grouped(
        Histogram(lower=0.0, upper=1.0, bins=3), "other < 0.9", ("sex",), {"sex": "F,M"}
    )


class TestEcdfWhere(OfGroupsContract):
    statistic = grouped(Ecdf(lower=0.0, upper=1.0, thresholds=20), "sex = 'F'")


class TestQuantileByGroup(OfGroupsContract):
    statistic = grouped(
        Quantile(lower=0.0, upper=1.0, thresholds=9), by=("sex",), groups={"sex": "F,M"}
    )


class TestCurveOfOnePoint(OfGroupsContract):
    statistic = grouped(
        CumulativeHistogram(lower=0.0, upper=1.0, thresholds=1), by=("sex",), groups={"sex": "F,M"}
    )


class TimesOfGroupsContract(OfGroupsContract):
    def holdings(self, seed: int = 0, parties: int = 4, records: int = 12) -> Holdings:
        found = super().holdings(seed, parties, records)
        generator = np.random.default_rng(seed)
        times = np.round(generator.uniform(0, 1.2, records), 2)
        marks = generator.integers(0, 2, records).astype(float)
        return replace(found, columns={**found.columns, "time": times, "event": marks})


class TestKaplanMeierByGroup(TimesOfGroupsContract):
    statistic = grouped(
        KaplanMeier(upper=1.0, thresholds=5), "value > 0.2", ("sex",), {"sex": "F,M"}
    )


class TestNelsonAalenWhere(TimesOfGroupsContract):
    statistic = grouped(NelsonAalen(upper=1.0, at=(0.25,)), "sex = 'F'")


class TestMagnitudes(StatisticContract):
    statistic = Magnitudes()

    def holdings(self, seed: int = 0, parties: int = 4, records: int = 12) -> Holdings:
        found = super().holdings(seed, parties, records)
        generator = np.random.default_rng(seed)
        signs = generator.choice([-1.0, 0.0, 1.0], records)
        values = signs * np.exp2(generator.uniform(-40, 60, records))
        return replace(found, columns={"value": values})


class TestEcdf(StatisticContract):
    statistic = Ecdf(lower=0.0, upper=1.0, thresholds=20)


class TestTreeEcdf(StatisticContract):
    statistic = Ecdf(lower=0.0, upper=1.0, thresholds=20, strategy="tree")


class TestHbEcdf(StatisticContract):
    statistic = Ecdf(lower=0.0, upper=1.0, thresholds=20, strategy="hb")


class TestQuantile(StatisticContract):
    statistic = Quantile(lower=0.0, upper=1.0, thresholds=64, quantile=(0.25, 0.5))


class TestCumulativeHistogram(StatisticContract):
    statistic = CumulativeHistogram(lower=0.0, upper=1.0, thresholds=8)


class WithLabels(StatisticContract):
    """Its label is 0 or 1."""

    __test__ = False

    def holdings(self, seed: int = 0, parties: int = 4, records: int = 12) -> Holdings:
        found = super().holdings(seed, parties, records)
        labels = np.round(found.columns["label"])
        labels[-2:] = 0.0, 1.0
        return replace(found, columns={**found.columns, "label": labels})


class TestRoc(WithLabels):
    __test__ = True
    statistic = Roc(lower=0.0, upper=1.0, thresholds=20)


class TestRocOfTwoScores(WithLabels):
    __test__ = True
    statistic = Roc(lower=0.0, upper=1.0, thresholds=9, score=("a", "b"), strategy="hb")


class TestClassifierTable(WithLabels):
    __test__ = True
    statistic = ClassifierTable(lower=0.0, upper=1.0, thresholds=8, threshold=0.5)


class TestPrCurve(WithLabels):
    __test__ = True
    statistic = PrCurve(lower=0.0, upper=1.0, thresholds=16, strategy="tree", labels="public")


class TestAucByCurve(WithLabels):
    __test__ = True
    statistic = Auc(lower=0.0, upper=1.0, method="curve", thresholds=1000)


class TestAveragePrecision(WithLabels):
    __test__ = True
    statistic = AveragePrecision(lower=0.0, upper=1.0, thresholds=1000)


class TestAveragePrecisionByHb(WithLabels):
    __test__ = True
    statistic = AveragePrecision(lower=0.0, upper=1.0, thresholds=1000, strategy="hb")


class TestCalibrationCounts(WithLabels):
    __test__ = True
    statistic = CalibrationCounts(at=(0.2, 0.5, 0.7))


class TestRocAtThresholds(WithLabels):
    __test__ = True
    statistic = Roc(lower=0.0, upper=1.0, at=(0.2, 0.5, 0.7))


class TestKaplanMeier(WithLabels):
    __test__ = True
    statistic = KaplanMeier(time="x", event="label", upper=1.0, thresholds=8)


class TestNelsonAalen(WithLabels):
    __test__ = True
    statistic = NelsonAalen(time="x", event="label", upper=1.0, at=(0.25, 0.5))


class WithGroups(WithLabels):
    """Its column g has names, too."""

    __test__ = False

    def holdings(self, seed: int = 0, parties: int = 4, records: int = 12) -> Holdings:
        found = super().holdings(seed, parties, records)
        groups = (np.arange(records) // 2 % 2).astype(np.float64)
        labels = (np.arange(records) // 3 % 2).astype(np.float64)
        return replace(found, columns={**found.columns, "g": groups, "label": labels})


class TestLogRank(WithGroups):
    __test__ = True
    statistic = LogRank(time="x", event="label", upper=1.0, thresholds=3, group="g", groups="0,1")


class TestTTest(StatisticContract):
    statistic = TTest(lower=0.0, upper=1.0)


class TestWelch(WithLabels):
    __test__ = True
    statistic = TTest(lower=0.0, upper=1.0, group="label", groups="0,1")


class TestAnova(WithLabels):
    __test__ = True
    statistic = Anova(lower=0.0, upper=1.0, group="label", groups="0,1")


class TestCrosstab(WithGroups):
    __test__ = True
    statistic = Crosstab(down="label", across="g", down_names="0,1", across_names="0,1")


class TestChiSquare(WithGroups):
    __test__ = True
    statistic = ChiSquare(down="label", across="g", down_names="0,1", across_names="0,1")


class TestLinearRegression(StatisticContract):
    statistic = LinearRegression(("r=0:1", "s=-2:5", "y=0:1"), ("r", "s"))


class TestResidualReach(StatisticContract):
    statistic = ResidualReach(("x",), "y", (0.1, 0.5), 0.25, 6)


class TestResidualCells(StatisticContract):
    statistic = ResidualCells(("x",), "y", (0.1, 0.5), -0.5, 1.0, 1.0, "laplace", 4)


class TestResidualCellsInAHierarchy(StatisticContract):
    statistic = ResidualCells(("x",), "y", (0.1, 0.5), -0.5, 1.0, 1.0, "hb", 4, 0.5)


class TestLogisticStep(WithLabels):
    __test__ = True
    statistic = LogisticStep(("a=0:1", "b=-2:1"), ("a", "b"), "label", None, (0.5, -1.0, 2.0))


class TestCoxStep(WithLabels):
    __test__ = True
    statistic = CoxStep(("a=0:1",), ("a",), "b", "label", None, 1.0, 3, (0.5,))


class TestLogisticMoments(WithLabels):
    __test__ = True
    statistic = LogisticMoments(("a=0:1", "b=-2:1"), ("a", "b"))


class TestWhitenedStep(WithLabels):
    __test__ = True
    statistic = WhitenedStep(
        ("a=0:1", "b=-2:1"),
        ("a", "b"),
        centre=(0.25, -0.5),
        whitening=(3.0, 0.5, 0.5, 2.0),
        at=(0.5, -1.0, 2.0),
    )


class TestNextAttribute(StatisticContract):
    statistic = NextAttribute(("a=0:1", "b=0:1", "c=0:1", "y=0:1"), "y", ("b",), 3)


class TestProjectedCells(StatisticContract):
    statistic = ProjectedCells(("a=0:1", "b=0:1", "y=0:1"), "y", ("b",), 3)


class TestRunningSum(StatisticContract):
    statistic = RunningSum(lower=-1.0, upper=1.0, steps=12)

    def holdings(self, seed: int = 0, parties: int = 4, records: int = 12) -> Holdings:
        found = super().holdings(seed, parties, records)
        return replace(found, columns={**found.columns, "time": np.arange(1.0, records + 1)})


class TestRunningSumByTree(TestRunningSum):
    statistic = RunningSum(lower=-1.0, upper=1.0, steps=12, strategy="tree")


class TestStream(TestRunningSum):
    statistic = RunningSum(lower=-1.0, upper=1.0, steps=12, stream=True)


class TestRunningSumBySquareRoot(TestRunningSum):
    statistic = RunningSum(lower=-1.0, upper=1.0, steps=12, strategy="square-root")


class TestEcdfBySquareRoot(StatisticContract):
    statistic = Ecdf(lower=0.0, upper=1.0, thresholds=16, strategy="square-root")


def test_every_installed_statistic_of_sums_is_under_contract() -> None:
    """Those of pairs, of points on demand and of a curator, and those that release no sum but what
    servers chose, have machines or noise of their own, and their own tests."""
    bases = (
        StatisticContract,
        WithLabels,
        WithGroups,
        OfGroupsContract,
        TimesOfGroupsContract,
    )
    kinds = [kind for base in bases for kind in base.__subclasses__()]
    tested = {kind.statistic.name for kind in kinds if hasattr(kind, "statistic")}
    plans = [(each.name, planned(each).plan) for each in EVERY]
    assert {name for name, _ in plans} == statistics().keys()
    summed = {name for name, plan in plans if isinstance(plan, NoisySum) and plan.needs is None}
    assert summed == tested
