"""The analyst's side of the wire: puts a question to a coordinator and waits for the answer."""

import time
from collections.abc import Callable, Generator, Iterable
from typing import Any

import grpc
import numpy as np

from tallyroom.protocols.errors import Interrupted, LocalError, RunFailed
from tallyroom.protocols.identity.certificates import Credentials, Identity
from tallyroom.protocols.run.evidence import MAX_ANSWERS, Evidence
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.wire.messages import Role
from tallyroom.protocols.wire.meter import Bill
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.accounts import (
    accounts_from_wire,
    checked_seconds,
    cpu_seconds_from_wire,
    prepare_seconds_from_wire,
)
from tallyroom.protos.channel import open_blocking_channel
from tallyroom.protos.evidence import EvidenceReader
from tallyroom.protos.progress import links_from_wire, states_from_wire
from tallyroom.protos.retry import may_succeed_later
from tallyroom.protos.shown import expired_at
from tallyroom.protos.tally_pb2_grpc import CoordinatorStub, DirectoryStub
from tallyroom.simulation.runtimes.contract import Opened, Progress, Report

PATIENCE_SECONDS = 60.0
"""How long a coordinator is waited for that is away."""
CANCEL_SECONDS = 10.0
LOOK_SECONDS = 5.0
"""How long a coordinator may be silent before we look why."""


class Analyst:
    """A coordinator that keeps a store comes back with what it was asked, and is waited for."""

    def __init__(self, coordinator: str, credentials: Credentials) -> None:
        self._durable = False
        self._authority = credentials.authority
        self._target = coordinator
        self._channel = open_blocking_channel(coordinator, Identity(Role.COORDINATOR), credentials)
        self._desk = CoordinatorStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def describe(self, seconds: float) -> pb.Description:
        """What the federation is. Raises `RunFailed` if nobody answers in time."""
        until = time.monotonic() + seconds
        while True:
            try:
                description: pb.Description = DirectoryStub(self._channel).Describe(
                    pb.DescribeRequest(),
                    timeout=min(LOOK_SECONDS, max(0.1, until - time.monotonic())),
                    wait_for_ready=True,
                )
                break
            except grpc.RpcError as error:
                if not may_succeed_later(error):
                    raise RunFailed(f"the coordinator refuses: {error.details()}") from None
                if (expired := expired_at(self._target)) is not None:
                    raise RunFailed(f"the coordinator cannot be reached: {expired}") from None
                if time.monotonic() > until:
                    reason = f"the coordinator does not answer: {error.details()}"
                    raise RunFailed(reason) from None
            time.sleep(0.2)
        self._durable = description.durable
        return description

    def events(self, question: str) -> Generator[pb.Event]:
        """What the coordinator says to a question, until its answer. Raises `RunFailed`.

        Asking again is asking the same: the question carries a key of its own.
        """
        return self._listen(lambda: self._desk.Ask(pb.Question(json=question), wait_for_ready=True))

    def _listen(self, call: Callable[[], Any]) -> Generator[pb.Event]:
        """Calls again when the coordinator was away, if it knows then what it was asked.

        Shares are passed on with the answer that they belong to: a coordinator that is gone between
        the two sends all of them again.
        """
        last = time.monotonic()
        while True:
            stream = call()
            shares: list[pb.Event] = []
            try:
                for event in stream:
                    last = time.monotonic()
                    kind = event.WhichOneof("kind")
                    if kind == "share" and len(shares) <= MAX_ANSWERS:
                        shares.append(event)
                        continue
                    if kind == "answer":
                        # Whose signatures count is not for the coordinator to say.
                        event.answer.authority = self._authority
                        yield from shares
                    yield event
                return
            except grpc.RpcError as error:
                if not may_succeed_later(error):
                    raise RunFailed(f"the coordinator refuses: {error.details()}") from None
                gone = f"the coordinator is gone: {error.details()}"
            finally:
                stream.cancel()
            if not self._durable:
                raise RunFailed(gone)
            time.sleep(0.2)
            try:
                self.describe(last + PATIENCE_SECONDS - time.monotonic())
            except RunFailed:
                raise RunFailed(gone) from None

    def ask(self, question: Question, report: Report) -> Opened:
        """Raises `LocalError` if the question is wrong, `RunFailed` if the run cannot finish."""
        self.describe(PATIENCE_SECONDS)
        return follow(self.events(question.encode()), report)

    def ask_or_cancel(self, question: Question, report: Report) -> Opened:
        """The same; raises `Interrupted`, with what became of it, where the user does not wait for
        its end."""
        self.describe(PATIENCE_SECONDS)
        return self._or_cancel(question.key, self.events(question.encode()), report)

    def resume(self, key: str, report: Report) -> Opened:
        """What was asked under a key before. Raises as `ask_or_cancel` does."""
        self.describe(PATIENCE_SECONDS)
        asked = pb.QuestionKey(key=key)
        events = self._listen(lambda: self._desk.Resume(asked, wait_for_ready=True))
        return self._or_cancel(key, events, report)

    def _or_cancel(self, key: str, events: Generator[pb.Event], report: Report) -> Opened:
        try:
            return follow(events, report)
        except KeyboardInterrupt:
            events.close()  # nothing is begun any more once it is cancelled
            try:
                said = self._desk.Cancel(pb.QuestionKey(key=key), timeout=CANCEL_SECONDS)
            except grpc.RpcError as error:
                words = f"the coordinator could not be told: {error.details()}"
                raise Interrupted(f"{words}; --resume {key}") from None
            hint = "" if said.cancelled else f"; --resume {key}"
            done = "cancelled" if said.cancelled else "not cancelled"
            raise Interrupted(f"{done}: {said.words}{hint}") from None


