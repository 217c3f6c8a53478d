"""Shamir shares among m servers, of which any t open the sum and the others may vanish.

A party's vector is put on polynomials of degree t − 1 over FIELD128, `pack` = k elements on each
(Franklin and Yung, STOC 1992): the elements are the polynomial's values at 0, −1, …, 1 − k, and
server i gets its value at i + 1. The values at the first t − k servers are drawn at random, which
fixes the rest. So any t − k servers see uniform elements, whatever the vector is, and any t of them
open it.

Elements are signed: a value modulo 2^64, its noise included, is put into the field as its
representative in [−2^63, 2^63). Whoever opens the sum sees a field element, not only its residue
modulo 2^64. If values were lifted unsigned, that element would be the noisy sum plus 2^64 for every
party whose value is negative: a count that no noise hides. Signed values add up to the noisy sum
itself, as an integer, and nothing else is opened.

That holds as long as every honest party's own value is in [−2^63, 2^63). `Query` ensures it:
MAX_RECORDS (2^32) records of at most 2^30 grid steps (`ring.PRECISION_BITS`) are at most 2^62 in
all, and the scale of the noise is at most 2^54 (`laplace.representable`), so that noise exceeds
2^62 with probability below e^−256. A party that lies about its value moves the sum by its lie, even
outside that range; the element is still the honest parties' noisy sum plus the lie. The field has
room for 2^24 parties with any values: |sum| < 2^87, far below half the modulus.

Only parties add noise. A server cannot add its own: on opening, its share is multiplied by a weight
that depends on which other servers answer, and its noise would be multiplied as well. Noise shared
among the servers would take another round between them.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.collector import Collector
from tallyroom.protocols.aggregation.contract import (
    Bodies,
    Bulk,
    Ids,
    Records,
    ThreatModel,
)
from tallyroom.protocols.aggregation.one_round import OneRound, SummingServer
from tallyroom.protocols.algebra.field import FIELD128
from tallyroom.protocols.algebra.field import Vector as Elements
from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.algebra.sharing import ELEMENT_BYTES, draw_elements
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.wire.machine import Machine, Rejected, Step
from tallyroom.protocols.wire.messages import Message

_ROWS = 1 << 17
"""How many polynomials are computed together, which bounds memory."""


@dataclass(frozen=True)
class Shamir(OneRound):
    """Shares on polynomials: any t of m servers open the sum, and the others may vanish.

    `threshold` t is how many servers it takes to open; 0 means more than half. `pack` k is the
    number of elements per polynomial: shares are k times shorter, but only t − k servers may
    collude.
    """

    threshold: int = 0
    pack: int = 1

    name: ClassVar[str] = "shamir"
    min_servers: ClassVar[int] = 2
    servers: ClassVar[int] = 3
    party_bytes: ClassVar[str] = "16mL; packed 16m⌈L/pack⌉"
    noise: ClassVar[Placement | None] = Placement.PARTIES
    elementwise: ClassVar[bool] = False  # its shares are packed elements of a field

    def needed(self, servers: int) -> int:
        """How many servers it takes to open. Raises `LocalError` on an impossible threshold.

        It must be more than half of them. Otherwise a lying coordinator could have two sums over
        different parties opened by honest servers that do not know of one another.
        """
        least = servers // 2 + 1
        t = self.threshold or max(least, min(self.pack + 1, servers))
        if not least <= t <= servers:
            raise LocalError(
                f"shamir: with {servers} servers the threshold is {least} to {servers}, not {t}"
            )
        if not 1 <= self.pack < t:
            raise LocalError(f"shamir: with {t} servers to open, pack is 1 to {t - 1}")
        return t

    def check(self, query: Query) -> None:
        if query.servers >= self.min_servers:
            self.needed(query.servers)
        super().check(query)
        if query.noise_law is not None and query.noise is not Placement.PARTIES:
            raise LocalError("shamir: only the parties can add noise: --noise parties")

    def threat_model(self, servers: int) -> ThreatModel:
        """We assume that the coordinator asks all servers for the same sum. If it asks some for one
        sum and some for another, and 2t − m or more servers collude with it and answer both, it
        opens two sums, whose difference has next to no noise. With t = m that takes all servers.
        """
        t = self.needed(servers)
        return ThreatModel(
            colluding=t - self.pack,
            behaviour=f"semi-honest parties, coordinator and {servers} servers",
            dropouts=(
                "any number of parties may drop out before the release, and "
                f"{servers - t} of the servers at any time"
            ),
            reveals="the analyst and the servers see who contributed, the analyst the noisy sum",
        )

    def shard(
        self, ids: Ids, vectors: Vector, servers: int, randomness: Randomness
    ) -> list[Bodies]:
        t, k, polynomials = self.needed(servers), self.pack, self.polynomials(vectors.shape[1])
        secrets = np.zeros((len(ids), polynomials * k), dtype=np.int64)
        secrets[:, : vectors.shape[1]] = signed(vectors)
        drawn = t - k
        bodies = [
            np.empty((len(ids), ELEMENT_BYTES * polynomials), np.uint8) for _ in range(servers)
        ]
        step = max(1, _ROWS // polynomials)
        for begin in range(0, len(ids), step):
            rows = slice(begin, begin + step)
            known = FIELD128.zeros(len(ids[rows]), polynomials, t)
            known[:, :, :k] = FIELD128.from_signed(secrets[rows].reshape(-1, polynomials, k))
            random = draw_elements(randomness, "shamir", ids[rows], polynomials * drawn)
            known[:, :, k:] = random.reshape(-1, polynomials, drawn, FIELD128.limbs)
            for server in range(servers):
                if server < drawn:
                    share = known[:, :, k + server]
                else:
                    share = FIELD128.combine(_dealing(t, k, server), known)
                bodies[server][rows] = FIELD128.encode(share)
        return bodies

    def polynomials(self, length: int) -> int:
        return -(-length // self.pack)

    def width(self, length: int, server: int) -> int:
        return ELEMENT_BYTES * self.polynomials(length)

    def merge(self, bodies: Bodies, length: int, server: int) -> Vector:
        """The limbs of the share's elements, one element after another."""
        return FIELD128.sum(FIELD128.decode(bodies), 0).reshape(-1)

    def unshard(self, shares: list[Vector]) -> Vector:
        """The sums, from the servers' shares in order, as `merge` returns them. The result includes
        the padding."""
        return self.open({i: share.reshape(-1, FIELD128.limbs) for i, share in enumerate(shares)})

    def open(self, shares: dict[int, Elements]) -> Vector:
        """The sums modulo 2^64, padding included, from the shares of at least t servers."""
        opened = self.elements(shares)
        # Elements in the upper half of the field are negative sums plus the modulus.
        negative = opened[:, 1] >> np.uint64(63)
        sums: Vector = opened[:, 0] - negative * np.uint64(FIELD128.modulus % 2**64)
        return sums

    def elements(self, shares: dict[int, Elements]) -> Elements:
        """Everything that the shares of at least t servers reveal: the sums as field elements."""
        servers = tuple(sorted(shares))
        values = np.stack([shares[server] for server in servers], axis=1)
        places = [FIELD128.combine(_opening(servers, j), values) for j in range(self.pack)]
        return np.stack(places, axis=1).reshape(-1, FIELD128.limbs)

    def row_bytes(self, query: Query, records: int) -> int:
        """0, so that a party's rows are sent at once: parts would wait for a server that may be
        gone, and reach the others too late."""
        return 0

    def server(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> Machine:
        return ShamirServer(self, query, index, randomness, bulk)

    def collector(self, query: Query, records: Records, randomness: Randomness) -> Machine:
        return ShamirCollector(self, query, records)


class ShamirServer(SummingServer):
    """Sees one share of every party, and who contributed. Adds the shares up, without noise."""

    def __init__(
        self, aggregator: Shamir, query: Query, index: int, randomness: Randomness, bulk: Bulk
    ) -> None:
        super().__init__(query, index, randomness, bulk)
        self._width = aggregator.width(query.submitted, index)

    def check(self, message: Message) -> str | None:
        if message.width != self._width:
            return f"a share of {message.width} bytes, expected {self._width}"
        if not FIELD128.canonical(FIELD128.unchecked(message.rows())).all():
            return "a share with an element that is not below the modulus"
        return None

    def pack(self, message: Message) -> NDArray[np.uint8]:
        return message.rows().reshape(-1)

    def sum_over(self, members: NDArray[np.bool]) -> Elements:
        total = FIELD128.zeros(self._width // ELEMENT_BYTES)
        for ids, block in self._bulk.blocks():
            rows = block.reshape(len(ids), self._width)[members[ids]]
            total = FIELD128.add(total, FIELD128.sum(FIELD128.unchecked(rows), 0))
        return total

    def publish(self, share: Elements) -> bytes:
        return FIELD128.encode(share).tobytes()


class ShamirCollector(Collector):
    """Sees the shares of the sum and who contributed. Goes on as long as t servers are left."""

    def __init__(self, aggregator: Shamir, query: Query, records: Records) -> None:
        needed = aggregator.needed(query.servers)
        super().__init__(query, records, aggregator.unshard, needed)
        self._aggregator = aggregator

    @property
    def share_bytes(self) -> int:
        return self._aggregator.width(self._query.submitted, 0)

    def _share(self, message: Message) -> Step:
        if message.width == self.share_bytes:
            share = FIELD128.unchecked(message.body[0])
            if not FIELD128.canonical(share).all():
                return Rejected(message.sender, "a share that is not a field element")
        return super()._share(message)

    def open(self, shares: dict[int, NDArray[np.uint8]]) -> Vector:
        elements = {server: FIELD128.decode(share) for server, share in shares.items()}
        opened = self._aggregator.open(elements)
        return opened[: self._query.submitted]


def _weights(at: int, points: list[int]) -> Elements:
    """Weights w with f(at) = Σ wᵢ f(xᵢ) for every f of degree below the number of points."""
    return FIELD128.lagrange_at_zero(FIELD128.from_ints([x - at for x in points]))


@lru_cache(maxsize=256)
def _dealing(threshold: int, pack: int, server: int) -> Elements:
    """Weights that give a server's share from the secrets and the drawn shares."""
    return _weights(server + 1, [*(-j for j in range(pack)), *range(1, threshold - pack + 1)])


@lru_cache(maxsize=256)
def _opening(servers: tuple[int, ...], place: int) -> Elements:
    """Weights that give the secret at one place from the shares of these servers."""
    return _weights(-place, [server + 1 for server in servers])
