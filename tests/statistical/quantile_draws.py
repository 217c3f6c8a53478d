"""Quantiles by report noisy max as two servers draw them, many times over, in the clear."""

import math
from fractions import Fraction

import numpy as np

from tallyroom.protocols.joint.choice import Choice
from tallyroom.protocols.plans.contract import NoisyChoice
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.records import Column, Holdings, deal
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.ecdf import Quantile
from tallyroom.protocols.statistics.estimates import Estimate, shape_of
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.studies.contract import Answer, Study
from tallyroom.protocols.studies.quantile_zoom import zoomed


def draw(
    asked: Quantile, epsilon: Fraction, holdings: Holdings, generator: np.random.Generator
) -> float:
    """One answer, of one question or of two, with noise of the law that circuits draw."""
    put = zoomed(asked, epsilon, holdings.rows)
    if not isinstance(put, Study):
        return float(shape_of(_chosen(put, epsilon, holdings, generator)).values()[0])
    steps = put.steps()
    ask = next(steps)
    while True:
        found = _chosen(ask.statistic, epsilon * ask.share, holdings, generator)
        try:
            ask = steps.send(Answer.told(found, np.full(1, np.nan), holdings.rows))
        except StopIteration as over:
            return float(shape_of(over.value.estimate).values()[0])


def _chosen(
    asked: Statistic, epsilon: Fraction, holdings: Holdings, generator: np.random.Generator
) -> Estimate:
    put = planned(asked, Facts.of_one_server(holdings.rows))
    assert isinstance(put.plan, NoisyChoice)
    choice = put.plan.rule
    assert isinstance(choice, Choice)
    counts = put.plan.encode(holdings)[0].astype(np.int64)
    before = np.concatenate([[0], counts[:-1]])
    scale = float(DiscreteLaplace.spending(epsilon, put.plan.sensitivity.l1).scale)
    found = []
    for rank in choice.ranks:
        scores = -np.maximum(0, np.maximum(rank - counts, before + 1 - rank))
        noise = generator.geometric(-math.expm1(-1 / scale), len(scores))
        found.append(int(np.argmax(scores + noise)))
    return put.decode(np.array(found, dtype=np.uint64), holdings.rows)


def errors(values: Column, asked: Quantile, epsilon: Fraction, draws: int, seed: int = 0) -> Column:
    """Of so many answers, against numpy's quantile."""
    holdings = deal({"value": values}, 1)
    truth = float(np.quantile(values, asked.quantile[0], method="inverted_cdf"))
    generator = np.random.default_rng(seed)
    return np.array([draw(asked, epsilon, holdings, generator) - truth for _ in range(draws)])


def exponential_mechanism_rmse(
    values: Column, quantile: float, lower: float, upper: float, epsilon: float
) -> float:
    """What the usual central mechanism errs by (Smith 2011; diffprivlib's `quantile`): an interval
    between neighbouring records with probability ∝ width · exp(−ε/2·|rank − qn|), then uniformly
    within it. By its law, not by draws."""
    ends = np.concatenate([[lower], np.sort(values), [upper]])
    widths = np.diff(ends)
    utility = -np.abs(np.arange(len(widths)) - quantile * len(values))
    weights = widths * np.exp(epsilon / 2 * (utility - utility[widths > 0].max()))
    truth = float(np.quantile(values, quantile, method="inverted_cdf"))
    # The mean square over an interval, from its two ends.
    a, b = ends[:-1] - truth, ends[1:] - truth
    squares = (a * a + a * b + b * b) / 3
    return math.sqrt(float(np.sum(weights / weights.sum() * squares)))
