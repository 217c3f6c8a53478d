"""The time on the network of a run, from its bill: rounds follow each other, links of one round
work side by side, and everybody has one line of the profile's rate."""

from collections.abc import Mapping

import numpy as np

from protocols.run.messages import Phase, Role
from protocols.run.meter import Bill
from simulation.networks.profile import PROFILES, Profile

ENROLLING = 2
"""One-way delays of the analyst's first call, which asks who is there."""
ACKNOWLEDGED = 2
"""One-way delays of a call whose answer is waited for."""
HANDSHAKES = 4
"""One-way delays more where it is the first question, of TCP and TLS with the servers: measured."""


def network_seconds(bill: Bill, profile: Profile) -> float:
    """In each round: the delay, and the bytes of whoever has most to send or to receive."""
    busiest: dict[int, dict[tuple[Role, int, bool], float]] = {}
    for link, account in bill.accounts.items():
        lines = busiest.setdefault(link.round, {})
        size = float(account.bytes.sum())
        most = float(np.max(account.bytes, initial=0))
        for role, sends in ((link.sender, True), (link.receiver, False)):
            at = link.station if role is Role.SERVER else 0
            if link.sender is link.receiver is Role.SERVER and not sends:
                at = -1 - link.station  # somebody else than the sender
            load = most if role is Role.PARTY else size
            lines[role, at, sends] = lines.get((role, at, sends), 0.0) + load
    return sum(profile.seconds(max(lines.values())) for lines in busiest.values())


def acknowledgements(bill: Bill) -> int:
    """One-way delays that a question takes beside one for each round: how the processes speak.

    The coordinator speaks to one server after the other, each time until that has acknowledged it:
    a round to m servers takes m - 1 calls more, and the query one more, because parties are asked
    when all servers know. What parties say to each other through the coordinator goes two ways in
    one round; and they hand in their accounts before they say that they are done.
    """
    told: dict[tuple[int, Phase], set[int]] = {}
    relayed: set[int] = set()
    meet = False
    for link in bill.accounts:
        if link.sender is Role.COORDINATOR and link.receiver is Role.SERVER:
            told.setdefault((link.round, link.phase), set()).add(link.station)
        meet |= link.phase is Phase.PAIR
        if link.phase is Phase.PAIR and link.receiver is Role.COORDINATOR:
            relayed.add(link.round)
    calls = sum(len(servers) - (phase is not Phase.QUERY) for (_, phase), servers in told.items())
    return ENROLLING + ACKNOWLEDGED * (calls + meet) + len(relayed)


def waiting_seconds(bill: Bill, profile: Profile, first: bool) -> float:
    """All that a question spends on the network between processes, the `first` of a federation
    with its handshakes."""
    delays = acknowledgements(bill) + HANDSHAKES * first
    return network_seconds(bill, profile) + profile.delay * delays


def split(bill: Bill, seconds: Mapping[str, float], profile: Profile) -> dict[str, object]:
    """The time of a run under a profile in two parts, and what it would be under others."""
    first = "start" in seconds
    whole = sum(each for phase, each in seconds.items() if phase != "start")
    network = min(whole, waiting_seconds(bill, profile, first))
    return {
        "network_seconds": network,
        "computing_seconds": whole - network,
        "predicted_seconds": {
            name: whole - network + waiting_seconds(bill, other, first)
            for name, other in PROFILES.items()
        },
    }


def server_bytes(bill: Bill) -> int:
    """Bytes that the busiest server sends and receives. What two servers send each other counts
    for both."""
    totals: dict[int, int] = {}
    between = 0
    for link, account in bill.accounts.items():
        size = int(account.bytes.sum())
        if link.sender is link.receiver is Role.SERVER:
            between += size
        elif Role.SERVER in (link.sender, link.receiver):
            totals[link.station] = totals.get(link.station, 0) + size
    return max(totals.values(), default=0) + between
