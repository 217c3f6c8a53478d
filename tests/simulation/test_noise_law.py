"""A noise law that was asked for by name: drawn, charged, told; refused where it cannot be."""

from fractions import Fraction

import numpy as np
import pytest

from tallyroom import Federation
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.studies.hosmer_lemeshow import HosmerLemeshow
from tests.registering import register_twofold

COUNTS = Histogram(lower=0.0, upper=1.0, bins=4)
DATA = {"value": np.linspace(0.05, 0.95, 40)}


@pytest.fixture(autouse=True)
def another_noise_law(monkeypatch: pytest.MonkeyPatch) -> None:
    register_twofold(monkeypatch)


@pytest.mark.parametrize(
    ("aggregator", "servers", "noise", "noises"),
    [
        ("curator", 1, None, 1),
        ("additive", 2, None, 2),
        ("additive", 2, "parties", 2),
        ("additive", 3, "shared", Fraction(3, 2)),
        ("fss", 2, None, 2),
        ("prio3", 2, None, 2),
        ("shamir", 3, None, 2),
        ("masking", 1, None, None),
    ],
)
def test_ledgers_and_receipts_say_what_the_law_says(
    aggregator: str, servers: int, noise: str | None, noises: Fraction | int | None
) -> None:
    """Its scale, 2/0.7, is rounded up to 3; a noise of it is two of discrete Laplace."""
    with Federation(
        parties=8, data=DATA, aggregator=aggregator, servers=servers, seed=3
    ) as federation:
        result = federation.run(COUNTS, epsilon="0.7", noise=noise, noise_law="twofold")
        again = federation.run(COUNTS, epsilon="0.7", noise=noise)
        rows = [ledger.rows() for ledger in federation.runtime._ledgers]  # type: ignore[attr-defined]
    assert len(rows) >= servers
    assert all([row[2] for row in of_one] == ["2/3", "7/10"] for of_one in rows)
    assert result.privacy.epsilon == pytest.approx(2 / 3)
    assert again.privacy.epsilon == pytest.approx(0.7)
    assert result.privacy.mechanism.startswith("two of discrete Laplace of scale 3 on 4")
    assert result.interval is not None
    if noises is None:
        return
    law = DiscreteLaplace(Fraction(3))
    assert result.interval.errors == pytest.approx((2 * float(noises) * law.variance) ** 0.5)
    half = (result.interval.high - result.interval.low) / 2
    assert half.max() == law.quantile(0.975, 2 * noises)


def test_gaussian_noise_is_charged_in_rho_and_a_cap_in_rho_refuses_what_exceeds_it() -> None:
    with Federation(parties=8, data=DATA, seed=3, cap="rho 0.05") as federation:
        for _ in range(2):
            result = federation.run(COUNTS, epsilon="rho 0.02", noise_law="gaussian", fresh=True)
        assert result.privacy.loss == PrivacyLoss.concentrated(Fraction(1, 50))
        ledgers = federation.runtime._ledgers  # type: ignore[attr-defined]
        assert [row[2] for row in ledgers[0].rows()] == ["rho 1/50"] * 2
        with pytest.raises(LocalError, match=r"rho 0\.02 refused: 0\.01 of 0\.05 is left"):
            federation.run(COUNTS, epsilon="rho 0.02", noise_law="gaussian", fresh=True)
        with pytest.raises(LocalError, match=r"rho 0\.06 refused"):
            federation.run(COUNTS, epsilon="rho 0.06", noise_law="gaussian")
        assert len(ledgers[0].rows()) == 2


def test_rho_is_refused_under_a_cap_of_epsilon_alone_before_anything_is_asked() -> None:
    with (
        Federation(parties=8, data=DATA, seed=3, cap=3) as federation,
        pytest.raises(LocalError, match="write the cap as `3, delta = 1e-6`"),
    ):
        federation.run(COUNTS, epsilon="rho 0.02", noise_law="gaussian")


def test_a_study_refuses_it_before_anything_is_asked() -> None:
    data = {"score": np.linspace(0.05, 0.95, 40), "label": np.arange(40) % 2}
    with Federation(parties=8, data=data, seed=3) as federation:
        study = HosmerLemeshow(score="score", label="label")
        with pytest.raises(LocalError, match="a study reckons with laplace noise, not with two"):
            federation.run(study, epsilon=1, noise_law="twofold")


def test_a_law_that_is_not_there_is_one_clear_line() -> None:
    with (
        Federation(parties=8, data=DATA, seed=3) as federation,
        pytest.raises(LocalError, match=r"no noise law 'gausian'; did you mean gaussian"),
    ):
        federation.run(COUNTS, epsilon=1, noise_law="gausian")
