"""Statistics of pairs in the local model: what they are asked as, and what comes of it."""

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tallyroom.protocols.aggregation.local.aggregator import Local
from tallyroom.protocols.aggregation.local.reports import randomizer_of
from tallyroom.protocols.aggregation.shuffle.reports import local_budget
from tallyroom.protocols.aggregation.shuffle.reports import randomizer_of as reports_in_shuffle
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local.pairs import PairResponse
from tallyroom.protocols.offers import Offer
from tallyroom.protocols.plans.pairs import PairwiseMean
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import decode_query
from tallyroom.protocols.run.machines import check
from tallyroom.protocols.statistics import statistics
from tallyroom.protocols.statistics.of_pairs import (
    Auc,
    CollisionEntropy,
    Gini,
    KendallTau,
    Pairwise,
    Variance,
)
from tallyroom.protocols.statistics.pairwise import Pairs, corollary_1
from tallyroom.simulation.federation import Federation
from tests.protocols.statistics.local_form_samples import (
    RECORDS,
    a_query,
    form_of,
    holdings,
    labelled,
    locally,
    quantized,
)

UNIT: dict[str, Any] = {"lower": 0.0, "upper": 1.0}


def middles(values: Any, bins: int) -> Any:
    return (np.minimum(np.floor(values * bins), bins - 1) + 0.5) / bins


def mean_difference(values: Any) -> float:
    return float(np.abs(values[:, None] - values).sum() / (len(values) * (len(values) - 1)))


def test_without_noise_it_is_the_statistic_of_quantized_records() -> None:
    """Against numpy and scipy on the middles of bins."""
    data = holdings()
    x, y = (middles(data.column(name), 8) for name in ("x", "y"))
    counts = np.unique(x, return_counts=True)[1]
    tied = np.sum(counts * (counts - 1))
    pairs = RECORDS * (RECORDS - 1)
    signs = np.sign(x[:, None] - x) * np.sign(y[:, None] - y)
    bounds: dict[str, Any] = {"lower": 0.0, "upper": 1.0, "bins": "8"}
    for statistic, expected in (
        (Gini(**bounds), mean_difference(x)),
        (Variance(**bounds), np.var(x, ddof=1)),
        (CollisionEntropy(**bounds), -np.log(tied / pairs)),
        (KendallTau(**bounds), signs.sum() / pairs),
        (KendallTau(tau="b", **bounds), stats.kendalltau(x, y).statistic),
        (Pairwise(kernel_name="abs(a.x - b.x)", **bounds), mean_difference(x)),
    ):
        assert form_of(statistic).noiseless(data) == pytest.approx(expected, abs=1e-6)


def test_auc_without_noise_is_that_of_scores_cut_into_cells() -> None:
    data = holdings()
    statistic = Auc(lower=0.0, upper=1.0, bins="100", randomizer="hadamard")
    cells = np.minimum(np.floor(data.column("score") * 100), 99)
    positive, negative = (cells[data.column("label") == label] for label in (1, 0))
    wins = stats.mannwhitneyu(positive, negative, method="asymptotic").statistic
    expected = wins / (len(positive) * len(negative))
    assert form_of(statistic).noiseless(data) == pytest.approx(expected, abs=1e-12)
    assert labelled(statistic).depth == 7
    assert "100 values, padded to 2^7" in labelled(statistic).grid_words


def test_randomized_rounding_goes_to_points_and_has_their_kernel() -> None:
    statistic = Gini(lower=0.0, upper=2.0, bins="5", rounding="randomized")
    form = quantized(statistic)
    grid = form.kernel.grids[0]
    assert (form.kernels[0, 0] * grid.step).tolist() == [0.0, 0.5, 1.0, 1.5, 2.0]
    randomizer = randomizer_of(a_query(statistic))
    assert isinstance(randomizer, PairResponse)
    assert randomizer.words == 2
    assert "randomized rounding to 5 bins" in randomizer.name


