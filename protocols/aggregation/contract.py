"""The contract of an aggregator: how a sum is computed without a trusted curator.

An aggregator gives a machine for every role. One whose parties speak once needs only `shard`,
`merge` and `unshard` (`OneRound`); its machines are those of `protocols.aggregation.one_round`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.mechanism import AddedNoise, Mechanism
from tallyroom.protocols.algebra.field import Field
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.offers import Offer, Offers
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.machine import Machine

if TYPE_CHECKING:
    from tallyroom.protocols.run.evidence import Evidence

Ids = NDArray[np.uint32]
Bodies = NDArray[np.uint8]
Records = NDArray[np.int64]


@dataclass(frozen=True)
class ThreatModel:
    """What an aggregator promises, in words that go with every answer.

    `catches` tells whether a party that deviates from the protocol is found and left out. `hides`
    is for those whose servers may not collude at all: whether a single server still sees no party's
    data. One that does not say so is taken for one that sees it.
    """

    colluding: int
    behaviour: str
    dropouts: str
    reveals: str
    catches: bool = False
    hides: bool = False

    @property
    def exposes(self) -> bool:
        """Whether one server by itself sees what a party holds."""
        return self.colluding < 1 and not self.hides

    def __str__(self) -> str:
        servers = "none may" if self.colluding == 0 else f"any {self.colluding} of them may"
        return f"{self.behaviour}; {servers} collude; {self.dropouts}; {self.reveals}"


class Bulk(Protocol):
    """Where a server keeps submissions: in memory, or in files that outlive the process."""

    def append(self, ids: Ids, block: NDArray[np.uint8]) -> None:
        """Keeps what these parties submitted together, as one run of bytes."""

    def blocks(self) -> Iterable[tuple[Ids, NDArray[np.uint8]]]:
        """What was kept, in order."""

    def clear(self) -> None:
        """Forgets everything."""


class Memory:
    """Keeps submissions in memory."""

    def __init__(self) -> None:
        self._blocks: list[tuple[Ids, NDArray[np.uint8]]] = []

    def append(self, ids: Ids, block: NDArray[np.uint8]) -> None:
        self._blocks.append((ids, block))

    def blocks(self) -> Iterable[tuple[Ids, NDArray[np.uint8]]]:
        return self._blocks

    def clear(self) -> None:
        self._blocks.clear()


class Aggregator(ABC):
    """Found by name through the entry-point group `tallyroom.aggregators`. Stateless.

    One with options is a frozen dataclass whose fields are those options, each with a default:
    `NAME?option=value` chooses them.

    `offers` is what questions can ask of it (`protocols.offers`).
    `stages` is how often a server waits for parties, each time for at most the query's deadline.
    `servers` is how many there are if nobody says. `rounds` and `party_bytes` tell what a sum costs
    when all take part: messages that follow one another from the question to the answer, and bytes
    that one party sends at most, without message headers. Those are a formula in L, the length of
    the vector, n parties, m servers and k records of the party: whole numbers, `+`, `−`, `·` and
    brackets, factors side by side being multiplied. Words may follow after a semicolon.
    `noise` is who adds the noise if nobody says; None for the servers, each in full. `joint` tells
    whether two servers can draw it together (`protocols.joint`): they release shares of a sum that
    noise can be added to; `chooses`, whether they can choose together: shares are modulo 2^64.
    """

    name: ClassVar[str]
    offers: ClassVar[Offers] = frozenset({Offer.SUM})
    stages: ClassVar[int] = 1
    servers: ClassVar[int] = 2
    rounds: ClassVar[int] = 5
    party_bytes: ClassVar[str] = "not stated"
    noise: ClassVar[Placement | None] = None
    joint: ClassVar[bool] = False
    chooses: ClassVar[bool] = False

    def bytes_formula(self, query: Query) -> tuple[str, dict[str, int]]:
        """`party_bytes` of this question, and the values of letters of its own."""
        return self.party_bytes, {}

    @abstractmethod
    def check(self, query: Query) -> None:
        """Raises `LocalError` where this aggregator cannot do what is asked."""

    def settled(self, query: Query) -> str:
        """The name and options that a query about to be put must have. One with an option that
        leaves something to what is asked says here what it is: nobody who is asked has to guess,
        and a query that still leaves it open is refused by `check`."""
        return query.aggregator

    @abstractmethod
    def threat_model(self, servers: int) -> ThreatModel:
        """What holds with that many servers."""

    def concessions(self, query: Query) -> tuple[str, ...]:
        """What this query does without that the aggregator does elsewhere, with the reason: each is
        said with the answer (`protocols.run.promise`)."""
        return ()

    def exposes(self, query: Query) -> bool:
        """Whether one server by itself would see what a party holds, if it answers this."""
        return self.threat_model(query.servers).exposes

    @abstractmethod
    def party(self, query: Query, holdings: Holdings, randomness: Randomness) -> Machine:
        """The machine of a block of parties. Raises `LocalError` if they cannot answer."""

    def row_bytes(self, query: Query, records: int) -> int:
        """About how many bytes a party of so many records sends to the server that gets most.

        Only of parties that speak once: those that share a host are then computed and sent part by
        part (`run.machines.InParts`), each when all servers have the last. 0 if they must be
        computed together, or if some of the servers may be gone.
        """
        return 0

    @abstractmethod
    def server(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> Machine:
        """The machine of one server. Its randomness is where its noise comes from; `bulk` is
        where it keeps what parties submit."""

    @abstractmethod
    def collector(self, query: Query, records: Records, randomness: Randomness) -> Machine:
        """The coordinator's machine, told how many records each party holds, which is public.

        It is done with a `Total`.
        """

    def noise_field(self, query: Query) -> Field | None:
        """The field in which joint noise is added; None if it is added modulo 2^64."""
        return None

    def mechanism(self, query: Query) -> Mechanism:
        """What makes the answer to a query private. One that is not noise on the sum is the
        aggregator's own. Raises `LocalError` where there is none for what is asked."""
        return AddedNoise(query)


@dataclass(frozen=True)
class Total:
    """What the collector learns: the noisy sum, whose vectors and how many records are in it.

    `caught` are parties whose submissions were refused, with the reason. `refused` counts what was
    left out of the sum and cannot be attributed to a party. `lost_pairs` are those that were to
    meet and are not in the sum. `refusals` are the first of the `refusing` parties that would not
    take part, with what they said. `evidence` is what all this can be checked against; a machine
    alone has none.
    """

    vector: Vector
    contributors: Ids
    records: int
    caught: tuple[tuple[int, str], ...] = ()
    refused: int = 0
    lost_pairs: int = 0
    refusals: tuple[tuple[int, str], ...] = ()
    refusing: int = 0
    evidence: "Evidence | None" = None
