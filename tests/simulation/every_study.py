"""One of every installed study, and of some ways to ask it, with records that fit them all."""

import numpy as np

from tallyroom.protocols.statistics.ecdf import Quantile
from tallyroom.protocols.statistics.moments import Mean
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

RECORDS = 36
SCHEMA = ("value=0:1", "x=0:1", "label=0,1")
RANGES = ("x=0:1", "y=0:1")
generator = np.random.default_rng(11)
DATA = {name: generator.uniform(0.05, 0.95, RECORDS) for name in ("value", "score", "x", "y")}
DATA["label"] = (generator.uniform(size=RECORDS) < DATA["score"]).astype(np.float64)

STUDIES: dict[str, Study | Quantile] = {
    "cox": Cox(("x",), event="label", time="value", ranges=RANGES[:1], upper=1.0, newton_steps=2),
    "gini-coefficient": GiniCoefficient(lower=0.0, upper=1.0, pairs_per_party="1"),
    "hosmer-lemeshow": HosmerLemeshow(groups=3, thresholds=16),
    "logistic-regression": LogisticRegression(ranges=RANGES[:1]),
    "logistic by plain steps": LogisticRegression(
        ranges=RANGES[:1], newton_steps=2, method="newton"
    ),
    "logistic by objective": LogisticRegression(ranges=RANGES[:1], method="objective"),
    "multinomial-regression": MultinomialRegression(SCHEMA, "label", k=1, gamma=0.5, bins=2),
    "multinomial by objective": MultinomialRegression(SCHEMA, "label", "objective", bins=2),
    "private bounds": PrivateBounds(Mean()),
    "private bounds by index": PrivateBounds(Mean(), method="sparse-vector"),
    "private bounds of pairs": PrivateBounds(Quantile(thresholds=16)),
    "projected-histogram": ProjectedHistogram(SCHEMA, "label", 1, 0.5, 2),
    "projected by max": ProjectedHistogram(SCHEMA, "label", 1, 0.5, 2, "max"),
    "quantile-search": QuantileSearchStudy(lower=0.0, upper=1.0, halvings=2),
    "quantile in two questions": Quantile(
        lower=0.0, upper=1.0, quantile=(0.5,), thresholds=64, strategy="max"
    ),
    "residual-plot": ResidualPlot(ranges=RANGES, side=4, doublings=4),
    "residual plot by a curator": ResidualPlot(ranges=RANGES, side=4, doublings=4, method="dawa"),
    "residual plot by index": ResidualPlot(ranges=RANGES, side=4, reach_by="sparse-vector"),
    "roc-medians": RocMedians(bins=4, thresholds=16),
}
