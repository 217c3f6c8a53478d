"""The suite that every noise law must pass; other packages import it too.

    from tallyroom.protocols.privacy.conformance import NoiseLawContract

    class TestMine(NoiseLawContract):
        law = Mine(Fraction(2))

It needs pytest. `law` is one of little noise: its probabilities are summed over all values. A law
that has no noise for pure ε leaves that out of `losses`.
"""

import math
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import logsumexp

from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.noise_law import NoiseLaw, Sensitivity, noise_law_named
from tallyroom.protocols.randomness import Randomness

ALPHA = 1e-9
SAMPLES = 40_000
LEAST_EXPECTED = 10.0
LOSSES = (
    PrivacyLoss.of(Fraction(1, 3)),
    PrivacyLoss.of(2, 1e-6),
    PrivacyLoss.concentrated(Fraction(1, 7)),
)
OF_SHARES = PrivacyLoss.concentrated(Fraction(1, 8))
SENSITIVITIES = (Sensitivity(1, 1), Sensitivity(6, 6), Sensitivity.of_number(5))
ORDERS = (1.01, 1.5, 2.0, 8.0, 64.0)

Chances = NDArray[np.float64]


class NoiseLawContract:
    law: ClassVar[NoiseLaw]
    losses: ClassVar[tuple[PrivacyLoss, ...]] = LOSSES

    @cached_property
    def far(self) -> int:
        """What lies beyond has a probability of no account."""
        widest = type(self.law).calibrated(OF_SHARES, Sensitivity(1, 1), 5)
        return 6 * max(law.quantile(1 - 1e-6) for law in (self.law, widest)) + 6

    @cached_property
    def chances(self) -> Chances:
        """Of the values from −far to far."""
        return self.chances_of(self.law)

    def chances_of(self, law: NoiseLaw) -> Chances:
        logs = np.array([law.log_chance(x) for x in range(-self.far, self.far + 1)])
        relative = np.exp(logs - logs.max())
        found: Chances = relative / relative.sum()
        return found

    def check_drawn(self, drawn: Integers, law: NoiseLaw) -> None:
        """A right program fails with probability `ALPHA`; rare values are taken together."""
        assert drawn.dtype == np.int64
        assert np.abs(drawn).max() <= self.far
        chances = self.chances_of(law)
        counts = np.bincount(drawn + self.far, minlength=len(chances))
        expected = chances * len(drawn)
        rare = expected < LEAST_EXPECTED
        assert (
            stats.chisquare(
                np.append(counts[~rare], counts[rare].sum()),
                np.append(expected[~rare], expected[rare].sum()),
            ).pvalue
            > ALPHA
        )

    def test_it_is_found_by_its_name(self) -> None:
        assert noise_law_named(self.law.name) is type(self.law)

    def test_it_is_symmetric_and_its_variance_is_that_of_its_probabilities(self) -> None:
        values = np.arange(-self.far, self.far + 1)
        np.testing.assert_allclose(self.chances, self.chances[::-1], rtol=1e-9)
        assert self.law.variance == pytest.approx(float(values**2 @ self.chances), rel=1e-9)

    @pytest.mark.parametrize("noises", [1, 2, 3])
    def test_quantiles_are_those_of_sums(self, noises: int) -> None:
        law = self.chances
        for _ in range(noises - 1):
            law = np.convolve(law, self.chances)
        upto = np.cumsum(law)
        for level in (0.5, 0.75, 0.975, 0.9999):
            least = int(np.argmax(upto >= level - 1e-12)) - noises * self.far
            assert self.law.quantile(level, noises) == least

    @pytest.mark.parametrize("noises", [1, 2, 7])
    def test_the_width_of_much_noise_is_that_of_its_quantiles(self, noises: int) -> None:
        little = PrivacyLoss.concentrated(Fraction(1, 10**6))
        law = type(self.law).calibrated(little, Sensitivity(1, 1))
        for level in (0.9, 0.975):
            found = law.quantile(level, noises) / math.sqrt(noises * law.variance)
            assert law.width(level, noises) == pytest.approx(found, rel=0.01)

    def test_its_words_tell_the_size_of_its_noise_in_steps(self) -> None:
        assert self.law.words() == self.law.words(1.0) != self.law.words(0.25)

    @pytest.mark.parametrize("shares", [1, 5])
    @pytest.mark.parametrize("sensitivity", SENSITIVITIES)
    def test_a_calibrated_law_costs_what_was_granted_and_no_more(
        self, sensitivity: Sensitivity, shares: int
    ) -> None:
        for loss in self.losses:
            law = type(self.law).calibrated(loss, sensitivity, shares)
            assert law.loss(sensitivity) <= loss
            farther = Sensitivity(2 * sensitivity.l1, 4 * sensitivity.squared_l2)
            assert not law.loss(farther) <= loss, "it has more noise than is needed"
            if shares == 1:
                assert law == type(self.law).calibrated(loss, sensitivity)

    def test_its_loss_in_rho_is_no_more_than_follows_from_epsilon(self) -> None:
        for sensitivity in SENSITIVITIES:
            whole = self.law.loss(sensitivity).as_concentrated()
            assert self.law.concentrated(sensitivity) <= whole

    @pytest.mark.parametrize("moved", [1, 2, 3])
    def test_its_loss_in_rho_is_that_of_its_probabilities(self, moved: int) -> None:
        concentrated = self.law.concentrated(Sensitivity(moved, moved**2))
        assert not concentrated.delta
        assert concentrated.rho is not None
        self.check_divergences(moved, float(concentrated.rho))

    @pytest.mark.parametrize("moved", [1, 2, 3])
    def test_the_loss_is_that_of_its_probabilities(self, moved: int) -> None:
        """One integer moves by so much; both directions are alike, by symmetry."""
        loss = self.law.loss(Sensitivity(moved, moved**2))
        here, there = self.chances[moved:], self.chances[:-moved]
        if loss.epsilon is not None:
            beyond = np.maximum(here - math.exp(loss.epsilon) * there * (1 + 1e-9), 0.0)
            assert float(beyond.sum()) <= float(loss.delta) + 1e-12
            return
        assert loss.rho is not None
        self.check_divergences(moved, float(loss.rho))

    def check_divergences(self, moved: int, rho: float) -> None:
        """Rényi divergences, where one integer moves by so much."""
        here, there = self.chances[moved:], self.chances[:-moved]
        for order in ORDERS:
            inside = (here > 1e-250) & (there > 1e-250)
            ratios = np.log(here[inside]) - np.log(there[inside])
            divergence = float(logsumexp(np.log(here[inside]) + (order - 1) * ratios))
            assert divergence / (order - 1) <= order * rho * (1 + 1e-9) + 1e-12

    def test_draws_have_its_probabilities(self) -> None:
        randomness = Randomness.from_seed(11, "noise law")
        self.check_drawn(self.law.draw(SAMPLES, randomness), self.law)
        first, second = (self.law.draw(99, randomness) for _ in range(2))
        assert (first != second).any()

    @pytest.mark.parametrize("enough", [1, 2, 5])
    def test_enough_shares_sum_to_a_noise(self, enough: int) -> None:
        if not self.law.has_shares:
            pytest.skip("it is not drawn in shares")
        law = type(self.law).calibrated(OF_SHARES, Sensitivity(1, 1), enough)
        randomness = Randomness.from_seed(12, f"shares of {enough}")
        ids = np.arange(enough + 2, dtype=np.uint32)
        shares = law.draw_shares(ids, enough, SAMPLES // 4, randomness)
        assert shares.shape == (enough + 2, SAMPLES // 4)
        for first in (0, 2):
            self.check_drawn(shares[first : first + enough].sum(axis=0), law)
        alone = law.draw_shares(ids[1:2], enough, SAMPLES // 4, randomness)
        assert (alone[0] == shares[1]).all()
