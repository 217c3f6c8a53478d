"""The analyst's side of the wire: puts a question to a coordinator and waits for the answer."""

import time
from collections.abc import Iterable, Iterator

import grpc
import numpy as np

from protocols.errors import LocalError, RunFailed
from protocols.identity import Credentials, Identity
from protocols.messages import Role
from protocols.meter import Bill
from protos import tally_pb2 as pb
from protos.accounts import accounts_from_wire, cpu_seconds_from_wire
from protos.channel import open_blocking_channel
from protos.tally_pb2_grpc import DeskStub, DirectoryStub
from servers.coordinator import Question
from simulation.runtimes.contract import Opened, Progress, Report

PATIENCE_SECONDS = 60.0


class Analyst:
    """`patient`: a coordinator that keeps a store comes back, and is waited for."""

    def __init__(self, coordinator: str, credentials: Credentials, patient: bool = False) -> None:
        self._patient = patient
        self._channel = open_blocking_channel(coordinator, Identity(Role.COORDINATOR), credentials)
        self._desk = DeskStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def describe(self, seconds: float) -> pb.Description:
        """What the federation is. Raises `RunFailed` if nobody answers in time."""
        try:
            description: pb.Description = DirectoryStub(self._channel).Describe(
                pb.DescribeRequest(), timeout=seconds, wait_for_ready=True
            )
        except grpc.RpcError as error:
            raise RunFailed(f"the coordinator does not answer: {error.details()}") from None
        return description

    def events(self, question: str) -> Iterator[pb.Event]:
        """What the coordinator says to a question, until its answer. Raises `RunFailed`.

        Asking again is asking the same: the question carries a key of its own.
        """
        last = time.monotonic()
        while True:
            try:
                for event in self._desk.Ask(pb.Question(json=question), wait_for_ready=True):
                    last = time.monotonic()
                    yield event
                return
            except grpc.RpcError as error:
                if not self._patient or time.monotonic() > last + PATIENCE_SECONDS:
                    raise RunFailed(f"the coordinator is gone: {error.details()}") from None
            time.sleep(0.2)

    def ask(self, question: Question, report: Report) -> Opened:
        """Raises `LocalError` if the question is wrong, `RunFailed` if the run cannot finish."""
        return follow(self.events(question.encode()), report)


def follow(events: Iterable[pb.Event], report: Report) -> Opened:
    """Reports progress until the answer. Raises `LocalError` or `RunFailed`, whose fault it is."""
    begun = time.perf_counter()
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
                    )
                )
            case "failure":
                kind = LocalError if event.failure.our_input else RunFailed
                raise kind(event.failure.reason)
            case "answer":
                return _opened(event.answer, time.perf_counter() - begun)
    raise RunFailed("the coordinator ended the run without an answer")


def _opened(answer: pb.Answer, seconds: float) -> Opened:
    stations = [accounts_from_wire(accounts, "coordinator") for accounts in answer.stations]
    members = np.frombuffer(answer.contributors, dtype=np.uint8)
    spent = {"submit": answer.submit_seconds, "release": answer.release_seconds}
    return Opened(
        np.frombuffer(answer.total, dtype="<u8"),
        np.flatnonzero(np.unpackbits(members)).astype(np.uint32),
        answer.records,
        Bill(stations, answer.parties),
        {"enrol": max(0.0, seconds - sum(spent.values())), **spent},
        tuple((caught.party, caught.reason) for caught in answer.caught),
        sum(cpu_seconds_from_wire(accounts, "coordinator") for accounts in answer.stations),
        answer.refused,
        tuple((refusal.party, refusal.reason) for refusal in answer.refusals),
        answer.refusing,
    )
