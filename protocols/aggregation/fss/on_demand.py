"""Machines for questions on demand: after one upload, the collector asks point after point."""

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.collector import Collector, CollectorState
from tallyroom.protocols.aggregation.contract import Bulk, Records
from tallyroom.protocols.aggregation.fss.roles import FssServer
from tallyroom.protocols.aggregation.fss.submission import compared
from tallyroom.protocols.aggregation.mechanism import draw_noise
from tallyroom.protocols.aggregation.one_round import ServerState
from tallyroom.protocols.aggregation.rosters import points_body
from tallyroom.protocols.algebra.ring import Vector, add_shares, signed
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.wire.machine import Continue, Failed, Rejected, Step
from tallyroom.protocols.wire.messages import Message, Phase

MAX_POINTS = 4096


class NodeNoise:
    """The noise of tree nodes. It depends only on a server's secret and the node, so the first
    question that touches a node draws it, and every later one gets the same."""

    def __init__(self, query: Query, randomness: Randomness) -> None:
        self._query = query
        self._randomness = randomness
        self._noise: dict[int, int] = {}

    def at(self, points: NDArray[np.uint64]) -> Vector:
        if self._query.noise_law is None:
            return np.zeros(len(points), dtype=np.uint64)
        assert self._query.points is not None
        assert self._query.points.tree is not None
        tree = self._query.points.tree
        indices = points.astype(np.int64) + 1
        nodes = tree.touched(indices)
        for node in nodes.tolist():
            if node not in self._noise:
                source = self._randomness.derive(f"node {node}")
                self._noise[node] = int(draw_noise(self._query, 1, source)[0, 0])
        noise = np.array([self._noise[node] for node in nodes.tolist()], dtype=np.int64)
        placed: Vector = tree.noise_at(indices, nodes, noise).view(np.uint64)
        return placed


class OnDemandServer(FssServer):
    """Keeps the keys after the release and answers at any point, with the tree's noise."""

    forgets_questions = True

    def __init__(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> None:
        super().__init__(query, index, randomness, bulk)
        self._members = np.zeros(query.parties, dtype=bool)
        self._node_noise = NodeNoise(query, randomness)

    def _release(self, message: Message) -> Step:
        members = self.releasable(message)
        if isinstance(members, Rejected):
            return members
        self._members = members
        self._released_members = message.body[0].tobytes()
        self._state = ServerState.RELEASED
        return Continue(spends=(self._query.spend,))

    def _ask(self, message: Message) -> Step:
        points = parse_points(message, self._query)
        if isinstance(points, Rejected):
            return points
        share = self.counts_at(points, self._members)
        if self._adds_noise:
            share = share + self._node_noise.at(points)
        return Continue((self._to_coordinator(Phase.SHARE, share.astype("<u8").tobytes()),))


class OnDemandCollector(Collector):
    """Asks point after point, as the plan's search decides.

    With `held`, the servers already hold those parties' keys, from the run `tree`. The points of
    this query are then asked under the name of that run, as servers do not know this one.
    """

    def __init__(
        self,
        query: Query,
        records: Records,
        held: NDArray[np.bool] | None = None,
        tree: bytes | None = None,
    ) -> None:
        super().__init__(query, records, add_shares)
        self._run = tree or query.run
        self._points = query.points
        self._held = held
        self._known: dict[int, float] = {}
        self._asked: list[int] = []
        self._counts: list[Vector] = []

    def start(self) -> Step:
        if self._held is None:
            return super().start()
        self._members = self._held
        self._state = CollectorState.SHARES
        return self._next()

    def _released(self) -> Step:
        """Asks for the release, and at once for the first points."""
        release = self._to_servers(Phase.RELEASE, np.packbits(self._members).tobytes())
        step = self._next()
        return Continue((*release, *step.messages)) if isinstance(step, Continue) else step

    @property
    def share_bytes(self) -> int:
        return 8 * len(self._asked)

    def _opened(self) -> Step:
        counts = self.open(self._answers)
        shares = signed(counts) / self._members_records()
        self._known |= dict(zip(self._asked, shares.tolist(), strict=True))
        self._counts.append(counts)
        self._heard.clear()
        return self._next()

    def _next(self) -> Step:
        if self._points is None:
            return Failed(f"{self._query.statistic.name} cannot be asked on demand")
        self._asked = self._points.next(self._known)
        if not self._asked:
            return self._done(np.concatenate([np.zeros(0, dtype=np.uint64), *self._counts]))
        return Continue(self._to_servers(Phase.ASK, points_body(self._asked)))


def parse_points(message: Message, query: Query) -> NDArray[np.uint64] | Rejected:
    """The points that a message asks for, or why it is rejected.

    Any point may be asked, because the whole tree is paid for. The run's name fixes which tree: its
    grid, data and ε are those of the query that the keys were uploaded for.
    """
    body = message.body[0]
    if message.links != 1 or body.size % 8 or not 0 < body.size <= 8 * MAX_POINTS:
        return Rejected(message.sender, f"1 to {MAX_POINTS} points can be asked at a time")
    points = np.ascontiguousarray(body).view("<u8")
    if query.points is None or int(points.max()) >= (compared(query).cells or 0):
        return Rejected(message.sender, "a point outside the domain")
    return points
