"""The table of cases: every statistic and study as users ask it, times the aggregators.

A refusal is a case too. Nothing here knows more than what users import from `tallyroom`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

EVERY = ("curator", "additive", "fss", "local", "masking", "prio3", "shamir", "shuffle")
ALSO = (
    *("additive/3", "fss/3", "fss?verified=no", "fss?domain=fine", "prio3/3"),
    *("shamir/4", "shamir?pack=2/4", "masking?neighbours=4", "shuffle?honest=0.6"),
)
"""Settings of aggregators, and with `/` other numbers of servers."""
MOST = ("curator", "additive", "fss", "local", "prio3", "shuffle")
"""Where masking and shamir have nothing to add to additive."""
ROOMS = ("curator", "additive")
THREE = ("additive", "additive/3", "fss/3")
CIRCUITS = ("curator", "additive", "fss", "prio3")
RANDOMIZED = ("local", "shuffle")
RANDOMIZERS = ("response", "unary", "hadamard", "hashing")
SMALL_DELTA = 1e-6
LOUD = ("inf", "100")
"""For studies that noise at ε = 1 would end early, now here and now there."""


@dataclass(frozen=True)
class Row:
    """A question with what it is asked with; `over` are the aggregators that it is put to.

    `first` are options of the same question that is asked before, of the same federation.
    """

    options: dict[str, Any]
    over: tuple[str, ...] = EVERY
    epsilons: tuple[str, ...] = ("inf", "1")
    noise: str | None = None
    unit: str = "record"
    delta: float = 0.0
    bounds: dict[str, Any] | None = None
    data: str = "uneven"
    first: dict[str, Any] | None = None


@dataclass(frozen=True)
class Case:
    """One row put to one aggregator with one ε."""

    name: str
    kind: str
    options: dict[str, Any] = field(hash=False)
    row: Row = field(hash=False)
    aggregator: str
    epsilon: str

    @property
    def label(self) -> str:
        """The command that would ask it, in short."""
        row, said = self.row, [self.name]
        said += [f"{key}={value}" for key, value in sorted(row.options.items())]
        if row.bounds is not None:
            said += ["bounds=private", *(f"{k}={v}" for k, v in sorted(row.bounds.items()))]
        said += [f"noise={row.noise}"] if row.noise else []
        said += [f"unit={row.unit}"] if row.unit != "record" else []
        said += [f"delta={row.delta:g}"] if row.delta else []
        said += [f"data={row.data}"] if row.data != "uneven" else []
        said += [f"after {row.first}"] if row.first is not None else []
        return " ".join([*said, "over", self.aggregator, "at", self.epsilon])

    @property
    def exact(self) -> bool:
        return self.epsilon == "inf"

    @property
    def servers(self) -> int | None:
        _, _, servers = self.aggregator.partition("/")
        return int(servers) if servers else None

    @property
    def delta(self) -> float:
        """Shuffled reports have no privacy without δ."""
        return self.row.delta or (SMALL_DELTA if self.aggregator.startswith("shuffle") else 0.0)


UNEVEN = {
    "sizes": (1, 5, 2, 4, 3, 9),
    "value": [-4, 4, 0, 0, -1, 2.5, 3, 3, 3, -2, -2, 1, 9, -7, 0.5, 4, -4, 1, 1, 2, -0.25, 3, 0, 2],
    "positive": [1, 2, 2, 4, 8, 16, 3, 5, 5, 7, 64, 32, 1, 1, 9, 12, 40, 6, 6, 2, 100, 0.5, 3, 8],
    "time": [1, 2, 2, 3, 4, 12, 5, 6, 7, 7, 8, 9, 10, 11, 12, 1, 3, 5, 6, 8, 9, 10, 11, 4],
    "score": [
        *(0, 1, 0.5, 0.5, 0.25, 0.75, 0.9, 0.1, 0.2, 0.3, 0.6, 0.4),
        *(0.5, 0.7, 0.8, 0.25, 0.95, 0.05, 0.35, 0.65, 0.45, 0.55, 0.85, 0.15),
    ],
    "other": [
        *(0.3, 0.9, 0.5, 0.1, 0.25, 0.8, 0.7, 0.2, 0.2, 0.4, 0.6, 0.3),
        *(0.4, 0.7, 1, 0, 0.9, 0.1, 0.3, 0.6, 0.5, 0.5, 0.8, 0.2),
    ],
    "label": [0, 1, 0, 1, 0, 1, 1, 0, 0, 1, 0, 0, 1, 1, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0],
    "x": [
        *(0.1, 0.9, 0.4, 0.4, 0.2, 0.7, 0.8, 0, 0.3, 0.3, 0.6, 0.5),
        *(0.5, 0.7, 1, 0.2, 0.9, 0.1, 0.35, 0.6, 0.4, 0.55, 0.8, 0.2),
    ],
    "y": [
        *(0.2, 0.8, 0.5, 0.3, 0.2, 0.6, 0.9, 0.1, 0.2, 0.4, 0.5, 0.5),
        *(0.4, 0.8, 0.9, 0.3, 0.8, 0, 0.45, 0.7, 0.3, 0.6, 1, 0.1),
    ],
    "word": [*"abcabbbcaa", "", "z", *"abccbqaabbcb"],
    "shape": list("pqpqpqqppqppqqqpqppqpqqp"),
}
"""Parties with unequal numbers of records; ties, negatives, numbers on edges and out of bounds."""
SINGLE = {"sizes": (1,) * 8} | {
    name: cells[5:13] for name, cells in UNEVEN.items() if name != "sizes"
}
"""Eight parties with a record each."""
FEW = {"sizes": (1, 3, 1)} | {name: cells[3:8] for name, cells in UNEVEN.items() if name != "sizes"}
"""Few enough for circuits of all pairs."""
WORDS = "a,b,c"
ATTRIBUTES = ("x=0:1", "y=0:1", "word=a,b,c", "shape=p,q")
RANGES = ("x=0:1", "y=0:1")
PICKED: dict[str, Any] = {"k": 1, "gamma": 0.5}


def row(**given: Any) -> Row:
    """Splits what the question says from how it is put."""
    how = {name: given.pop(name) for name in list(given) if name in Row.__dataclass_fields__}
    return Row(given, **how)


def each(option: str, choices: tuple[Any, ...], **given: Any) -> list[Row]:
    return [row(**{option: choice}, **given) for choice in choices]


PLACED = [
    *each("noise", ("curator", "each-server", "parties"), over=EVERY, epsilons=("1",)),
    row(noise="joint", over=CIRCUITS),
    *each("noise", ("shared", "shared?honest=1"), over=THREE, epsilons=("1",)),
    *each("noise", ("total", "per-pair"), over=("additive",), epsilons=("1",)),
]
CLEAR = row(epsilons=("100",), over=("curator", "additive", "fss"))
"""Intervals that do not end where the statistic does."""
PARTY = row(unit="party", over=MOST)
PRIVATE_BOUNDS: list[Row] = [
    row(lower=None, upper=None, bounds={}, epsilons=("inf", "1", "1000"), over=ROOMS),
    row(
        lower=None,
        upper=None,
        bounds={"method": "sparse-vector", "share": 0.5},
        epsilons=("inf", "1000"),
        over=("additive", "shamir"),
    ),
]
ELSEWHERE = [row(over=ALSO), row(data="single", over=("additive", "fss", "masking"))]
SMOOTHED = [
    *each("smooth", ("none", "1", "2"), over=ROOMS),
    *each("smooth", ("none", "1", "2"), mechanism="tree", over=ROOMS),
    row(smooth="2", box=False, over=("additive",)),
    row(smooth="1", mechanism="tree", solver="cvxopt", over=("additive",)),
    row(smooth="2", first={"smooth": "none"}, over=("curator", "additive", "fss", "local")),
]
CURVE = [
    row(),
    CLEAR,
    *each("mechanism", ("tree", "hb"), over=MOST),
    row(thresholds=40, over=("additive", "fss", "fss?verified=no", "prio3", "shuffle")),
    row(spacing="log", value="positive", lower=0.5, upper=128, over=MOST),
    *each("randomizer", RANDOMIZERS, over=RANDOMIZED),
    PARTY,
]
PAIRS = [
    row(data="few", pairs_per_party="all"),
    row(data="few", pairs_per_party="2", over=("additive",)),
    row(data="few", over=("additive",)),
    row(data="few", meet="servers", pairs_per_party="all", over=("additive", "fss", "prio3")),
    row(data="few", unit="party", pairs_per_party="all", over=("additive",)),
    row(bins="4", over=("local",)),
]
ALL_FEW: dict[str, Any] = {"pairs_per_party": "all", "data": "few"}
NOISY_PAIRS = [
    *each("noise", ("total", "per-pair", "joint"), **ALL_FEW, over=("additive",)),
    *each("noise", ("each-server", "shared"), **ALL_FEW, over=("additive/3",)),
    row(noise="per-pair", pairs_per_party="2", data="single", over=("additive",)),
    row(pairs_per_party="all", data="single", over=("additive",)),
    row(pairs_per_party="all", over=("additive",)),
    *each("randomizer", ("response", "hadamard", "unary"), bins="4", over=("local",)),
    row(rounding="randomized", bins="4", over=("local",)),
]
CLASSIFIED = [
    row(),
    CLEAR,
    row(labels="public", epsilons=("100",), over=("additive",)),
    row(labels="public", over=MOST),
    *each("mechanism", ("tree", "hb"), over=("curator", "additive", "fss", "prio3")),
    row(thresholds=0, over=ROOMS),
    PARTY,
]
ON_SCORES = [
    row(at=(0.2, 0.5, 0.7), thresholds=0, over=("additive", "fss")),
    row(score=("score", "other"), over=("additive", "fss")),
    *each("smooth", ("none", "1", "2"), mechanism="tree", over=ROOMS),
    row(positive=0.0, over=ROOMS),
    row(best="cost=2", over=ROOMS),
]

VALUE: dict[str, Any] = {"value": "value", "lower": -4, "upper": 4}
UNIT: dict[str, Any] = {"lower": 0, "upper": 1}
BITS: dict[str, Any] = {**VALUE, "bits": 6}
SCORES: dict[str, Any] = {**UNIT, "thresholds": 8}

SURVIVAL: dict[str, Any] = {"time": "time", "event": "label", "upper": 12.0, "thresholds": 4}
WEIGHED: dict[str, Any] = {"weights": "positive", "weight_upper": 64}
TABLES: dict[str, Any] = {
    "down": "word",
    "down_names": WORDS,
    "across": "label",
    "across_names": "0,1",
}
TABLE: dict[str, tuple[str, dict[str, Any], list[Row]]] = {
    "sum": ("Sum", VALUE, [row(), PARTY, *PRIVATE_BOUNDS[:1], *ELSEWHERE]),
    "mean": (
        "Mean",
        VALUE,
        [row(), row(**WEIGHED, over=ROOMS), PARTY, *PLACED, *PRIVATE_BOUNDS, *ELSEWHERE],
    ),
    "histogram": (
        "Histogram",
        {**VALUE, "bins": 4},
        [
            row(),
            row(nonnegative=True, over=ROOMS),
            row(**WEIGHED, over=ROOMS),
            row(value="word", categories=WORDS, lower=None, upper=None),
            *each("randomizer", RANDOMIZERS, over=RANDOMIZED),
            PARTY,
            *PLACED,
            *PRIVATE_BOUNDS[:1],
            *ELSEWHERE,
        ],
    ),
    "ecdf": (
        "Ecdf",
        {**VALUE, "thresholds": 8},
        [*CURVE, *SMOOTHED, *PLACED, *PRIVATE_BOUNDS, *ELSEWHERE],
    ),
    "cumulative-histogram": (
        "CumulativeHistogram",
        {**VALUE, "thresholds": 8},
        [*CURVE, *each("smooth", ("monotone", "1"), over=ROOMS)],
    ),
    "quantile": (
        "Quantile",
        {**VALUE, "thresholds": 16},
        [
            *CURVE,
            row(quantile=(0.1, 0.5, 0.9)),
            row(mechanism="max"),
            row(mechanism="max", quantile=(0.25, 0.75), over=("additive", "fss", "prio3")),
            row(mechanism="max", unit="party", over=("additive",)),
            row(thresholds=1024, over=ROOMS),
            row(thresholds=1024, mechanism="max", over=("additive",), epsilons=("inf", "1", "20")),
            *PRIVATE_BOUNDS[:1],
        ],
    ),
    "ecdf-points": (
        "EcdfPoints",
        VALUE,
        [row(at=(-4.0, 0.0, 1.5)), row(at=(0.0,), over=("fss/3", "fss?verified=no"))],
    ),
    "running-sum": (
        "RunningSum",
        {**VALUE, "time": "time", "steps": 12},
        [
            row(),
            PARTY,
            row(steps=5, over=ROOMS),
            row(strategy="tree", over=ROOMS),
            row(stream=True, over=ROOMS),
        ],
    ),
    "kaplan-meier": (
        "KaplanMeier",
        SURVIVAL,
        [row(over=ROOMS), row(method="product-limit", over=ROOMS)],
    ),
    "nelson-aalen": ("NelsonAalen", SURVIVAL, [row(over=ROOMS)]),
    "log-rank": ("LogRank", {**SURVIVAL, "group": "word", "groups": WORDS}, [row(over=ROOMS)]),
    "t-test": ("TTest", VALUE, [row(over=ROOMS)]),
    "anova": ("Anova", {**VALUE, "group": "word", "groups": WORDS}, [row(over=ROOMS)]),
    "crosstab": ("Crosstab", TABLES, [row(over=ROOMS)]),
    "chi-square": ("ChiSquare", TABLES, [row(over=ROOMS)]),
    "proportion": ("Proportion", {"value": "word", "names": "a,b"}, [row(), PARTY]),
    "covariance": ("Covariance", {"column": ("x", "y"), "ranges": RANGES}, [row(over=ROOMS)]),
    "correlation": ("Correlation", {"column": ("x", "y"), "ranges": RANGES}, [row(over=ROOMS)]),
    "classifier-table": ("ClassifierTable", {**SCORES, "threshold": 0.5}, [row(over=ROOMS)]),
    "magnitudes": ("Magnitudes", {"value": "value"}, [row(), PARTY]),
    "mode": ("Mode", {**VALUE, "bins": 8}, [row(), PARTY, row(noise="joint", over=CIRCUITS)]),
    "top-k": (
        "TopK",
        {**VALUE, "bins": 8, "k": 2},
        [row(), row(value="word", categories=WORDS, lower=None, upper=None, over=("additive",))],
    ),
    "first-above": (
        "FirstAboveThreshold",
        {**VALUE, "bins": 8, "threshold": 3},
        [row(), row(threshold=30, over=("additive",)), row(unit="party", over=("additive",))],
    ),
    "gini": ("Gini", BITS, [*PAIRS, *NOISY_PAIRS, *PRIVATE_BOUNDS[:1]]),
    "variance": ("Variance", BITS, PAIRS),
    "collision-entropy": ("CollisionEntropy", {**BITS, "bits": 4}, PAIRS),
    "kendall-tau": (
        "KendallTau",
        {**UNIT, "bits": 6},
        [*PAIRS, row(tau="b", **ALL_FEW, over=("curator", "additive", "local"))],
    ),
    "pairwise": (
        "Pairwise",
        {**BITS, "bits": 4},
        [
            row(**ALL_FEW),
            *each("kernel_name", ("variance", "collision-entropy"), **ALL_FEW, over=("additive",)),
            *each("kernel_name", ("auc", "kendall-tau"), **UNIT, **ALL_FEW, over=("additive",)),
            row(kernel_name="abs(a.x - b.y)", **UNIT, **ALL_FEW, over=("additive",)),
            row(kernel_name="nonsense", over=("additive",)),
        ],
    ),
    "auc": (
        "Auc",
        {**UNIT, "bits": 6},
        [
            *PAIRS,
            *NOISY_PAIRS[:3],
            row(method="curve", thresholds=8),
            row(method="curve", over=ROOMS),
            *each("mechanism", ("tree", "hb"), method="curve", thresholds=8, over=ROOMS),
            row(method="smooth", thresholds=8, delta=SMALL_DELTA),
            row(method="smooth", over=("curator",)),
            *each("labels", ("public", "private"), bins="4", over=("local",)),
            *each("levels", ("one", "all"), bins="4", delta=SMALL_DELTA, over=("local",)),
        ],
    ),
    "roc": (
        "Roc",
        SCORES,
        [
            *CLASSIFIED,
            *ON_SCORES,
            row(method="binormal", delta=SMALL_DELTA),
            *each("method", ("priroc", "priroc-fix"), delta=SMALL_DELTA),
            *each("method", ("priroc", "priroc-fix"), counts="dawa", over=("curator",)),
            row(method="binormal", over=("curator",)),
        ],
    ),
    "pr-curve": ("PrCurve", SCORES, [*CLASSIFIED, *ON_SCORES]),
    "average-precision": (
        "AveragePrecision",
        SCORES,
        [
            *CLASSIFIED,
            row(at=(0.2, 0.5, 0.7), thresholds=0, over=("additive", "fss")),
            row(method="smooth", delta=SMALL_DELTA),
            row(method="smooth", over=("curator",)),
        ],
    ),
    "linear-regression": (
        "LinearRegression",
        {"ranges": RANGES},
        [row(), PARTY, row(ranges=("x=0.2:0.8", "y=0:1"), over=ROOMS), row(ranges=(), over=ROOMS)],
    ),
    "gini-coefficient": (
        "GiniCoefficient",
        {"value": "positive", "lower": 0.5, "upper": 64},
        [
            row(**ALL_FEW, epsilons=("inf", "200")),
            row(**ALL_FEW, unit="party", over=ROOMS, epsilons=("inf", "1000")),
            row(data="few", pairs_per_party="2", over=ROOMS, epsilons=("inf", "200")),
        ],
    ),
    "hosmer-lemeshow": (
        "HosmerLemeshow",
        {"groups": 3, "thresholds": 16},
        [
            row(epsilons=LOUD),
            *each("mechanism", ("tree", "hb"), over=ROOMS, epsilons=LOUD),
            row(share=0.5, over=ROOMS, epsilons=LOUD),
        ],
    ),
    "logistic-regression": (
        "LogisticRegression",
        {"x": ("x", "y"), "ranges": RANGES, "newton_steps": 2},
        [
            row(),
            row(method="newton"),
            row(method="objective"),
            row(method="objective", penalty=0.5, delta=SMALL_DELTA, over=("curator",)),
            row(unit="party", over=ROOMS),
        ],
    ),
    "cox": (
        "Cox",
        {
            "x": ("x",),
            "time": "time",
            "event": "label",
            "upper": 12.0,
            "ranges": RANGES[:1],
            "thresholds": 2,
            "newton_steps": 2,
        },
        [row(over=ROOMS)],
    ),
    "multinomial-regression": (
        "MultinomialRegression",
        {"attributes": ATTRIBUTES, "target": "shape", "bins": 3},
        [
            row(**PICKED, epsilons=LOUD),
            row(**PICKED, picks_by="max", over=("additive", "fss"), epsilons=LOUD),
            row(bins=0, over=ROOMS, epsilons=LOUD),
            row(method="objective"),
            row(method="objective", penalty=0.5, over=("curator",)),
            row(method="objective", **PICKED, over=("curator",)),
        ],
    ),
    "projected-histogram": (
        "ProjectedHistogram",
        {"attributes": ATTRIBUTES, "target": "shape", "bins": 3},
        [
            row(**PICKED, epsilons=LOUD),
            row(k=2, gamma=0.5, over=ROOMS, epsilons=LOUD),
            row(**PICKED, picks_by="max", over=("additive", "fss"), epsilons=LOUD),
            row(bins=0, over=ROOMS, epsilons=LOUD),
        ],
    ),
    "quantile-search": (
        "QuantileSearchStudy",
        {**VALUE, "halvings": 3},
        [
            row(epsilons=("inf", "1000")),
            row(quantile=(0.25, 0.75), over=("additive", "fss"), epsilons=("inf", "1000")),
            row(spacing="log", value="positive", lower=0.5, upper=128, over=("additive", "fss")),
        ],
    ),
    "residual-plot": (
        "ResidualPlot",
        {"side": 4, "coefficients": (0.1, 0.5), "doublings": 6, "least_reach": 0.25},
        [
            row(epsilons=LOUD),
            *each("method", ("hb", "dawa"), epsilons=LOUD),
            row(method="hb", side=24, over=ROOMS, epsilons=LOUD),
            row(fitted_reach=1.0, residual_reach=0.5, over=ROOMS, epsilons=LOUD),
            row(reach_by="sparse-vector", over=("curator", "additive", "fss"), epsilons=LOUD),
            row(coefficients=(), ranges=RANGES, over=ROOMS, epsilons=("inf", "1000")),
            row(side=0, over=ROOMS, epsilons=LOUD),
            row(unit="party", over=ROOMS, epsilons=("inf", "1000")),
        ],
    ),
    "roc-medians": (
        "RocMedians",
        {"bins": 4, "thresholds": 16},
        [row(epsilons=LOUD), row(mechanism="hb", over=ROOMS, epsilons=LOUD)],
    ),
}
"""By the name that users ask for: the class, what its rows have in common, and the rows."""


def cases(name: str) -> Iterator[Case]:
    """Those of one statistic or study."""
    kind, common, rows = TABLE[name]
    for asked in rows:
        for aggregator in asked.over:
            for epsilon in asked.epsilons:
                yield Case(name, kind, common | asked.options, asked, aggregator, epsilon)
