"""Sums that need stages or thresholds, as a federation runs them: options, dropouts, noise."""

import pytest

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.statistics import statistic_named
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.simulation import Federation, Result

BINS = Histogram(value="score", bins=4)


def run(
    aggregator: str,
    epsilon: str = "inf",
    noise: str | None = None,
    dropout: float = 0.0,
    runtime: str = "inprocess",
) -> Result:
    with Federation(
        parties=12,
        aggregator=aggregator,
        data="synthetic:scores?n=120",
        seed=7,
        dropout=dropout,
        runtime=runtime,
        hosts=2,
    ) as federation:
        deadline = 2.5 if dropout else 60.0  # nobody waits for it where all answer
        return federation.run(BINS, epsilon, noise=noise, deadline=deadline)


def sent_by_parties(result: Result) -> int:
    links = result.communication["links"]
    assert isinstance(links, dict)
    found: int = links["party->server"]["bytes"]
    return found


@pytest.mark.parametrize(
    "spec", ["masking", "masking?neighbours=4", "masking?neighbours=4&threshold=3", "shamir?pack=1"]
)
def test_sums_are_exact(spec: str) -> None:
    result = run(spec)
    assert result.estimate == result.truth


def test_options_reach_every_role() -> None:
    """A party sends 80 bytes a neighbour."""
    few, everyone = (run(f"masking?neighbours={number}") for number in (4, 0))
    assert sent_by_parties(everyone) - sent_by_parties(few) == 12 * 80 * (11 - 4)


@pytest.mark.parametrize("runtime", ["inprocess", "processes"])
def test_masked_sums_bear_dropouts(runtime: str) -> None:
    result = run("masking", dropout=0.25, runtime=runtime)
    assert result.estimate == result.truth
    assert "9 of 12 parties contributed" in result.notes


def test_too_many_dropouts_fail_with_their_number() -> None:
    with pytest.raises(RunFailed, match="only 6 of 12 parties sent keys, which leaves 6 of 12"):
        run("masking", dropout=0.5)


def test_both_runtimes_agree_to_the_bit() -> None:
    for spec in ("masking", "shamir"):
        here, there = (run(spec, epsilon="1", runtime=r) for r in ("inprocess", "processes"))
        assert here.estimate == there.estimate
        assert here.communication == there.communication


def test_parties_add_the_noise_of_shamir_unless_told_otherwise() -> None:
    assert run("shamir", epsilon="1").privacy.noise == "parties"
    with pytest.raises(LocalError, match="noise parties"):
        run("shamir", epsilon="1", noise="each-server")


@pytest.mark.parametrize("aggregator", ["masking", "shamir"])
def test_pairs_are_refused(aggregator: str) -> None:
    """Shares of pairs are added up modulo 2^64, as they come: neither of these can."""
    pairs = statistic_named("gini").from_parameters({"value": "score"})
    with (
        Federation(
            parties=12, aggregator=aggregator, data="synthetic:scores?n=120", seed=7
        ) as federation,
        pytest.raises(LocalError, match=f"shares of pairs: {aggregator} cannot"),
    ):
        federation.run(pairs, "inf")
