"""Noise drawn once more, to tell what it may have done to an answer. It spends nothing: the law of
the noise is public, and released values are the seed, so one release has one answer."""

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics.release import Noise


def generator_of(values: Vector) -> np.random.Generator:
    """The generator that belongs to released values."""
    return np.random.default_rng(values)


def drawn_noise(
    noise: Noise, shape: tuple[int, ...], generator: np.random.Generator, last: int = 1
) -> Column:
    """Noise as it is in released integers, as real numbers; the last `last` axes of the shape
    count the integers. A sum of r Laplace noises is the difference of two gamma variables of shape
    r; other laws are taken to be normal."""
    own = shape[len(shape) - last :]
    errors = noise.deviations(int(np.prod(own))).reshape(own)
    if not isinstance(noise.law, DiscreteLaplace):
        found: Column = errors * generator.normal(size=shape)
        return found
    r = noise.noises
    drawn = generator.gamma(r, size=shape) - generator.gamma(r, size=shape)
    summed: Column = errors * drawn / np.sqrt(2 * r)
    return summed
