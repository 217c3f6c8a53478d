"""Noise laws under their contract, and found by name."""

from fractions import Fraction

import pytest

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.conformance import LOSSES, NoiseLawContract
from tallyroom.protocols.privacy.gaussian import DiscreteGaussian
from tallyroom.protocols.privacy.loss import NO_LOSS, UNBOUNDED, PrivacyLoss
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.privacy.noise_law import Sensitivity, noise_law_named


class TestDiscreteLaplace(NoiseLawContract):
    law = DiscreteLaplace(Fraction(7, 3))


class TestLittleDiscreteLaplace(NoiseLawContract):
    law = DiscreteLaplace(Fraction(1, 2))


class TestDiscreteGaussian(NoiseLawContract):
    law = DiscreteGaussian(Fraction(25, 3))
    losses = LOSSES[1:]


class TestLittleDiscreteGaussian(NoiseLawContract):
    law = DiscreteGaussian(Fraction(1, 3))
    losses = LOSSES[1:]


def test_a_law_that_is_not_there_is_one_clear_line() -> None:
    with pytest.raises(LocalError, match=r"no noise law 'laplac'.*laplace"):
        noise_law_named("laplac")


@pytest.mark.parametrize("loss", [NO_LOSS, UNBOUNDED], ids=str)
def test_no_noise_costs_nothing_or_everything(loss: PrivacyLoss) -> None:
    with pytest.raises(LocalError, match="no noise"):
        DiscreteLaplace.calibrated(loss, Sensitivity(1, 1))


def test_laplace_noise_goes_by_the_l1_norm() -> None:
    law = DiscreteLaplace.calibrated(PrivacyLoss.of(2), Sensitivity(6, 6))
    assert law == DiscreteLaplace(Fraction(3))
    assert law.loss(Sensitivity.of_number(6)) == PrivacyLoss.of(2)


def test_laplace_noise_for_a_concentrated_loss_is_rounded_up() -> None:
    """ε = √(2ρ) is no fraction, nor a double where ρ is this small."""
    rho = Fraction(1, 10**16)
    law = DiscreteLaplace.calibrated(PrivacyLoss.concentrated(rho), Sensitivity(1, 1))
    assert law.loss(Sensitivity(1, 1)) <= PrivacyLoss.concentrated(rho)
    assert 1 / (2 * law.scale**2) > rho * (1 - Fraction(1, 10**12))
