"""Secure aggregation with one server: pairwise masks that cancel in the sum.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning" (CCS 2017),
and the sparse graph of Bell et al., "Secure Single-Server Aggregation with (Poly)Logarithmic
Overhead" (CCS 2020). The server waits five times for the parties that are left:

    KEYS    two X25519 keys of each, signed; the server passes them on to its neighbours
    DEAL    a share of the self-mask seed and of the mask key's seed, sealed, for each neighbour
    SUBMIT  the vector, plus the self-mask, plus or minus a mask for each neighbour that dealt
    CHECK   who submitted, confirmed under the key of each pair; a party goes on only if enough
            of its holders were told the same
    UNMASK  for each neighbour the share of its self-mask seed if it submitted, of its mask key's
            seed if it did not; never both

Then the server removes the masks that are left in the sum. Deviations from the papers: only 16-byte
seeds are shared, and the mask key is derived from one of them. Consistency is confirmed by MACs
under pair keys, not by signatures: these keys are signed with the parties' certificates, so to a
neighbour a MAC proves as much as a signature would, but to nobody else.
"""

from dataclasses import dataclass
from typing import ClassVar

from tallyroom.protocols.aggregation.collector import Collector
from tallyroom.protocols.aggregation.contract import Bulk, Records, ThreatModel
from tallyroom.protocols.aggregation.masking.graph import MaskingGraph, degree_of, make_graph
from tallyroom.protocols.aggregation.masking.party import MaskingParty
from tallyroom.protocols.aggregation.masking.server import MaskingServer
from tallyroom.protocols.aggregation.signing import SigningAggregator
from tallyroom.protocols.algebra.ring import add_shares
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.vouchers import PartySigner, Vouchers
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.machine import Machine
from tallyroom.protocols.wire.messages import time_of


@dataclass(frozen=True)
class Masking(SigningAggregator):
    """Pairwise masks that cancel: one server, which learns the sum and no vector.

    `neighbours` is with how many others a party shares masks: `0` means all, `auto` the least
    number that is safe, or all if that is more than half of the parties. `threshold` is how many of
    a party's holders, that is its neighbours and itself, it takes to open its secrets: 0 means two
    thirds of them, or half if `auto` chose fewer neighbours than all.
    """

    neighbours: str = "auto"
    threshold: int = 0

    name: ClassVar[str] = "masking"
    stages: ClassVar[int] = 5
    servers: ClassVar[int] = 1
    rounds: ClassVar[int] = 13
    party_bytes: ClassVar[str] = "8L + 80n + 177; with d neighbours 8L + 80(d + 1) + 177"

    def threat_model(self, servers: int) -> ThreatModel:
        """What is not promised. Parties accept each other's keys for this run if they are signed
        with the certificate of the party that they are said to belong to. Whoever can make such
        certificates and colludes with the server can replace the keys and read everything. That is
        the holder of the party authority, hence the coordinator unless a registrar enrols parties.

        A server that lies about who submitted does not get both secrets of a party as long as fewer
        than 2t − h of its h holders are on the server's side. That is a third of them at the
        default threshold of a full graph, but a single one at an automatic degree, which is meant
        for servers that do not lie. In a full graph it then gets only the one sum. In a sparse
        graph holders can vouch only for each other, and parties only know `min_parties`, so it may
        get sums over parts of the ring instead. Each is over at least t − c honest parties, where c
        is the most holders of any party that are on the server's side.

        A party takes part in a run once, even if it is asked again. If it is restarted with its
        store, it accepts only what it was told before; without its store, it has other secrets. A
        sum over one party is that party's vector: the server sees it, as it sees every exact sum.
        """
        return ThreatModel(
            colluding=0,
            behaviour=(
                "semi-honest parties and a semi-honest server, with fewer than the threshold t of "
                "any party's h holders on its side; parties sign their keys, so that only the "
                "holder of the party authority could replace them; lies about who submitted are "
                "found out while those holders are fewer than 2t − h"
            ),
            dropouts=(
                "parties may drop out at any stage while the threshold of every party's holders "
                "stay, the server may not"
            ),
            reveals=(
                "the server sees the exact sum unless parties add the noise, and who contributed; "
                "the analyst sees the noisy sum and who contributed"
            ),
            hides=True,
        )

    def concessions(self, query: Query) -> tuple[str, ...]:
        """A degree that the user chose may be below the one that `auto` computes as safe."""
        chosen, automatic = degree_of(query.parties, self.neighbours)
        least = degree_of(query.parties, "auto")[0]
        if automatic or chosen >= least:
            return ()
        return (
            f"each party has {chosen} neighbours, where {least} are safe: a coordinator that waits "
            "for a favourable order on the ring may surround a party",
        )

    def check(self, query: Query) -> None:
        if query.servers != 1:
            raise LocalError(f"masking has 1 server, not {query.servers}")
        self.graph(query)

    def graph(self, query: Query) -> MaskingGraph:
        """The public graph and threshold of a run. Raises `LocalError` if they are impossible.

        The order on the ring depends on the hour in the run's number. The coordinator may wait for
        an hour that suits it, which the automatic degree allows for; but who is on the server's
        side must not have been chosen by that order.
        """
        time = time_of(query.nonce)
        return make_graph(query.parties, self.neighbours, self.threshold, time)

    def signing_party(
        self, query: Query, holdings: Holdings, randomness: Randomness, signer: PartySigner
    ) -> Machine:
        return MaskingParty(self.graph(query), query, holdings, randomness, signer)

    def checking_server(
        self, query: Query, index: int, randomness: Randomness, bulk: Bulk, vouchers: Vouchers
    ) -> Machine:
        return MaskingServer(self.graph(query), query, index, randomness, bulk, vouchers)

    def collector(self, query: Query, records: Records, randomness: Randomness) -> Machine:
        return Collector(query, records, add_shares)
