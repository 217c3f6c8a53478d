"""The local model: parties randomize each record, one server collects the reports and estimates.

Nobody is trusted: a report is ε-private by itself, whoever reads it (S1 §2.2). There are no shares,
no keys and no noise but the parties' own. The price is error: n reports of ε each tell a count to
about √n/ε, where noise on a sum tells it to about 1/ε.

Threat model: anybody may run the server, and it may collude with the coordinator and any parties. A
party can lie about its data, and one lie weighs as much as `LocalRandomizer.gain` records; the
server names parties that send impossible reports. Without ε nothing is randomized: parties then
send their vectors in the clear, as to a curator.
"""

from typing import ClassVar

from tallyroom.protocols.aggregation.collector import Collector
from tallyroom.protocols.aggregation.contract import Aggregator, Bulk, Records, ThreatModel
from tallyroom.protocols.aggregation.local.reports import LocalMechanism, randomizer_of, reports_of
from tallyroom.protocols.aggregation.local.roles import LocalParty, LocalServer
from tallyroom.protocols.aggregation.mechanism import Mechanism
from tallyroom.protocols.aggregation.reports import (
    LARGEST,
    is_private,
)
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.offers import Offer, Offers
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.machine import Machine
from tallyroom.protocols.wire.messages import MAX_ROW


class Local(Aggregator):
    """Randomized reports to one server that nobody needs to trust, at the price of error."""

    name: ClassVar[str] = "local"
    offers: ClassVar[Offers] = frozenset({Offer.SUM, Offer.RANDOMIZE})
    servers: ClassVar[int] = 1
    party_bytes: ClassVar[str] = "a byte per record, more where reports are longer than 8 bits"

    def threat_model(self, servers: int) -> ThreatModel:
        return ThreatModel(
            colluding=servers,
            behaviour="nobody is trusted: each report is private by itself",
            dropouts="any number of parties may drop out",
            reveals="the server sees every party's randomized reports, the analyst what they say "
            "together and who contributed",
        )

    def exposes(self, query: Query) -> bool:
        return not is_private(query)

    def check(self, query: Query) -> None:
        if query.servers != 1:
            raise LocalError(f"local has 1 server, not {query.servers}")
        if is_private(query):
            if query.noise is not Placement.CURATOR:
                raise LocalError("local draws its noise at the parties: leave --noise out")
            if randomizer_of(query).largest(query.records) > LARGEST:
                raise LocalError(f"epsilon {float(query.epsilon or 0):g} is too small to estimate")
        reports = reports_of(query)
        if reports.max_per_party * reports.payload_bytes > MAX_ROW:
            raise LocalError(
                f"{reports.max_per_party} reports of {reports.payload_bytes} bytes from one party "
                "do not fit a message"
            )

    def row_bytes(self, query: Query, records: int) -> int:
        reports = reports_of(query)
        return min(records, reports.max_per_party) * reports.payload_bytes

    def mechanism(self, query: Query) -> Mechanism:
        return LocalMechanism(query)

    def party(self, query: Query, holdings: Holdings, randomness: Randomness) -> Machine:
        return LocalParty(query, holdings, randomness)

    def server(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> Machine:
        return LocalServer(query, index, randomness, bulk)

    def collector(self, query: Query, records: Records, randomness: Randomness) -> Machine:
        return Collector(query, records, lambda shares: shares[0])
