"""Smoothing (S0 Eq. 3) against CVXOPT with sparse matrices, and how its time grows with N.

Data as in S0 §6.2: N bins of Poisson(3) records, ε = 1, the box on.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.privacy.smoothing import smooth
from tallyroom.protocols.privacy.smoothing.reference import smooth_by_cvxopt
from tallyroom.protocols.privacy.tree import Tree
from tallyroom.simulation.bench.row import Row, seconds

POINTS = 2**12
LARGE, LARGE_BASE = 2**18, 2**14


def noisy_curve(points: int, epsilon: float = 1.0, rate: float = 3.0) -> NDArray[np.float64]:
    """Synthetic data, hence drawn from a generator that would not do for real data."""
    rng = np.random.default_rng(points)
    tree = Tree(points)
    counts = np.cumsum(rng.poisson(rate, points))
    noise = rng.laplace(0.0, tree.scale(epsilon), 2 ** (tree.levels + 1) - 1)
    noisy: NDArray[np.float64] = (counts + tree.whole_noise(noise)) / counts[-1]
    return noisy


def rows() -> list[Row]:
    return [*(_against_cvxopt(p) for p in (1, 2)), *(_growth(p) for p in (1, 2))]


def _against_cvxopt(p: int) -> Row:
    curve = noisy_curve(POINTS)
    ours, theirs = smooth(curve, p=p), smooth_by_cvxopt(curve, p=p)
    time, peer = _best_of_both(
        partial(smooth, curve, p=p),
        partial(smooth_by_cvxopt, curve, p=p),
        rounds=4,
        repeats=(10, 1),
    )
    return Row(
        f"p{p}-{POINTS}",
        POINTS / time,
        "points/s",
        {"cvxopt-sparse": peer / time},
        {
            "seconds": time,
            "iterations": ours.iterations,
            "objective": ours.objective,
            "objective_difference": ours.objective - theirs.objective,
        },
    )


def _growth(p: int) -> Row:
    large, small = noisy_curve(LARGE), noisy_curve(LARGE_BASE)
    answer = smooth(large, p=p)
    time, base = _best_of_both(
        partial(smooth, large, p=p), partial(smooth, small, p=p), rounds=8, repeats=(1, 2)
    )
    return Row(
        f"p{p}-{LARGE}",
        LARGE / time,
        "points/s",
        {f"time-of-{LARGE_BASE}": time / base},
        {"seconds": time, "iterations": answer.iterations, "objective": answer.objective},
    )


def _best_of_both(
    work: Callable[[], object],
    other: Callable[[], object],
    rounds: int,
    repeats: tuple[int, int],
) -> tuple[float, float]:
    """Best times, taken in turns, so that a passing load on the machine hits both."""
    times = [(seconds(work, repeats[0]), seconds(other, repeats[1])) for _ in range(rounds)]
    return min(time for time, _ in times), min(time for _, time in times)
