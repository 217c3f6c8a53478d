"""Parties that never answer: the deadline passes, the rest is computed, the result says so."""

import json

import numpy as np
import pytest

from tallyroom.parties.data import Dataset
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.simulation import Federation, Result
from tallyroom.simulation.misbehaviour import choose_silent
from tests.conftest import Tally

VALUES = np.random.default_rng(5).uniform(0, 1, 31)
DATA = Dataset("values", {"value": VALUES}, {"value": (0.0, 1.0)})


def run(
    runtime: str,
    statistic: Statistic,
    aggregator: str,
    hosts: int,
    dropout: float = 0.4,
    epsilon: str = "1",
    min_parties: int | None = None,
) -> Result:
    with Federation(
        parties=10,
        aggregator=aggregator,
        runtime=runtime,
        data=DATA,
        hosts=hosts,
        seed=7,
        dropout=dropout,
    ) as federation:
        return federation.run(statistic, epsilon, min_parties=min_parties, deadline=1.5)


@pytest.mark.parametrize(
    ("statistic", "aggregator", "hosts"),
    [(Mean(), "additive", 10), (Mean(), "additive", 2), (Ecdf(thresholds=4), "fss", 3)],
    ids=["mean-own-hosts", "mean-blocks", "ecdf"],
)
def test_runtimes_agree_on_what_is_left(statistic: Statistic, aggregator: str, hosts: int) -> None:
    """With ten hosts, four of them join and have nobody who answers."""
    here, there = (
        run(runtime, statistic, aggregator, hosts) for runtime in ("inprocess", "processes")
    )
    assert here.estimate == there.estimate
    assert here.truth == there.truth
    for result in (here, there):
        assert "6 of 10 parties contributed" in result.notes
        assert "4 parties dropped out: the truth is that of the others" in result.notes


@pytest.mark.parametrize("dropout", [0.0, 0.4, 0.5])
def test_deviations_are_those_of_the_shares_of_noise_that_came(dropout: float) -> None:
    """Ten parties, of which five suffice: with k of them the noise is k/5 of discrete Laplace noise
    of scale 2, whose variance is 2q/(1-q)² with q = e^(-1/2)."""
    with Federation(
        parties=10, aggregator="additive", data=DATA, seed=7, dropout=dropout
    ) as federation:
        statistic = Histogram(lower=0.0, upper=1.0, bins=3)
        result = federation.run(statistic, "1", noise="parties", min_parties=5, deadline=1.0)
    q, came = np.exp(-0.5), round(10 * (1 - dropout))
    expected = np.sqrt(2 * q / (1 - q) ** 2 * came / 5)
    assert result.deviations == pytest.approx([expected] * 3)


def test_without_noise_the_answer_is_that_of_those_who_answered() -> None:
    result = run("inprocess", Mean(), "additive", 3, epsilon="inf")
    assert result.estimate == pytest.approx(result.truth, abs=1e-9)  # of the fixed point
    everybody = run("inprocess", Mean(), "additive", 3, epsilon="inf", dropout=0.0)
    assert result.truth != everybody.truth


@pytest.mark.parametrize(("dropout", "count"), [(0.0, 0), (0.04, 0), (0.25, 2), (0.4, 4), (0.9, 9)])
def test_the_fraction_is_rounded_to_parties(dropout: float, count: int) -> None:
    chosen = choose_silent(10, dropout, 3)
    assert len(chosen) == count
    assert chosen == choose_silent(10, dropout, 3)
    assert chosen <= set(range(10))
    if 0 < count < 9:
        assert len({choose_silent(10, dropout, seed) for seed in range(20)}) > 1


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 1.5, float("nan"), 0.99])
def test_somebody_must_be_left(dropout: float) -> None:
    with pytest.raises(LocalError, match="dropout"):
        Federation(parties=10, data=DATA, dropout=dropout)


def test_a_minimum_that_dropouts_make_impossible_is_said_at_once() -> None:
    with pytest.raises(LocalError, match="leaves 6 parties and --min-parties needs 7"):
        run("inprocess", Mean(), "additive", 1, min_parties=7)
    assert (
        "6 of 10 parties contributed"
        in run("inprocess", Mean(), "additive", 1, min_parties=6).notes
    )


def test_the_command_takes_a_fraction(tally_here: Tally) -> None:
    words = ("run", "mean", "--parties", 10, "--dropout", 0.3, "--seed", 1)
    done = tally_here(*words, "--json")
    assert done.returncode == 0
    assert "7 of 10 parties contributed" in json.loads(done.stdout)["notes"]
    refused = tally_here(*words, "--min-parties", 8)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "leaves 7 parties" in refused.stderr
