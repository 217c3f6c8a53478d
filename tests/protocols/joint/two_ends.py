"""Both ends of a computation in memory."""

import copy
import datetime as dt
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.identity.certificates import Authority, Identity
from tallyroom.protocols.identity.signing import SigningIdentity
from tallyroom.protocols.joint.base_transfers import BaseTransfers
from tallyroom.protocols.joint.computation import (
    EVALUATOR,
    GARBLER,
    Computation,
    EvaluatorEnd,
    GarblerEnd,
    Name,
    Program,
)
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.wire.messages import Role

NAME = Name(b"a run", "a program")
_NOW, _DAY = dt.datetime(2026, 11, 1, tzinfo=dt.UTC), dt.timedelta(days=1)
AUTHORITY = Authority.create("two ends", _NOW, _DAY)
CREDENTIALS = [AUTHORITY.issue(Identity(Role.SERVER, i, i), _NOW, _DAY) for i in range(2)]
SIGNING = [SigningIdentity.of(each) for each in CREDENTIALS]


BASES = (
    BaseTransfers(Randomness.from_seed(1, "server-0")),
    BaseTransfers(Randomness.from_seed(1, "server-1")),
)


def _unmet(bases: tuple[BaseTransfers, BaseTransfers]) -> tuple[BaseTransfers, BaseTransfers]:
    """The same base transfers, of servers that have not yet found each other out."""
    return copy.copy(bases[0]), copy.copy(bases[1])


class Ends:
    """`sent` is what went over, as it left; `change` is what becomes of it on the way."""

    def __init__(
        self,
        programs: Callable[[int, Randomness], Program],
        seed: int = 1,
        bases: tuple[BaseTransfers, BaseTransfers] | None = None,
        names: tuple[Name, Name] = (NAME, NAME),
        garbler: type[GarblerEnd] = GarblerEnd,
    ) -> None:
        sources = [Randomness.from_seed(seed, f"server-{i}") for i in range(2)]
        self.bases = bases or (BaseTransfers(sources[0]), BaseTransfers(sources[1]))
        if bases is BASES:
            self.bases = _unmet(BASES)
        kinds: list[type[GarblerEnd] | type[EvaluatorEnd]] = [garbler, EvaluatorEnd]
        self.ends: list[Computation] = [
            kind(names[i], programs(i, sources[i]), self.bases[i], sources[i], SIGNING[i])
            for i, kind in enumerate(kinds)
        ]
        self.sent: list[Bytes] = []

    def run(self, change: Callable[[int, Bytes], Bytes] = lambda _, body: body) -> tuple[Any, Any]:
        body, to = self.ends[EVALUATOR].start(), GARBLER
        while body is not None:
            self.sent.append(body)
            body = self.ends[to].take(change(len(self.sent) - 1, body.copy()))
            to = 1 - to
        assert self.ends[0].done
        assert self.ends[1].done
        return self.ends[0].result, self.ends[1].result

    @property
    def bytes(self) -> int:
        return int(sum(np.size(body) for body in self.sent))


def shared(values: NDArray[np.int64], seed: int = 0) -> tuple[Vector, Vector]:
    masks = np.random.default_rng(seed).integers(0, 2**64, values.shape, dtype=np.uint64)
    return masks, values.astype(np.int64).view(np.uint64) - masks
