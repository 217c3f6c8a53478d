"""Every installed study under the contract."""

from dataclasses import replace

import numpy as np

from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.studies import study_names
from tallyroom.protocols.studies.conformance import StudyContract, StudySteps
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


class TestQuantileSearch(StudyContract):
    study = QuantileSearchStudy(lower=0.0, upper=1.0, halvings=5)


class TestQuantilesOnALogarithmicGrid(StudyContract):
    study = QuantileSearchStudy(
        lower=0.5, upper=64.0, spacing="log", quantile=(0.1, 0.9), halvings=4
    )


class TestResidualPlot(StudyContract):
    study = ResidualPlot(coefficients=(0.1, 0.5), least_reach=0.25, side=4)


class TestResidualPlotOfAFit(StudyContract):
    study = ResidualPlot(ranges=("x=0:1", "y=0:1"), method="hb", side=4, doublings=8)


class TestProjectedHistogram(StudyContract):
    study = ProjectedHistogram(("a=0:1", "b=0:1", "c=0:1", "y=0:1"), "y", 2, 0.5, 3)


class TestProjectedHistogramByMax(StudyContract):
    study = ProjectedHistogram(("a=0:1", "b=0:1", "c=0:1", "y=0:1"), "y", 2, 0.5, 3, "max")


class TestLogisticRegression(StudyContract):
    study = LogisticRegression(
        ("a", "b"), "label", ranges=("a=0:1", "b=0:1"), newton_steps=4, method="newton"
    )

    def holdings(self, seed: int = 0, parties: int = 4, records: int = 400) -> Holdings:
        found = super().holdings(seed, parties, records)
        return replace(found, columns=found.columns | {"label": np.round(found.columns["label"])})


class TestWhitenedRegression(TestLogisticRegression):
    study = LogisticRegression(("a", "b"), "label", ranges=("a=0:1", "b=0:1"))


class TestCox(StudyContract):
    study = Cox(("a", "b"), "time", "label", 1.0, ("a=0:1", "b=0:1"), 1.0, thresholds=3)


class TestMultinomialRegression(StudyContract):
    study = MultinomialRegression(("a=0:1", "b=0:1", "y=0:1"), "y", k=1, gamma=0.5, bins=3)


class TestGiniCoefficient(StudyContract):
    study = GiniCoefficient(value="value", lower=0.0, upper=1.0, pairs_per_party="2")


class CalibratedScores(StudyContract):
    """Of scores that are right: a record is positive as often as its score says."""

    def holdings(self, seed: int = 0, parties: int = 4, records: int = 400) -> Holdings:
        found = super().holdings(seed, parties, records)
        drawn = np.random.default_rng(seed + 1).uniform(size=records)
        labels = (drawn < found.columns["score"]).astype(np.float64)
        return replace(found, columns={**found.columns, "label": labels})


class TestHosmerLemeshow(CalibratedScores):
    study = HosmerLemeshow(groups=4, thresholds=64)


class TestRocMedians(CalibratedScores):
    study = RocMedians(bins=8, thresholds=64)


class TestPrivateBounds(StudySteps):
    """It has a statistic for a field, so the command builds it, and no name does."""

    study = PrivateBounds(Mean())


def test_every_installed_study_is_under_contract() -> None:
    kinds = [*StudyContract.__subclasses__(), *CalibratedScores.__subclasses__()]
    tested = {kind.study.name for kind in kinds if kind is not CalibratedScores}
    assert tested == set(study_names())
