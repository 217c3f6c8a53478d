"""Shares of noise: those of half the parties together are discrete Laplace of the full scale."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tallyroom.protocols.aggregation.mechanism import AddedNoise
from tallyroom.protocols.privacy.mechanisms import (
    DiscreteLaplace,
    Placement,
    enough_shares,
    noises_in,
)
from tallyroom.protocols.privacy.polya import _own_cycles, polya
from tallyroom.protocols.randomness import Randomness, Streams
from tests.goodness import ALPHA, chi_square_p, discrete_laplace_pmf, fits
from tests.samples import a_query

N = 100_000


def shares(
    scale: Fraction, parties: int, count: int, seed: int = 5
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    drawn = DiscreteLaplace(scale).draw_shares(
        np.arange(parties, dtype=np.uint32),
        enough_shares(parties),
        count,
        Randomness.from_seed(seed, f"polya {scale} {parties}"),
    )
    assert drawn.shape == (parties, count)
    return drawn


@pytest.mark.parametrize("parties", [1, 2, 5, 8])
@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(2), Fraction(7, 3)], ids=str)
def test_the_honest_half_alone_draws_the_full_noise(scale: Fraction, parties: int) -> None:
    """n = 100,000 sums over any ceil(parties/2) of them, against the exact distribution."""
    half = math.ceil(parties / 2)
    support = np.arange(-math.ceil(9 * scale) - 2, math.ceil(9 * scale) + 3)
    pmf = discrete_laplace_pmf(support, float(scale))
    drawn = shares(scale, parties, N)
    assert fits(drawn[:half].sum(axis=0), support, pmf) > ALPHA
    assert fits(drawn[parties - half :].sum(axis=0), support, pmf) > ALPHA


def test_fewer_than_half_do_not() -> None:
    support = np.arange(-25, 26)
    drawn = shares(Fraction(2), 8, N)
    assert fits(drawn[:3].sum(axis=0), support, discrete_laplace_pmf(support, 2.0)) < ALPHA


def test_a_grid_of_a_thousand_million_steps_fits_too() -> None:
    """Continuous limit at a scale of 2^30: |sum|/scale is exponential, in 50 equal cells."""
    scale = Fraction(2**30)
    total = shares(scale, 4, 20_000)[:2].sum(axis=0)
    cells = np.floor(50 * -np.expm1(-np.abs(total) / float(scale))).astype(np.int64)
    counts = np.bincount(np.minimum(cells, 49), minlength=50)
    assert chi_square_p(counts, np.full(50, 20_000 / 50)) > ALPHA
    assert stats.binomtest(int((total > 0).sum()), 20_000).pvalue > ALPHA


@pytest.mark.parametrize("parties", [1, 3, 6])
def test_the_variance_of_all_shares_is_what_is_reported(parties: int) -> None:
    """n = 100,000. The sample variance has relative deviation below sqrt(kurtosis/n) < 0.9 %;
    6.5 of them are allowed. So has that of the fewest shares that suffice."""
    mechanism = DiscreteLaplace(Fraction(5))
    drawn = shares(Fraction(5), parties, N)
    for came in (parties, math.ceil(parties / 2)):
        reported = mechanism.variance * noises_in(Placement.PARTIES, parties, 2, came)
        assert abs(drawn[:came].sum(axis=0).var() / reported - 1) < 0.06


@pytest.mark.parametrize("scale", [Fraction(1, 30), Fraction(1, 100), Fraction(1, 10**9)])
def test_almost_no_noise_is_no_noise(scale: Fraction) -> None:
    """exp(-30) is the most that a share differs from zero with: 1000 draws never do."""
    assert not shares(scale, 4, 250).any()


class Script(Streams):
    """Streams that say what they are told to."""

    def __init__(self, words: list[list[tuple[int, int]]]) -> None:
        self._words = words
        self._at = [0] * len(words)

    def __len__(self) -> int:
        return len(self._words)

    def pairs(self, which: NDArray[np.intp]) -> NDArray[np.uint64]:
        said = []
        for stream in which.tolist():
            said.append(self._words[stream][self._at[stream]])
            self._at[stream] += 1
        return np.array(said, dtype=np.uint64).reshape(len(which), 2)


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_cutting_is_exactly_the_urn(parts: int) -> None:
    """Every way in which up to seven elements can be cut and coloured, with its probability as a
    fraction, against the Dirichlet-multinomial: no float anywhere."""
    other = 2**64 // parts
    r = Fraction(1, parts)
    for whole in range(8):
        paths: list[tuple[list[tuple[int, int]], Fraction]] = []

        def cut(left: int, words: list[tuple[int, int]], chance: Fraction, into: Any) -> None:
            if left == 0:
                into.append((words, chance))
                return
            for rest in range(left):
                cut(rest, [*words, (rest, 0)], chance / left * r, into)
                cut(rest, [*words, (rest, other)], chance / left * (1 - r), into)

        cut(whole, [], Fraction(1), paths)
        given = np.full(len(paths), whole, dtype=np.int64)
        own = _own_cycles(given, parts, Script([words for words, _ in paths]))
        for n in range(whole + 1):
            found = sum(
                (p for (_, p), mine in zip(paths, own, strict=True) if mine == n), Fraction()
            )
            assert found == rising(r, n) * rising(1 - r, whole - n)


def rising(r: Fraction, n: int) -> Fraction:
    """C(n + r - 1, n)."""
    return math.prod(((r + i) / (i + 1) for i in range(n)), start=Fraction(1))


def test_words_that_would_favour_some_lengths_or_colours_are_drawn_again() -> None:
    """2^64 is one more than a multiple of 3: the last word would make one length likelier."""
    last, colour = 2**64 - 1, 2**64 // 3
    script = Script(
        [[(last, 0), (0, colour)], [(0, last), (0, 0)], [(last - 1, 0), (1, 0), (0, 0)]]
    )
    assert _own_cycles(np.full(3, 3, dtype=np.int64), 3, script).tolist() == [0, 3, 3]
    assert script._at == [2, 2, 3]


def polya_pmf(scale: Fraction, parts: int, most: int) -> list[Decimal]:
    """P(0), P(1), … to fifty digits."""
    with localcontext() as context:
        context.prec = 60
        p = (-Decimal(scale.denominator) / Decimal(scale.numerator)).exp()
        r = 1 / Decimal(parts)
        found = [(r * (1 - p).ln()).exp()]
        for n in range(most):
            found.append(found[-1] * p * (n + r) / (n + 1))
        return found


@pytest.mark.parametrize("parts", [1, 2, 5, 300])
@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(7, 3), Fraction(60)], ids=str)
def test_a_geometric_number_cut_so_is_a_polya_variable(scale: Fraction, parts: int) -> None:
    """The law that the sampler follows, mixed over the geometric number, differs from the Pólya
    distribution in no digit that was computed: total variation on the support below 10^-40."""
    most, shown = math.ceil(110 * scale), 25
    with localcontext() as context:
        context.prec = 60
        p = (-Decimal(scale.denominator) / Decimal(scale.numerator)).exp()
        r = 1 / Decimal(parts)
        urn = [Decimal(1)], [Decimal(1)]
        for coefficients, shape in zip(urn, (r, 1 - r), strict=True):
            for n in range(most):
                coefficients.append(coefficients[-1] * (n + shape) / (n + 1))
        off = Decimal(0)
        for n, exact in enumerate(polya_pmf(scale, parts, shown)):
            mixed = sum((p**g * urn[1][g - n] for g in range(n, most)), Decimal(0))
            off += abs((1 - p) * urn[0][n] * mixed - exact)
    assert off < Decimal(10) ** -40


@pytest.mark.parametrize("parts", [1, 2, 5, 300])
@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(7, 3), Fraction(60)], ids=str)
def test_samples_are_polya(scale: Fraction, parts: int) -> None:
    """n = 200,000 against probabilities of fifty digits, alpha = 1e-9."""
    streams = Randomness.from_seed(9, f"{scale} {parts}").streams(
        "polya", np.arange(200, dtype=np.uint32), 1000
    )
    support = np.arange(math.ceil(12 * scale) + 3)
    pmf = np.array([float(p) for p in polya_pmf(scale, parts, len(support) - 1)])
    assert fits(polya(streams, scale, parts), support, pmf) > ALPHA


@pytest.mark.parametrize("parts", [2, 40])
def test_samples_of_a_large_scale_have_the_mean_and_spread_of_polya(parts: int) -> None:
    """Scale 2^40, n = 200,000: P(0) = (1-p)^(1/parts) by a binomial test, and the mean s/parts
    within 6.5 of its deviations."""
    scale, n = Fraction(2**40), 200_000
    streams = Randomness.from_seed(9, f"large {parts}").streams(
        "polya", np.arange(200, dtype=np.uint32), 1000
    )
    samples = polya(streams, scale, parts)
    zero = float(polya_pmf(scale, parts, 0)[0])
    assert stats.binomtest(int((samples == 0).sum()), n, zero).pvalue > ALPHA
    mean, deviation = 2.0**40 / parts, 2.0**40 / math.sqrt(parts)
    assert abs(samples.mean() - mean) < 6.5 * deviation / math.sqrt(n)


def test_nothing_is_charged_for_arithmetic() -> None:
    """The sampler is exact: noise of the parties costs its ε, and no δ."""
    query = a_query(noise=Placement.PARTIES, epsilon=Fraction(1), parties=4, min_parties=2)
    assert query.spend.loss.pure
    assert AddedNoise(query).delta == 0


def test_shares_do_not_depend_on_the_block() -> None:
    mechanism = DiscreteLaplace(Fraction(3))
    source = Randomness.from_seed(1, "parties")
    together = mechanism.draw_shares(np.arange(6, dtype=np.uint32), 3, 7, source)
    for party in range(6):
        alone = mechanism.draw_shares(np.array([party], dtype=np.uint32), 3, 7, source)
        assert alone.tolist() == [together[party].tolist()]
