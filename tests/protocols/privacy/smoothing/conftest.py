"""Noisy curves as in S0 §6.2, and both implementations of the hot loop."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tallyroom.protocols.privacy.smoothing.newton import HAVE_NATIVE
from tallyroom.protocols.privacy.tree import Tree

Curve = Callable[..., NDArray[np.float64]]


@pytest.fixture
def noisy_curve() -> Curve:
    """N bins of Poisson(`rate`) records, Theorem 1's noise, as fractions of n."""

    def draw(
        points: int, epsilon: float = 1.0, rate: float = 3.0, seed: int = 0
    ) -> NDArray[np.float64]:
        rng = np.random.default_rng([points, seed])
        tree = Tree(points)
        counts = np.cumsum(rng.poisson(rate, points)).astype(np.float64)
        noise = rng.laplace(0.0, tree.scale(epsilon), 2 ** (tree.levels + 1) - 1)
        noisy: NDArray[np.float64] = (counts + tree.whole_noise(noise)) / max(counts[-1], 1.0)
        return noisy

    return draw


@pytest.fixture(params=["native", "pure"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name = str(request.param)
    if name == "native" and not HAVE_NATIVE:
        pytest.skip("the native loop is not built")
    monkeypatch.setenv("TALLYROOM_NATIVE", "1" if name == "native" else "0")
    return name
