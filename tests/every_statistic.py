"""One of every installed statistic as it is put to a federation, and records that fit them all."""

from fractions import Fraction
from typing import Any

import numpy as np

from tallyroom.protocols.plans.contract import Curated, NoisyChoice, Points
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.records import Column, Holdings, deal
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.areas import AveragePrecision
from tallyroom.protocols.statistics.calibration import CalibrationCounts
from tallyroom.protocols.statistics.choices import Mode, TopK
from tallyroom.protocols.statistics.class_objective import ClassObjective
from tallyroom.protocols.statistics.classifier_curves import PrCurve, Roc
from tallyroom.protocols.statistics.classifier_table import ClassifierTable
from tallyroom.protocols.statistics.cox_step import CoxStep
from tallyroom.protocols.statistics.crosstab import ChiSquare, Crosstab
from tallyroom.protocols.statistics.ecdf import CumulativeHistogram, Ecdf, Quantile
from tallyroom.protocols.statistics.first_above import FirstAboveThreshold, MagnitudeBounds
from tallyroom.protocols.statistics.grouped import grouped
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.linear_regression import LinearRegression
from tallyroom.protocols.statistics.log_rank import LogRank
from tallyroom.protocols.statistics.logistic_moments import LogisticMoments
from tallyroom.protocols.statistics.logistic_objective import LogisticObjective
from tallyroom.protocols.statistics.logistic_step import LogisticStep
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
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.projected import (
    CuratedNextAttribute,
    CuratedProjectedCells,
    NextAttribute,
    NextByMax,
    ProjectedCells,
)
from tallyroom.protocols.statistics.proportion import Proportion
from tallyroom.protocols.statistics.residuals import (
    CuratedCells,
    CuratedReach,
    JointReach,
    ResidualCells,
    ResidualReach,
)
from tallyroom.protocols.statistics.running_sum import RunningSum
from tallyroom.protocols.statistics.second_moments import Correlation, Covariance
from tallyroom.protocols.statistics.sparse_cells import SparseCells, SparseNextAttribute
from tallyroom.protocols.statistics.survival import KaplanMeier, NelsonAalen
from tallyroom.protocols.statistics.whitened_step import WhitenedStep

UNIT: dict[str, Any] = {"lower": 0.05, "upper": 1.0}
GRID: dict[str, Any] = {**UNIT, "thresholds": 4}
PAIR: dict[str, Any] = {**UNIT, "bits": 4, "pairs_per_party": "1"}
SCHEMA = ("a=0:1", "b=0:1", "y=0:1")
OF_CELLS: dict[str, Any] = {"attributes": SCHEMA, "target": "y", "chosen": ("b",), "bins": 3}
MODEL: dict[str, Any] = {"x": ("x",), "y": "y", "coefficients": (0.1, 0.5)}
PLOT: dict[str, Any] = {**MODEL, "side": 4}

