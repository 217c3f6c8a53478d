"""The program in which two servers draw noise: nothing in it depends on data.

`malicious`, which is the default (`levels`): all noises are drawn both ways from the same coins,
each server garbling once, and the two servers agree that what came out is the same before it is
used (`computation`). A server that garbles other noise than the circuit's, none for instance, ends
the run, unless it guesses all noises that come out; then they are the right ones. What a server
that deviates learns is one predicate of its choice on the noise, from whether the run goes on. That
can be much: one that garbles 0 in the place of a single noise passes where that noise is 0, with
probability tanh(1/2s) at scale s of Laplace noise and some 0.4/σ of Gaussian noise, and then knows
that value without noise. Otherwise the run ends, and both servers know that one of them lied.

`covert`: server 0 garbles λ copies, each from coins of its own, all but one of which are opened
(`covert`). A server that garbles other noise passes whole with probability 1/λ, and is otherwise
proved to have lied, to anybody.

`semi-honest`: server 0 garbles, and nobody looks.

A server whose coins are not fair changes nothing in any of them, as the other's are.
"""

import numpy as np

from tallyroom.protocols.algebra.field import Field
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.garbling.outputs import FieldIntegers, IntegerShares, UncheckedIntegers
from tallyroom.protocols.joint.computation import (
    GARBLER,
    Agree,
    BothWays,
    Program,
    Task,
    coins,
    instances_both_ways,
    instances_that_fit,
)
from tallyroom.protocols.joint.covert import Drawn, draws
from tallyroom.protocols.joint.levels import MALICIOUS, Level, Security
from tallyroom.protocols.joint.noise_circuit import JointNoise
from tallyroom.protocols.randomness import Randomness


def draw_noise(
    noise: JointNoise,
    count: int,
    randomness: Randomness,
    index: int,
    field: Field | None = None,
    security: Security = MALICIOUS,
) -> Program:
    """Shares of `count` noises: modulo 2^64, (count,), or in a field, (count, limbs)."""
    match security.level:
        case Level.MALICIOUS:
            return _drawn_twice(noise, count, randomness, index, field)
        case Level.COVERT:
            return _drawn_in_copies(noise, count, field, security.copies)
        case Level.SEMI_HONEST:
            return _drawn_once(noise, count, randomness, field)


def copies_of(noise: JointNoise, count: int, field: Field | None, copies: int) -> list[Drawn]:
    """What is drawn under `covert`, as everybody knows it who knows the query."""
    return draws(noise.circuit, _checked(noise, field), count, copies)


def _checked(noise: JointNoise, field: Field | None) -> IntegerShares | FieldIntegers:
    words = noise.words
    return IntegerShares(words) if field is None else FieldIntegers(field, words)


def _summed(noise: JointNoise, shares: Vector, field: Field | None) -> Vector:
    """Noises from their words, (…, words) or (…, words, limbs)."""
    if field is not None:
        return field.sum(field.mul(shares, field.from_ints(noise.factors)), -2)
    total: Vector = shares @ np.array(noise.factors, dtype=np.uint64)
    return total


def _drawn_in_copies(noise: JointNoise, count: int, field: Field | None, copies: int) -> Program:
    found: list[Vector] = []
    for drawn in copies_of(noise, count, field, copies):
        found.append(_summed(noise, (yield drawn), field))
    return np.concatenate(found)


def _drawn_once(
    noise: JointNoise, count: int, randomness: Randomness, field: Field | None
) -> Program:
    form, source = _checked(noise, field), randomness.derive("coins")
    most = instances_that_fit(noise.circuit, form)
    found: list[Vector] = []
    for start in range(0, count, most):
        bits = coins(source, min(most, count - start), noise.coins)
        found.append(_summed(noise, (yield Task(noise.circuit, form, bits)), field))
    return np.concatenate(found)


def _drawn_twice(
    noise: JointNoise, count: int, randomness: Randomness, index: int, field: Field | None
) -> Program:
    words = noise.words
    form = UncheckedIntegers(words) if field is None else FieldIntegers(field, words)
    most = instances_both_ways(noise.circuit, form)
    source = randomness.derive("coins")
    found: list[Vector] = []
    for start in range(0, count, most):
        bits = coins(source, min(most, count - start), noise.coins)
        found.append(_summed(noise, (yield BothWays(noise.circuit, form, bits)), field))
    drawn = np.concatenate(found, axis=1)
    ours, back = drawn if index == GARBLER else drawn[::-1]
    yield Agree((ours - back if field is None else field.sub(ours, back)).reshape(-1))
    return drawn[0]
