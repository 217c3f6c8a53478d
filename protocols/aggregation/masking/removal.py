"""Opens secrets from the shares that parties gave the server, and computes the masks to remove."""

import numpy as np
from numpy.typing import NDArray

from tallyroom.fss.prg import expand_seeds_sum
from tallyroom.protocols.aggregation.masking.graph import MaskingGraph, Members, given
from tallyroom.protocols.aggregation.masking.keys import SEED_BYTES, KeyPair, mask_seed
from tallyroom.protocols.algebra.field import FIELD128
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.algebra.sharing import open_secrets

Bytes = NDArray[np.uint8]


class KeyMismatch(Exception):  # noqa: N818 - it names what was found
    """The shares of a party's key do not open to the key that it published."""


def held_shares(graph: MaskingGraph, said: Bytes) -> tuple[Bytes, Members]:
    """The share of each party's secret from each of its holders, and which holders gave it.

    `said` is what each party sent in UNMASK: the share of its own secret and those of its
    neighbours' secrets, in their order. The results have shapes (parties, holders, 16) and
    (parties, holders); the holders of a party are itself and its neighbours.
    """
    fields = said.reshape(graph.parties, graph.holders, SEED_BYTES)
    shares: Bytes = np.concatenate(
        [fields[:, :1], fields[graph.neighbours, graph.slots + 1]], axis=1
    )
    return shares, given(shares)


def remove_masks(
    graph: MaskingGraph,
    run: bytes,
    present: Members,
    needed: NDArray[np.intp],
    held: tuple[Bytes, Members],
    mask_keys: Bytes,
    length: int,
) -> Vector:
    """The sum of all masks in what the present parties submitted.

    `needed` are the parties whose secrets are opened: the self-mask seed of a party that is
    present, the key seed of one that is not. Each must have enough shares. Raises `KeyMismatch`.
    """
    seeds = {int(party): _open(graph, party, *held) for party in needed}
    added = [seeds[party] for party in seeds if present[party]]
    taken: list[bytes] = []
    for party, seed in seeds.items():
        if present[party]:
            continue
        pair = KeyPair.for_masks(seed)
        if pair.public != mask_keys[party].tobytes():
            raise KeyMismatch(f"the shares of the key of party-{party} do not open to that key")
        for other in graph.neighbours[party]:
            if not present[other]:
                continue
            theirs = mask_keys[other].tobytes()
            mask = mask_seed(pair.agree(theirs), run, pair.public, theirs)
            (added if other < party else taken).append(mask)
    return _sum(added, length) - _sum(taken, length)


def _open(graph: MaskingGraph, party: int, shares: Bytes, held: Members) -> bytes:
    """The secret of a party, from the shares of the `threshold` holders with the lowest indices, so
    that parties with the same holders are opened with the same weights."""
    holders = np.append(party, graph.neighbours[party])
    here = np.flatnonzero(held[party])
    chosen = here[np.argsort(holders[here])][: graph.threshold]
    values = FIELD128.decode(shares[party, chosen].reshape(-1))
    return FIELD128.encode(open_secrets(holders[chosen], values)[None]).tobytes()


def _sum(seeds: list[bytes], length: int) -> Vector:
    rows = np.frombuffer(b"".join(seeds), dtype=np.uint8).reshape(-1, SEED_BYTES)
    return expand_seeds_sum(rows, length)
