"""Exact discrete Laplace noise, vectorised, on integers alone.

The discrete Laplace distribution of scale s has P(x) proportional to exp(-|x|/s). Every coin is a
comparison of uniform integers, so no rounding of a probability ever happens: floating-point Laplace
noise leaks through its low bits (Mironov 2012), this does not. The algorithms are those of Canonne,
Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020), Algorithms 1 and 2, run
on all the samples that are still undecided at once.

A caveat that holds for every sampler by rejection: how long it takes depends on what it draws.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from protocols.randomness import Randomness

Integers = NDArray[np.int64]

Words = Callable[[NDArray[np.intp]], NDArray[np.uint64]]
"""A uniform word for each of the samples that are named, fresh with every call."""

_MAX_NUMERATOR = 1 << 54
_BLOCK = 1 << 16


def representable(scale: Fraction) -> Fraction:
    """The scale that is really sampled: `scale`, or the next one above it that fits.

    Rounding is upwards, so that it never costs privacy.
    """
    denominator = scale.denominator
    if scale.numerator <= _MAX_NUMERATOR and denominator <= _MAX_NUMERATOR:
        return scale
    shift = 54 - max(scale.numerator // denominator, 1).bit_length()
    if shift < 0:
        raise ValueError("noise of this scale does not fit the ring")
    return Fraction(-(-(scale.numerator << shift) // denominator), 1 << shift)


def discrete_laplace(count: int, scale: Fraction, randomness: Randomness) -> Integers:
    """`count` independent samples. The scale must be `representable`."""
    if scale <= 0 or representable(scale) != scale:
        raise ValueError(f"cannot sample discrete Laplace noise of scale {scale}")
    drawn = np.empty(count, dtype=np.int64)
    for start in range(0, count, _BLOCK):
        block = drawn[start : start + _BLOCK]
        _fill(block, scale, randomness)
    return drawn


def words_of(randomness: Randomness) -> Words:
    """All samples from one stream, in the order in which they ask."""
    return lambda which: randomness.words(len(which))


def _fill(out: Integers, scale: Fraction, randomness: Randomness) -> None:
    words = words_of(randomness)
    pending = np.arange(len(out))
    while len(pending):
        magnitude = geometric(len(pending), scale, words)
        negative = (_random_bytes(len(pending), randomness) & 1).astype(bool)
        # Minus zero is thrown away, or zero would come up twice as often (Algorithm 2, line 12).
        kept = ~(negative & (magnitude == 0))
        out[pending[kept]] = np.where(negative, -magnitude, magnitude)[kept]
        pending = pending[~kept]


def geometric(count: int, scale: Fraction, words: Words) -> Integers:
    """P(k) proportional to exp(-k/scale) for k = 0, 1, 2, …; samples are numbered from 0."""
    t, s = scale.numerator, scale.denominator
    remainder = np.empty(count, dtype=np.int64)
    pending = np.arange(count)
    while len(pending):
        u = uniform(pending, t, words)
        kept = bernoulli_exp(pending, u, t, words)
        remainder[pending[kept]] = u[kept]
        pending = pending[~kept]
    quotient = np.zeros(count, dtype=np.int64)
    running = np.arange(count)
    while len(running):
        ones = np.ones(len(running), dtype=np.int64)
        running = running[bernoulli_exp(running, ones, 1, words)]
        quotient[running] += 1
    if t > 1 and int(quotient.max(initial=0)) > (1 << 62) // t:
        raise ValueError("noise of this scale does not fit the ring")
    samples: Integers = (remainder + t * quotient) // s
    return samples


def bernoulli_exp(
    which: NDArray[np.intp], numerator: Integers, denominator: int, words: Words
) -> NDArray[np.bool]:
    """For each of these samples, true with probability exp(-numerator/denominator), for
    0 <= numerator <= denominator.

    Algorithm 1: with A_k true with probability γ/k, the first false A_k has odd k with probability
    exp(-γ).
    """
    result = np.zeros(len(numerator), dtype=bool)
    running = np.arange(len(numerator))
    k = 1
    while len(running):
        going = uniform(which[running], denominator * k, words) < numerator[running]
        result[running[~going]] = k % 2 == 1
        running = running[going]
        k += 1
    return result


def uniform(which: NDArray[np.intp], below: int, words: Words) -> Integers:
    """For each of these samples a uniform integer in [0, below), by rejection; below <= 2^63."""
    if below == 1:
        return np.zeros(len(which), dtype=np.int64)
    mask = np.uint64((1 << (below - 1).bit_length()) - 1)
    drawn = words(which) & mask
    pending = np.flatnonzero(drawn >= below)
    while len(pending):
        again = words(which[pending]) & mask
        drawn[pending] = again
        pending = pending[again >= below]
    return drawn.astype(np.int64)


def _random_bytes(count: int, randomness: Randomness) -> NDArray[np.uint8]:
    return np.frombuffer(randomness.bytes(count), dtype=np.uint8)
