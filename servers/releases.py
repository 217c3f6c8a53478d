"""What the coordinator remembers of trees that were released: asking them again spends nothing.

A release belongs to the data that it was made of: asked again of the same data, it is given again;
asked of other data, it is made anew.
"""

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.contract import Ids
from tallyroom.protocols.query import Query

Tree = tuple[str | None, bytes]
"""What is released of which data."""
Held = tuple[Query, NDArray[np.bool]]
"""The query of the run whose keys servers keep, and whose they are."""

MOST_RELEASED = 1000
MOST_HELD = 16
"""Trees whose keys servers keep for questions on demand: a million keys take a gigabyte."""


class Releases:
    """`outdated` lists runs whose keys servers need not hold any longer."""

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self._released: OrderedDict[Tree, bytes] = OrderedDict()
        self._held: OrderedDict[Tree, Held] = OrderedDict()
        self.outdated: list[bytes] = []

    def knows(self, query: Query, data: bytes) -> bool:
        tree = tree_of(query), data
        return tree in self._released or tree in self._held

    def released(self, query: Query, data: bytes) -> bytes | None:
        """What the question was called whose answer is this one's too: its curve is that of the
        same tree, and costs nothing, not even a message."""
        return self._released.get((tree_of(query), data))

    def held(self, query: Query, data: bytes) -> Held | None:
        """The stored tree that answers at any point."""
        tree = tree_of(query), data
        if tree in self._held:
            self._held.move_to_end(tree)
        return self._held.get(tree)

    def trees(self) -> list[bytes]:
        """Runs whose keys servers keep, to be asked again."""
        return [query.run for query, _ in self._held.values()]

    def lose(self, run: bytes) -> None:
        """A server has the keys of a run no more: whoever asks has it made anew."""
        for tree in [tree for tree, (query, _) in self._held.items() if query.run == run]:
            self._outdate(tree)

    def holds(self, run: bytes) -> bool:
        """Whether servers keep the keys of a run, to be asked again."""
        return any(run == held.run for held, _ in self._held.values())

    def remember(self, name: bytes, query: Query, data: bytes, contributors: Ids) -> None:
        """`name` is what the question was called, `data` what it was asked of."""
        tree = tree_of(query), data
        if tree[0] is None:
            return
        if query.points is None:
            self._released[tree] = name
            self._released.move_to_end(tree)
            while len(self._released) > MOST_RELEASED:
                self._released.popitem(last=False)
        elif tree not in self._held or self._held[tree][0].run != query.run:
            self._outdate(tree)
            members = np.zeros(self._parties, dtype=bool)
            members[contributors] = True
            self._held[tree] = query, members
            while len(self._held) > MOST_HELD:
                self._outdate(next(iter(self._held)))

    def disown(self, query: Query, data: bytes) -> None:
        """The answer that would be given again is not kept any longer."""
        self._released.pop((tree_of(query), data), None)

    def outdate(self, query: Query, data: bytes) -> None:
        """A new one is to take its place."""
        self._outdate((tree_of(query), data))

    def _outdate(self, tree: Tree) -> None:
        self._released.pop(tree, None)
        if (held := self._held.pop(tree, None)) is not None:
            self.outdated.append(held[0].run)


def tree_of(query: Query) -> str | None:
    """What makes two questions ask the same tree: all but how its answer is post-processed."""
    if not query.plan.reusable:
        return None
    return query.plan.identity + repr(query.release)
