"""The machine of each role in a run: the statistic's own if it has any, else the aggregator's."""

from tallyroom.protocols.aggregation import aggregator_named, aggregators
from tallyroom.protocols.aggregation.contract import Bulk, Records
from tallyroom.protocols.aggregation.one_round import SummingServer
from tallyroom.protocols.aggregation.together import TogetherServer
from tallyroom.protocols.aggregation.vouched import Vouched
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.vouchers import PartySigner, Vouchers
from tallyroom.protocols.joint.base_transfers import BaseTransfers
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.run.in_parts import in_parts, parts
from tallyroom.protocols.wire.machine import Machine


def check(query: Query) -> None:
    """Raises `LocalError` where what is asked cannot be done so. Whoever asks, passes on or answers
    a question makes this check, and who only plans to ask it."""
    aggregator = aggregator_named(query.aggregator)
    needs = query.plan.needs
    if needs is not None and needs not in aggregator.offers:
        able = [name for name, each in aggregators().items() if needs in each.offers]
        raise LocalError(
            f"{query.statistic.asked_as} cannot be asked of {aggregator.name} like this: "
            f"take --aggregator {' or '.join(able)}"
        )
    if (own := query.plan.machines()) is not None:
        own.check(aggregator, query)
    aggregator.check(query)
    if query.noise in (Placement.JOINT, Placement.SHARED) and not aggregator.joint:
        raise LocalError(f"{aggregator.name} has no servers that could draw {query.noise} noise")
    if query.choice is not None and not aggregator.chooses:
        raise LocalError(f"{aggregator.name} has no servers that choose: additive or fss have")
    query.statistic.check_bounds()  # parties could not answer without
    _ = query.mechanism  # refuses bounds and an epsilon that there is no noise for
    query.check_delta(aggregator.mechanism(query).delta)


def stages(query: Query) -> int:
    """How often somebody waits for parties, each time for at most the query's deadline."""
    own = query.plan.machines()
    return aggregator_named(query.aggregator).stages if own is None else own.stages


def repeatable(query: Query) -> bool:
    """Whether a party that is asked again may compute what it says again."""
    own = query.plan.machines()
    return own is None or own.repeatable


def party_machine(
    query: Query, holdings: Holdings, randomness: Randomness, signet: PartySigner | None = None
) -> Machine:
    """Without a `signet` only parties of this very process believe what is signed.

    Raises `LocalError` if these parties cannot answer.
    """
    check(query)
    aggregator = aggregator_named(query.aggregator)
    if (own := query.plan.machines()) is not None:
        return own.party(aggregator, query, holdings, randomness)
    if isinstance(aggregator, Vouched) and signet is not None:
        return aggregator.vouched_party(query, holdings, randomness, signet)
    return in_parts(
        aggregator.party(query, part, randomness) for part in parts(aggregator, query, holdings)
    )


def server_machine(
    query: Query,
    index: int,
    randomness: Randomness,
    bulk: Bulk,
    vouchers: Vouchers | None = None,
    bases: BaseTransfers | None = None,
) -> Machine:
    """`bases` are kept from run to run; without, those of this run are its own."""
    machine = _alone(query, index, randomness, bulk, vouchers)
    if not isinstance(machine, SummingServer):
        return machine
    if query.joint_noise is None and not machine.awaits_program:
        return machine
    return TogetherServer(machine, query, index, randomness, bases or BaseTransfers(randomness))


def _alone(
    query: Query, index: int, randomness: Randomness, bulk: Bulk, vouchers: Vouchers | None
) -> Machine:
    aggregator = aggregator_named(query.aggregator)
    if (own := query.plan.machines()) is not None:
        return own.server(aggregator, query, index, randomness, bulk)
    if isinstance(aggregator, Vouched) and vouchers is not None:
        return aggregator.vouched_server(query, index, randomness, bulk, vouchers)
    return aggregator.server(query, index, randomness, bulk)


def collector_machine(query: Query, records: Records, randomness: Randomness) -> Machine:
    aggregator = aggregator_named(query.aggregator)
    if (own := query.plan.machines()) is not None:
        return own.collector(aggregator, query, records)
    return aggregator.collector(query, records, randomness)
