"""Drawing noise: a million discrete Gaussians beside a million discrete Laplace noises.

Both laws have the same standard deviation, and each row's ratio is our rate divided by that of
discrete Laplace: 0.67 is one and a half times its time. Shares are those of one party of ten.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np

from tallyroom.protocols.privacy.discrete_gaussian import discrete_gaussian
from tallyroom.protocols.privacy.gaussian import DiscreteGaussian
from tallyroom.protocols.privacy.laplace import discrete_laplace
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.randomness import Randomness
from tallyroom.simulation.bench.row import Row, seconds

MILLION = 10**6
SCALES = (1, 6, 1000, 10**9)
SHARES = 10


def rows(count: int = MILLION, repeats: int = 3) -> list[Row]:
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
