"""A program whose tasks are computed both ways, for the level `malicious` (`levels`)."""

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.outputs import (
    Form,
    IntegerShares,
    OutputShares,
    UncheckedBits,
    UncheckedIntegers,
)
from tallyroom.protocols.joint.computation import (
    GARBLER,
    Agree,
    BothWays,
    Program,
    Reveal,
    Task,
    instances_both_ways,
)


def both_ways(program: Program, index: int) -> Program:
    """The same program, in which all tasks are computed both ways. What comes out of them is
    compared before any word is revealed, and at the end.

    Whoever deviates in a task ends the run, and learns from that whether what it garbled gave what
    it should: with r words that are revealed one after another, log2(1 + r) bits and one. What does
    not fit does so whatever the inputs are, as labels of outputs are not checked.
    """
    compared: list[Vector] = []
    try:
        asked = next(program)
        while True:
            if isinstance(asked, Task):
                found, difference = yield from _twice(asked, index)
                compared.append(difference)
            else:
                if isinstance(asked, Reveal) and compared:
                    yield Agree(np.concatenate(compared))
                    compared.clear()
                found = yield asked
            asked = program.send(found)
    except StopIteration as over:
        if compared:
            yield Agree(np.concatenate(compared))
        return over.value


def _twice(task: Task, index: int) -> "Program":
    """Our shares of the first time, and words that both ends hold alike if both times agree."""
    form = _unchecked(task.form)
    most = instances_both_ways(task.circuit, form)
    shares = []
    for start in range(0, len(task.bits), most):
        some = np.ascontiguousarray(task.bits[start : start + most])
        shares.append((yield BothWays(task.circuit, form, some)))
    found = np.concatenate(shares, axis=1)
    if task.form is OutputShares.XOR:
        return found[0], (found[0] ^ found[1]).reshape(-1)
    ours, back = found if index == GARBLER else found[::-1]
    return found[0], (ours - back).reshape(-1)


def _unchecked(form: Form) -> Form:
    """Of outputs that are compared. Raises `LocalError` for others than bits and integers."""
    if form is OutputShares.XOR:
        return UncheckedBits()
    if isinstance(form, IntegerShares):
        return UncheckedIntegers(form.words)
    raise LocalError("only bits and integers are computed both ways")
