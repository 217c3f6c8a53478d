"""Function secret sharing: parties upload one comparison key per record and may leave.

Afterwards the servers alone count the values that are at most t, for any t of the domain (S0 §4.2).
Communication is O(n + m·|B|), where asking the parties again costs O(n·|B|). If the question fixes
the thresholds beforehand, the domain has only these |B| points: keys are then shorter by a factor
of 32 / log₂ |B|, and counting takes less than half the time. `domain=fine` follows S0 exactly.

Threat model: semi-honest servers. A server sees keys, which are pseudorandom without the other
servers' keys, and how many records a party has. A party that deviates can upload a well-formed key
that counts twice, or at a threshold of its choice; a server alone cannot see that.

With `verified=yes` the two servers check the keys together (`fss.verified`, `verified_server`). A
party that sent a key other than a single step of weight one is named and left out, and the rest is
exact. A bad key passes with a chance below 2^-40. The number of keys that a party sends must be the
number of its records, which is public. The check shows that a key is a possible one: a party may
still lie about its data. A server that deviates learns nothing from the check. It can have any
party refused and change the answer, but it can do so without the check as well.

`verified=auto`, the default in a question, is settled when the query is made: every query says
`yes` or `no`, and so do the run's name, receipts and results. Keys are checked if two servers count
everything that is asked at once. They are not checked for points on demand, because a bad key that
a later question meets would end a tree that is already paid for.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from tallyroom.protocols.aggregation.collector import Collector
from tallyroom.protocols.aggregation.contract import (
    Aggregator,
    Bulk,
    Records,
    ThreatModel,
)
from tallyroom.protocols.aggregation.fss.on_demand import OnDemandCollector, OnDemandServer
from tallyroom.protocols.aggregation.fss.roles import (
    HEADER_BYTES,
    FssParty,
    FssServer,
    comparison,
)
from tallyroom.protocols.aggregation.fss.submission import ASKED, FINE, bits_for, compared
from tallyroom.protocols.aggregation.fss.verified_collector import (
    VerifiedCollector,
    VerifiedOnDemandCollector,
)
from tallyroom.protocols.aggregation.fss.verified_keys import (
    HEADER,
    SERVERS,
    key_bytes,
    verified_keys,
)
from tallyroom.protocols.aggregation.fss.verified_on_demand import VerifiedOnDemandServer
from tallyroom.protocols.aggregation.fss.verified_server import VerifiedServer
from tallyroom.protocols.algebra.ring import add_shares
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.offers import Offer, Offers
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.machine import Machine
from tallyroom.protocols.wire.messages import MAX_ROW

AUTO = "auto"
CHECKED_BYTES = "m(8 + ck)"
PLAIN_BYTES = "m(8 + 24bk)"


@dataclass(frozen=True)
class Fss(Aggregator):
    """Comparison keys, uploaded once; any m-1 of m servers may collude.

    `verified`: with `yes` two servers check that each key is one record's, with `no` they trust the
    parties, and `auto` checks whatever two servers count at once: all but choices and points on
    demand. `domain`: keys are over the thresholds that are `asked`, or, between two servers, over
    the `fine` grid of 2^32 points, whatever is asked. Points on demand always use the fine grid.
    """

    verified: str = AUTO
    domain: str = ASKED

    name: ClassVar[str] = "fss"
    offers: ClassVar[Offers] = frozenset({Offer.COMPARE})
    joint: ClassVar[bool] = True
    chooses: ClassVar[bool] = True
    rounds: ClassVar[int] = 8
    """If no key is bad; three fewer if keys are not checked."""
    party_bytes: ClassVar[str] = (
        f"{CHECKED_BYTES}; c = 16(b + 12), up to 32 thresholds 48b − 16; b = ⌈log₂ L⌉; "
        f"unchecked {PLAIN_BYTES}, for m ≥ 3 about (8L + 16m)k"
    )

    def __post_init__(self) -> None:
        if self.verified not in (AUTO, "yes", "no"):
            raise LocalError(f"fss: verified is {AUTO}, yes or no, not {self.verified!r}")
        if self.domain not in (ASKED, FINE):
            raise LocalError(f"fss: domain is {ASKED} or {FINE}, not {self.domain!r}")

    def bytes_formula(self, query: Query) -> tuple[str, dict[str, int]]:
        if query.servers != 2:  # keys of another kind
            return "not stated", {}
        formula = CHECKED_BYTES if self.checks else PLAIN_BYTES
        bits = bits_for(query, self.domain == FINE)
        return formula, {"b": bits, "c": key_bytes(bits)}

    @property
    def checks(self) -> bool:
        return self.verified == "yes"

    def settled(self, query: Query) -> str:
        if self.verified != AUTO:
            return query.aggregator
        checked = query.points is None and self._can_check(query)
        name, _, options = query.aggregator.partition("?")
        kept = [each for each in options.split("&") if each and each != f"verified={AUTO}"]
        return f"{name}?{'&'.join([*kept, 'verified=yes' if checked else 'verified=no'])}"

    def _can_check(self, query: Query) -> bool:
        try:
            replace(self, verified="yes").check(query)
        except LocalError:
            return False
        return True

    def threat_model(self, servers: int) -> ThreatModel:
        checks = self.checks or (self.verified == AUTO and servers == SERVERS)
        parties = "malicious parties, which are caught," if checks else "semi-honest parties"
        if checks and not self.checks:
            parties += " but for choices and points on demand,"
        return ThreatModel(
            colluding=servers - 1,
            behaviour=f"{parties} and {servers} semi-honest servers",
            dropouts="any number of parties may drop out before the release, no server may",
            reveals="the analyst and the servers see who contributed and how many records, "
            "the analyst the noisy counts"
            + (", and all of them whose keys do not verify" if checks else ""),
            catches=checks,
        )

    def concessions(self, query: Query) -> tuple[str, ...]:
        if self.checks:
            return ()
        why = "as was asked"
        if query.points is not None:
            why = "by default, they are not for points on demand"
        try:
            replace(self, verified="yes").check(query)
        except LocalError as error:
            why = str(error)
        return (f"keys are not checked: a party may upload one that counts twice ({why})",)

    def check(self, query: Query) -> None:
        if query.servers < 2:
            raise LocalError(f"fss needs at least 2 servers, not {query.servers}")
        compared(query)
        if query.noise is Placement.PARTIES:
            raise LocalError("fss: parties cannot add noise to keys: choose noise of the servers")
        together = query.noise in (Placement.JOINT, Placement.SHARED)
        if together and query.points is not None:
            raise LocalError(
                f"for points on demand each server draws its own noise: it cannot be {query.noise}"
            )
        if query.points is not None and query.servers != 2:
            raise LocalError("points on demand need the fine grid, which takes exactly 2 servers")
        if self.domain == FINE and query.servers != 2:
            raise LocalError("fss?domain=fine takes exactly 2 servers")
        if self.verified == AUTO:
            raise LocalError("fss: a query must say whether keys are verified, yes or no")
        if not self.checks:
            comparison(query)
            return
        if query.servers != SERVERS:
            raise LocalError(f"fss?verified=yes takes exactly {SERVERS} servers")
        if query.choice is not None:
            raise LocalError(
                f"fss cannot check keys where the two servers choose, as for "
                f"{query.statistic.name}: take fss?verified=no, or additive"
            )
        size = self.row_bytes(query, query.max_records_per_party)
        if size + 4 * query.parties > MAX_ROW:
            raise LocalError("fss?verified=yes: too many parties or records to fit a message")

    def party(self, query: Query, holdings: Holdings, randomness: Randomness) -> Machine:
        return FssParty(query, holdings, randomness, self.checks)

    def row_bytes(self, query: Query, records: int) -> int:
        if self.checks:
            return HEADER.size + records * verified_keys(query).key_bytes
        keys = comparison(query)
        return HEADER_BYTES + records * max(keys.key_bytes(i) for i in range(query.servers))

    def server(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> Machine:
        if self.checks:
            checking = VerifiedOnDemandServer if query.points is not None else VerifiedServer
            return checking(query, index, randomness, bulk)
        kind = OnDemandServer if query.points is not None else FssServer
        return kind(query, index, randomness, bulk)

    def collector(self, query: Query, records: Records, randomness: Randomness) -> Machine:
        if self.checks:
            if query.points is not None:
                return VerifiedOnDemandCollector(query, records)
            return VerifiedCollector(query, records)
        if query.points is not None:
            return OnDemandCollector(query, records)
        return Collector(query, records, add_shares)
