"""Noise for many machines, drawn at once: one by one, drawing takes most of a test's time."""

from fractions import Fraction

import pytest

from tallyroom.protocols.privacy.laplace import Integers, discrete_laplace
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.randomness import Randomness

BULK = 1 << 15


def in_bulk(monkeypatch: pytest.MonkeyPatch, of_scale: Fraction = Fraction(1)) -> None:
    """Machines draw from stocks of samples, one for each scale, which is first multiplied.

    That a machine's noise follows from its own randomness is for other tests: here runs differ in
    nothing but the samples that they come upon.
    """
    stocks: dict[Fraction, tuple[Randomness, list[Integers]]] = {}

    def draw(self: DiscreteLaplace, count: int, randomness: Randomness) -> Integers:
        scale = self.scale * of_scale
        source, left = stocks.setdefault(scale, (Randomness.from_seed(1, f"noise {scale}"), []))
        if not left or len(left[0]) < count:
            left[:] = [discrete_laplace(max(BULK, count), scale, source)]
        drawn, left[0] = left[0][:count], left[0][count:]
        return drawn

    monkeypatch.setattr(DiscreteLaplace, "draw", draw)
