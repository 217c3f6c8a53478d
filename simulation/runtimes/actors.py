"""A participant in an actor: bytes come in, bytes go out, and it is told again what it forgot.

The participant meters what crosses this border, as it does in every runtime. It is a function of
what it was told and of its secret, so an actor whose node is lost is made anew elsewhere and told
the same again (`simulation.runtimes.ray`). What outlives runs, spends and the names of runs that
are over, is handed to it before that.

All actors of a federation are in one trust domain: whoever runs the cluster has every secret.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallyroom.parties.block import PartyBlock
from tallyroom.parties.consent import LEDGER, Consent
from tallyroom.parties.signing import signer_of
from tallyroom.protocols.aggregation.contract import Bulk, Ids, Memory
from tallyroom.protocols.errors import LocalError, RunFailed, TallyError, words_of_the_command
from tallyroom.protocols.identity.certificates import Credentials
from tallyroom.protocols.identity.signing import SigningIdentity
from tallyroom.protocols.identity.vouchers import Vouchers
from tallyroom.protocols.privacy.ledger import Cap, Filter
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.run.participant import BegunRuns, Participant
from tallyroom.protocols.run.policy import Policy
from tallyroom.protocols.wire.loop import JobKind, Reply
from tallyroom.protocols.wire.machine import Done, Failed, Rejected, Spend
from tallyroom.protocols.wire.messages import Message, Phase, Role, decode
from tallyroom.protocols.wire.meter import Meter
from tallyroom.servers.aggregation_server import AggregationServer
from tallyroom.servers.coordinator import Coordinator
from tallyroom.simulation.misbehaviour import HONEST, Misbehaviour, ScriptedBlock
from tallyroom.simulation.runtimes.cluster import the_engine
from tallyroom.simulation.runtimes.inprocess import BegunRun, begin, close
from tallyroom.storage.ledger import Ledger


class Call(Enum):
    """What an actor is asked beside the jobs of a run (`JobKind`)."""

    QUESTION = auto()  # the coordinator: it is asked one
    CLOSE = auto()  # the coordinator: a run has its answer
    SETTLE = auto()  # the accounts of a run


@dataclass
class LastingState:
    """What an actor that is made anew must know before it is told its runs again: what was spent,
    which runs are over, and at the coordinator whose answers are given again."""

    spends: list[Spend] = field(default_factory=list)
    begun: BegunRuns = field(default_factory=BegunRuns)
    kept: list[tuple[Query, Ids]] = field(default_factory=list)


@dataclass
class CallAnswer:
    """What came of a call: an outcome with its messages encoded, or a `result`, or an `error` by
    its kind and words. `spends` went into the ledger meanwhile."""

    messages: list[bytes] = field(default_factory=list)
    refused: list[Rejected] = field(default_factory=list)
    finished: Done | Failed | None = None
    more: bool = False
    spends: list[Spend] = field(default_factory=list)
    result: Any = None
    error: tuple[str, str] | None = None

    def reply(self, run: bytes, sender: str) -> Reply:
        messages = [decode(data, sender) for data in self.messages]
        return Reply(run, messages, self.refused, self.finished, self.more)

    def raise_error(self) -> None:
        """What was raised over there: exceptions of several arguments do not travel."""
        if self.error is not None:
            kind, words = self.error
            raise (LocalError if kind == LocalError.__name__ else RunFailed)(words)


@dataclass
class Spent:
    meter: Meter
    cpu_seconds: float = 0.0
    prepare_cpu_seconds: float = 0.0


class ToldLedger(Ledger):
    """A ledger that tells what is new in it."""

    new: list[Spend]

    def record(
        self, spends: Sequence[Spend], foreseen: Spend | None = None, analyst: str = ""
    ) -> None:
        known = [spend for spend in spends if self.has(spend)]
        super().record(spends, foreseen, analyst)
        self.new = [*getattr(self, "new", ()), *(s for s in spends if s not in known)]

    def told(self) -> list[Spend]:
        new, self.new = getattr(self, "new", []), []
        return new


class ToldConsent(Consent):
    """Consent whose ledger tells what is new in it."""

    ledger: ToldLedger

    def __init__(self, policy: Policy, store: Path | None) -> None:
        super().__init__(policy, store)
        self.ledger.close()
        self.ledger = ToldLedger(store and store / LEDGER, policy.filter)


# --- who sits there ---


@dataclass(frozen=True)
class Recipe(ABC):
    """What a participant is made of. `secret` is the seed of its randomness: made anew, it draws
    the same."""

    secret: int
    store: Path | None

    @abstractmethod
    def make(self) -> tuple[Participant, ToldLedger | None]: ...

    def _ledger(self, cap: Cap, cap_delta: float | None) -> ToldLedger:
        if self.store is None:
            return ToldLedger(None, Filter.of(cap, cap_delta))
        self.store.mkdir(parents=True, exist_ok=True)
        return ToldLedger(self.store / LEDGER, Filter.of(cap, cap_delta))


@dataclass(frozen=True)
class HostRecipe(Recipe):
    holdings: Holdings
    credentials: Credentials
    servers: int
    policy: Policy | None = None
    misbehaviour: Misbehaviour = HONEST

    def make(self) -> tuple[PartyBlock, ToldLedger | None]:
        consent = None if self.policy is None else ToldConsent(self.policy, self.store)
        if consent is not None:
            consent.joined(self.servers)
        block = ScriptedBlock(
            self.holdings,
            Randomness.from_seed(self.secret, "parties"),
            consent,
            signer=signer_of(self.credentials),
            misbehaviour=self.misbehaviour,
        )
        return block, None if consent is None else consent.ledger


@dataclass(frozen=True)
class ServerRecipe(Recipe):
    """`bulk` makes the place where a run's submissions are kept."""

    index: int
    credentials: Credentials
    cap: Cap
    cap_delta: float | None
    bulk: Callable[[], Bulk] = Memory

    def make(self) -> tuple[AggregationServer, ToldLedger]:
        ledger = self._ledger(self.cap, self.cap_delta)
        server = AggregationServer(
            self.index,
            ledger,
            Randomness.from_seed(self.secret, f"server-{self.index}"),
            lambda _: self.bulk(),
            SigningIdentity.of(self.credentials),
            Vouchers(self.credentials.authority_of_parties),
        )
        return server, ledger


