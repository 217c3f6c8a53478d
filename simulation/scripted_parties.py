"""Parties of a simulation that keep to a script instead of the protocol. Deployed parties have no
way to be scripted: nothing outside of `simulation` knows of this.

Liars follow the protocol with data far out of range. In most aggregators they claim a thousand
times the records that they hold, all at the upper bound.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tallyroom.parties.block import PartyBlock
from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.contract import Ids
from tallyroom.protocols.aggregation.vouched import Vouched
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.vouchers import PartySigner
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.run.machines import check
from tallyroom.protocols.run.participant import Reply
from tallyroom.protocols.wire.machine import Machine
from tallyroom.protocols.wire.messages import Message
from tallyroom.simulation.misbehaviour import HONEST, Cheat, Misbehaviour, Script
from tallyroom.storage.party_answers import PartyAnswers

if TYPE_CHECKING:
    from tallyroom.parties.consent import Consent

EXAGGERATION = 1000
"""How many times its records a party claims to hold that lies."""

Liars = frozenset[int]


class ScriptedBlock(PartyBlock):
    """Parties of which some misbehave."""

    def __init__(
        self,
        holdings: Holdings,
        randomness: Randomness,
        consent: "Consent | None" = None,
        answers: PartyAnswers | None = None,
        signet: PartySigner | None = None,
        misbehaviour: Misbehaviour = HONEST,
    ) -> None:
        super().__init__(holdings, randomness, consent, answers, signet)
        self._misbehaviour = misbehaviour
        self._scripts: dict[bytes, Script] = {}
        present = holdings.without(misbehaviour.absent) if misbehaviour.absent else holdings
        self._all_absent = present is None
        self._answering = holdings if present is None else present

    def handle(self, message: Message) -> Reply:
        """Those that are absent hear nothing."""
        if self._all_absent:
            return Reply(message.run)
        answering = np.isin(message.receivers, self._answering.ids)
        if self._misbehaviour.absent and not answering.all():
            if not answering.any():
                return Reply(message.run)
            message = message.select(np.flatnonzero(answering))
        return super().handle(message)

    def forget(self, run: bytes) -> None:
        super().forget(run)
        self._scripts.pop(run, None)

    def _answer(self, query: Query, holdings: Holdings) -> Machine:
        liars = self._misbehaviour.cheaters(Cheat.OUT_OF_RANGE)
        if not np.isin(holdings.ids, list(liars)).any():
            return super()._answer(query, holdings)
        randomness = self._randomness.derive(query.stream)
        return lying_machine(query, holdings, liars, randomness, self.signet)

    def _send(self, run: bytes, messages: Sequence[Message]) -> list[Message]:
        if self._misbehaviour != HONEST:
            script = self._scripts.setdefault(run, Script(self._misbehaviour))
            messages = [played for message in messages for played in script.play(message)]
        return super()._send(run, messages)


def lying_machine(
    query: Query,
    holdings: Holdings,
    liars: Liars,
    randomness: Randomness,
    signet: PartySigner | None = None,
) -> Machine:
    """The machine of a block of parties in which some lie. Raises `LocalError` as
    `protocols.run.machines.party_machine` does."""
    check(query)
    if query.plan.machines() is not None:
        raise LocalError("circuits take no data out of range: parties can cheat in sums only")
    aggregator = aggregator_named(query.aggregator)
    if lie := _LIES.get(aggregator.name):
        return lie(query, holdings, liars, randomness)
    lies = exaggerated(query, holdings, liars)
    if isinstance(aggregator, Vouched) and signet is not None:
        return aggregator.vouched_party(query, lies, randomness, signet)
    return aggregator.party(query, lies, randomness)


def exaggerated(query: Query, holdings: Holdings, liars: Liars) -> Holdings:
    """What liars claim to hold: everything a thousand times, at the upper bound: sums count from
    the lower one, where a lie would be worth nothing."""
    claimed = holdings.repeated(liars, EXAGGERATION)
    lie = np.repeat(np.isin(claimed.ids, list(liars)), claimed.counts)
    columns = {
        name: np.where(lie, upper, claimed.column(name))
        for name, (_, upper) in query.statistic.column_bounds.items()
    }
    return replace(claimed, columns={**claimed.columns, **columns})


def _false_keys(query: Query, holdings: Holdings, liars: Liars, randomness: Randomness) -> Machine:
    """Two keys for one record: refused only past the number of records of the largest party.
    Where keys are verified, keys that count a thousand times."""
    from tallyroom.protocols.aggregation.fss.aggregator import Fss
    from tallyroom.protocols.aggregation.fss.roles import FssParty

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
    from tallyroom.protocols.aggregation.prio3.aggregator import Prio3Party

    plan, bounds = query.plan, query.statistic.column_bounds.items()
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
    from tallyroom.protocols.aggregation.shuffle.roles import ShuffleParty

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
