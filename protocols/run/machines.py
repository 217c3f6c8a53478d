"""The machine of each role in a run: that of the kind of plan if it has its own, else the
aggregator's."""

from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from typing import Any, Protocol

import numpy as np

from tallyroom.protocols import aggregation, joint
from tallyroom.protocols.aggregation import aggregator_named, aggregators
from tallyroom.protocols.aggregation.contract import Aggregator, Bulk, Records
from tallyroom.protocols.aggregation.one_round import SummingServer
from tallyroom.protocols.aggregation.signing import SigningAggregator
from tallyroom.protocols.aggregation.stream import StreamMachines
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.signing import SigningIdentity
from tallyroom.protocols.identity.vouchers import PartySigner, Vouchers
from tallyroom.protocols.pairwise.roles.bounded import BoundedMachines
from tallyroom.protocols.pairwise.roles.by_servers import ServerMachines
from tallyroom.protocols.pairwise.roles.machines import PairwiseMachines
from tallyroom.protocols.plans.contract import Plan
from tallyroom.protocols.plans.pairs import PairwiseMean
from tallyroom.protocols.plans.stream import Stream
from tallyroom.protocols.privacy.mechanisms import LAPLACE, Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.bounded import check_bounds
from tallyroom.protocols.statistics.contract import asked_as
from tallyroom.protocols.wire.machine import (
    Continue,
    Done,
    Failed,
    Machine,
    Rejected,
    SpeaksOnce,
    Step,
)

PART_BYTES = 2 << 20
"""About what a part sends to one server: large enough that a message costs next to nothing."""


class RoleMachines(Protocol):
    """The machines of a plan whose parties do more than submit one vector each. Their final
    submissions go through the query's aggregator."""

    @property
    def stages(self) -> int:
        """How many times a role waits for parties, each time until the query's deadline at most."""

    @property
    def repeatable(self) -> bool:
        """Whether a party that is asked again may compute its answer again. It must not if the
        answer depends on messages from other parties."""

    def check(self, aggregator: Aggregator, query: Query) -> None:
        """Raises `LocalError` if that aggregator cannot take what parties submit."""

    def party(
        self, aggregator: Aggregator, query: Query, holdings: Holdings, randomness: Randomness
    ) -> Machine:
        """The machine of a block of parties. Raises `LocalError` if they cannot answer."""

    def server(
        self,
        aggregator: Aggregator,
        query: Query,
        index: int,
        randomness: Randomness,
        bulk: Bulk,
    ) -> Machine:
        """The machine of one server."""

    def collector(self, aggregator: Aggregator, query: Query, records: Records) -> Machine:
        """The coordinator's machine, which is done with a `Total`."""


def _machines_of_pairs(plan: PairwiseMean) -> RoleMachines:
    """Parties meet two by two, or servers compute on shares of their records."""
    if plan.by_servers:
        return ServerMachines()
    return BoundedMachines() if plan.bounded else PairwiseMachines()


MACHINES: dict[type[Plan], Callable[[Any], RoleMachines]] = {
    Stream: lambda plan: StreamMachines(),
    PairwiseMean: _machines_of_pairs,
}
"""The kinds of plans whose roles have machines of their own."""


def own_machines(plan: Plan) -> RoleMachines | None:
    """The machines of this kind of plan; None where the aggregator's compute it."""
    found = MACHINES.get(type(plan))
    return None if found is None else found(plan)


def check(query: Query) -> None:
    """Raises `LocalError` where what is asked cannot be done so. Whoever asks, passes on or answers
    a question makes this check, and who only plans to ask it."""
    aggregator = aggregator_named(query.aggregator)
    needs = query.plan.needs
    if needs is not None and needs not in aggregator.offers:
        able = [name for name, each in aggregators().items() if needs in each.offers]
        raise LocalError(
            f"{asked_as(query.statistic)} cannot be asked of {aggregator.name} like this: "
            f"take --aggregator {' or '.join(able)}"
        )
    if (own := own_machines(query.plan)) is not None:
        own.check(aggregator, query)
    aggregator.check(query)
    if query.noise in (Placement.JOINT, Placement.SHARED) and not aggregator.joint:
        raise LocalError(f"{aggregator.name} has no servers that could draw {query.noise} noise")
    if query.choice is not None and not aggregator.chooses:
        raise LocalError(f"{aggregator.name} has no servers that choose: additive or fss have")
    check_bounds(query.statistic)  # parties could not answer without
    _ = query.noise_law  # refuses bounds and an epsilon that there is no noise for
    mechanism = aggregator.mechanism(query)
    if query.law != LAPLACE and not mechanism.any_law:
        raise LocalError(
            f"{aggregator.name} draws noise of its own, not of the law {query.law}: "
            "leave --noise-law out"
        )
    query.check_delta(mechanism.delta)


