"""Something else to tell about every field of a query, and every parameter of a statistic."""

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf, Quantile
from tallyroom.protocols.statistics.grouped import Grouped, given_of
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean, Sum
from tallyroom.protocols.statistics.of_pairs import Gini, Variance
from tallyroom.protocols.statistics.on_demand import OF_CURVES, EcdfPoints, QuantileSearch
from tallyroom.protocols.statistics.pairwise import Pairs
from tallyroom.protocols.statistics.survival import KaplanMeier

COUNTS = Histogram(lower=0.0, upper=1.0, bins=4)

OTHER: dict[str, Callable[[Query], Any]] = {
    "nonce": lambda query: bytes(8),
    "statistic": lambda query: another_statistic(query.statistic),
    "aggregator": lambda query: another_aggregator(query.aggregator),
    "parties": lambda query: query.parties - 1,
    "servers": lambda query: query.servers + 1,
    "records": lambda query: query.records + 1,
    "epsilon": lambda query: Fraction(1, 10**6),
    "noise": lambda query: another_placement(query),
    "data": lambda query: "other",
    "min_parties": lambda query: query.min_parties + 1,
    "records_per_unit": lambda query: query.records_per_unit + 1,
    "max_records_per_party": lambda query: query.max_records_per_party + 1,
    "deadline": lambda query: query.deadline + 1,
    "delta": lambda query: query.delta / 2 or 1e-9,
    "later": lambda query: query.later + PrivacyLoss.of(1, 1e-9),
    "asking": lambda query: "00" * 16,
    "honest": lambda query: query.honest % query.servers + 1,
    "law": lambda query: "twofold" if query.law == "laplace" else "laplace",
    "rho": lambda query: "1/50",
    "security": lambda query: "covert" if query.security != "covert" else "malicious",
}
"""Another value for every field of a query."""

OTHER_PARAMETER: dict[str, Callable[[Any], Any]] = {
    "value": lambda value: "other",
    "lower": lambda value: value - 1,
    "upper": lambda value: value + 1,
    "bins": lambda value: 2 * value if isinstance(value, int) else "7",
    "thresholds": lambda value: 2 * value or 4,
    "steps": lambda value: 2 * value,
    "spacing": lambda value: "log" if value == "linear" else "linear",
    "strategy": lambda value: "tree" if value == "hierarchy" else "hierarchy",
    "smooth": lambda value: "2" if value == "none" else "none",
    "box": lambda value: not value,
    "solver": lambda value: "cvxopt" if value == "interior-point" else "interior-point",
    "quantile": lambda value: (0.25,),
    "at": lambda value: (*value[:-1], value[-1] + 0.01) if value else (0.2, 0.5, 0.7),
    "pilot_scores": lambda value: (0.1, 0.2),
    "pairs_per_party": lambda value: "2" if value == "1" else "1",
    "bits": lambda value: value + 1 if value < 8 else value - 1,
    "meet": lambda value: "servers" if value == "parties" else "parties",
    "meetings": lambda value: "few" if value == "auto" else "auto",
    "outputs": lambda value: "weighed" if value == "auto" else "auto",
    "k": lambda value: value + 1,
    "pilot": lambda value: (0.1, 0.2),
    "kernel": lambda value: "abs(a.value - b.value)",
    "kernel_name": lambda value: "variance",
    "time": lambda value: "other",
    "event": lambda value: "other",
    "group": lambda value: "x",
    "groups": lambda value: "0,1,2",
    "down": lambda value: "x",
    "down_names": lambda value: "0,1,2",
    "across": lambda value: "x",
    "across_names": lambda value: "0,1,2",
    "mean": lambda value: value + 0.25,
    "equal": lambda value: not value,
    "stream": lambda value: not value,
    "batches": lambda value: value + 1,
    "tau": lambda value: "a" if value == "b" else "b",
    "x": lambda value: "other",
    "y": lambda value: "other",
    "score": lambda value: "other",
    "label": lambda value: "other",
    "positive": lambda value: 2.0,
    "labels": lambda value: "public" if value == "private" else "private",
    "best": lambda value: "cost=2",
    "method": lambda value: "smooth" if value != "smooth" else "curve",
    "depth": lambda value: value + 1,
    "levels": lambda value: "one" if value == "all" else "all",
    "nonnegative": lambda value: not value,
    "categories": lambda value: "a,b",
    "randomizer": lambda value: "unary" if value != "unary" else "auto",
    "rounding": lambda value: "randomized" if value == "simple" else "simple",
    "counts": lambda value: "hb" if value == "dawa" else "dawa",
    "ranges": lambda value: (*value, "other=0:1"),
    "least_spread": lambda value: value + 1,
    "attributes": lambda value: (*value, "other=0:1"),
    "target": lambda value: "a",
    "chosen": lambda value: (),
    "threshold": lambda value: value + 1,
    "coefficients": lambda value: (*value[:-1], value[-1] + 1),
    "fitted_lower": lambda value: value - 1,
    "fitted_upper": lambda value: value + 1,
    "residual_reach": lambda value: value + 1,
    "side": lambda value: value + 1,
    "part": lambda value: value / 2,
    "within": lambda value: (0.25, 0.5),
    "fanned": lambda value: not value,
    "penalty": lambda value: value + 1,
    "of_class": lambda value: value + 1,
    "least_reach": lambda value: value + 1,
    "doublings": lambda value: value + 1,
    "centre": lambda value: tuple(each + 0.5 for each in value),
    "given": lambda value: value.replace('"lower":0.05', '"lower":0.01'),
    "of": lambda value: "sum",
    "where": lambda value: "label = 0",
    "by": lambda value: ("label=0",),
    "formula": lambda value: "y ~ other",
    "whitening": lambda value: tuple(2 * each for each in value),
    "weights": lambda value: "other",
    "weight_upper": lambda value: 2.0,
    "column": lambda value: (value[0], "other"),
    "names": lambda value: "0",
}
"""Another value for every parameter of any statistic."""

