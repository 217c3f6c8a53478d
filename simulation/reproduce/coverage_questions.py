"""Every statistic and study as it is asked about real columns, to see what its interval covers.

People are those of Adult, patients those of ACTG 175; scores are a logistic regression's of Adult's
income. Where more records are wanted than there are, all are taken, and others again. If a file is
missing, records are made up.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tallyroom.parties.tables import read_table
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.areas import AveragePrecision
from tallyroom.protocols.statistics.classifier_curves import PrCurve, Roc
from tallyroom.protocols.statistics.classifier_table import ClassifierTable
from tallyroom.protocols.statistics.crosstab import ChiSquare, Crosstab
from tallyroom.protocols.statistics.ecdf import CumulativeHistogram, Ecdf, Quantile
from tallyroom.protocols.statistics.grouped import grouped
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.linear_regression import LinearRegression
from tallyroom.protocols.statistics.log_rank import LogRank
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
from tallyroom.protocols.statistics.proportion import Proportion
from tallyroom.protocols.statistics.running_sum import RunningSum
from tallyroom.protocols.statistics.second_moments import Correlation, Covariance
from tallyroom.protocols.statistics.survival import KaplanMeier, NelsonAalen
from tallyroom.protocols.studies.contract import Study
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
from tallyroom.simulation.reproduce.classified import classified, data_folder
from tallyroom.simulation.reproduce.classified import made_up as scores_made_up

SEED, TIMES = 95, 64
PEOPLE, SCORES, PATIENTS = "people", "scores", "patients"
HOURS: dict[str, Any] = {"value": "hours", "lower": 0.0, "upper": 100.0}
GAIN: dict[str, Any] = {"value": "gain", "lower": 0.0, "upper": 100_000.0}
BOTH = ("age=0:120", "hours=0:100")
UNIT: dict[str, Any] = {"lower": 0.0, "upper": 1.0}
DAYS: dict[str, Any] = {"time": "days", "event": "event", "upper": 1300.0}
NAMED: dict[str, Any] = {
    "down": "sex",
    "across": "rich",
    "down_names": "0,1",
    "across_names": "0,1",
}
ADULT, ACTG = "adult.csv.gz", "actg175.csv.gz"


def questions() -> Mapping[str, tuple[str, Statistic | Study]]:
    """By what they are called, the records that they are about and themselves."""
    people: dict[str, Statistic | Study] = {
        "sum, hours": Sum(**HOURS),
        "mean, hours": Mean(**HOURS),
        "mean, gain": Mean(**GAIN),
        "mean by sex, hours": grouped(Mean(**HOURS), by=("sex",), groups={"sex": "0,1"}),
        "mean, hours, private bounds": PrivateBounds(Mean(value="hours")),
        "mean, gain, private bounds": PrivateBounds(Mean(value="gain")),
        "proportion": Proportion(value="rich", names="1"),
        "histogram, hours": Histogram(**HOURS, bins=20),
        "ecdf, hours": Ecdf(**HOURS),
        "ecdf, gain": Ecdf(**GAIN),
        "cumulative-histogram, hours": CumulativeHistogram(**HOURS),
        "running-sum, hours": RunningSum(**HOURS, steps=TIMES),
        "quantile, hours": Quantile(**HOURS),
        "quantile 0.95, gain": Quantile(**GAIN, quantile=(0.95,)),
        "quantile, three of hours": Quantile(**HOURS, quantile=(0.25, 0.5, 0.75)),
        "quantile, curve, hours": Quantile(**HOURS, strategy="hierarchy"),
        "quantile-search, hours": QuantileSearchStudy(**HOURS),
        "t-test, hours": TTest(**HOURS, group="sex", groups="0,1"),
        "anova, hours": Anova(**HOURS, group="rich", groups="0,1"),
        "crosstab": Crosstab(**NAMED),
        "chi-square": ChiSquare(**NAMED),
        "covariance": Covariance(ranges=BOTH, column=("age", "hours")),
        "correlation": Correlation(ranges=BOTH, column=("age", "hours")),
        "linear-regression": LinearRegression(ranges=BOTH, x=("age",), y="hours"),
        "logistic-regression": LogisticRegression(("age", "hours"), "rich", ranges=BOTH),
        "multinomial-regression": MultinomialRegression((*BOTH, "rich=0,1"), "rich"),
        "residual-plot": ResidualPlot(("age",), "hours", ranges=BOTH),
        "projected-histogram": ProjectedHistogram((*BOTH, "rich=0,1"), "rich", 1),
        "gini, hours": Gini(**HOURS),
        "gini-coefficient, hours": GiniCoefficient(**HOURS),
        "variance, hours": Variance(**HOURS),
        "collision-entropy, education": CollisionEntropy(value="education"),
        "kendall-tau, age and hours": KendallTau(x="age", y="hours"),
        "pairwise, hours": Pairwise(
            kernel_name="abs(a.hours - b.hours)", lower=0.0, upper=100.0, meet="servers"
        ),
    }
    scores: dict[str, Statistic | Study] = {
        "roc": Roc(**UNIT),
        "pr-curve": PrCurve(**UNIT),
        "auc": Auc(**UNIT),
        "auc, curve": Auc(**UNIT, method="curve"),
        "auc, pairs": Auc(**UNIT, method="pairs"),
        "average-precision": AveragePrecision(**UNIT),
        "classifier-table": ClassifierTable(**UNIT, threshold=0.5),
        "roc-medians": RocMedians(),
        "hosmer-lemeshow": HosmerLemeshow(),
    }
    patients: dict[str, Statistic | Study] = {
        "kaplan-meier": KaplanMeier(**DAYS),
        "nelson-aalen": NelsonAalen(**DAYS),
        "cox": Cox(
            x=("treated",), time="days", event="event", upper=1300.0, ranges=("treated=0:1",)
        ),
        "log-rank": LogRank(**DAYS, group="treated", groups="0,1"),
    }
    parts = {PEOPLE: people, SCORES: scores, PATIENTS: patients}
    return {name: (data, asked) for data, part in parts.items() for name, asked in part.items()}


NOT_NUMBERS = {
    "mode": "tells a name",
    "top-k": "tells names",
    "first-above": "tells a name or a bin",
}
"""What has no interval since it is no number."""
COUNTED_UNDER = {
    "magnitudes": "histogram",
    "ecdf-points": "ecdf",
}
"""Statistics whose interval is made as another's is, of counts: neither is measured apart."""
TRUTH_OF: dict[str, Statistic] = {"roc-medians": Roc(**UNIT)}
"""Whose truth is told at the thresholds of any answer, for a question whose own truth is not."""


