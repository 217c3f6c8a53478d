"""Statistics of pairs: what is decided before asking, and what answers mean."""

import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.garbling.laplace_circuit import CircuitLaplace
from tallyroom.protocols.kernels.estimator import Design, Zetas
from tallyroom.protocols.kernels.matchings import rounds
from tallyroom.protocols.kernels.ordered_grid import OrderedGrid
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.pairs import DEFAULT_DELTA, PairwiseMean
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import decode_query, run_name
from tallyroom.protocols.records import Holdings, deal
from tallyroom.protocols.statistics import statistics
from tallyroom.protocols.statistics.bounded import clipped_records
from tallyroom.protocols.statistics.of_pairs import (
    Auc,
    CollisionEntropy,
    Gini,
    KendallTau,
    Pairwise,
    Variance,
)
from tallyroom.protocols.statistics.pairwise import MOST_AUTOMATIC, Pairs
from tallyroom.protocols.statistics.planned import AskedOf, laplace_noise, planned
from tests.protocols.pairwise.gathering import a_pairs_query, ratings

SEED = bytes(16)
UNIT: dict[str, Any] = {"lower": 0.0, "upper": 1.0}
KINDS: list[Pairs] = [
    Gini(**UNIT),
    Variance(**UNIT),
    CollisionEntropy(),
    KendallTau(),
    KendallTau(tau="b"),
    Auc(),
    Pairwise(**UNIT, kernel_name="abs(a.x - b.y)"),
]


def name_of(statistic: Pairs) -> str:
    return f"{statistic.name}-{getattr(statistic, 'tau', '')}"


def some(rows: int = 60, seed: int = 3) -> Holdings:
    return deal(ratings(rows, seed), 4)


def continuous(rows: int = 80, seed: int = 4) -> Holdings:
    draw = np.random.default_rng(seed)
    x = draw.random(rows)
    columns = {
        "value": x,
        "x": x,
        "y": np.clip(x + 0.2 * draw.standard_normal(rows), 0, 1),
        "score": draw.random(rows),
        "label": draw.integers(0, 2, rows).astype(float),
    }
    return deal(columns, 8)


def ready(statistic: Pairs, inside: bool = False) -> AskedOf:
    return planned(statistic, Facts.of_one_server(60, 3, Fraction(1), inside, SEED))


def plan_of(
    statistic: Pairs, records: int = 60, epsilon: str | None = "1", inside: bool = False
) -> PairwiseMean:
    budget = None if epsilon is None else Fraction(epsilon)
    plan = statistic.plan(Facts.of_one_server(records, 3, budget, inside, SEED))
    assert isinstance(plan, PairwiseMean)
    return plan


# --- plans ---


def test_all_known_statistics_of_pairs_are_here() -> None:
    known = {kind for kind in statistics().values() if issubclass(kind, Pairs)}
    assert {type(statistic) for statistic in KINDS} == known


@pytest.mark.parametrize("statistic", KINDS, ids=name_of)
def test_there_is_a_slot_for_every_pair_of_a_party_and_noise_for_every_pair_of_a_record(
    statistic: Pairs,
) -> None:
    plan = plan_of(statistic)
    assert plan.slots == 3 * plan.sample.matchings
    assert plan.length == len(plan.kernel.outputs)  # what servers make of parties' bits
    weighed = plan_of(replace(statistic, outputs="weighed"))
    assert weighed.length == plan.slots * len(plan.kernel.outputs)
    assert plan.sensitivity.l1 == plan.sample.matchings * plan.kernel.sensitivity


@pytest.mark.parametrize("records", [0, 1])
def test_a_pair_takes_two_records(records: int) -> None:
    with pytest.raises(LocalError, match="at least two records"):
        plan_of(Gini(**UNIT), records)


@pytest.mark.parametrize("records", [2, 3, 4, 5, 8, 9])
def test_as_many_matchings_as_asked_for_and_as_there_are(records: int) -> None:
    for wanted in ("1", "2", "5", "999999", "all"):
        found = plan_of(Gini(**UNIT, pairs_per_party=wanted), records).sample.matchings
        there = rounds(records)
        assert found == (there if wanted == "all" else min(int(wanted), there))