OF_STATISTIC: dict[tuple[str, str], dict[str, Any]] = {
    ("auc pairs", "method"): {"method": "curve"},
    ("auc auto", "method"): {"method": "curve"},
    ("auc curve", "method"): {"method": "pairs"},
    ("auc smooth", "method"): {"method": "curve"},
    ("auc", "randomizer"): {"randomizer": "hadamard"},
    ("classifier-table", "threshold"): {"threshold": 0.6},
    ("correlation", "column"): {"column": ("x", "other"), "ranges": ("x=0:1", "other=0:1")},
    ("correlation", "ranges"): {"ranges": ("x=0:2", "y=0:1")},
    ("covariance", "column"): {"column": ("x", "other"), "ranges": ("x=0:1", "other=0:1")},
    ("covariance", "ranges"): {"ranges": ("x=0:2", "y=0:1")},
    ("grouped histogram", "of"): {"of": "mean", "given": given_of(Mean(lower=0.05, upper=1.0))},
    ("grouped kaplan-meier", "given"): {
        "given": given_of(KaplanMeier(event="label", upper=10.0, thresholds=3))
    },
    ("grouped kaplan-meier", "of"): {"of": "nelson-aalen"},
    ("grouped mean", "of"): {"of": "sum", "given": given_of(Sum(lower=0.05, upper=1.0))},
    ("grouped mode", "of"): {"of": "top-k"},
    ("histogram", "weight_upper"): {"weights": "x", "weight_upper": 2.0},
    ("histogram", "weights"): {"weights": "other", "weight_upper": 1.0},
    ("kaplan-meier", "method"): {"method": "product-limit"},
    ("kendall-tau", "ranges"): {"ranges": ("x=0:2", "y=0:2"), "lower": None, "upper": None},
    ("pairwise", "ranges"): {"ranges": ("value=0:2",), "lower": None, "upper": None},
    ("cox-step", "at"): {"at": (0.25,)},
    ("cox-step", "ranges"): {"ranges": ("a=0:2",)},
    ("cox-step", "x"): {"x": ("other",), "ranges": ("other=0:1",)},
    ("linear-regression", "formula"): {"formula": "y ~ other", "ranges": ("other=0:1", "y=0:1")},
    ("linear-regression", "ranges"): {"ranges": ("x=0:1", "y=0:2")},
    ("linear-regression", "x"): {"x": ("other",), "ranges": ("other=0:1", "y=0:1")},
    ("linear-regression", "y"): {"y": "other", "ranges": ("x=0:1", "other=0:1")},
    ("log-rank", "at"): {"at": (2.0, 5.0)},
    ("log-rank", "event"): {"event": "x"},
    ("log-rank", "method"): {"method": "product-limit"},
    ("log-rank", "time"): {"time": "a"},
    ("logistic-objective", "ranges"): {"ranges": ("a=0:2",)},
    ("logistic-objective", "x"): {"x": ("other",), "ranges": ("other=0:1",)},
    ("logistic-moments", "ranges"): {"ranges": ("a=0:2",)},
    ("logistic-moments", "x"): {"x": ("other",), "ranges": ("other=0:1",)},
    ("logistic-step", "ranges"): {"ranges": ("a=0:2",)},
    ("logistic-step", "x"): {"x": ("other",), "ranges": ("other=0:1",)},
    ("mean", "weight_upper"): {"weights": "x", "weight_upper": 2.0},
    ("mean", "weights"): {"weights": "other", "weight_upper": 1.0},
    ("nelson-aalen", "method"): {"method": "product-limit"},
    ("nelson-aalen", "thresholds"): {"thresholds": 3},
    ("quantile", "fanned"): {"fanned": True, "within": (0.25, 0.5), "thresholds": 64},
    ("quantile", "within"): {"within": (0.25, 0.5), "thresholds": 64},
    ("residual-cells", "method"): {"method": "hb"},
    ("roc binormal", "counts"): {"counts": "dawa", "method": "priroc"},
    ("roc binormal", "method"): {"method": "priroc"},
    ("roc curve", "thresholds"): {"thresholds": 3, "at": (0.2, 0.5)},
    ("roc priroc", "method"): {"method": "binormal"},
    ("roc priroc-fix", "method"): {"method": "binormal"},
    ("running-sum", "batches"): {"stream": True, "batches": 3},
    ("t-test", "equal"): {"equal": True, "group": "label", "groups": "0,1"},
    ("t-test", "group"): {"group": "label", "groups": "0,1"},
    ("t-test", "groups"): {"group": "label", "groups": "0,1"},
    ("whitened-step", "at"): {"at": (0.5, 1.0)},
    ("whitened-step", "ranges"): {"ranges": ("a=0:2",)},
    ("whitened-step", "x"): {"x": ("other",), "ranges": ("other=0:1",)},
}
"""The same where another value of that statistic, or of it by that method, is not like that, or is
one with others only."""

