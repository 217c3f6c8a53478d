"""Noise as servers add it, many runs at once, by numpy."""

import numpy as np


def noises(scale: float, servers: int, runs: int, size: int, seed: int) -> np.ndarray:
    """Discrete Laplace noise of every server, as the difference of two geometric numbers."""
    generator = np.random.default_rng(seed)
    rate = -np.expm1(-1 / scale)
    shape = (servers, runs, size)
    drawn = generator.geometric(rate, shape) - generator.geometric(rate, shape)
    return np.asarray(drawn.sum(axis=0), dtype=np.int64)


def variance_of(scale: float) -> float:
    p = np.exp(-1 / scale)
    return float(2 * p / (1 - p) ** 2)