@pytest.mark.parametrize("statistic", KINDS, ids=name_of)
@pytest.mark.parametrize("inside", [False, True])
def test_automatic_pairs_depend_on_nothing_but_what_is_public(
    statistic: Pairs, inside: bool
) -> None:
    """More budget, more pairs. Noise on every pair wants one pair at small ε; noise on the total
    wants as many as bring the error within a tenth of that of all pairs, up to a limit."""
    budgets = ("0.1", "1", "10", "100")
    found = [plan_of(statistic, 1000, budget, inside).sample.matchings for budget in budgets]
    assert found == sorted(found)
    if inside:
        assert found[:2] == [1, 1]
        assert found[3] > 5
    output, sensitivity = statistic.kernel.outputs[0], statistic.kernel.sensitivity
    zetas = Zetas.worst(float(output.high - output.low))

    def error(matchings: int, budget: str) -> float:
        design = Design(1000, matchings)
        noise = design.total_variance(sensitivity, float(budget))
        return design.sampling_variance(zetas) + noise

    for matchings, budget in zip(found, budgets, strict=True):
        if not inside:
            goal = 1.1 * error(999, budget)
            assert error(matchings, budget) <= goal or matchings == MOST_AUTOMATIC
            assert matchings == 1 or error(matchings - 1, budget) > goal
    assert plan_of(statistic, 1000, None).sample.matchings == MOST_AUTOMATIC


def test_the_noise_of_a_pair_follows_from_epsilon_and_matchings() -> None:
    prepared = plan_of(KendallTau(pairs_per_party="5"), inside=True)
    noise = prepared.circuit_noise(Fraction(2), 1e-9, records_per_unit=3)
    assert noise is not None
    assert noise.scale == Fraction(2 * 5 * 3, 2)
    assert noise.delta(Fraction(2), 15, 1) <= 1e-9
    by_default = prepared.circuit_noise(Fraction(2), 0.0, records_per_unit=3)
    assert by_default is not None
    assert by_default.delta(Fraction(2), 15, 1) <= DEFAULT_DELTA
    assert prepared.circuit_noise(None, 0.0, 1) is None
    assert replace(prepared, inside=False).circuit_noise(Fraction(2), 0.0, 1) is None


# --- estimates ---


def exact_of(statistic: Pairs, holdings: Holdings) -> float:
    found = statistic.reference(holdings)
    assert isinstance(found, float)
    return found


def test_references_are_those_of_scipy() -> None:
    for holdings in (some(), continuous()):
        x, y = holdings.column("x"), holdings.column("y")
        score, label = holdings.column("score"), holdings.column("label")
        pairs = math.comb(holdings.rows, 2)
        difference = np.abs(x[:, None] - x[None, :]).sum() / 2 / pairs
        assert exact_of(Gini(**UNIT), holdings) == pytest.approx(difference, abs=1e-8)
        assert exact_of(Variance(**UNIT), holdings) == pytest.approx(np.var(x, ddof=1), abs=1e-8)
        signs = np.sign(x[:, None] - x[None, :]) * np.sign(y[:, None] - y[None, :])
        tau_a = signs.sum() / 2 / pairs
        assert exact_of(KendallTau(), holdings) == pytest.approx(tau_a, abs=1e-12)
        tau_b = stats.kendalltau(x, y).statistic
        assert exact_of(KendallTau(tau="b"), holdings) == pytest.approx(tau_b, abs=1e-12)
        assert exact_of(Auc(), holdings) == pytest.approx(roc_auc_score(label, score), abs=1e-12)
        equal = (np.equal.outer(x, x).sum() - len(x)) / 2 / pairs
        if equal:
            entropy = exact_of(CollisionEntropy(), holdings)
            assert entropy == pytest.approx(-math.log(equal), abs=1e-12)


