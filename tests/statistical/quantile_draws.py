"""Quantiles by report noisy max as two servers draw them, many times over, in the clear."""

import math
from fractions import Fraction

import numpy as np

from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics.ecdf import Quantile
from tallyroom.protocols.statistics.estimates import shape_of
from tallyroom.simulation import Federation
from tallyroom.simulation.in_the_clear import InTheClear


def errors(values: Column, asked: Quantile, epsilon: Fraction, draws: int, seed: int = 0) -> Column:
    """Of so many answers, against numpy's quantile."""
    clear = InTheClear(Federation(parties=2, data={"value": values}), {})
    truth = float(np.quantile(values, asked.quantile[0], method="inverted_cdf"))
    found = (clear.answer(asked, epsilon, seed + each) for each in range(draws))
    return np.array([float(shape_of(each.estimate).values()[0]) - truth for each in found if each])


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
