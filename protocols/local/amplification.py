"""Privacy amplification by shuffling: local ε0 reports, put in random order, are (ε, δ)-private.

Adjacency: one report's record is replaced; the number n of reports is public. The proof is that of
Feldman, McMillan and Talwar, "Hiding Among the Clones" (FOCS 2021). For k-ary randomized response
it reads as follows. With probability 2q, and whatever its record, another report is a uniform
choice among the two values that the replaced record had before and after; so it is a clone of that
record's report. Suppose the adversary is told which reports are not clones, and whether the
replaced record's own report is one of the two values (probability p + q either way). It then sees
A + Δ clones of the one value and C - A + 1 - Δ of the other, where C ~ Bin(n-1, 2q),
A ~ Bin(C, ½) and Δ ~ Bernoulli(p/(p+q)). `shuffled_delta` is the hockey-stick divergence of that
pair; it holds for every ε0 and n. `closed_form` is the paper's Theorem 3.1, for any randomizer.
"""

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from tallyroom.protocols.local.response import RandomizedResponse

GRID = 1024
"""Local ε are multiples of 1/GRID, so that all roles compute the same one despite rounding."""
MAX_LOCAL = 12
"""At this ε a report lies once in 160,000 times: a larger one would gain no accuracy."""
MAX_RUNS = 400
"""The values of C are grouped into at most this many runs. Fewer runs are faster, but make the
bound less tight."""
_ROUNDING = 2.0**-52
_ARITHMETIC = 1e-12
"""An allowance for the relative error of each tail of a binomial."""


def shuffled_delta(epsilon: float, response: RandomizedResponse, reports: int) -> float:
    """δ such that `reports` shuffled responses are (`epsilon`, δ)-private; an upper bound."""
    p, q = response.p, response.q
    return (p + q) * clones_delta(epsilon, p / (p + q), 2 * q, reports)


def clones_delta(epsilon: float, truth: float, clone: float, reports: int) -> float:
    """The divergence of (A + Δ, C - A + 1 - Δ) from (A + 1 - Δ, C - A + Δ).

    Δ ~ Bernoulli(`truth`), C ~ Bin(reports-1, `clone`), A ~ Bin(C, ½). With `clone` = e^-ε0 and
    `truth` = e^ε0/(e^ε0+1) it bounds any ε0-private randomizer, as in the paper. Given C = c, the
    likelihood ratio grows with A + Δ, so the worst set is a tail. The divergence falls as c grows,
    because whoever sees the counts can add clones. So if there are many c, they are grouped into
    runs, each evaluated at its least c; unlikely ones count in full.
    """
    others = reports - 1
    from scipy import stats  # heavy, and needed by shufflers' runs alone

    middle = others * clone
    reach = 10 * math.sqrt(middle) + 40
    low, high = max(0, math.floor(middle - reach)), min(others, math.ceil(middle + reach))
    c = np.arange(low, high + 1, -(-(high + 1 - low) // MAX_RUNS), dtype=np.float64)
    below = stats.binom.cdf(np.append(c, high + 1) - 1, others, clone)
    chance = np.diff(below)
    unseen = below[0] + stats.binom.sf(high, others, clone) + len(c) * _ROUNDING
    grown = math.exp(epsilon)
    edge = (grown * truth - (1 - truth)) / ((2 * truth - 1) * (1 + grown))
    least = np.floor((c + 1) * edge) + 1
    with_clone = stats.binom.sf(least - 2, c, 0.5)  # P(A + 1 >= least)
    without = stats.binom.sf(least - 1, c, 0.5)
    likely = truth * with_clone + (1 - truth) * without
    unlikely = (1 - truth) * with_clone + truth * without
    slack = _ARITHMETIC * (likely + grown * unlikely)
    divergence = np.maximum(likely - grown * unlikely, 0) + slack
    return float(chance @ divergence) + float(unseen)


def closed_form(local: float, delta: float, reports: int) -> float:
    """The ε of Theorem 3.1 for any `local`-private randomizer.

    Valid for ε0 ≤ ln(n / (16 ln(4/δ))), which is a little less than the theorem allows. Beyond that
    there is hardly any amplification, and ε0 itself is returned.
    """
    if local > math.log(reports / (16 * math.log(4 / delta))):
        return local
    grown = math.exp(local)
    spread = 8 * math.sqrt(grown * math.log(4 / delta) / reports) + 8 * grown / reports
    return min(local, math.log1p(math.tanh(local / 2) * spread))


@lru_cache(maxsize=1024)
def local_epsilon(epsilon: Fraction, delta: float, reports: int, values: int | None) -> Fraction:
    """The largest local ε such that shuffled responses among `values` values, or reports of any
    randomizer if `values` is None, are (`epsilon`, `delta`)-private.

    If shuffling does not help, that is `epsilon` itself, which needs no δ and no shuffler.
    """
    target = float(epsilon) * (1 - 2**-50)

    def fits(step: int) -> bool:
        if values is None:
            local = step / GRID
            truth = 1 / (1 + math.exp(-local))
            return clones_delta(target, truth, math.exp(-local), reports) <= delta
        response = RandomizedResponse.spending(Fraction(step, GRID), values)
        return shuffled_delta(target, response, reports) <= delta

    low, high = math.floor(epsilon * GRID), MAX_LOCAL * GRID
    if delta <= 0 or low >= high or not fits(low + 1):
        return epsilon
    low += 1
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return Fraction(low, GRID)


def per_record(epsilon: Fraction, delta: float, group: int) -> tuple[Fraction, float]:
    """The ε and δ that one record may cost so that replacing `group` records costs (ε, δ).

    Group privacy: g steps of (ε/g, δ') are (ε, δ'·(1 + e^(ε/g) + … + e^((g-1)ε/g))). The sum is
    e^(ε-ε/g)·(1-e^-ε)/(1-e^-(ε/g)); dividing by it in this form does not overflow.
    """
    each = epsilon / group
    shrink = math.expm1(-float(each)) / math.expm1(-float(epsilon))
    return each, delta * shrink * math.exp(float(each - epsilon))
