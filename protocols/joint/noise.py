"""The program in which two servers draw noise: nothing in it depends on data.

All noises are drawn both ways from the same coins, each server garbling once, and the two servers
agree that what came out is the same before it is used (`computation`). A server that garbles other
noise than the circuit's, none for instance, ends the run, unless it guesses all noises that come
out; then they are the right ones. A server whose coins are not fair changes nothing, as the
other's are. What a server that deviates learns is one predicate of its choice on the noise, from
whether the run goes on. That can be much: one that garbles 0 in the place of a single noise passes
where that noise is 0, with probability tanh(1/2s) at scale s, and then knows that value without
noise. Otherwise the run ends, and both servers know that one of them lied.

This is security against malicious servers but for that predicate, for twice the price of trusting
server 0. Opening one of λ circuits at random (covert security: Aumann and Lindell, TCC 2007; with
public proof Hong et al., EUROCRYPT 2019) would cost λ times as much and let one cheat in λ pass
whole.
"""

import numpy as np

from tallyroom.protocols.algebra.field import Field
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.garbling.outputs import FieldIntegers, UncheckedIntegers
from tallyroom.protocols.joint.computation import (
    GARBLER,
    Agree,
    BothWays,
    Program,
    coins,
    instances_both_ways,
)
from tallyroom.protocols.joint.noise_circuit import JointNoise
from tallyroom.protocols.randomness import Randomness


def draw_noise(
    noise: JointNoise, count: int, randomness: Randomness, index: int, field: Field | None = None
) -> Program:
    """Shares of `count` noises: modulo 2^64, (count,), or in a field, (count, limbs)."""
    words = noise.words
    form = UncheckedIntegers(words) if field is None else FieldIntegers(field, words)
    most = instances_both_ways(noise.circuit, form)
    source = randomness.derive("coins")
    found: list[Vector] = []
    for start in range(0, count, most):
        bits = coins(source, min(most, count - start), noise.coins)
        shares = yield BothWays(noise.circuit, form, bits)
        if field is None:
            found.append(shares.sum(axis=2, dtype=np.uint64))
        else:
            found.append(field.sum(shares, -2))
    drawn = np.concatenate(found, axis=1)
    ours, back = drawn if index == GARBLER else drawn[::-1]
    yield Agree((ours - back if field is None else field.sub(ours, back)).reshape(-1))
    return drawn[0]
