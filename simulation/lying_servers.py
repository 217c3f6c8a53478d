"""Servers of a simulation that lie in what they compute together.

`no-noise`: server 0 garbles noise that is always 0. In the output ciphertexts of what it garbles,
every weight is 0, and nothing else differs. Under `semi-honest` nobody notices. Under `covert` it
lies in one copy, drawn at random, which passes if that is the copy that is used. Under `malicious`
the noise that server 1 garbles is another, and the run ends.
"""

from dataclasses import dataclass

import numpy as np

from tallyroom.protocols.aggregation.cheat_certificate import noise_name
from tallyroom.protocols.aggregation.joint_server import JointServer
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.outputs import (
    FieldIntegers,
    Form,
    IntegerShares,
    UncheckedIntegers,
)
from tallyroom.protocols.joint.computation import (
    BothWays,
    Computation,
    GarblerEnd,
    Program,
    Task,
)
from tallyroom.protocols.joint.covert import GarblerCopy
from tallyroom.protocols.joint.noise import draw_noise
from tallyroom.protocols.joint.noise_circuit import JointNoise
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.wire.machine import Machine
from tallyroom.protocols.wire.messages import Phase
from tallyroom.servers.aggregation_server import AggregationServer


@dataclass(frozen=True, repr=False)
class NoWords(IntegerShares):
    """Passes for the honest form: both ends hash its name into what they check."""

    def weights(self, wires: int) -> Vector | None:
        return np.zeros(wires, dtype=np.uint64)

    def __repr__(self) -> str:
        return repr(IntegerShares(self.words))


@dataclass(frozen=True, repr=False)
class NoUncheckedWords(UncheckedIntegers):
    """As `NoWords`."""

    def weights(self, wires: int) -> Vector | None:
        return np.zeros(wires, dtype=np.uint64)

    def __repr__(self) -> str:
        return repr(UncheckedIntegers(self.words))


@dataclass(frozen=True, repr=False)
class NoElements(FieldIntegers):
    """As `NoWords`."""

    def weights(self, instances: int) -> Vector:
        return self.field.zeros(*super().weights(instances).shape[:-1])

    def __repr__(self) -> str:
        return repr(FieldIntegers(self.field, self.words))


def without_noise(form: Form) -> Form:
    """The form of what is garbled, with all weights 0."""
    match form:
        case UncheckedIntegers():
            return NoUncheckedWords(form.words)
        case IntegerShares():
            return NoWords(form.words)
        case FieldIntegers():
            return NoElements(form.field, form.words)
    raise LocalError("noise is of integers")


def lying(program: Program) -> Program:
    """The same program, whose tasks this end garbles without noise."""
    try:
        asked = next(program)
        while True:
            if isinstance(asked, Task | BothWays):
                asked = asked._replace(form=without_noise(asked.form))
            asked = program.send((yield asked))
    except StopIteration as over:
        return over.value


def lying_copies(place: int) -> type[GarblerCopy]:
    """Copies of which one has no noise."""

    class LyingCopy(GarblerCopy):
        @property
        def form(self) -> Form:
            honest = super().form
            return without_noise(honest) if self.copy == place else honest

    return LyingCopy


class LyingJointServer(JointServer):
    @classmethod
    def instead_of(cls, honest: JointServer) -> "LyingJointServer":
        """The same server, which lies where it draws noise as the garbler."""
        server = object.__new__(cls)
        server.__dict__.update(honest.__dict__)
        noise = server._query.joint_noise
        if noise is not None:
            source = server._randomness.derive("joint noise")
            server._ends = {**honest._ends, Phase.PREPARE: server._drawing(noise, source)}
        return server

    def _drawing(self, noise: JointNoise, source: Randomness) -> Computation:
        query, field = self._query, self._alone.noise_field
        security, count = query.secured_noise, query.plan.noises
        program = lying(draw_noise(noise, count, source, self._index, field, security))
        place = int(source.derive("lie").words(1)[0] % security.copies)

        class LyingEnd(GarblerEnd):
            copies = lying_copies(place)

        name = noise_name(query, field)
        return LyingEnd(name, program, self._bases, source, self._signing)


class LyingServer(AggregationServer):
    """Server 0, which garbles no noise."""

    def _machine(self, query: Query, randomness: Randomness) -> Machine:
        machine = super()._machine(query, randomness)
        if isinstance(machine, JointServer):
            return LyingJointServer.instead_of(machine)
        return machine
