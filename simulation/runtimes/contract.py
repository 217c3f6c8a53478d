"""Where processes live. Every runtime runs the same machines and gives the same answer."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.privacy.ledger import Cap
from tallyroom.protocols.query import Query
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.run.evidence import Evidence
from tallyroom.protocols.run.policy import Policy
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.wire.meter import Bill, Tally
from tallyroom.simulation.misbehaviour import HONEST, Misbehaviour
from tallyroom.simulation.networks.network import Network
from tallyroom.simulation.proof import Proof, prove


@dataclass(frozen=True)
class Layout:
    """A federation to bring up. With a `store`, a folder, its processes survive being killed.

    All parties join; some may misbehave then, by a script. `peer` is how parties reach each other:
    `direct`, or `relay` through the coordinator. Without a `policy`, parties take part in whatever
    is asked. `network` is what is emulated between its processes; None for the machine's own.
    """

    holdings: Holdings
    servers: int
    hosts: int
    seed: int | None = None
    cap: Cap = None
    store: Path | None = None
    misbehaviour: Misbehaviour = HONEST
    peer: str = "direct"
    policy: Policy | None = None
    cap_delta: float | None = None
    network: Network | None = None

    def store_of(self, keeper: str) -> Path | None:
        return self.store / keeper if self.store else None


@dataclass(frozen=True)
class Progress:
    """`question` tells which one of a study it is. `links` is what each has carried so far, and
    `states` how each party stands (`PartyProgress`); empty where there are too many to show."""

    phase: str
    enrolled: int
    parties: int
    submissions: int = 0
    bytes: int = 0
    question: str = ""
    links: Mapping[str, Tally] = field(default_factory=dict)
    states: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """The report of a run that nobody watches: a runtime need not look for what to tell."""


@dataclass(frozen=True)
class Opened:
    """What a finished run gave: the noisy sum, who is in it, what it cost, who was caught.

    `server_cpu_seconds` is what the servers' machines took together, `prepare_cpu_seconds` how much
    of it for what does not depend on data; transport is not in it. For `waiting_seconds` the run
    waited until deadlines for those that did not answer.
    `refused` counts what was left out of the sum and cannot be attributed to a party, `lost_pairs`
    those that were to meet and are not in the sum. `reused` says that it is of an earlier release
    of the same data. `question` is what was asked. `refusals` are the first of the `refusing`
    parties that would not take part, with what they said. `evidence` is what the servers signed,
    to be checked against their members' `authority`.
    """

    total: Vector
    contributors: NDArray[np.uint32]
    records: int
    bill: Bill
    seconds: dict[str, float] = field(default_factory=dict)
    caught: tuple[tuple[int, str], ...] = ()
    server_cpu_seconds: float = 0.0
    refused: int = 0
    lost_pairs: int = 0
    reused: bool = False
    question: Question | None = None
    refusals: tuple[tuple[int, str], ...] = ()
    refusing: int = 0
    evidence: Evidence | None = None
    authority: bytes = b""
    prepare_cpu_seconds: float = 0.0
    waiting_seconds: float = 0.0

    def prove(self, question: Question) -> tuple[Query, Proof]:
        """Raises `AnswerRefused` unless the servers signed for this answer to this question."""
        return prove(question, self)


class Runtime(ABC):
    """Found by name through the entry-point group `tallyroom.runtimes`.

    `scripted` tells whether parties can be made to misbehave or to follow a policy,
    `networks` whether conditions of a network can be emulated; `peer` is how parties that meet
    reach each other if nobody says. Up to `own_hosts` parties have a host each if nobody says.
    `trust` is said before every threat model, where the runtime changes whom one has to trust.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    scripted: ClassVar[bool] = True
    networks: ClassVar[bool] = False
    peer: ClassVar[str] = "direct"
    own_hosts: ClassVar[int] = 100
    trust: ClassVar[str] = ""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    @abstractmethod
    def start(self) -> None:
        """Brings the federation up. Raises `LocalError` where that cannot be done here."""

    @abstractmethod
    def ask(self, question: Question, report: Report) -> Opened:
        """Runs one question. Raises `RunFailed` if it cannot finish."""

    @abstractmethod
    def stop(self) -> None:
        """Takes the federation down; nothing it started is left."""

    def role_processes(self) -> dict[str, list[int]]:
        """Process ids on this machine by role, for figures of CPU and memory."""
        return {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
