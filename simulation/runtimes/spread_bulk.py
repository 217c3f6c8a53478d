"""Submissions of one server in a Ray cluster's store, counted by workers on all of its nodes."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.contract import Ids
from tallyroom.protocols.aggregation.partial_sums import PartialSum
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.simulation.runtimes.cluster import the_engine

TASK_BYTES = 1 << 20
"""Of submissions, that a worker gets at a time: a task costs a millisecond, and counting this much
a tenth of a second. Where there is less in all, the server counts by itself."""

Group = list[tuple[Ids, NDArray[np.uint8]]]


class SpreadBulk:
    """A bulk (`protocols.aggregation.contract.Bulk`) that is `DistributedBulk`."""

    def __init__(self, task_bytes: int = TASK_BYTES) -> None:
        self._task_bytes = task_bytes
        self._groups: list[Any] = []
        self._last: Group = []
        self._size = 0
        self.nodes: Counter[str] = Counter()
        """How many tasks were done on each node."""

    def append(self, ids: Ids, block: NDArray[np.uint8]) -> None:
        self._last.append((ids, block))
        self._size += block.nbytes
        if self._size >= self._task_bytes:
            self._groups.append(the_engine().put(self._last))
            self._last, self._size = [], 0

    def blocks(self) -> Iterator[tuple[Ids, NDArray[np.uint8]]]:
        for group in self._groups:
            yield from the_engine().get(group)
        yield from self._last

    def clear(self) -> None:
        self._groups.clear()
        self._last, self._size = [], 0

    def total(self, part: PartialSum, length: int) -> Vector:
        ray = the_engine()
        task = ray.remote(_noted).options(num_cpus=1, scheduling_strategy="SPREAD")
        shared = ray.put(part)
        waiting = [task.remote(shared, length, group) for group in self._groups]
        total = _total(part, length, self._last)
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=1)
            node, counted = ray.get(done[0])
            self.nodes[node] += 1
            total += counted
        return total


def _noted(part: PartialSum, length: int, group: Group) -> tuple[str, Vector]:
    """With the node that it was done on."""
    return str(the_engine().get_runtime_context().get_node_id()), _total(part, length, group)


def _total(part: PartialSum, length: int, group: Group) -> Vector:
    total = np.zeros(length, dtype=np.uint64)
    for ids, block in group:
        total += part(ids, block)
    return total
