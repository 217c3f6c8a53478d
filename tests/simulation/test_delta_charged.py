"""The δ that an answer states is the δ that every server wrote down, and that a cap counts."""

from pathlib import Path
from typing import Any

import pytest

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.joint.noise_circuit import DEFAULT_DELTA
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.areas import AveragePrecision
from tallyroom.protocols.statistics.choices import Mode, TopK
from tallyroom.protocols.statistics.first_above import FirstAboveThreshold
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.simulation.federation import Federation
from tallyroom.storage.ledger import Ledger

BINS: dict[str, Any] = {"value": "score", "lower": 0.0, "upper": 1.0, "bins": 4}
HISTOGRAM = Histogram(**BINS)
AREA = AveragePrecision(lower=0.0, upper=1.0, method="smooth")
GINI = Gini(value="score", lower=0.0, upper=1.0, bits=4, pairs_per_party="all")


@pytest.mark.parametrize(
    ("aggregator", "statistic", "options"),
    [
        ("shuffle", HISTOGRAM, {"delta": 1e-6}),
        ("additive", HISTOGRAM, {"noise": "parties"}),
        ("masking", HISTOGRAM, {"noise": "parties"}),
        ("additive", GINI, {"noise": "per-pair", "delta": 1e-7}),
        ("additive", GINI, {}),
        ("additive", HISTOGRAM, {"delta": 1e-6}),
        ("additive", HISTOGRAM, {"noise": "joint"}),
        ("additive", HISTOGRAM, {"noise": "joint", "delta": 1e-6}),
        ("additive", FirstAboveThreshold(**BINS, threshold=20), {}),
        ("additive", Mode(**BINS), {"delta": 1e-8}),
        ("curator", AREA, {"delta": 1e-6}),
    ],
    ids=[
        *("shuffle", "parties", "masking", "per-pair", "pairs", "unused", "joint", "joint-granted"),
        *("first-above", "mode", "smooth"),
    ],
)
def test_the_delta_of_an_answer_is_in_every_ledger(
    aggregator: str, statistic: Statistic, options: dict[str, Any], tmp_path: Path
) -> None:
    with Federation(
        parties=10, aggregator=aggregator, data="synthetic:scores?n=200", store=tmp_path
    ) as federation:
        stated = federation.run(statistic, epsilon=1, **options).privacy.delta
        keepers = ["coordinator", *(f"server-{i}" for i in range(federation.servers))]
    if aggregator in ("shuffle", "curator"):
        assert stated == options["delta"]
    if options.get("noise") in ("joint", "per-pair") or isinstance(
        statistic, TopK | FirstAboveThreshold | Gini
    ):
        assert 0 < stated <= options.get("delta", DEFAULT_DELTA)
    for keeper in keepers:
        ledger = Ledger(tmp_path / keeper / "ledger.sqlite")
        assert [(row[2], row[3]) for row in ledger.rows()] == [("1", stated)]
        ledger.close()


def test_a_cap_of_delta_ends_what_epsilon_alone_would_allow() -> None:
    """A tiny ε buys nothing once the δ is spent."""
    with Federation(
        parties=10,
        aggregator="shuffle",
        data="synthetic:scores?n=1000",
        cap=10,
        cap_delta=2e-6,
    ) as federation:
        for _ in range(2):
            federation.run(HISTOGRAM, epsilon=1e-3, delta=1e-6)
        with pytest.raises(LocalError, match="delta 1e-06 refused: 0 of 2e-06 is left"):
            federation.run(HISTOGRAM, epsilon=1e-3, delta=1e-6)


def test_pairs_have_no_noise_that_one_server_knows_unless_it_is_asked_for() -> None:
    with Federation(parties=4, data="synthetic:scores?n=40", servers=2, seed=1) as federation:
        ours = federation.run(GINI, epsilon=1)
        total = federation.run(GINI, epsilon=1, noise="total")
        each = federation.run(GINI, epsilon=1, noise="each-server")
    assert ours.privacy.noise == "joint"
    assert "neither knows it" in ours.privacy.threat_model
    assert total.privacy.noise == "total"
    assert ours.deviations == pytest.approx(total.deviations)
    assert each.deviations == pytest.approx(total.deviations * 2**0.5)
    with Federation(parties=4, data="synthetic:scores?n=40", servers=3, seed=1) as federation:
        assert federation.run(GINI, epsilon=1).privacy.noise == "each-server"
