"""How a question is put where it leaves that open: by what is predicted to err least, from what is
public before anything is asked. The others stay as they are."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from tallyroom.protocols.privacy.curves import STRATEGIES
from tallyroom.protocols.statistics.contract import Bounds, Statistic
from tallyroom.protocols.statistics.ecdf import AUTO_STRATEGY, UNITS_OF_A_RANK, Quantile
from tallyroom.protocols.statistics.of_pairs import Auc
from tallyroom.protocols.statistics.pairwise import MOST_AUTOMATIC
from tallyroom.protocols.studies.contract import Study
from tallyroom.protocols.studies.quantile_zoom import COUNTED_SHARE, MOST_CHOSEN, QuantileZoom


@dataclass(frozen=True)
class PublicSetting:
    """Where a question is put. Two servers may `choose` together there, or compute pairs on shares
    of the records (`meet`); `randomized` tells that parties randomize reports. A released count has
    so many `noises`, a unit of privacy so many records. `epsilon` is None without noise."""

    choose: bool
    meet: bool
    randomized: bool
    noises: int
    records: int
    records_per_unit: int
    epsilon: Fraction | None

    @property
    def record_epsilon(self) -> float:
        return math.inf if self.epsilon is None else float(self.epsilon) / self.records_per_unit


def settled(
    asked: Statistic | Study, where: PublicSetting, published: Mapping[str, Bounds]
) -> Statistic | Study:
    """What is put for `asked`, of columns of which these bounds are published."""
    if isinstance(asked, Quantile):
        return zoomed(asked, where)
    return settled_auc(asked, where, published) if isinstance(asked, Auc) else asked


def words_of(asked: Statistic | Study, put: Statistic | Study) -> tuple[str, ...]:
    """What is said of an answer to a question that was put in another way."""
    if not isinstance(asked, Auc) or not isinstance(put, Auc) or asked.method == put.method:
        return ()
    if asked.has_set((*ONLY_PAIRS, *ONLY_CURVES)):
        return ()
    way = "the ROC curve" if put.method == "curve" else f"pairs that {put.meet} compute"
    return (f"computed from {way}: --method pairs or curve is another way",)


# --- quantiles ---

RANKS_OF_A_CHOICE = 4.0
"""By how many scales of noise the rank of a chosen cell errs, root mean square, where records are
spread evenly over cells."""


def zoomed(asked: Quantile, where: PublicSetting) -> Quantile | QuantileZoom:
    """The study of quantiles that are to be chosen, and of those that may be, where a choice is
    predicted to err less."""
    if where.epsilon is None or asked.within or len(asked.quantile) > MOST_CHOSEN:
        return asked
    if not asked.may_be_chosen:
        return asked
    if not asked.by_max and not (where.choose and _choice_errs_less(asked, where)):
        return asked
    return QuantileZoom(asked, where.records, where.epsilon, where.records_per_unit)


def _choice_errs_less(asked: Quantile, where: PublicSetting) -> bool:
    """Predicts both errors in ranks, for values that are spread evenly: of a choice, which is fine
    enough whatever the cells; and of a curve, with its noise and the width of its cells."""
    epsilon = where.record_epsilon
    scale = UNITS_OF_A_RANK * len(asked.quantile) / (epsilon * float(1 - COUNTED_SHARE))
    curve = STRATEGIES[AUTO_STRATEGY](asked.thresholds)
    of_one = 2 * (curve.sensitivity.l1 / epsilon) ** 2
    noise = float(np.mean(curve.count_variances(of_one))) * where.noises
    cell = where.records / asked.thresholds / math.sqrt(3)
    return RANKS_OF_A_CHOICE * scale <= math.hypot(math.sqrt(noise), cell)


# --- areas under a curve ---

NOISE_OF_CURVE, NOISE_OF_PAIRS = 30.0, 10.0
"""The error of an AUC by noise, times nε, where a quarter of the records are positive, measured on
real columns for nε from 50 to 225,000. How many are is private: both grow where they are fewer."""
OF_DRAWING = 0.35
"""The error by the drawing of pairs, times the root of how many pairs there are to each record, in
which there are as many of different classes as of one; and of n."""
MOST_MET = 50_000
"""The most records that servers meet by themselves: pairs of more take minutes."""
ONLY_PAIRS = (
    *(
        "pairs_per_party",
        "bits",
        "meet",
        "meetings",
        "outputs",
        "bins",
        "rounding",
        "randomizer",
        "pilot",
    ),
    "levels",
)
ONLY_CURVES = ("thresholds", "strategy")
"""Options that ask for one of the ways."""
CLOSE = 1.5
"""Servers compute pairs where the curve, at a hundredth of the cost, errs by so much more."""


def settled_auc(asked: Auc, where: PublicSetting, published: Mapping[str, Bounds]) -> Auc:
    """The AUC by the way that is predicted to err least. Pairs between parties are never it by
    enough to be worth a meeting of any two of them: they remain where scores have no bounds, and
    where an option asks for them."""
    if asked.method != "auto" or where.randomized:
        return asked
    if asked.has_set(ONLY_PAIRS):
        return replace(asked, method="pairs")
    known = asked.column_bounds.get(asked.score) or published.get(asked.score)
    by_servers = replace(asked, method="pairs", meet="servers")
    pairs = by_servers.most_by_servers(where.records)
    affordable = pairs > MOST_AUTOMATIC or where.records <= MOST_MET
    if where.meet and affordable and not asked.has_set(ONLY_CURVES):
        of_pairs = math.hypot(
            NOISE_OF_PAIRS / (where.records * where.record_epsilon),
            OF_DRAWING * math.sqrt(4 / pairs / where.records),
        )
        of_curve = NOISE_OF_CURVE / (where.records * where.record_epsilon)
        if known is None or of_curve > CLOSE * of_pairs:
            return by_servers
    if known is None:
        return replace(asked, method="pairs")
    return replace(asked, method="curve", lower=float(known[0]), upper=float(known[1]))
