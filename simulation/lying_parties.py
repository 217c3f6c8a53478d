"""What parties say that lie about their data: everything a thousand times, or worse where the
aggregator lets them."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.contract import Ids
from tallyroom.protocols.aggregation.fss.aggregator import Fss
from tallyroom.protocols.aggregation.fss.roles import FssParty
from tallyroom.protocols.aggregation.prio3.aggregator import Prio3Party
from tallyroom.protocols.aggregation.shuffle.roles import ShuffleParty
from tallyroom.protocols.aggregation.signing import SigningAggregator
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.vouchers import PartySigner
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.run.machines import check, own_machines
from tallyroom.protocols.statistics.bounded import known_bounds
from tallyroom.protocols.wire.machine import Machine
from tallyroom.simulation.lying_garblers import lying_garbler as lying_garbler

EXAGGERATION = 1000
"""How many times its records a party claims to hold that lies."""

Liars = frozenset[int]


def lying_machine(
    query: Query,
    holdings: Holdings,
    liars: Liars,
    randomness: Randomness,
    signer: PartySigner | None = None,
) -> Machine:
    """The machine of a block of parties in which some lie. Raises `LocalError` as
    `protocols.run.machines.party_machine` does."""
    check(query)
    if own_machines(query.plan) is not None:
        raise LocalError("circuits take no data out of range: parties can cheat in sums only")
    aggregator = aggregator_named(query.aggregator)
    if lie := _LIES.get(aggregator.name):
        return lie(query, holdings, liars, randomness)
    lies = exaggerated(query, holdings, liars)
    if isinstance(aggregator, SigningAggregator) and signer is not None:
        return aggregator.signing_party(query, lies, randomness, signer)
    return aggregator.party(query, lies, randomness)


def exaggerated(query: Query, holdings: Holdings, liars: Liars) -> Holdings:
    """What liars claim to hold: everything a thousand times, at the upper bound: sums count from
    the lower one, where a lie would be worth nothing."""
    claimed = holdings.repeated(liars, EXAGGERATION)
    lie = np.repeat(np.isin(claimed.ids, list(liars)), claimed.counts)
    columns = {
        name: np.where(lie, upper, claimed.column(name))
        for name, (_, upper) in known_bounds(query.statistic).items()
    }
    return replace(claimed, columns={**claimed.columns, **columns})


def _false_keys(query: Query, holdings: Holdings, liars: Liars, randomness: Randomness) -> Machine:
    """Two keys for one record: refused only past the number of records of the largest party.
    Where keys are verified, keys that count a thousand times."""

    class HeavyKeys(FssParty):
        def weights(self, ids: Ids, count: int) -> NDArray[np.uint64]:
            lies = np.isin(ids, list(liars))
            return np.repeat(np.where(lies, EXAGGERATION, 1).astype(np.uint64), count)

    aggregator = aggregator_named(query.aggregator)
    if isinstance(aggregator, Fss) and aggregator.checks:
        return HeavyKeys(query, holdings, randomness, verified=True)
    return aggregator.party(query, holdings.repeated(liars, 2), randomness)


def _false_claims(
    query: Query, holdings: Holdings, liars: Liars, randomness: Randomness
) -> Machine:
    """A vector of a thousand records at the upper bound for each, with a proof of as many records
    as there are."""
    plan, bounds = query.plan, known_bounds(query.statistic).items()
    columns = {name: np.full(holdings.rows, upper) for name, (_, upper) in bounds}
    best = replace(holdings, columns={**holdings.columns, **columns})
    lies = plan.encode(best) * np.uint64(EXAGGERATION)
    lying = np.isin(holdings.ids, list(liars))
    claims: Vector = np.where(lying[:, None], lies, plan.encode(holdings))
    return Prio3Party(query, holdings, claims, randomness)


def _impossible_reports(
    query: Query, holdings: Holdings, liars: Liars, randomness: Randomness
) -> Machine:
    """More reports than records would be refused by their number. So liars seal as many as they
    must, each of a value that there is not: the coordinator finds it, and not who sent it."""

    class LyingShuffleParty(ShuffleParty):
        def payloads(self, chosen: NDArray[np.intp], count: int) -> NDArray[np.uint8]:
            lying = np.isin(holdings.ids[chosen], list(liars))
            honest = super().payloads(chosen, count)
            return np.where(lying[:, None, None], np.uint8(255), honest)

    return LyingShuffleParty(query, holdings, randomness)


_LIES: Mapping[str, Callable[[Query, Holdings, Liars, Randomness], Machine]] = {
    "fss": _false_keys,
    "prio3": _false_claims,
    "shuffle": _impossible_reports,
}
"""Aggregators whose parties would not send exaggerated records, or can lie in a worse way."""
