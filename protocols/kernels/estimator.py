"""Estimates over all pairs from sampled pairs: their error, and how many pairs to sample.

U is the mean of a kernel f with range Δ over the distribution of the records; ζ1 = Var(E[f | x1])
and ζ2 = Var(f). Any set of N pairs gives an unbiased mean. Two pairs that are the same covary by
ζ2, two that share one record by ζ1, others not at all (Blom 1976), so the variance of the mean is
(ζ2 · #same + ζ1 · #sharing one)/N², over ordered couples of pairs.
"""

import math
from dataclasses import dataclass

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.laplace_circuit import OFFSET
from tallyroom.protocols.kernels.contract import Integers, Kernel
from tallyroom.protocols.kernels.matchings import rounds
from tallyroom.protocols.records import Column

ALIKE = 0.05
"""The largest share of the variance of any function of a record that is assumed to lie between
parties, where each meets few others. Of 1,039 intraclass correlations from primary care, half were
below 0.01 and three quarters below 0.032 (Adams et al., J. Clin. Epidemiol. 57, 2004)."""


def means_of_values(values: Integers, noisy: bool) -> Column:
    """The mean of each output over the completed pairs, for `Kernel.decode`.

    Pairs lost to dropouts are left out, which is harmless unless dropping out depends on data.
    `noisy` values carry noise from inside the circuit.
    """
    if not len(values):
        raise LocalError("no pair was completed")
    means: Column = values.mean(axis=0) + (float(OFFSET) if noisy else 0.0)
    return means


def means_of_totals(totals: Integers, pairs: int) -> Column:
    """Like `means_of_values`, from totals over completed pairs, with or without noise."""
    if pairs < 1:
        raise LocalError("no pair was completed")
    means: Column = totals / pairs
    return means


@dataclass(frozen=True)
class Zetas:
    """ζ1 and ζ2, in squared units of the kernel's output. Always 2ζ1 ≤ ζ2."""

    one: float
    two: float

    def __post_init__(self) -> None:
        if not 0 <= 2 * self.one <= self.two * (1 + 1e-12):
            raise LocalError(f"0 ≤ 2ζ1 ≤ ζ2 does not hold for {self.one:g} and {self.two:g}")

    @classmethod
    def worst(cls, span: float) -> "Zetas":
        """The ζ for which sampling costs most, for values in an interval of length `span`."""
        return cls(0.0, span * span / 4)

    @classmethod
    def of_pilot(cls, kernel: Kernel, records: Integers, output: int = 0) -> "Zetas":
        """Unbiased estimates from at least five records, brought into 0 ≤ 2ζ1 ≤ ζ2.

        They are not private, so the pilot must be public data; without a pilot use `worst`. Takes
        O(n²) operations.
        """
        n = len(records)
        if n < 5:
            raise LocalError(f"a pilot needs at least five records, not {n}")
        values = np.empty((n, n))
        for i in range(n):
            x = np.repeat(records[i : i + 1], n, axis=0)
            both = kernel.reference(x, records) + kernel.reference(records, x)
            values[i] = both[:, output] / 2
        one, two = unbiased_zetas(values)
        two = max(0.0, two)
        return cls(min(max(0.0, one), two / 2), two)


def unbiased_zetas(values: Column) -> tuple[float, float]:
    """Unbiased estimates of ζ1 and ζ2 from the symmetric matrix of f(x_i, x_j), n ≥ 5.

    With S²_f the variance over all N pairs and S²_h that of the means of the n rows,
      E S²_f = ζ2 − Var(U_n) with Var(U_n) = (2(n−2) ζ1 + ζ2)/N,
      E S²_h = (n−2)(ζ2 + (n−4) ζ1)/(n−1)².
    """
    n = len(values)
    pairs = math.comb(n, 2)
    among = values[np.triu_indices(n, 1)].var()
    rows = (values.sum(axis=1) - values.diagonal()) / (n - 1)
    equations = [
        [-2 * (n - 2) / pairs, 1 - 1 / pairs],
        [(n - 2) * (n - 4) / (n - 1) ** 2, (n - 2) / (n - 1) ** 2],
    ]
    one, two = np.linalg.solve(equations, [among, rows.var(ddof=1)])
    return float(one), float(two)


