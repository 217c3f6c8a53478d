"""The public graph of a masked sum: who shares masks with whom, and how many of them must stay.

In Bonawitz et al. (CCS 2017) all pairs of parties share a mask. Bell et al. (CCS 2020) use a random
k-regular graph: a Harary graph, in which every party is joined to the k/2 nearest on either side of
a ring, after the parties were put on the ring in random order.

A party's secrets are shared among its holders: its neighbours and itself, h = k + 1 in all.
"""

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.randomness import KEY_BYTES, Randomness

Index = NDArray[np.int64]
Members = NDArray[np.bool]

CORRUPT = 0.2
DROPPED = 0.2
SECURITY_BITS = 40
CORRECTNESS_BITS = 20
"""The automatic degree assumes that this fraction of the parties is on the server's side and that
fraction drops out. Then the chance that privacy fails in any order on the ring that somebody could
choose is at most 2^-40, and the chance that the sum cannot be opened is at most 2^-20."""

HOUR = 3_600_000
ORDERS_BITS = 23
"""The order follows from the hour in a run's number, and from nothing else that a coordinator says.
44 bits of milliseconds have fewer than 2^23 hours, and a party takes part only in runs of the last
day (`protocols.run.begun`). The chances that privacy fails are summed over all hours, so it does
not matter if whoever numbers runs picks the hour."""

MAX_LINKS = 1 << 22
"""The most neighbours of all parties together. For each, the server passes on 241 bytes of signed
keys and stores 80 bytes, and every role keeps 16 bytes for the graph: at most 1 GB, 340 MB and
67 MB."""


