"""Predicts a run's time on the network from its bill: rounds follow each other, links of one round
work in parallel, and every participant has one line of the profile's rate."""

from collections import Counter, defaultdict

import numpy as np

from tallyroom.protocols.wire.messages import Phase, Role
from tallyroom.protocols.wire.meter import Bill
from tallyroom.simulation.networks.network import Network

SETTLING = 2
"""One-way delays of the call for the servers' accounts."""
ACKNOWLEDGED = 2
"""One-way delays of a call whose answer is awaited."""
CONNECTING = 6
"""One-way delays until a connection can be used: two of TCP, two of TLS, two of HTTP/2."""
JOINING = CONNECTING + 4
"""One-way delays until a party has joined: its connection, its stream, its call to join."""

MEETING = CONNECTING + 8
"""One-way delays until parties that meet for the first time know each other: a connection to the
coordinator's relay, the announcement, and the request for each other's keys. Measured."""
CALLING = CONNECTING + 2
"""One-way delays until a party can call another directly."""


Times = defaultdict[Role, float]


def _far_end(one: Role, other: Role) -> Role:
    """Of a link, the end that is not the coordinator's: a party's if there is one."""
    return next(role for role in (Role.PARTY, Role.SERVER, one) if role in (one, other))


def _rounds(bill: Bill, network: Network) -> Times:
    """Adds up, for each round, the longest delay and the time of the slowest line, by the role that
    has them."""
    delays: dict[int, tuple[float, Role]] = {}
    lines: dict[int, dict[tuple[Role, int, bool], float]] = {}
    for link, account in bill.accounts.items():
        path = network.between(link.sender, link.receiver)
        delay = path.seconds(0), _far_end(link.sender, link.receiver)
        delays[link.round] = max(delays.get(link.round, delay), delay)
        busy = lines.setdefault(link.round, {})
        size = float(account.bytes.sum())
        most = float(np.max(account.bytes, initial=0))
        for role, sends in ((link.sender, True), (link.receiver, False)):
            at = link.station if role is Role.SERVER else 0
            if link.sender is link.receiver is Role.SERVER and not sends:
                at = -1 - link.station  # anybody but the sender
            load = most if role is Role.PARTY else size
            line = network.line(role)
            seconds = load / (line.rate * (1 - line.loss))
            busy[role, at, sends] = busy.get((role, at, sends), 0.0) + seconds
    found: Times = defaultdict(float)
    for each, (longest, role) in delays.items():
        found[role] += longest
        (busiest, _, _), seconds = max(lines[each].items(), key=lambda line: line[1])
        found[busiest] += seconds
    return found


def acknowledgements(bill: Bill) -> Counter[Role]:
    """Counts one-way delays of a question besides one per round, by the role at the other end from
    the coordinator. They follow from how the processes talk.

    The coordinator tells the servers of the query one after another, each time awaiting the
    acknowledgement, and asks parties when all servers know. All other messages to servers go out in
    parallel. Messages between parties through the coordinator go two ways in one round; and parties
    hand in their accounts before they say that they are done.
    """
    told: dict[int, set[int]] = {}
    relayed: set[int] = set()
    meet = False
    for link in bill.accounts:
        if link.phase is Phase.QUERY and link.receiver is Role.SERVER:
            told.setdefault(link.round, set()).add(link.station)
        meet |= link.phase is Phase.PAIR
        if link.phase is Phase.PAIR and link.receiver is Role.COORDINATOR:
            relayed.add(link.round)
    calls = sum(map(len, told.values()))
    return Counter(
        {
            Role.SERVER: SETTLING + ACKNOWLEDGED * calls,
            Role.PARTY: ACKNOWLEDGED * meet + len(relayed),
        }
    )


def network_times(bill: Bill, network: Network, first: bool) -> Times:
    """The network time of a question between processes, by the role that it is spent with. The
    `first` question of a federation is asked while parties still join, so its connections are
    included."""
    found = _rounds(bill, network)
    for role, delays in acknowledgements(bill).items():
        found[role] += delays * network.between(Role.COORDINATOR, role).seconds(0)
    if first:
        pairs = {link.receiver for link in bill.accounts if link.phase is Phase.PAIR}
        joining = JOINING + MEETING * bool(pairs)
        found[Role.PARTY] += joining * network.between(Role.PARTY, Role.COORDINATOR).seconds(0)
        found[Role.PARTY] += CONNECTING * network.between(Role.PARTY, Role.SERVER).seconds(0)
        if Role.PARTY in pairs and Role.COORDINATOR not in pairs:
            found[Role.PARTY] += CALLING * network.between(Role.PARTY, Role.PARTY).seconds(0)
    return found


def network_seconds(bill: Bill, network: Network, first: bool) -> float:
    return sum(network_times(bill, network, first).values())


def server_bytes(bill: Bill) -> int:
    """Bytes that the busiest server sends and receives. Bytes between two servers count for
    both."""
    totals: dict[int, int] = {}
    between = 0
    for link, account in bill.accounts.items():
        size = int(account.bytes.sum())
        if link.sender is link.receiver is Role.SERVER:
            between += size
        elif Role.SERVER in (link.sender, link.receiver):
            totals[link.station] = totals.get(link.station, 0) + size
    return max(totals.values(), default=0) + between