@pytest.mark.parametrize(
    ("statistic", "records", "epsilon", "bins"),
    [
        (Gini(lower=0.0, upper=1.0), 10**4, 1, (10,)),
        (Gini(lower=0.0, upper=1.0), 10**8, 4, (200,)),
        (Gini(lower=0.0, upper=1.0), 10, Fraction(1, 100), (2,)),
        (KendallTau(lower=0.0, upper=1.0), 10**6, 1, (6, 6)),
        (Pairwise(kernel_name="auc", lower=0.0, upper=1.0), 10**4, 1, (10, 2)),
    ],
)
def test_bins_are_those_of_corollary_1(
    statistic: Pairs, records: int, epsilon: Fraction, bins: tuple[int, ...]
) -> None:
    assert quantized(statistic, locally(records, Fraction(epsilon))).column_bins == bins
    assert corollary_1(10**4, 1.0) == pytest.approx(10)


def test_records_are_reported_in_the_local_model_and_meet_elsewhere() -> None:
    for statistic in (Gini(lower=0.0, upper=1.0), Auc(lower=0.0, upper=1.0, labels="public")):
        query = a_query(statistic)
        again = decode_query(query.run, query.encode(), "coordinator")
        assert (again.statistic, again.plan) == (statistic, query.plan)
        check(query)
        assert query.plan.needs is Offer.RANDOMIZE
        for aggregator, servers, noise in (
            ("additive", 2, Placement.EACH_SERVER),
            ("curator", 1, Placement.CURATOR),
        ):
            other = replace(query, aggregator=aggregator, servers=servers, noise=noise)
            assert isinstance(other.plan, PairwiseMean)
            assert query.stream != other.stream


def test_other_bins_are_another_release() -> None:
    """All that reports depend on is in the plan's identity, and what is read off them is not."""
    given: dict[str, Any] = {"lower": 0.0, "upper": 1.0, "bins": "8"}
    kinds: dict[type[Pairs], list[dict[str, Any]]] = {
        Gini: [
            {"bins": "7"},
            {"upper": 2.0},
            {"value": "x"},
            {"rounding": "randomized"},
            {"randomizer": "unary"},
            {"bits": 9},
        ],
        Auc: [
            {"bins": "7"},
            {"upper": 2.0},
            {"score": "x"},
            {"label": "y"},
            {"positive": 2.0},
            {"labels": "public"},
            {"levels": "all"},
            {"randomizer": "hadamard"},
        ],
    }
    for kind, changes in kinds.items():
        plans = [kind(**given | each).plan(locally()).identity for each in ({}, *changes)]
        assert len(set(plans)) == len(plans)
        assert kind(**given | {"lower": 0, "upper": 1}).plan(locally()).identity == plans[0]
        assert kind(**given, pairs_per_party="3").plan(locally()).identity == plans[0]


def test_ways_of_the_local_model_have_no_names() -> None:
    assert not {"local-pairs", "local-auc"} & statistics().keys()


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: replace(quantized(Gini(**UNIT)), bins=1), "all records are alike"),
        (lambda: quantized(Gini(**UNIT, bins="1025")), "2 to 1024 cells"),
        (lambda: quantized(KendallTau(**UNIT, bins="33")), "1089 cells"),
        (lambda: labelled(Auc(**UNIT, randomizer="unary")), "response or by Hadamard response"),
        (lambda: labelled(Auc(**UNIT, bins="1025", randomizer="response")), "at most 1024"),
        (lambda: labelled(Auc(bins=str((1 << 24) + 1))), "from 2 to 16777216"),
        (lambda: Gini(bins="1"), "bins is a number"),
        (lambda: Gini(bins="many"), "bins is a number"),
        (lambda: Gini(rounding="up"), "rounding"),
        (lambda: Auc(labels="secret"), "labels"),
        (lambda: quantized(Gini()), "give --lower"),
        (lambda: labelled(Auc()), "quantized in the local model: give --lower"),
        (lambda: quantized(KendallTau(lower=0.0)), "quantized in the local model: give --lower"),
        (lambda: Local().check(a_query(Auc(**UNIT), epsilon=Fraction(1, 10**9))), "too small"),
    ],
)
def test_bad_input_is_one_line(build: Any, reason: str) -> None:
    with pytest.raises(LocalError, match=reason):
        build()


