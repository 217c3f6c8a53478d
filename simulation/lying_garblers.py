"""Parties of a simulation that lie in the pairs that they garble.

Where outputs are `weighed`, a liar multiplies the weights in its output ciphertexts by 2^40: the
released total then tells the values of its pairs, and with them its peers' records, past any noise.
Where they are bounded there is no weight to change. The liar says the opposite of all its bits,
which moves each of its pairs as far as its code reaches at most.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.links import Links, Mask
from tallyroom.protocols.garbling.outputs import IntegerShares
from tallyroom.protocols.pairwise.roles.bounded import BoundedParty
from tallyroom.protocols.pairwise.roles.link_batch import Batch, GarblerBatch, LinkTask
from tallyroom.protocols.pairwise.roles.machines import one_round
from tallyroom.protocols.pairwise.roles.party import PairwiseParty
from tallyroom.protocols.pairwise.sampling.schedule import pairs_of
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.machine import Machine

WEIGHT = 1 << 40


@dataclass(frozen=True, repr=False)
class HeavyShares(IntegerShares):
    """Passes for the honest form: both ends hash its name into what they check."""

    def __repr__(self) -> str:
        return repr(IntegerShares(self.words))

    def weights(self, wires: int) -> Vector | None:
        honest = super().weights(wires)
        assert honest is not None
        return honest * np.uint64(WEIGHT)


class _LyingGarbler(PairwiseParty):
    """`liars` garble as they like; the others of the block are honest."""

    liars: frozenset[int] = frozenset()

    def _lying(self, links: Links) -> Mask:
        return np.isin(links >> np.uint64(32), list(self.liars))

    def _by_tasks(self, links: Links) -> list[tuple[tuple[LinkTask, ...], NDArray[np.intp]]]:
        """Links of liars by themselves."""
        lying = self._lying(links)
        places = [np.flatnonzero(lying == which) for which in (False, True)]
        return [
            (tasks, some[chosen])
            for some in places
            if len(some)
            for tasks, chosen in super(_LyingGarbler, self)._by_tasks(links[some])
        ]


class WeighingParty(_LyingGarbler):
    def _tasks(self, links: Links, evaluator: bool) -> tuple[LinkTask, ...]:
        tasks = super()._tasks(links, evaluator)
        if evaluator or not self._lying(links).all():
            return tasks
        forms = [task.form for task in tasks]
        return tuple(
            replace(task, form=HeavyShares(form.words))
            for task, form in zip(tasks, forms, strict=True)
            if isinstance(form, IntegerShares)
        )


class OppositeParty(_LyingGarbler, BoundedParty):
    def _settle(self, batch: Batch) -> None:
        if isinstance(batch, GarblerBatch):
            lying = self._lying(batch.links)[:, None, None].astype(np.uint64)
            batch._found = tuple(shares ^ lying for shares in batch._found)
        super()._settle(batch)


def lying_garbler(
    query: Query, holdings: Holdings, liars: frozenset[int], randomness: Randomness
) -> Machine:
    """The machine of a block of parties in which some lie. Raises `LocalError` where parties garble
    nothing."""
    plan = pairs_of(query)
    if plan.by_servers:
        raise LocalError("garbled-weight is a lie of parties that garble: gini, auc and the like")
    kind = OppositeParty if plan.bounded else WeighingParty
    aggregator = one_round(aggregator_named(query.aggregator), query)
    machine = kind(aggregator, query, holdings, randomness)
    machine.liars = liars
    return machine