@dataclass(frozen=True)
class CoordinatorRecipe(Recipe):
    ids: Ids
    counts: NDArray[np.uint32]
    version: bytes
    certificates: tuple[bytes, ...]
    seeded: bool
    cap: Cap
    cap_delta: float | None

    def make(self) -> tuple[Coordinator, ToldLedger]:
        ledger = self._ledger(self.cap, self.cap_delta)
        coordinator = Coordinator(
            len(self.certificates),
            len(self.ids),
            ledger,
            Randomness.from_seed(self.secret, "coordinator"),
            seeded=self.seeded,
        )
        for server, certificate in enumerate(self.certificates):
            coordinator.certificates.keep(server, certificate)
        coordinator.enrol(self.ids, self.counts, self.version)
        return coordinator, ledger


# --- the actor ---


class ParticipantActor:
    """`token` names this actor until it is lost: one that was made anew since takes no call that
    was meant for the one before."""

    def __init__(self, recipe: Recipe) -> None:
        self._token = os.urandom(8)
        self._participant, self._ledger = recipe.make()
        self._accounts: dict[bytes, Spent] = {}

    def token(self) -> bytes:
        return self._token

    def node(self) -> str:
        return str(the_engine().get_runtime_context().get_node_id())

    def restore(self, lasting: LastingState) -> bytes:
        """Before anything else is told to an actor that was made anew. Returns its token."""
        if self._ledger is not None:
            self._ledger.record(lasting.spends)
            self._ledger.told()
        self._participant.begun = lasting.begun
        if isinstance(self._participant, Coordinator):
            releases, data = self._participant.releases, self._participant.data
            for query, contributors in lasting.kept:
                releases.remember(query.run, query, data, contributors)
        return self._token

    def forget(self, runs: Sequence[bytes]) -> None:
        for run in runs:
            self._participant.forget(run)
            self._accounts.pop(run, None)

    def call(
        self, token: bytes, again: bool, call: Call | JobKind, run: bytes, argument: Any = None
    ) -> CallAnswer | None:
        """None if it was meant for an actor that is lost. `again` is what that one was told, and
        whose answer is known."""
        if token != self._token:
            return None
        self._participant.replaying = again
        try:
            answer = self._answer(call, run, argument)
        except TallyError as error:
            kind = LocalError if isinstance(error, LocalError) else RunFailed
            answer = CallAnswer(error=(kind.__name__, _words(error)))
        finally:
            self._participant.replaying = False
        if self._ledger is not None:
            answer.spends = self._ledger.told()
        return answer

    def _answer(self, call: Call | JobKind, run: bytes, argument: Any) -> CallAnswer:
        participant = self._participant
        match call:
            case JobKind():
                message = decode(argument, "the carrier") if call is JobKind.HEAR else None
                with self._timed(run, message):
                    reply = participant.perform(call, run, message)
                return _encoded(reply)
            case Call.QUESTION:
                assert isinstance(participant, Coordinator)
                begun = begin(participant, *argument)
                answer = _encoded(begun.reply)
                answer.result = BegunRun(begun.query, begun.run, Reply(begun.run), begun.earlier)
                return answer
            case Call.CLOSE:
                assert isinstance(participant, Coordinator)
                return CallAnswer(result=close(participant, *argument))
            case Call.SETTLE:
                account = self._accounts.pop(run, Spent(Meter()))
                account.meter = participant.meters.pop(run, Meter())
                return CallAnswer(result=account)

    @contextmanager
    def _timed(self, run: bytes, message: Message | None) -> Iterator[None]:
        """Adds up the CPU time of servers."""
        begun = time.process_time()
        yield
        if self._participant.role is Role.SERVER:
            spent = time.process_time() - begun
            account = self._accounts.setdefault(run, Spent(Meter()))
            account.cpu_seconds += spent
            if message is not None and message.phase is Phase.PREPARE:
                account.prepare_cpu_seconds += spent


def _encoded(outcome: Reply) -> CallAnswer:
    """Blocks that are too long for one message travel as several, as they do over gRPC."""
    finished = outcome.finished
    return CallAnswer(
        [chunk.encode() for message in outcome.messages for chunk in message.chunks()],
        outcome.refused,
        Done(finished.output) if isinstance(finished, Done) else finished,
        outcome.more,
    )


def _words(error: TallyError) -> str:
    """As the command names options: whoever raises it again says it in the words of its caller."""
    with words_of_the_command():
        return str(error)
