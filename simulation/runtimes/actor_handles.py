"""Where a participant lives in a cluster: an actor that is told again what it forgot.

Its journal is what it was told in runs that are not over, kept by who carries. When its node is
lost, Ray makes the actor anew elsewhere; it is told everything again in order, and what it answered
before is not heard a second time. So a loss changes neither the answer nor the bill.
"""

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.wire.loop import Job, JobKind
from tallyroom.protocols.wire.machine import Spend
from tallyroom.simulation.runtimes.actors import (
    Call,
    CallAnswer,
    LastingState,
    ParticipantActor,
    Recipe,
)
from tallyroom.simulation.runtimes.cluster import the_engine

MOST_RESTARTS = 10
RESTART_SECONDS = 120.0
"""How long an actor that was lost may take to be there again."""
PUT_BYTES = 100_000
"""What is longer goes to the cluster's store once, and is not held here."""


@dataclass(eq=False)
class RecordedCall:
    """One call. `taken` once its answer was heard, with what it spent."""

    call: Call | JobKind
    run: bytes
    argument: Any = None
    job: "Job[ActorHandle] | None" = None
    taken: bool = False
    spends: list[Spend] = field(default_factory=list)


class ActorHandle:
    """`restarts` counts how often the actor was lost."""

    def __init__(self, name: str, recipe: Recipe) -> None:
        self._ray = the_engine()
        self.name = name
        self.lasting = LastingState()
        self.journal: list[RecordedCall] = []
        self.restarts = 0
        self._pending: deque[tuple[Any, RecordedCall, bool]] = deque()
        options = {"num_cpus": 0, "max_restarts": MOST_RESTARTS, "scheduling_strategy": "SPREAD"}
        self._actor = self._ray.remote(ParticipantActor).options(**options).remote(recipe)
        self._asked = self._actor.token.remote()
        self._token = b""

    def ready(self) -> None:
        """Waits until the actor is there. Raises `RunFailed`."""
        if not self._token:
            try:
                self._token = self._ray.get(self._asked, timeout=RESTART_SECONDS)
            except self._ray.exceptions.RayError as error:
                raise RunFailed(f"{self.name} cannot be started: {_line(error)}") from None

    @property
    def node(self) -> str:
        """The node it lives on."""
        return str(self._ray.get(self._actor.node.remote()))

    @property
    def busy(self) -> bool:
        return bool(self._pending)

    @property
    def head(self) -> Any:
        """What is awaited next."""
        return self._pending[0][0]

    def tell(self, told: RecordedCall) -> None:
        if isinstance(told.argument, bytes) and len(told.argument) > PUT_BYTES:
            told.argument = self._ray.put(told.argument)
        self.journal.append(told)
        self._post(told, again=False)

    def _post(self, told: RecordedCall, again: bool) -> None:
        call = self._actor.call
        reference = call.remote(self._token, again, told.call, told.run, told.argument)
        self._pending.append((reference, told, again))

    def answer(self) -> "tuple[Job[ActorHandle] | None, CallAnswer]":
        """The next answer that was not heard before, and to which job.

        Raises `RunFailed` if the actor is lost for good."""
        while True:
            reference, told, again = self._pending[0]
            try:
                answer: CallAnswer | None = self._ray.get(reference)
            except (
                self._ray.exceptions.RayActorError,
                self._ray.exceptions.ObjectLostError,
            ):
                answer = None
            if answer is None:
                self._recover()
                continue
            self._pending.popleft()
            if again:
                continue
            job, told.job = told.job, None  # its message is not held any longer
            told.taken, told.spends = True, answer.spends
            return job, answer

    def ask(self, call: Call, run: bytes, argument: Any = None) -> CallAnswer:
        """A call, and its answer. What is answered before it is of a run that is over."""
        told = RecordedCall(call, run, argument)
        self.tell(told)
        while True:
            _, answer = self.answer()
            if told.taken:
                return answer

    def forget(self, runs: Iterable[bytes]) -> None:
        over = set(runs)
        for told in self.journal:
            if told.run in over:
                self.lasting.spends += told.spends
        self.journal = [told for told in self.journal if told.run not in over]
        for run in over:
            self.lasting.begun.add(run)
        # It needs no answer: an actor that is lost meanwhile hears of it when it is made anew.
        self._actor.forget.remote(list(over))

    def stop(self) -> None:
        self._ray.kill(self._actor)

    def _recover(self) -> None:
        """The actor is lost: once it is there again, it is told all of its journal."""
        self.restarts += 1
        self._pending.clear()
        self._token = self._restored()
        for told in self.journal:
            self._post(told, again=told.taken)

    def _restored(self) -> bytes:
        exceptions = self._ray.exceptions
        deadline = time.monotonic() + RESTART_SECONDS
        while time.monotonic() < deadline:
            try:
                token: bytes = self._ray.get(self._actor.restore.remote(self.lasting), timeout=10)
            except exceptions.ActorDiedError:
                break
            except (exceptions.RayActorError, exceptions.GetTimeoutError):
                time.sleep(0.2)
                continue
            if token != self._token:
                return token
            # It lives, and what it answered is lost: it could not tell it again.
            self._ray.kill(self._actor, no_restart=False)
        raise RunFailed(f"{self.name} was lost and is not there again")


def _line(error: BaseException) -> str:
    return str(error).strip().splitlines()[-1]
