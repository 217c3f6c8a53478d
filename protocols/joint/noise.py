"""The program in which two servers draw noise: nothing in it depends on data.

Server 0 garbles it, unchecked: one that deviates can garble zero noise.
"""

import numpy as np

from tallyroom.protocols.algebra.field import Field
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.garbling.outputs import FieldIntegers, IntegerShares
from tallyroom.protocols.joint.computation import Program, Task, coins, instances_that_fit
from tallyroom.protocols.joint.noise_circuit import JointNoise
from tallyroom.protocols.randomness import Randomness


def draw_noise(
    noise: JointNoise, count: int, randomness: Randomness, field: Field | None = None
) -> Program:
    """Shares of `count` noises: modulo 2^64, (count,), or in a field, (count, limbs)."""
    form = IntegerShares(noise.words) if field is None else FieldIntegers(field, noise.words)
    circuit = noise.circuit
    most = instances_that_fit(circuit, form)
    source = randomness.derive("coins")
    found: list[Vector] = []
    for start in range(0, count, most):
        instances = min(most, count - start)
        bits = coins(source, instances, noise.coins)
        shares = yield Task(circuit, form, bits)
        if field is None:
            found.append(shares.sum(axis=1, dtype=np.uint64))
        else:
            found.append(field.sum(shares, -2))
    return np.concatenate(found)