def totals_as(totals: list[int]) -> Vector:
    return np.array(totals, dtype=np.int64).view(np.uint64)


@pytest.mark.parametrize("statistic", KINDS, ids=name_of)
def test_the_mean_of_totals_is_decoded(statistic: Pairs) -> None:
    """Slots that cancel leave the total: they are shares."""
    prepared = ready(statistic)
    holdings = some()
    plan = plan_of(statistic)
    means = plan.kernel.full_means(plan.measured(holdings))
    pairs = math.comb(holdings.rows, 2)
    totals = np.rint(means * pairs).astype(np.int64).tolist()
    decoded = prepared.decode(totals_as(totals), pairs, exact=True)
    assert decoded == pytest.approx(exact_of(statistic, holdings), abs=1e-9)
    slots = np.random.default_rng(1).integers(0, 2**64, (7, len(totals)), dtype=np.uint64)
    slots[0] += totals_as(totals) - slots.sum(axis=0, dtype=np.uint64)
    assert plan.measure(slots.ravel()).view(np.int64).tolist() == totals
    assert prepared.decode(slots.ravel(), pairs, exact=True) == pytest.approx(decoded, abs=1e-12)


def test_noise_from_circuits_is_centred() -> None:
    inside = ready(KendallTau(pairs_per_party="1"), inside=True)
    outside = ready(KendallTau(pairs_per_party="1"))
    vector = totals_as([40])
    assert outside.decode(vector, 100) == pytest.approx(0.4)
    assert inside.decode(vector, 100) == pytest.approx(0.4 + 0.5)
    assert inside.decode(vector, 100, exact=True) == pytest.approx(0.4)


@pytest.mark.parametrize("statistic", KINDS, ids=name_of)
def test_no_pair_is_an_error_and_not_a_number(statistic: Pairs) -> None:
    prepared = ready(statistic)
    with pytest.raises(LocalError, match="no pair was completed"):
        prepared.decode(np.zeros(prepared.plan.released, dtype=np.uint64), 0)


def test_deviations_are_those_of_the_estimate() -> None:
    """Where it is a multiple of a mean over all pairs: in units of the estimate, of noise on the
    total or on every pair. Elsewhere nothing is claimed beforehand, nor where pairs are drawn."""
    means: list[Pairs] = [Gini(**UNIT), Variance(**UNIT), KendallTau()]
    for drawn in means:
        assert not ready(drawn).read(totals_as([1]), 400, laplace_noise(1000.0)).foretold
        statistic = replace(drawn, pairs_per_party="all")
        for inside in (False, True):
            prepared = ready(statistic, inside=inside)
            pairs, noise = 400, 1000.0
            unit = prepared.decode(totals_as([1]), 1, exact=True)
            assert isinstance(unit, float)
            of_mean = noise / pairs if inside else noise / pairs**2
            (found,) = prepared.deviations(totals_as([1]), noise, pairs)
            assert found == pytest.approx(abs(unit) * math.sqrt(of_mean))
            assert prepared.read(totals_as([1]), pairs, laplace_noise(noise)).foretold
    for statistic in (CollisionEntropy(), KendallTau(tau="b"), Auc(), KINDS[-1]):
        prepared = ready(statistic)
        totals = totals_as([5] * prepared.plan.released)
        assert not prepared.read(totals, 10, laplace_noise(1.0)).foretold


def test_no_party_has_a_vector_of_its_own() -> None:
    with pytest.raises(LocalError, match="computed in pairs"):
        plan_of(Gini(**UNIT)).encode(some())


# --- what parties hold ---


def test_labels_are_0_or_1() -> None:
    columns = ratings(6)
    columns["label"] = np.array([0.0, 1.0, 2.0, 0.0, 1.0, 0.5])
    with pytest.raises(LocalError, match="labels are 0 or 1: column 'label'"):
        Auc().reference(deal(columns, 2))
    with pytest.raises(LocalError, match="labels are 0 or 1: column 'label'"):
        Pairwise(**UNIT, kernel_name="auc").reference(deal(columns, 2))
    for bad in (math.nan, math.inf):
        columns["label"] = np.array([0.0, 1.0, bad, 0.0, 1.0, 0.0])
        with pytest.raises(LocalError):
            Auc().reference(deal(columns, 2))