def follow(events: Iterable[pb.Event], report: Report) -> Opened:
    """Reports progress until the answer. Raises `LocalError` or `RunFailed`, whose fault it is."""
    begun = time.perf_counter()
    evidence = EvidenceReader()
    for event in events:
        match event.WhichOneof("kind"):
            case "progress":
                shown = event.progress
                report(
                    Progress(
                        shown.phase,
                        shown.enrolled,
                        shown.parties,
                        shown.submissions,
                        shown.bytes,
                        links=links_from_wire(shown.links),
                        states=states_from_wire(shown.states, shown.parties),
                    )
                )
            case "failure":
                kind = LocalError if event.failure.our_input else RunFailed
                raise kind(event.failure.reason)
            case "share":
                evidence.take(event.share)
            case "answer":
                shares = evidence.finish(event.answer)
                return _opened(event.answer, shares, time.perf_counter() - begun)
    raise RunFailed("the coordinator ended the run without an answer")


def _opened(answer: pb.Answer, evidence: Evidence, seconds: float) -> Opened:
    stations = [accounts_from_wire(accounts, "coordinator") for accounts in answer.stations]
    members = np.frombuffer(answer.contributors, dtype=np.uint8)
    spent = {"submit": answer.submit_seconds, "release": answer.release_seconds}
    waited = checked_seconds(answer.waiting_seconds, "coordinator")
    return Opened(
        np.frombuffer(answer.total, dtype="<u8"),
        np.flatnonzero(np.unpackbits(members)).astype(np.uint32),
        answer.records,
        Bill(stations, answer.parties),
        {"enrol": max(0.0, seconds - sum(spent.values())), **spent},
        tuple((caught.party, caught.reason) for caught in answer.caught),
        sum(cpu_seconds_from_wire(accounts, "coordinator") for accounts in answer.stations),
        answer.refused,
        answer.lost_pairs,
        answer.reused,
        Question.decode(answer.question),
        tuple((refusal.party, refusal.reason) for refusal in answer.refusals),
        answer.refusing,
        evidence,
        answer.authority,
        sum(prepare_seconds_from_wire(accounts, "coordinator") for accounts in answer.stations),
        waited,
    )
