"""PrivateKD: pairs by enumeration, its limits at both ends of ε, its choices' probabilities."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.projected import (
    PublicShape,
    estimated_gamma,
    estimated_k,
    private_projection,
    refined,
    together,
)
from tallyroom.protocols.randomness import Randomness
from tests.goodness import ALPHA, chi_square_p

Table = NDArray[np.int64]


def discerned(table: Table, labels: Table, columns: tuple[int, ...]) -> int:
    """By looking at every pair."""
    return sum(
        labels[i] != labels[j] and any(table[i, c] != table[j, c] for c in columns)
        for i, j in itertools.combinations(range(len(table)), 2)
    )


def example(seed: int, records: int, columns: int, values: int) -> tuple[Table, Table]:
    rng = np.random.default_rng(seed)
    table = rng.integers(0, values, (records, columns))
    return table, (table[:, 0] + rng.integers(0, 2, records)) % 3


def test_pairs_are_counted_right() -> None:
    for seed, values in itertools.product(range(4), (2, 5, 1000)):
        table, labels = example(seed, 25, 4, values)
        parts = np.zeros(25, dtype=np.int64)
        total = sum(a != b for a, b in itertools.combinations(labels.tolist(), 2))
        for columns in ((), (0,), (0, 2), (0, 2, 3)):
            if columns:
                parts = refined(parts, table[:, columns[-1]])
            assert total - together(parts, labels) == discerned(table, labels, columns)


def test_replacing_a_record_moves_a_score_by_at_most_n_less_1() -> None:
    """All tables of 4 records, one binary attribute and two classes, all replacements."""
    worst = 0
    records = list(itertools.product((0, 1), repeat=2))
    for rows in itertools.product(records, repeat=4):
        here = np.array(rows)
        before = discerned(here[:, :1], here[:, 1], (0,))
        for i, record in itertools.product(range(4), records):
            there = here.copy()
            there[i] = record
            worst = max(worst, abs(before - discerned(there[:, :1], there[:, 1], (0,))))
    assert worst == 3


def test_at_infinite_epsilon_it_is_greedy() -> None:
    for seed in range(5):
        table, labels = example(seed, 40, 6, 3)
        greedy: list[int] = []
        for _ in range(4):
            left = [column for column in range(6) if column not in greedy]
            greedy.append(max(left, key=lambda c: discerned(table, labels, (*greedy, c))))
        source = Randomness.from_seed(seed, "greedy")
        assert private_projection(table, labels, 4, None, source) == greedy
        best = max(discerned(table, labels, s) for s in itertools.combinations(range(6), 4))
        assert discerned(table, labels, tuple(greedy)) >= (1 - 1 / math.e) * best
    # Three columns with scores far apart, so that a large ε leaves no choice either.
    table = np.array([[0, i % 2, i] for i in range(40)])
    labels = np.arange(40) % 4
    source = Randomness.from_seed(1, "large")
    assert private_projection(table, labels, 2, Fraction(10**4), source)[0] == 2


def test_picks_have_the_weights_of_the_paper_and_are_uniform_at_tiny_epsilon() -> None:
    """500 first and second picks; exp(ε/k · C/(2(n−1))) with C by enumeration."""
    table, labels = example(3, 12, 3, 2)
    runs = 500
    for epsilon in (Fraction(1, 10**6), Fraction(8)):
        source = Randomness.from_seed(2, f"picks {epsilon}")
        orders = list(itertools.permutations(range(3), 2))
        counts = np.zeros(6, dtype=np.int64)
        for _ in range(runs):
            chosen = private_projection(table, labels, 2, epsilon, source)
            counts[orders.index((chosen[0], chosen[1]))] += 1
        weight = {
            s: math.exp(float(epsilon) / 2 * discerned(table, labels, s) / (2 * 11))
            for s in [(0,), (1,), (2,), *orders]
        }
        expected = np.array(
            [
                weight[(a,)]
                / sum(weight[(c,)] for c in range(3))
                * weight[(a, b)]
                / sum(weight[(a, c)] for c in range(3) if c != a)
                for a, b in orders
            ]
        )
        assert chi_square_p(counts, expected * runs) > ALPHA
        if epsilon < 1:
            assert chi_square_p(counts, np.full(6, runs / 6)) > ALPHA


def test_a_column_with_one_value_and_sparse_values_are_fine() -> None:
    table = np.array([[5, -(2**62), 7], [5, 2**62, 7], [5, 0, 7]])
    source = Randomness.from_seed(3, "sparse")
    assert private_projection(table, [0, 1, 2], 1, None, source) == [1]
    assert private_projection(table, [0, 0, 0], 3, Fraction(1), source) == [0, 1, 2]
    assert private_projection([[1, 2]], [0], 1, Fraction(1), source)[0] in (0, 1)


def test_k_and_gamma_of_section_2_3() -> None:
    """Against the formulas, by hand, and for S4's Adult and Iris the k it reports as good."""
    adult, iris = PublicShape(45_083, 13, 2), PublicShape(150, 4, 3)
    assert iris.bins == math.ceil(1 / (math.log(150) / 150) ** (1 / 5) - 0.5)
    ks = [
        estimated_k(shape, np.random.default_rng(1)) for shape in (iris, PublicShape(2000, 13, 2))
    ]
    assert all(1 <= k <= 6 for k in ks)
    assert estimated_k(PublicShape(500, 3, 2), np.random.default_rng(1), sigma=0.0) == 3
    gammas = [estimated_gamma(adult, k, np.random.default_rng(2)) for k in (1, 4, 8)]
    assert all(0 < gamma < 1 for gamma in gammas)
    assert estimated_gamma(PublicShape(100, 1, 2), 1, np.random.default_rng(3)) == 1
    # Lei's formula gives one bin here, and S4 §2 has two values at least of every attribute. Of
    # three values in two bins the least is in the first and the largest in the second: masses of
    # 1/3 and 2/3 whatever is drawn, and everything is arithmetic.
    few = PublicShape(3, 40, 2)
    assert math.ceil(1 / (math.log(3) / 3) ** (1 / 41) - 0.5) == 1
    assert few.bins == 2
    projection = 3 * 0.5 * 4 * math.log(40) / (0.05 * 9 / 4)
    histogram = (0.5 * math.log(3) - 2 * math.log(0.2)) / ((5 / 9) ** 2 * 3 / 2)
    by_hand = histogram / (histogram + projection)
    assert estimated_gamma(few, 2, np.random.default_rng(4)) == pytest.approx(by_hand)


def test_bad_input_is_refused() -> None:
    source = Randomness.from_seed(4, "bad")
    for k in (0, 3, -1):
        with pytest.raises(LocalError, match="onto"):
            private_projection([[1, 2]], [0], k, None, source)
    with pytest.raises(LocalError, match="onto"):
        estimated_gamma(PublicShape(9, 2, 2), 3, np.random.default_rng(0))
    bad: list[tuple[object, object, str]] = [
        ([], [], "shape"),
        ([[1]], [1, 2], "shape"),
        ([[0.5]], [1], "integers"),
        ([[1]], [0.5], "integers"),
    ]
    for table, classes, message in bad:
        with pytest.raises(ValueError, match=message):
            private_projection(table, classes, 1, None, source)  # type: ignore[arg-type]
    for shape in ((1, 3, 2), (9, 0, 2), (9, 3, 1)):
        with pytest.raises(LocalError, match="needs"):
            PublicShape(*shape)