def columns_of(records: int, made_up: bool = False) -> dict[str, dict[str, Column]]:
    """So many records of each set, drawn without replacement as long as there are others."""
    generator = np.random.default_rng(SEED)
    every = {
        PEOPLE: _people(made_up or not _has(ADULT)),
        SCORES: _scores(made_up),
        PATIENTS: _patients(made_up or not _has(ACTG)),
    }
    found: dict[str, dict[str, Column]] = {}
    for data, columns in every.items():
        size = len(next(iter(columns.values())))
        shuffles = [generator.permutation(size) for _ in range(math.ceil(records / size))]
        places = np.concatenate(shuffles)[:records]
        found[data] = {name: column[places] for name, column in columns.items()}
    found[PEOPLE]["time"] = (np.arange(records) % TIMES + 1).astype(np.float64)
    return found


def _has(file: str) -> bool:
    return (data_folder() / file).exists()


def _people(made_up: bool) -> dict[str, Column]:
    if made_up:
        return _made_up_people(50_000)
    texts = _texts(ADULT)
    return {
        "age": _numbers(texts["age"]),
        "hours": _numbers(texts["hours_per_week"]),
        "gain": _numbers(texts["capital_gain"]),
        "education": _numbers(texts["education_num"]),
        "sex": _numbers([each == "Female" for each in texts["sex"]]),
        "rich": _numbers([each == ">50K" for each in texts["income"]]),
    }


def _made_up_people(count: int) -> dict[str, Column]:
    generator = np.random.default_rng(SEED)
    age: Column = np.rint(np.clip(generator.gamma(8, 5, count), 17, 90))
    hours = np.rint(np.clip(40 + 12 * generator.standard_t(3, count), 1, 99))
    gains = np.rint(np.minimum(generator.lognormal(8.5, 1, count), 99_999))
    return {
        "age": age,
        "hours": hours,
        "gain": np.where(generator.random(count) < 0.9, 0.0, gains),
        "education": np.rint(np.clip(generator.normal(10, 2.5, count), 1, 16)),
        "sex": _numbers(generator.random(count) < 0.33),
        "rich": _numbers(age + hours + 20 * generator.normal(size=count) > 100),
    }


def _scores(made_up: bool) -> dict[str, Column]:
    found = scores_made_up(20_000, 0.24, 1.9) if made_up else classified("adult")
    return {"score": found.score, "label": _numbers(found.positive)}


def _patients(made_up: bool) -> dict[str, Column]:
    if not made_up:
        texts = _texts(ACTG)
        columns = {"days": "days", "event": "cens", "treated": "treat"}
        return {ours: _numbers(texts[theirs]) for ours, theirs in columns.items()}
    generator = np.random.default_rng(SEED)
    treated = _numbers(generator.random(2_000) < 0.75)
    time = generator.exponential(1500 + 1000 * treated)
    ended = np.minimum(time, generator.uniform(300, 1300, 2_000))
    return {"days": np.ceil(ended), "event": _numbers(time <= ended), "treated": treated}


def _texts(file: str) -> dict[str, list[str]]:
    table = read_table(data_folder() / file, delimiter=None)
    return dict(zip(table.header, map(list, zip(*table.rows, strict=True)), strict=True))


def _numbers(cells: Any) -> Column:
    found: Column = np.array(cells, dtype=np.float64)
    return found