@pytest.mark.parametrize("statistic", KINDS, ids=name_of)
def test_cells_that_are_no_numbers_count_as_the_least(statistic: Pairs) -> None:
    """A party that refused them would tell of its records. Simulations do (`Dataset.check`)."""
    for bad in (math.nan, math.inf, -math.inf):
        columns = {name: np.append(column, bad) for name, column in ratings(5).items()}
        least = {name: np.append(column, -1e300) for name, column in ratings(5).items()}
        taken, meant = (plan_of(statistic).measured(deal(each, 2)) for each in (columns, least))
        assert (taken == meant).all()


def test_values_outside_bounds_are_clipped() -> None:
    columns = {"value": np.array([-5.0, 0.25, 0.5, 9.0])}
    records = plan_of(Gini(**UNIT, bits=8)).measured(deal(columns, 2))
    assert records[:, 0].tolist() == [0, 32, 64, 128]


def test_records_outside_bounds_are_counted_once_whatever_their_columns() -> None:
    columns = {
        "x": np.array([0.5, 2.0, 0.5, -1.0]),
        "y": np.array([0.5, 3.0, 9.0, 0.5]),
        "label": np.array([0.0, 1.0, 1.0, 0.0]),
    }
    holdings = deal(columns, 2)
    assert clipped_records(KendallTau(**UNIT), holdings) == 3
    written = Pairwise(**UNIT, kernel_name="if(a.label > b.label, a.x, b.x)")
    assert clipped_records(written, holdings) == 2
    assert written.bounded == ("x",)
    assert Pairwise(**UNIT, kernel_name="abs(a.x - b.y)").bounded == ("x", "y")


def test_bounds_are_public_or_not_needed() -> None:
    with pytest.raises(LocalError, match="needs public bounds"):
        _ = Gini().kernel
    for statistic in (CollisionEntropy(), KendallTau(), Auc()):
        assert isinstance(statistic.grid, OrderedGrid)
        assert statistic.bounded == ()
        assert clipped_records(statistic, some()) == 0
        assert not isinstance(replace(statistic, lower=0.0, upper=1.0).grid, OrderedGrid)


# --- parameters from anywhere ---