EVERY: tuple[Statistic, ...] = (
    Sum(**UNIT),
    Mean(**UNIT),
    Mean(**UNIT, weights="x", weight_upper=1.0),
    Proportion("label", "1"),
    Histogram(**UNIT, bins=4),
    Histogram(**UNIT, bins=4, weights="x", weight_upper=1.0),
    Magnitudes(),
    MagnitudeBounds(),
    Ecdf(**GRID),
    CumulativeHistogram(**GRID),
    Quantile(**GRID),
    Quantile(**UNIT, strategy="max", thresholds=64, within=(0.5, 0.75)),
    QuantileSearch(**UNIT),
    EcdfPoints(**UNIT, at=(0.5,)),
    TopK(**UNIT, bins=8, k=2),
    Mode(**UNIT, bins=8),
    FirstAboveThreshold(**UNIT, bins=4, threshold=2),
    RunningSum(**UNIT, steps=12),
    Roc(**GRID, at=(0.2, 0.5, 0.7)),
    PrCurve(**GRID),
    ClassifierTable(**GRID, threshold=0.5),
    Covariance(("x=0:1", "y=0:1")),
    Correlation(("x=0:1", "y=0:1")),
    KaplanMeier(event="label", upper=10.0, thresholds=4),
    NelsonAalen(event="label", upper=10.0, at=(2.0, 5.0)),
    LogRank(event="label", upper=10.0, thresholds=3, group="other", groups="0,1"),
    TTest(**UNIT),
    Anova(**UNIT, group="label", groups="0,1"),
    Crosstab(down="label", across="other", down_names="0,1", across_names="0,1"),
    ChiSquare(down="label", across="other", down_names="0,1", across_names="0,1"),
    Auc(**GRID, method="curve"),
    AveragePrecision(**GRID),
    CalibrationCounts(at=(0.2, 0.5, 0.7)),
    Auc(**GRID, method="smooth"),
    AveragePrecision(**GRID, method="smooth"),
    Roc(**GRID, method="binormal"),
    Roc(**GRID, method="priroc"),
    Roc(**GRID, method="priroc-fix"),
    LinearRegression(("x=0:1", "y=0:1"), ("x",)),
    LogisticStep(("a=0:1",), ("a",), "label", None, (0.5, -1.0)),
    LogisticMoments(("a=0:1",), ("a",)),
    CoxStep(("a=0:1",), ("a",), "time", "label", None, 8.0, 3, (0.5,)),
    WhitenedStep(("a=0:1",), ("a",), "label", None, (0.25,), (3.0,), (0.5, -1.0)),
    LogisticObjective(ranges=("a=0:1",), x=("a",)),
    ClassObjective(attributes=("a=p,q", "y=p,q"), target="y"),
    ResidualReach(**MODEL),
    CuratedReach(**MODEL),
    JointReach(**MODEL),
    ResidualCells(**PLOT),
    CuratedCells(**PLOT),
    NextAttribute(**OF_CELLS),
    NextByMax((*SCHEMA, "x=0:1"), "y", ("b",), 3),
    CuratedNextAttribute(**OF_CELLS),
    SparseNextAttribute(**OF_CELLS),
    ProjectedCells(**OF_CELLS),
    CuratedProjectedCells(**OF_CELLS),
    SparseCells(**OF_CELLS),
    grouped(Mean(**UNIT), "other < 0.5", ("label",), {"label": "0,1"}),
    grouped(Histogram(**UNIT, bins=4), by=("label",), groups={"label": "0,1"}),
    grouped(Mode(**UNIT, bins=8), "label = 1"),
    grouped(
        KaplanMeier(event="label", upper=10.0, thresholds=4), by=("label",), groups={"label": "0,1"}
    ),
    Gini(**PAIR),
    Variance(**PAIR),
    CollisionEntropy(**PAIR),
    KendallTau(**PAIR),
    Auc(**PAIR),
    Pairwise(**PAIR),
)

LOCALLY: tuple[Statistic, ...] = (Gini(**UNIT, bins="4"), Auc(**UNIT, bins="8"))
"""Those that are asked in another way in the local model."""


def records(parties: int) -> Holdings:
    """Two for each party, in every column that is asked about and in one that is not."""
    rng = np.random.default_rng(7)
    reals = ("value", "x", "y", "a", "b", "score", "other")
    columns: dict[str, Column] = {name: rng.uniform(0.05, 0.95, 2 * parties) for name in reals}
    columns["label"] = np.tile([0.0, 1.0], parties)
    columns["time"] = np.arange(1.0, 2 * parties + 1)
    return deal(columns, parties)


def put(statistic: Statistic) -> tuple[int, Question]:
    """How many servers it is put to, and as which question."""
    servers, aggregator, noise = 2, "additive", Placement.EACH_SERVER
    plan = planned(statistic).plan
    if statistic in LOCALLY:
        servers, aggregator, noise = 1, "local", Placement.CURATOR
    elif isinstance(plan, Curated):
        servers, aggregator, noise = 1, "curator", Placement.CURATOR
    elif isinstance(plan, Points):
        aggregator = "fss"
    elif isinstance(plan, NoisyChoice):
        noise = Placement.JOINT
    return servers, Question(statistic, aggregator, Fraction(1), noise, min_parties=2)
