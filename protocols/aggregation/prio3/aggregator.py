"""Prio3: sums of records that servers have verified without seeing them.

Each record travels with a proof, shared like the record itself, that it is valid: a single bin, or
a number within the public bounds. The servers check the proofs on their shares. Parties whose
records do not verify are named and left out, and the sum over the others is exact.
(draft-irtf-cfrg-vdaf; Corrigan-Gibbs and Boneh, NSDI 2017; proofs of Boneh et al., CRYPTO 2019.)

    party -> server             SUBMIT   nonce, public share and input share of every record
    server -> coordinator       ROSTER   who submitted, and its contribution to the verification key
    coordinator -> server       VERIFY   whom to verify, and all contributions
    server <-> coordinator      VERIFY   verifier shares, and what they add up to; for each chunk
    server -> coordinator       VERIFY   whom it accepts
    coordinator -> server       RELEASE  and so on, as in one round

Servers need no links to each other. It is safe that verifier shares pass through the coordinator:
the draft lets anybody see them, since proofs are zero-knowledge. The coordinator adds the shares up
and says which proofs are right. If it lies, it can let a false record in, just as it can lie about
the answer, but it learns nothing.

A false record is accepted only by chance: below 2^-57 for a sum (64-bit field), and below 2^-116
for each sharing that a party tries out for a histogram or a curve (128-bit field; `flp.soundness`).
A true one is refused with about the same chance. The proof shows that a record is possible, not
that it is true: a party may still lie about its own data, within the bounds.
"""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.contract import Aggregator, Bulk, Records, ThreatModel
from tallyroom.protocols.aggregation.prio3.collector import Prio3Collector
from tallyroom.protocols.aggregation.prio3.reports import reporting
from tallyroom.protocols.aggregation.prio3.server import Prio3Server
from tallyroom.protocols.aggregation.rosters import submissions
from tallyroom.protocols.algebra.field import Field
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.encodings import sum_by_party
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.vdaf.prio3 import NONCE_BYTES
from tallyroom.protocols.wire.machine import Done, Machine, SpeaksOnce, Step
from tallyroom.protocols.wire.messages import Message


class Prio3(Aggregator):
    """Records with proofs: any m-1 of m servers may collude, and cheating parties are caught."""

    name: ClassVar[str] = "prio3"
    joint: ClassVar[bool] = True
    rounds: ClassVar[int] = 9
    """Two more for each further `CHUNK_BYTES` of verifier shares."""
    party_bytes: ClassVar[str] = (
        "about 16L + 66√L + 32m² + 80m a record for a histogram, 1 KB for a sum"
    )

    def noise_field(self, query: Query) -> Field:
        return reporting(query).field

    def threat_model(self, servers: int) -> ThreatModel:
        return ThreatModel(
            colluding=servers - 1,
            behaviour=f"malicious parties, which are caught, and {servers} semi-honest servers",
            dropouts="any number of parties may drop out before the release, no server may",
            reveals="the analyst and the servers see who contributed how many records and who was "
            "refused, the analyst the noisy sum",
            catches=True,
        )

    def check(self, query: Query) -> None:
        if query.servers < 2:
            raise LocalError(f"prio3 needs at least 2 servers, not {query.servers}")
        if query.noise not in (
            Placement.EACH_SERVER,
            Placement.CURATOR,
            Placement.JOINT,
            Placement.SHARED,
        ):
            raise LocalError("prio3: a party's noise would break its proof: let servers add noise")
        reporting(query).check_size()

    def party(self, query: Query, holdings: Holdings, randomness: Randomness) -> Machine:
        return Prio3Party(query, holdings, query.plan.encode(holdings), randomness)

    def server(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> Machine:
        return Prio3Server(reporting(query), query, index, randomness, bulk)

    def collector(self, query: Query, records: Records, randomness: Randomness) -> Machine:
        return Prio3Collector(reporting(query), query, records)


class Prio3Party(SpeaksOnce):
    """Sees its own records. Sends each server a share of every record and its proof, and is done.

    `claims` is each party's vector. If it is not the vector of a party's records, the difference
    goes into the party's first report, with a proof that will not verify.
    """

    def __init__(
        self, query: Query, holdings: Holdings, claims: Vector, randomness: Randomness
    ) -> None:
        self._query = query
        self._holdings = holdings
        self._randomness = randomness
        self._reporting = reporting(query)
        self._vectors = claims if len(claims) == holdings.rows else self._by_record(claims)

    def _by_record(self, claims: Vector) -> Vector:
        holdings = self._holdings
        # Encodes each record as if a party of its own, which does not exist, held only that record.
        nobody = self._query.parties + np.arange(holdings.rows)
        alone = Holdings(nobody.astype(np.uint32), np.arange(holdings.rows), holdings.columns)
        vectors = self._query.plan.encode(alone)
        vectors[holdings.starts] += claims - sum_by_party(vectors, holdings)
        return vectors

    def start(self) -> Step:
        """Sends parties with equally many records in one message, as their rows have one length."""
        counts = self._holdings.counts
        messages: list[Message] = []
        for count in np.unique(counts):
            messages += self._submit(np.flatnonzero(counts == count), int(count))
        return Done(messages=tuple(messages))

    def _submit(self, chosen: NDArray[np.intp], count: int) -> tuple[Message, ...]:
        ids = self._holdings.ids[chosen]
        records = (self._holdings.starts[chosen][:, None] + np.arange(count)).ravel()
        prio3 = self._reporting.prio3

        def draw(label: str, width: int) -> NDArray[np.uint8]:
            rows = self._randomness.rows(label, ids, count * width)
            return np.ascontiguousarray(rows).reshape(len(records), width)

        nonces = draw("prio3 nonces", NONCE_BYTES)
        made = prio3.shard_encoded(
            self._reporting.encode(self._vectors[records]),
            nonces,
            draw("prio3 reports", prio3.rand_bytes),
            self._reporting.context,
        )
        bodies = [
            np.hstack([nonces, made.public_shares, share]).reshape(len(ids), -1)
            for share in made.input_shares
        ]
        return submissions(self._query, ids, bodies)
