"""Tasks of any size, and words as the bits that go into them."""

from collections.abc import Generator

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.outputs import Form
from tallyroom.protocols.joint.computation import Asked, Bytes, Task, instances_that_fit

Part = Generator[Asked, Vector, Vector]
"""Of a program: it yields tasks and returns shares."""


def in_messages(circuit: Circuit, form: Form, bits: Bytes) -> Part:
    """A task of any size, in parts that fit a message."""
    most = instances_that_fit(circuit, form)
    found = []
    for start in range(0, len(bits), most):
        found.append((yield Task(circuit, form, np.ascontiguousarray(bits[start : start + most]))))
    return np.concatenate(found)


def lowest_bits(words: Vector, width: int) -> Bytes:
    """The lowest bits of every word, (…, width)."""
    spread = np.ascontiguousarray(words.astype("<u8"))[..., None].view(np.uint8)
    return np.unpackbits(spread, axis=-1, bitorder="little", count=width)