@pytest.mark.parametrize(
    ("aggregator", "statistic", "allowed"),
    [
        ("local", Gini(value="score"), 0.1),
        ("shuffle", Gini(value="score"), 0.1),
        ("local", Gini(value="score", rounding="randomized"), 0.1),
        ("shuffle", Gini(value="score", rounding="randomized"), 0.1),
        ("local", Auc(), 0.1),
        ("shuffle", Auc(), 0.1),
        ("local", Auc(labels="public"), 0.1),
        ("local", Auc(randomizer="hadamard"), 0.35),
        ("shuffle", Auc(randomizer="hadamard"), 0.35),
        ("local", Auc(labels="public", levels="one"), 0.2),
    ],
)
def test_a_run_estimates_it_under_its_own_name(
    aggregator: str, statistic: Pairs, allowed: float
) -> None:
    """Seeded: the same estimate every time. The data set publishes the bounds. 4000 records tell
    an AUC to a deviation of 0.02 by randomized response; by hierarchical histograms to one of 0.13,
    or of 0.07 with public labels: at most five of them are allowed, and how it errs on average is
    tested with the randomizers."""
    data = "synthetic:scores?n=4000"
    with Federation(200, aggregator=aggregator, data=data, seed=3) as federation:
        result = federation.run(statistic, 4, delta=1e-6)
    assert result.statistic == statistic.name
    assert result.error is not None
    assert result.error["max"] < allowed
    assert result.privacy.noise == "local"
    assert np.isfinite(result.deviations).all()
    assert result.error["max"] < 6 * result.deviations.max()
    json.dumps(result.as_json(), allow_nan=False)


def test_shuffling_hides_no_record_among_those_of_another_label() -> None:
    """Of a class of one record the report is in plain view, and the budget of a report among all
    others would be several times what was asked for."""
    query = a_query(Auc(**UNIT, labels="public"), aggregator="shuffle", delta=1e-6)
    query = replace(query, records=100_000, parties=100_000, min_parties=100_000)
    assert local_budget(query, None) > 5 * Fraction(1)
    with pytest.raises(LocalError, match="among those of its own label only"):
        reports_in_shuffle(query)
    assert reports_in_shuffle(replace(query, statistic=Auc(**UNIT))) is not None


def test_the_protocol_of_auc_is_the_one_that_errs_less_by_public_facts() -> None:
    def values(records: int, epsilon: int, **options: Any) -> tuple[bool, int]:
        form = labelled(Auc(**UNIT, **options), locally(records, Fraction(epsilon)))
        return form.by_response, form.domain

    assert values(2_000, 1) == (True, 8)
    assert values(200_000, 4, labels="public") == (True, 32)
    assert values(20_000, 1, bins="22") == (True, 22)
    assert values(20_000, 1, bins="1024") == (False, 1024)
    assert values(20_000, 1, bins="1024", randomizer="response") == (True, 1024)
    assert values(20_000, 1, bins="4096") == (False, 4096)
    assert values(20_000, 1, randomizer="hadamard") == (False, 128)
    assert values(20_000, 1, levels="one") == (False, 128)


def test_public_labels_are_said_to_be_public() -> None:
    data = "synthetic:scores?n=400"
    with Federation(100, aggregator="local", data=data, seed=3) as federation:
        result = federation.run(Auc(labels="public"), 2)
    assert "label is taken as public" in result.privacy.protects
    assert result.interval is not None
    assert (result.interval.low >= 0).all()
    assert (result.interval.high <= 1).all()
    assert "beside a public label" in result.privacy.mechanism