ONE_VALUE = {
    # A curator's ways take one server and no thresholds of one's own.
    ("average-precision curve", "method"),
    ("roc curve", "counts"),
    ("roc curve", "method"),
    *(
        (way, parameter)
        for way in ("average-precision smooth", "roc binormal", "roc priroc", "roc priroc-fix")
        for parameter in ("at", "pilot_scores")
    ),
    *(
        (search, parameter)
        for search in ("ecdf-points", "quantile-search")
        for parameter in ("strategy", *OF_CURVES)
    ),
    ("first-above", "categories"),
    ("mode", "categories"),
    ("mode", "k"),
    ("residual-cells-curated", "method"),
    ("top-k", "categories"),
}
"""Parameters that have one value only: there is nothing else that anybody could be told."""


def another_aggregator(spec: str) -> str:
    """Of keys, those that are checked where they are not to be, and the other way round."""
    if spec.startswith("fss"):
        return "fss?verified=no" if "verified=yes" in spec else "fss?verified=yes"
    return "curator" if spec != "curator" else "masking"


def another_placement(query: Query) -> Placement:
    """One that the aggregator can do, if it can do another."""
    if query.noise not in (Placement.EACH_SERVER, Placement.CURATOR):
        return Placement.EACH_SERVER
    by_servers = query.aggregator.partition("?")[0] in ("prio3", "fss")
    return Placement.CURATOR if by_servers else Placement.PARTIES


def another_statistic(statistic: Statistic) -> Statistic:
    """Of the same kind, so that servers would take part in it."""
    match statistic:
        case Gini():
            shared = {field.name for field in dataclasses.fields(Pairs)}
            return Variance(**{name: getattr(statistic, name) for name in shared})
        case QuantileSearch():
            return EcdfPoints(lower=0.05, upper=1.0, at=(0.5,))
        case Ecdf():
            return Quantile(lower=0.05, upper=1.0, thresholds=4)
        case Histogram():
            return Sum(lower=0.0, upper=1.0)
        case _:
            return COUNTS


def names_of(statistic: Statistic) -> tuple[str, str]:
    """The statistic, and it by its method: under which another value may be told above."""
    method = statistic.of if isinstance(statistic, Grouped) else getattr(statistic, "method", "")
    return statistic.name, f"{statistic.name} {method}"
