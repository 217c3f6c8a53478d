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

from tallyroom.protocols.randomness import Randomness

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


def _fill(out: Integers, scale: Fraction, randomness: Randomness) -> None:
    pending = np.arange(len(out))
    while len(pending):
        magnitude = geometric(len(pending), scale, randomness)
        negative = (_random_bytes(len(pending), randomness) & 1).astype(bool)
        # Minus zero is thrown away, or zero would come up twice as often (Algorithm 2, line 12).
        kept = ~(negative & (magnitude == 0))
        out[pending[kept]] = np.where(negative, -magnitude, magnitude)[kept]
        pending = pending[~kept]


def geometric(count: int, scale: Fraction, randomness: Randomness) -> Integers:
    """P(k) proportional to exp(-k/scale) for k = 0, 1, 2, …"""
    return geometric_each(count, scale, _one_stream(randomness))


def uniform(count: int, below: int, randomness: Randomness) -> Integers:
    """Uniform integers in [0, below), by rejection; below <= 2^63."""
    return _uniform_each(np.arange(count), below, _one_stream(randomness))


def _one_stream(randomness: Randomness) -> Words:
    """All samples from one stream, in the order in which they ask."""
    return lambda which: randomness.words(len(which))


def geometric_each(count: int, scale: Fraction, words: Words) -> Integers:
    """The same from a stream for each sample, which are numbered from 0."""
    t, s = scale.numerator, scale.denominator
    remainder = np.empty(count, dtype=np.int64)
    pending = np.arange(count)
    while len(pending):
        u = _uniform_each(pending, t, words)
        kept = bernoulli_exp_each(pending, u, t, words)
        remainder[pending[kept]] = u[kept]
        pending = pending[~kept]
    quotient = np.zeros(count, dtype=np.int64)
    running = np.arange(count)
    while len(running):
        ones = np.ones(len(running), dtype=np.int64)
        running = running[bernoulli_exp_each(running, ones, 1, words)]
        quotient[running] += 1
    if t > 1 and int(quotient.max(initial=0)) > (1 << 62) // t:
        raise ValueError("noise of this scale does not fit the ring")
    samples: Integers = (remainder + t * quotient) // s
    return samples


def bernoulli_exp_each(
    which: NDArray[np.intp], numerator: Integers, denominator: int, words: Words
) -> NDArray[np.bool]:
    """Algorithm 1: with A_k true with probability γ/k, the first false A_k has odd k with
    probability exp(-γ)."""
    result = np.zeros(len(numerator), dtype=bool)
    running = np.arange(len(numerator))
    k = 1
    while len(running):
        going = _uniform_each(which[running], denominator * k, words) < numerator[running]
        result[running[~going]] = k % 2 == 1
        running = running[going]
        k += 1
    return result


def _uniform_each(which: NDArray[np.intp], below: int, words: Words) -> Integers:
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