def stages(query: Query) -> int:
    """How often somebody waits for parties, each time for at most the query's deadline."""
    own = own_machines(query.plan)
    return aggregator_named(query.aggregator).stages if own is None else own.stages


def repeatable(query: Query) -> bool:
    """Whether a party that is asked again may compute what it says again."""
    own = own_machines(query.plan)
    return own is None or own.repeatable


def party_machine(
    query: Query, holdings: Holdings, randomness: Randomness, signer: PartySigner | None = None
) -> Machine:
    """Without a `signer` only parties of this very process believe what is signed.

    Raises `LocalError` if these parties cannot answer.
    """
    check(query)
    aggregator = aggregator_named(query.aggregator)
    if (own := own_machines(query.plan)) is not None:
        return own.party(aggregator, query, holdings, randomness)
    if isinstance(aggregator, SigningAggregator) and signer is not None:
        return aggregator.signing_party(query, holdings, randomness, signer)
    return in_parts(
        aggregator.party(query, part, randomness) for part in parts(aggregator, query, holdings)
    )


def server_machine(
    query: Query,
    index: int,
    randomness: Randomness,
    bulk: Bulk,
    vouchers: Vouchers | None = None,
    bases: "Callable[[], joint.BaseTransfers] | None" = None,
    signing: SigningIdentity | None = None,
) -> Machine:
    """`bases` gives transfers that are kept from run to run; without, those of this run are its
    own. `signing` is what covert security takes. Raises `LocalError` without where it is needed.
    """
    machine = _alone(query, index, randomness, bulk, vouchers)
    if not isinstance(machine, SummingServer):
        return machine
    if query.joint_noise is None and not machine.awaits_program:
        return machine
    kept = joint.BaseTransfers(randomness) if bases is None else bases()
    return aggregation.JointServer(machine, query, index, randomness, kept, signing)


def _alone(
    query: Query, index: int, randomness: Randomness, bulk: Bulk, vouchers: Vouchers | None
) -> Machine:
    aggregator = aggregator_named(query.aggregator)
    if (own := own_machines(query.plan)) is not None:
        return own.server(aggregator, query, index, randomness, bulk)
    if isinstance(aggregator, SigningAggregator) and vouchers is not None:
        return aggregator.checking_server(query, index, randomness, bulk, vouchers)
    return aggregator.server(query, index, randomness, bulk)


def collector_machine(query: Query, records: Records, randomness: Randomness) -> Machine:
    aggregator = aggregator_named(query.aggregator)
    if (own := own_machines(query.plan)) is not None:
        return own.collector(aggregator, query, records)
    return aggregator.collector(query, records, randomness)


# --- a large block of parties, computed and sent part by part ---


def parts(aggregator: Aggregator, query: Query, holdings: Holdings) -> Iterator[Holdings]:
    """The same parties in parts of about `PART_BYTES`, or all together where they must be."""
    counts, which = np.unique(holdings.counts, return_inverse=True)
    sizes = np.array([aggregator.row_bytes(query, int(count)) for count in counts])[which]
    part = np.cumsum(sizes) // PART_BYTES
    edges = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(part)]
    return (holdings.between(first, last) for first, last in pairwise(edges))


def in_parts(machines: Iterator[Machine]) -> Machine:
    """One machine from those of the parts, of which there is at least one.

    Raises `LocalError` if the first cannot be made.
    """
    first = next(machines)
    second = next(machines, None)
    return first if second is None else InParts(chain((first, second), machines))


class InParts(SpeaksOnce):
    """Parties that speak once, one part after the other.

    A batch of parties is exactly its batches of one, so a host of a million parties need not hold a
    million submissions: it computes the next part when the last one is sent. Memory is bounded by a
    part, and a server that is slow to take submissions slows down their making.
    """

    def __init__(self, machines: Iterator[Machine]) -> None:
        self._machines = machines
        self._next = next(machines)

    def start(self) -> Step:
        return self.proceed()

    def proceed(self) -> Step:
        try:
            step = self._next.start()
            following = next(self._machines, None)
        except LocalError as error:
            return Failed(str(error))
        if following is None or isinstance(step, Rejected | Failed):
            return step
        if not isinstance(step, Done):
            return Failed("these parties speak more than once: they cannot be sent in parts")
        self._next = following
        return Continue(step.messages, step.spends, more=True)