HOSTILE: dict[str, dict[str, object]] = {
    "no pairs": {"pairs_per_party": "0"},
    "less than none": {"pairs_per_party": "-1"},
    "a million": {"pairs_per_party": "1000000"},
    "a fraction": {"pairs_per_party": "1.5"},
    "a word": {"pairs_per_party": "some"},
    "nothing": {"pairs_per_party": ""},
    "a number for a word": {"pairs_per_party": 3},
    "no bits": {"bits": 0},
    "too many bits": {"bits": 33},
    "a truth for bits": {"bits": True},
    "matchings that follow from the facts": {"matchings": 1},
    "a strange parameter": {"colour": "red"},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_parameters_that_cannot_be_are_refused(name: str) -> None:
    for kind in (Gini, Auc):
        with pytest.raises(LocalError):
            kind.from_parameters(HOSTILE[name])
    query = a_pairs_query(Gini(**UNIT), deal(ratings(6), 3))
    fields = json.loads(query.encode())
    fields["parameters"] |= HOSTILE[name]
    data = json.dumps(fields).encode()
    with pytest.raises(PeerError, match="malformed query"):
        decode_query(run_name(query.nonce, data), data, "coordinator")


def test_other_parameters_that_cannot_be() -> None:
    with pytest.raises(LocalError, match="tau is a or b"):
        KendallTau(tau="c")
    with pytest.raises(LocalError, match="no kernel 'nonsense'"):
        _ = Pairwise(**UNIT, kernel_name="nonsense").columns
    for text in ("a.x +", "a.x - b.", "import('os') + a.x + b.x", "a.x" + " + b.x" * 500):
        with pytest.raises(LocalError):
            _ = Pairwise(**UNIT, kernel_name=text).kernel


@pytest.mark.parametrize("statistic", KINDS, ids=name_of)
@pytest.mark.parametrize("noise", [Placement.TOTAL, Placement.PER_PAIR])
def test_a_query_of_pairs_crosses_the_wire(statistic: Pairs, noise: Placement) -> None:
    query = a_pairs_query(statistic, some(), epsilon=Fraction(1, 3), noise=noise)
    again = decode_query(query.run, query.encode(), "coordinator")
    assert again == query
    assert again.stream == query.stream
    inside = again.circuit_noise
    assert isinstance(inside, CircuitLaplace) == (noise is Placement.PER_PAIR)
    assert (again.loss.delta > 0) == (noise is Placement.PER_PAIR)


def test_noise_is_drawn_where_the_query_says() -> None:
    query = a_pairs_query(Gini(**UNIT), some(), epsilon=Fraction(1))
    assert query.circuit_noise is None
    assert replace(query, noise=Placement.PER_PAIR).circuit_noise is not None
    with pytest.raises(LocalError, match="parties cannot add"):
        replace(query, noise=Placement.PARTIES)


def test_other_pairs_are_another_release() -> None:
    """Randomness is drawn by what is released: other matchings must not meet the same masks."""
    facts = a_pairs_query(Gini(**UNIT), some(), epsilon=Fraction(1)).facts
    plan, *others = (
        statistic.plan(known).identity
        for statistic, known in (
            (Gini(**UNIT), facts),
            (Gini(**UNIT), replace(facts, seed=b"f" * 32)),
            (Gini(**UNIT), replace(facts, max_records_per_party=30)),
            (Gini(**UNIT), replace(facts, noise=Placement.PER_PAIR)),
            (Gini(**UNIT, pairs_per_party="7"), facts),
            (Gini(**UNIT, meet="servers"), facts),
            (Gini(**UNIT, bits=7), facts),
            (Gini(**UNIT, value="x"), facts),
            (Gini(lower=0.0, upper=2.0), facts),
            (Variance(**UNIT), facts),
            (Pairwise(**UNIT, kernel_name="abs(a.value - b.value)"), facts),
            (Pairwise(**UNIT, kernel_name="abs(a.value - b.value) + 0"), facts),
        )
    )
    assert len({plan, *others}) == 1 + len(others)
    assert Gini(lower=0, upper=1).plan(facts).identity == plan


def test_a_pilot_decides_how_many_pairs() -> None:
    """By brute force over P, with the ζ's that the public data shows."""
    generator = np.random.default_rng(3)
    pilot = deal({"value": generator.random(300)}, 1)
    statistic = Gini(lower=0.0, upper=1.0, bits=16)
    one, two = statistic.planned_by(pilot, {}).pilot
    assert 0 < 2 * one < two
    known = replace(statistic, pilot=(one, two))
    for epsilon in (1, 30, 300):
        chosen = plan_of(known, 200, str(epsilon), inside=True).sample.matchings

        def error(matchings: int, epsilon: int = epsilon) -> float:
            design = Design(200, matchings)
            noise = design.per_pair_variance(statistic.kernel.sensitivity, epsilon)
            return design.sampling_variance(Zetas(one, two)) + noise

        assert chosen == min(range(1, 200), key=error)
    blind = plan_of(statistic, 200, "300", inside=True).sample.matchings
    assert chosen < blind  # the worst case asks for more pairs than this data needs


@pytest.mark.parametrize("pilot", [(1.0,), (1.0, 1.0), (-1.0, 1.0), (0.0, math.inf), (0, 1, 2)])
def test_what_is_no_pilot_is_refused(pilot: tuple[float, ...]) -> None:
    with pytest.raises(LocalError):
        Gini(lower=0.0, upper=1.0, pilot=pilot)
