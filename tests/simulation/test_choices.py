"""`mode`, `top-k` and `quantile --strategy max` through real servers, and what they refuse."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tallyroom.parties.data import Dataset
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.plans.contract import NoisyChoice
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.choices import Mode, TopK
from tallyroom.protocols.statistics.ecdf import Quantile
from tallyroom.protocols.statistics.estimates import Curve, shape_of
from tallyroom.protocols.statistics.planned import planned
from tallyroom.simulation import Federation
from tallyroom.storage.ledger import Ledger

RNG = np.random.default_rng(8)
VALUES = np.clip(RNG.normal(0.4, 0.15, 500), 0, 1)
DATA = Dataset("bell", {"value": VALUES}, {"value": (0.0, 1.0)})
COUNTS, EDGES = np.histogram(VALUES, bins=20, range=(0, 1))
MIDDLES = (EDGES[:-1] + EDGES[1:]) / 2


@pytest.mark.parametrize("aggregator", ["additive", "fss"])
def test_without_noise_they_are_what_numpy_says(aggregator: str) -> None:
    best = np.argsort(-COUNTS, kind="stable")
    with Federation(parties=4, hosts=1, aggregator=aggregator, data=DATA) as federation:
        assert "nan" not in federation.run(Mode(value="value", bins=20), 1.0).summary()
        mode = federation.run(Mode(value="value", bins=20), "inf")
        assert mode.estimate == pytest.approx(MIDDLES[best[0]])
        top = federation.run(TopK(value="value", bins=20, k=4), "inf")
        assert shape_of(top.estimate).values() == pytest.approx(MIDDLES[best[:4]])
        asked = Quantile(value="value", quantile=(0.1, 0.9), strategy="max", thresholds=100)
        found = federation.run(asked, "inf")
        assert found.statistic == "quantile"
        exact = np.quantile(VALUES, [0.1, 0.9], method="inverted_cdf")
        middles = (np.ceil(exact * 100) - 0.5) / 100
        assert shape_of(found.estimate).values() == pytest.approx(middles)


def test_nothing_but_what_is_chosen_is_released_and_it_is_paid_for(tmp_path: Path) -> None:
    with Federation(parties=4, hosts=1, data=DATA, store=tmp_path) as federation:
        result = federation.run(TopK(value="value", bins=20, k=3), 4.0)
    assert result.proof is not None
    assert len(shape_of(result.estimate).values()) == 3
    assert result.bill.by_phase()["share"].bytes < 700  # three words and a receipt a server
    assert {"prepare", "together"} <= result.bill.by_phase().keys()
    assert "all that is opened" in result.privacy.mechanism
    assert result.interval is not None
    assert "which nobody sees" in result.interval.unknown
    assert result.table()[0] == ["place", "estimate", "truth"]
    for server in range(2):
        ledger = Ledger(tmp_path / f"server-{server}" / "ledger.sqlite")
        assert len(ledger.rows()) == 1
        assert ledger.totals().noisy.epsilon == Fraction(4)
        ledger.close()


def test_a_quantile_errs_by_about_the_logarithm_of_its_candidates() -> None:
    """Rank errors of 12 quantiles, ε/12 each: below 2·(ln N + 12)·12/ε but once in 10^5 of them."""
    wanted = tuple(np.linspace(0.1, 0.9, 12).tolist())
    statistic = Quantile(value="value", quantile=wanted, strategy="max", thresholds=64)
    with Federation(parties=4, hosts=1, data=DATA, seed=5) as federation:
        result = federation.run(statistic, 24.0)
    assert isinstance(result.estimate, Curve)
    ranks = np.searchsorted(np.sort(VALUES), result.estimate.y, side="right")
    errors = np.abs(ranks - np.array(wanted) * len(VALUES))
    cell = np.histogram(VALUES, bins=64, range=(0, 1))[0].max()
    assert (errors < 2 * (np.log(64) + 12) * 12 / 24 + cell).all()


@pytest.mark.parametrize(
    ("statistic", "words"),
    [
        (lambda: TopK(bins=3, k=4), "k must be between 1 and 3, not 4"),
        (lambda: TopK(bins=3, k=0), "k must be between 1 and 3, not 0"),
        (lambda: Mode(bins=1), "bins must be between 2"),
        (lambda: Mode(k=2), "the mode is one bin"),
        (lambda: Quantile(strategy="max", quantile=(1.5,)), "between 0 and 1"),
        (lambda: Quantile(strategy="max", thresholds=1), "takes 2 to"),
        (lambda: Quantile(strategy="max", quantile=()), "say which quantile"),
        (lambda: Quantile(strategy="max", quantile=(0.5,) * 101), "1 to 100 quantiles"),
    ],
)
def test_what_cannot_be_chosen_is_one_line(statistic: object, words: str) -> None:
    assert callable(statistic)
    with pytest.raises(LocalError, match=words):
        statistic()


@pytest.mark.parametrize(
    ("aggregator", "servers", "noise", "words"),
    [
        ("additive", 2, "each-server", "noise joint"),
        ("additive", 3, None, "two servers, not by 3"),
        ("prio3", 2, None, "no servers that choose"),
        (
            "fss?verified=yes",
            2,
            None,
            "keys where the two servers choose, as for mode",
        ),
    ],
)
def test_who_cannot_choose_is_told_so(
    aggregator: str, servers: int, noise: str | None, words: str
) -> None:
    with (
        Federation(parties=4, servers=servers, aggregator=aggregator, data=DATA) as federation,
        pytest.raises(LocalError, match=words),
    ):
        federation.run(Mode(value="value"), 1.0, noise=noise)


@pytest.mark.parametrize(
    "statistic",
    [
        Mode(lower=0.0, upper=1.0),
        TopK(lower=0.0, upper=1.0, k=2),
        Quantile(lower=0.0, upper=1.0, strategy="max", quantile=(0.25, 0.5)),
    ],
    ids=lambda each: each.name,
)
def test_they_go_over_the_wire_and_back(statistic: Statistic) -> None:
    sent = json.loads(json.dumps(statistic.parameters(), allow_nan=False))
    assert type(statistic).from_parameters(sent) == statistic
    asked = planned(statistic)
    assert isinstance(asked.plan, NoisyChoice)
    chosen = asked.plan.rule
    assert (chosen.chosen, chosen.noises) == (asked.plan.released, asked.plan.noises)
    beyond = np.array([2**40] * chosen.chosen, dtype=np.uint64)
    with pytest.raises(RunFailed, match="add up to anything"):
        asked.decode(beyond, 100)
