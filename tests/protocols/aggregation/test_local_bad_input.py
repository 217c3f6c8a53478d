"""What may be asked of the local model that makes no sense, or hardly any: one line each."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf, Quantile
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.of_pairs import Auc, Gini, KendallTau, Pairwise
from tallyroom.simulation.federation import Federation
from tests.arrays import as_array

EVERY = [
    Histogram(value="score", bins=5),
    Histogram(value="score", bins=5, randomizer="unary"),
    Histogram(value="score", bins=5, randomizer="hashing"),
    Histogram(value="score", bins=5, randomizer="hadamard"),
    Mean(value="score"),
    Ecdf(value="score", thresholds=16),
    Ecdf(value="score", thresholds=16, randomizer="unary"),
    Quantile(value="score", thresholds=16, randomizer="response"),
    Gini(value="score"),
    Gini(value="score", bins="9", randomizer="hadamard"),
    KendallTau(x="score", y="score", bins="3", randomizer="unary"),
    Pairwise(kernel_name="auc"),
    Auc(),
    Auc(labels="public"),
    Auc(levels="all"),
]


@pytest.fixture(scope="module")
def room() -> Iterator[Federation]:
    data = "synthetic:scores?n=200"
    with Federation(20, aggregator="local", data=data, seed=3) as federation:
        yield federation


def attempt(
    room: Federation, statistic: Statistic, epsilon: str
) -> tuple[NDArray[np.float64], str]:
    """The answer, or why there is none."""
    try:
        return as_array(room.run(statistic, epsilon).estimate), ""
    except LocalError as error:
        return np.zeros(0), str(error)


def shown(statistic: Statistic) -> str:
    named = getattr(statistic, "randomizer", "") or getattr(statistic, "levels", "")
    return f"{statistic.name} {named}"


@pytest.mark.parametrize("statistic", EVERY, ids=shown)
def test_a_huge_epsilon_overflows_nowhere(room: Federation, statistic: Statistic) -> None:
    result = room.run(statistic, 10**9)
    assert np.isfinite(as_array(result.estimate)).all()
    assert result.privacy.noise == "local"


@pytest.mark.parametrize("statistic", EVERY, ids=shown)
def test_a_tiny_epsilon_is_answered_within_the_ring_or_refused(
    room: Federation, statistic: Statistic
) -> None:
    """10^-9 is the least that there is: what would not fit a number is refused."""
    estimate, reason = attempt(room, statistic, "1e-9")
    assert np.isfinite(estimate).all()
    assert (len(estimate) > 0) is (reason == "")
    assert reason == "" or "too small" in reason
    with pytest.raises(LocalError, match="from 1e-09 to 1e\\+09, or inf, not 1e-10"):
        room.run(statistic, "1e-10")


@pytest.mark.parametrize(
    "statistic", [Histogram(value="score", bins=1), Ecdf(value="score", thresholds=1)], ids=shown
)
def test_one_bin_holds_all_and_there_is_nothing_to_hide(
    room: Federation, statistic: Statistic
) -> None:
    result = room.run(statistic, 1)
    assert as_array(result.estimate).tolist() in ([200], [1.0])
    assert result.privacy.mechanism == "none needed"


def test_one_bin_has_no_pairs_that_differ() -> None:
    for kind in (Gini, KendallTau, Auc):
        with pytest.raises(LocalError, match="bins is a number from 2"):
            kind(bins="1")


@pytest.mark.parametrize("levels", ["one", "all"])
@pytest.mark.parametrize("label", [0, 1])
def test_an_empty_class_has_no_auc(tmp_path: Path, levels: str, label: int) -> None:
    """Where labels are public it is known, and no answer is given. Where they are private nobody
    may know: an answer is given, as far off as its deviation says."""
    path = tmp_path / "one_class.csv"
    rows = "\n".join(f"{place / 40},{label}" for place in range(40))
    path.write_text(f"score,label\n{rows}\n")
    with Federation(20, aggregator="local", data=str(path), seed=3) as federation:
        public = Auc(lower=0.0, upper=1.0, labels="public", levels=levels)
        with pytest.raises((RunFailed, LocalError), match="one class appears to be empty"):
            federation.run(public, 2)
        private = Auc(lower=0.0, upper=1.0, levels=levels)
        assert 0 <= float(as_array(federation.run(private, 2).estimate)[0]) <= 1


def test_a_domain_that_is_no_power_of_two_is_padded_and_said(room: Federation) -> None:
    result = room.run(Auc(bins="1000", labels="public", randomizer="hadamard"), 8)
    assert "2^10 scores" in result.privacy.mechanism
    assert "1000 values, padded to 2^10" in str(result.data["grid"])
    assert "cut into 2^4 values" in str(room.run(Auc(levels="one"), 8).data["grid"])


@pytest.mark.parametrize(
    ("statistic", "reason"),
    [
        (Ecdf(value="score", strategy="tree"), "no randomizer for ecdf"),
        (Ecdf(value="score", thresholds=1 << 17, randomizer="unary"), "4096 values"),
        (Histogram(value="score", bins=5000, randomizer="hashing"), "4096 values"),
        (Auc(randomizer="unary"), "leave --randomizer out"),
        (Gini(value="score", bins="1025"), "2 to 1024 cells"),
    ],
    ids=["tree", "unary", "hashing", "auc", "cells"],
)
def test_what_has_no_randomizer_is_refused(
    room: Federation, statistic: Statistic, reason: str
) -> None:
    with pytest.raises(LocalError, match=reason):
        room.run(statistic, 1)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: Auc(levels="two"), "levels"),
        (lambda: Gini(randomizer="hashing"), "randomizer"),
        (lambda: Ecdf(randomizer="unry"), "did you mean unary"),
    ],
)
def test_names_that_are_none_are_refused(build: type, reason: str) -> None:
    with pytest.raises(LocalError, match=reason):
        build()
