"""The shuffle model: parties randomize and seal, a shuffler mixes, the collector opens.

The one server is the shuffler. It sees who submitted how many reports, sealed to the collector's
key; the collector sees the reports in random order, without names. Each report is private by
itself, and hiding among the others makes it more so (`protocols.local.amplification`).

Threat model: semi-honest, and the shuffler must not collude with the coordinator. Together they see
who reported what, which is then only as private as the local randomizer. The same holds if a
coordinator gives each party a different key, so that it can tell their reports apart. Parties that
collude with the coordinator do not hide anybody: the amplification counts only the reports of the
fraction of parties assumed to be honest, whatever the others claim to hold. A report that does not
open, or came twice, is left out and counted, but its sender cannot be named, because the shuffler
hides it; the shuffler does name parties whose submissions have the wrong size.
"""

from dataclasses import dataclass
from typing import ClassVar

from tallyroom.protocols.aggregation.contract import Aggregator, Bulk, Records, ThreatModel
from tallyroom.protocols.aggregation.mechanism import Mechanism
from tallyroom.protocols.aggregation.reports import LARGEST, is_private
from tallyroom.protocols.aggregation.shuffle.reports import (
    ShuffledReports,
    least_reports,
    randomizer_of,
    reports_of,
)
from tallyroom.protocols.aggregation.shuffle.roles import ShuffleCollector, ShuffleParty, Shuffler
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.sealing import OVERHEAD
from tallyroom.protocols.offers import Offer, Offers
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.machine import Machine
from tallyroom.protocols.wire.messages import MAX_WIRE_BYTES

HEADROOM = 512
"""Bytes for the headers of a message and of a part."""


@dataclass(frozen=True)
class Shuffle(Aggregator):
    """Randomized reports, sealed and shuffled: nobody holds a party's data, not even in shares.

    `honest` is the fraction of the contributing parties assumed to be honest. Only their reports
    hide others. By default, one party in ten may lie or collude with the coordinator.
    """

    honest: float = 0.9

    name: ClassVar[str] = "shuffle"
    offers: ClassVar[Offers] = frozenset({Offer.SUM, Offer.RANDOMIZE})
    servers: ClassVar[int] = 1
    party_bytes: ClassVar[str] = (
        "52 bytes per record, more where reports are longer; without privacy 56 + 8L"
    )

    def __post_init__(self) -> None:
        if not 0 < self.honest <= 1:
            raise LocalError(f"shuffle: honest is a fraction above 0, at most 1, not {self.honest}")

    def threat_model(self, servers: int) -> ThreatModel:
        return ThreatModel(
            colluding=0,
            behaviour="a semi-honest shuffler that must not collude with the coordinator, and "
            f"{self.honest:.0%} honest parties",
            dropouts="any number of parties may drop out before the release",
            reveals="the shuffler sees who submitted how many reports, the analyst randomized "
            "reports without names; a bad report is left out but its sender cannot be named",
            hides=True,
        )

    def check(self, query: Query) -> None:
        if query.servers != 1:
            raise LocalError(f"shuffle has 1 server, the shuffler, not {query.servers}")
        if is_private(query):
            self._check_private(query)
        reports = reports_of(query)
        sealed = reports.payload_bytes + OVERHEAD
        if (limit := reports.max_per_party) * sealed > MAX_WIRE_BYTES - HEADROOM:
            raise LocalError(
                f"{limit} reports of {sealed} bytes from one party do not fit a message"
            )

    def mechanism(self, query: Query) -> Mechanism:
        return ShuffledReports(query)

    def party(self, query: Query, holdings: Holdings, randomness: Randomness) -> Machine:
        return ShuffleParty(query, holdings, randomness)

    def server(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> Machine:
        return Shuffler(query, index, randomness, bulk)

    def collector(self, query: Query, records: Records, randomness: Randomness) -> Machine:
        return ShuffleCollector(query, records, randomness)

    @staticmethod
    def _check_private(query: Query) -> None:
        if query.delta <= 0:
            raise LocalError(
                "shuffle hides reports among others up to a δ: give --delta, well below one in "
                f"{least_reports(query)}"
            )
        if query.noise is not Placement.CURATOR:
            raise LocalError("shuffle draws its noise at the parties: leave --noise out")
        if randomizer_of(query).largest(query.records) > LARGEST:
            raise LocalError(f"epsilon {float(query.epsilon or 0):g} is too small to estimate")