@dataclass(frozen=True)
class Design:
    """`matchings` matchings (P) of `records` records (n) that share no pair."""

    records: int
    matchings: int

    def __post_init__(self) -> None:
        if self.records < 2 or self.matchings < 1:
            raise LocalError("a design needs two records and one matching")
        if self.matchings > rounds(self.records):
            raise LocalError(
                f"{self.records} records have {rounds(self.records)} matchings "
                "without a common pair"
            )

    @property
    def pairs(self) -> int:
        return self.matchings * (self.records // 2)

    @property
    def met(self) -> int:
        """The most pairs that a record is in. With an odd number of records, each one sits out one
        of all the matchings."""
        return min(self.matchings, self.records - 1)

    def sampling_variance(self, zetas: Zetas) -> float:
        """Variance of the mean over the pairs, without noise.

        For even n that is 2/(Pn) · (2(P−1) ζ1 + ζ2), with all n − 1 matchings the variance of the
        full U-statistic (S1, Eq. 3). S1's Theorem 5 is about independent matchings, which may share
        a pair: its first term is 2/(Pn) · (2(P−1)(1 − 1/(n−1)) ζ1 + (1 + (P−1)/(n−1)) ζ2), which is
        more, as 2ζ1 ≤ ζ2.
        """
        return (zetas.two + zetas.one * (self.matchings - 1) * self.sharing) / self.pairs

    @property
    def sharing(self) -> float:
        """How many pairs of another matching share a record with a pair, on average. With an odd
        number of records, two matchings leave out different ones."""
        return 2.0 if self.records % 2 == 0 else (self.records - 2) / (self.records // 2)

    def per_pair_variance(self, sensitivity: float, epsilon: float) -> float:
        """The variance that noise Lap(PΔ/ε) on every pair adds, where a record is in P pairs:
        4PΔ²/(nε²) for even n.

        S1, Theorem 5 has half of that; but the mean of Pn/2 noises of variance 2(P/ε)² has variance
        4P/(nε²).
        """
        return 2 * (self.met * sensitivity / epsilon) ** 2 / self.pairs

    def total_variance(self, sensitivity: float, epsilon: float, noises: int = 1) -> float:
        """The variance that noise Lap(PΔ/ε) on the total adds, if drawn `noises` times: 8Δ²/(n²ε²)
        each, for any P."""
        return noises * 2 * (self.met * sensitivity / epsilon) ** 2 / self.pairs**2


def drawing_variance(residual: float, pairs: int, matchings: int) -> float:
    """What the drawing of N pairs in P matchings adds to the error about all pairs of the records
    at hand; `residual` is ζ2 − 2ζ1 (`Kernel.pair_variance`). It is the variance by
    `Design.sampling_variance` less that of all pairs: (ζ2 − 2ζ1)(1/N − 1/C(n, 2)), with n ≤
    2N/P + 1 records.

    If pairs were lost, those that are left stand for the records that are in P of them.
    """
    records = 2 * pairs / matchings
    if matchings >= records - 1:
        return 0.0
    return residual * (1 / pairs - 2 / (records * (records + 1)))


def pairs_of_a_meeting(each: int, turns: int) -> float:
    """How many pairs the meeting has that a pair is in, on average, where parties hold `each`
    records and meet in runs of so many turns (`neighbourly_matchings`). Two arcs of r places that
    are x apart share max(0, r − |x|) pairs in one turn, and those of the next are x + 1 apart."""
    apart = np.arange(1 - each - turns, each)
    shared = sum(np.maximum(0, each - np.abs(apart + turn)) for turn in range(turns))
    return float(np.sum(np.square(shared, dtype=np.float64)) / (turns * each**2))


def partners_of_a_meeting(each: int, turns: int) -> float:
    """How many partners a record has in the meeting that a pair of it is in, on average: `turns`
    places that follow one another, two of which are j apart and of one party with probability
    1 − j/r."""
    apart = np.arange(1, turns)
    together = (turns - apart) * np.maximum(0.0, 1 - apart / each)
    return 1 + 2 * float(together.sum()) / turns


def clustering(each: int, turns: int, alike: float = ALIKE) -> float:
    """How many times the variance of drawing grows where pairs come in meetings of parties with
    `each` records, in runs of so many turns.

    f(x, y) less what x and y say by themselves is g = Σ λ_k φ_k(x) φ_k(y), with φ orthonormal and
    Σ λ_k² = ζ2 − 2ζ1. Let no function of a record have more than a share τ of its variance between
    parties, so that C ≤ τ for the covariance of the parties' means of φ. Two pairs of one meeting
    covary in g by tr(ΛCΛ) ≤ τ Σ λ_k² if they share a record, and else by tr(ΛCΛC) ≤ τ² Σ λ_k². What
    x and y say by themselves adds nothing: every record is in equally many pairs.

    Records that are dealt to parties at random are no different from shuffled ones: there τ is 0.
    """
    sharing = 2 * (partners_of_a_meeting(each, turns) - 1)
    others = max(0.0, pairs_of_a_meeting(each, turns) - 1 - sharing)
    return 1 + alike * sharing + alike**2 * others


def best_matchings(records: int, zetas: Zetas, sensitivity: float, epsilon: float) -> int:
    """The P with the least error when every pair has its own noise (S1 §5: the trade-off in P).

    The error is (2/n)(2ζ1 + (ζ2 − 2ζ1)/P) + 4PΔ²/(nε²), convex in P and least at
    P = ε √((ζ2 − 2ζ1)/2)/Δ. Without a pilot, `Zetas.worst` makes that ε/√8: one pair per record
    for ε up to 4.
    """
    sharing = Design(records, 1).sharing
    ideal = epsilon * math.sqrt(max(0.0, zetas.two - sharing * zetas.one) / 2) / sensitivity

    def error(matchings: int) -> float:
        design = Design(records, matchings)
        noise = design.per_pair_variance(sensitivity, epsilon)
        return design.sampling_variance(zetas) + noise

    below = min(max(1, math.floor(min(ideal, records))), rounds(records))
    return min((below, min(below + 1, rounds(records))), key=error)


def enough_matchings(
    records: int,
    zetas: Zetas,
    sensitivity: float,
    epsilon: float,
    noises: int = 1,
    excess: float = 0.1,
) -> int:
    """The least P whose error is within a factor 1 + `excess` of that of all pairs.

    For noise on the total, whose effect does not grow with P: more pairs cost bytes, not accuracy.
    """

    def error(matchings: int) -> float:
        design = Design(records, matchings)
        noise = design.total_variance(sensitivity, epsilon, noises)
        return design.sampling_variance(zetas) + noise

    low, high = 1, rounds(records)
    goal = (1 + excess) * error(high)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if error(middle) <= goal else (middle + 1, high)
    return high


def advanced_composition(each: float, count: int, delta: float) -> float:
    """ε of `count` releases, each ε_0-private, up to δ (Dwork, Rothblum and Vadhan 2010)."""
    return math.sqrt(2 * count * math.log(1 / delta)) * each + count * each * math.expm1(each)


def epsilon_each(epsilon: float, count: int, delta: float) -> float:
    """The largest ε_0 for each of `count` releases within (ε, δ), by basic or advanced composition.

    Used when all pairs have their own noise: a record is in n − 1 of them.
    """
    basic = epsilon / count
    if delta <= 0 or advanced_composition(basic, count, delta) >= epsilon:
        return basic
    low, high = basic, epsilon
    for _ in range(100):
        middle = (low + high) / 2
        within = advanced_composition(middle, count, delta) <= epsilon
        low, high = (middle, high) if within else (low, middle)
    return low