@dataclass(frozen=True, eq=False)
class MaskingGraph:
    """`neighbours[i]` are the neighbours of party i, in ascending order; `slots[i, a]` is the place
    of i among the neighbours of `neighbours[i, a]`; it takes `threshold` holders to open a
    secret."""

    neighbours: Index
    slots: Index
    threshold: int

    @property
    def parties(self) -> int:
        return len(self.neighbours)

    @property
    def degree(self) -> int:
        return int(self.neighbours.shape[1])

    @property
    def holders(self) -> int:
        return self.degree + 1

    def relayed(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The fields that each party's neighbours sent for it, in the order of its neighbours.

        `rows` has one row per party, with a field for each of its neighbours.
        """
        if not self.degree:
            return rows
        fields = rows.reshape(self.parties, self.degree, -1)
        turned: NDArray[np.uint8] = fields[self.neighbours, self.slots]
        return turned.reshape(self.parties, -1)

    def holders_among(self, members: Members) -> Index:
        """How many of each party's holders are members."""
        counts: Index = members[self.neighbours].sum(axis=1, dtype=np.int64) + members
        return counts

    def survivors(self, members: Members) -> Members:
        """The largest set of members each of which has enough holders in that set."""
        while True:
            left = members & (self.holders_among(members) >= self.threshold)
            if (left == members).all():
                return left
            members = left


def given(fields: NDArray[np.uint8]) -> Members:
    """Which fields hold something: an empty field is all zeros, any other is not."""
    return np.asarray(fields.any(axis=-1), dtype=np.bool)


def degree_of(parties: int, neighbours: str) -> tuple[int, bool]:
    """The degree, and whether it was chosen automatically. Raises `LocalError` on an invalid one.

    A sparse graph is not chosen if it would save less than half of the links, because the full
    graph protects even against a server that lies (`threshold_of`).
    """
    if neighbours == "auto":
        degree = automatic_degree(parties)
        return (degree if 2 * degree < parties else parties - 1), True
    if not (neighbours.isascii() and neighbours.isdecimal() and len(neighbours) < 10):
        raise LocalError(f"masking: neighbours is auto, 0 for all, or a number, not {neighbours!r}")
    wanted = int(neighbours)
    if wanted == 1:
        raise LocalError("masking: neighbours is 2 or more: with 1, a mask would join two parties")
    even = wanted + wanted % 2
    return (even if 0 < even < parties - 1 else parties - 1), False


def threshold_of(holders: int, threshold: int, automatic: bool) -> int:
    """How many holders it takes to open a secret. Raises `LocalError` on an unsafe threshold.

    It must be more than half of them. Otherwise a server that tells one half of the holders that a
    party submitted, and the other half that it dropped out, gets its self-mask and its key, hence
    its vector. With c holders on the server's side, 2t > h + c is needed, so the default of two
    thirds allows fewer than a third, as in Bonawitz et al. for active adversaries. At an automatic
    degree the chances were computed for half: that is private against a server that does not lie,
    with fewer than t holders on its side, or against one that lies, with none on its side.
    """
    least = holders // 2 + 1
    if not threshold:
        return least if automatic and holders > 1 else 2 * holders // 3 + 1
    if not least <= threshold <= holders:
        raise LocalError(
            f"masking: a threshold is more than half of the {holders} holders of a secret, "
            f"{least} to {holders}, not {threshold}"
        )
    return threshold


def make_graph(parties: int, neighbours: str, threshold: int, time: int) -> MaskingGraph:
    """The graph, which is the same for all roles in runs of the same hour. Raises `LocalError`."""
    degree, automatic = degree_of(parties, neighbours)
    if parties * degree > MAX_LINKS:
        raise LocalError(f"masking: {parties} parties cannot have {degree} neighbours each")
    sparse = degree < parties - 1
    needed = threshold_of(degree + 1, threshold, automatic and sparse)
    return _graph(parties, degree, needed, time // HOUR if sparse else 0)


@lru_cache(maxsize=8)
def _graph(parties: int, degree: int, threshold: int, hour: int) -> MaskingGraph:
    everyone = np.arange(parties, dtype=np.int64)
    if degree == parties - 1:
        others = np.arange(degree, dtype=np.int64)
        neighbours = others + (others >= everyone[:, None])
    else:
        key = hashlib.blake2s(f"masking ring {hour}".encode(), digest_size=KEY_BYTES).digest()
        ring = np.argsort(Randomness(key).words(parties), kind="stable")
        place = np.empty(parties, dtype=np.int64)
        place[ring] = everyone
        near = np.arange(1, degree // 2 + 1)
        steps = np.concatenate([-near, near])
        neighbours = np.sort(ring[(place[:, None] + steps) % parties], axis=1)
    # Links sorted by their far ends are the reversed links, in the order of `neighbours`.
    turned = np.argsort(neighbours.ravel(), kind="stable")
    slots = np.empty(parties * degree, dtype=np.int64)
    slots[turned] = np.arange(parties * degree) % max(degree, 1)
    return MaskingGraph(neighbours, slots.reshape(parties, degree), threshold)


@lru_cache(maxsize=64)
def automatic_degree(parties: int) -> int:
    """The least even degree at which three things hold, except with the chances stated above (after
    Bell et al.), with t = ⌊h/2⌋ + 1; the degree of the full graph if there is none.

    No party has t neighbours on the server's side; the other parties that stay are connected, which
    on a ring fails only if k/2 in a row are missing; and every party has t neighbours that stay.
    Each chance is summed over all parties, and the chances of losing privacy over all orders.
    """
    least = 2.0 ** -(SECURITY_BITS + ORDERS_BITS)
    corrupt, gone = math.ceil(CORRUPT * parties), math.ceil(DROPPED * parties)
    for degree in range(2, parties - 1, 2):
        threshold = (degree + 1) // 2 + 1
        if parties * (CORRUPT + DROPPED) ** (degree // 2) > least:
            continue
        if parties * _tail(parties - 1, corrupt, degree, threshold) > least:
            continue
        too_many = degree - threshold + 1
        if parties * _tail(parties - 1, gone, degree, too_many) <= 2.0**-CORRECTNESS_BITS:
            return degree
    return parties - 1


def _tail(population: int, marked: int, drawn: int, least: int) -> float:
    """P[X ≥ least] for the hypergeometric number X of marked ones among those drawn."""

    def log_choose(n: int, k: int) -> float:
        return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)

    everything = log_choose(population, drawn)
    first = max(least, drawn - (population - marked))
    return math.fsum(
        math.exp(log_choose(marked, x) + log_choose(population - marked, drawn - x) - everything)
        for x in range(first, min(drawn, marked) + 1)
    )
