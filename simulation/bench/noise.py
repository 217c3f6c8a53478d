"""Drawing noise, and what is told from it.

A million discrete Gaussians beside a million discrete Laplace noises: both laws have the same
standard deviation, and each row's ratio is our rate divided by that of discrete Laplace: 0.67 is
one and a half times its time. Shares are those of one party of ten.

Strategies of curves: how many noisy curves a second are estimated, and the seconds that the
variances of a new shape take (`settle_seconds`), and of one that was seen before
(`again_seconds`).
"""

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np

from tallyroom.protocols.privacy.curves import CURVES
from tallyroom.protocols.privacy.discrete_gaussian import discrete_gaussian
from tallyroom.protocols.privacy.gaussian import DiscreteGaussian
from tallyroom.protocols.privacy.laplace import discrete_laplace
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.randomness import Randomness
from tallyroom.simulation.bench.row import Row, seconds

MILLION = 10**6
SCALES = (1, 6, 1000, 10**9)
SHARES = 10
POINTS = 1 << 16


def rows(count: int = MILLION, repeats: int = 3, points: int = POINTS) -> list[Row]:
    return _draws(count, repeats) + [_strategy(name, points, repeats) for name in CURVES]


def _draws(count: int, repeats: int) -> list[Row]:
    randomness = Randomness.from_seed(1, "bench")
    found = []
    for scale in SCALES:
        laplace = partial(discrete_laplace, count, Fraction(scale), randomness)
        gaussian = partial(discrete_gaussian, count, Fraction(2 * scale**2), randomness)
        found += _both(f"{scale}", count, repeats, laplace, gaussian)
    one = np.zeros(1, dtype=np.uint32)
    few, some = 6, count // 10
    gaussians, laplaces = (
        DiscreteGaussian(Fraction(2 * few**2), SHARES),
        DiscreteLaplace(Fraction(few)),
    )
    found += _both(
        f"{few}-share",
        some,
        repeats,
        partial(laplaces.draw_shares, one, SHARES, some, randomness),
        partial(gaussians.draw_shares, one, SHARES, some, randomness),
    )
    return found


def _strategy(name: str, points: int, repeats: int) -> Row:
    settled = [seconds(lambda: CURVES[name](points).mean_variance(1.0), 1) for _ in range(2)]
    strategy = CURVES[name](points)
    released = np.random.default_rng(1).normal(0.0, 100.0, strategy.released)
    told = seconds(partial(strategy.estimate, released, MILLION), repeats)
    return Row(
        f"{name}-{points}",
        1 / told,
        "curves/s",
        {},
        {"seconds": told, "settle_seconds": settled[0], "again_seconds": settled[1]},
    )


def _both(
    name: str,
    count: int,
    repeats: int,
    laplace: Callable[[], object],
    gaussian: Callable[[], object],
) -> list[Row]:
    slow, fast = seconds(laplace, repeats), seconds(gaussian, repeats)
    return [
        Row(f"laplace-{name}", count / slow, "noises/s"),
        Row(f"gaussian-{name}", count / fast, "noises/s", {"discrete-laplace": slow / fast}),
    ]
