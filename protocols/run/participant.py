"""A participant: the machines of all runs that one process takes part in, metered.

Shells own sockets, clocks and stores. They hand messages to a participant and carry away the
outcome; `inprocess` does the same in the message loop (`wire.loop`). What is decided here holds in
every runtime.
"""

import heapq
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from tallyroom.protocols.errors import NotWritten, PeerError, TallyError
from tallyroom.protocols.wire.loop import JobKind, Reply
from tallyroom.protocols.wire.machine import Continue, Done, Failed, Machine, Rejected, Spend, Step
from tallyroom.protocols.wire.messages import (
    MAX_ROUND,
    NONCE_BYTES,
    Message,
    Phase,
    Role,
    last_number,
    milliseconds,
)
from tallyroom.protocols.wire.meter import Direction, Meter

MOST_NAMES = 1 << 16
"""Runs that are known by name; older ones are below the mark."""
AHEAD_SECONDS = 300.0
"""How far a coordinator's clock may be ahead of ours, as with certificates."""
BEHIND_SECONDS = 86400.0
"""How old a run may be that begins here: no longer than parties are waited for. What is drawn from
the number of a run can only be chosen among those of a day."""

Clock = Callable[[], float]
"""Tells the seconds since 1970."""


def next_time(last: int, now: float) -> int:
    """What numbers the run after one of time `last`: larger, also where the clock was set back.

    Unless that is of the future, because the clock was wrong or an earlier version named runs
    otherwise: nobody would take the runs that follow.
    """
    ahead = last >= milliseconds(now + AHEAD_SECONDS)
    return milliseconds(now) if ahead else max(milliseconds(now), last + 1)


class BegunRuns:
    """Which runs were begun, so that none is begun again, in bounded memory.

    Runs are numbered (`wire.messages.number`), and numbers grow. Whoever takes part keeps the
    largest that it has begun, with the names of their runs, and a mark: every number up to the mark
    counts as begun, whether it was or not. Runs may therefore start in any order among the newest,
    and an old one never starts again. The number is in a run's name, which every message carries
    and every role signs for, and in the label of all randomness that is drawn for the run.

    With a `clock`, numbers of the future are refused: whoever chooses numbers could raise the
    mark past all that will ever be asked. With those that are left, it takes the next five minutes
    from us at most. Without one, as in simulations, all names are kept, however many: there, runs
    may be named for their keys, in no order."""

    _adding: ClassVar = threading.Lock()  # one for all: what was begun is sent to actors

    def __init__(self, most: int | None = None) -> None:
        self.mark = b""
        self.clock: Clock | None = None
        self._most = most
        self._names: dict[bytes, bytes] = {}
        self._numbers: list[bytes] = []

    def __len__(self) -> int:
        return len(self._names)

    def add(self, run: bytes) -> None:
        """The smallest number makes room for a new one, and the mark is raised to it."""
        number = run[:NONCE_BYTES]
        with self._adding:
            if self.like(run) is not None:
                return
            self._names[number] = run
            heapq.heappush(self._numbers, number)
            while len(self._numbers) > self._limit:
                self.mark = heapq.heappop(self._numbers)
                del self._names[self.mark]

    @property
    def _limit(self) -> float:
        return self._most or (math.inf if self.clock is None else MOST_NAMES)

    def like(self, run: bytes) -> bytes | None:
        """The run that was begun under the number of this one: itself, or one that asks another
        question; None if there is none. Below the mark every run counts as begun."""
        number = run[:NONCE_BYTES]
        return run if number <= self.mark else self._names.get(number)

    def is_ahead(self, run: bytes) -> bool:
        """Whether the number of a run is of a time that is still to come."""
        if self.clock is None:
            return False
        return run[:NONCE_BYTES] > last_number(self.clock() + AHEAD_SECONDS)

    def is_outdated(self, run: bytes) -> bool:
        """Whether it is of a time that is long past."""
        if self.clock is None:
            return False
        return run[:NONCE_BYTES] < last_number(max(0.0, self.clock() - BEHIND_SECONDS))


MOST_OVER = 64
"""Runs that are over and of which something is kept, to be said again if asked."""

LAST_OF_SERVERS = MAX_ROUND - 64
"""The last round of what servers say to each other: what follows from it is to fit as well."""

RecordSpends = Callable[[Sequence[Spend]], None]
"""Makes spends durable before anything is released; raises `LedgerRefusal` past the cap."""


@dataclass
class _Unpaid:
    """A step that waits for its spends to be written, why, and what is to be done after it."""

    step: Continue | Done
    reason: str
    later: list[Callable[[Machine], Step]] = field(default_factory=list)


class Participant(ABC):
    """`deadlines` says, for each run whose deadline was set anew, after how many seconds to
    `expire` it. `replaying` is set while a journal tells what was taken before.
    `begun` knows which runs must not be begun any more. Threads may go on with runs of different
    numbers at once."""

    def __init__(self, role: Role, record_spends: RecordSpends, address: int | None = None) -> None:
        """`address` is the index of a station; None for parties, which come in blocks."""
        self.role = role
        self._address = address
        self.replaying = False
        self.patient = False
        self._unpaid: dict[bytes, _Unpaid] = {}
        self._record_spends = record_spends
        self._machines: dict[bytes, Machine] = {}
        self.begun = BegunRuns()
        self._over: dict[bytes, str] = {}
        self._ending = threading.RLock()
        self._rounds: dict[bytes, int] = {}
        self._asked: dict[bytes, int] = {}
        self._sent: dict[bytes, int] = {}
        self.meters: dict[bytes, Meter] = {}
        self.deadlines: dict[bytes, float] = {}
        self._queries: dict[bytes, bytes] = {}
        self._said: dict[bytes, list[Message]] = {}
        self._told: dict[bytes, list[Message]] = {}

    def is_addressed(self, message: Message) -> bool:
        mine = self._address is None or message.receivers.tolist() == [self._address]
        return mine and message.receiver_role is self.role

    @abstractmethod
    def open(self, message: Message) -> Machine:
        """The machine for a query that came in. Raises `PeerError` where it must not be run."""

    def begin(self, run: bytes, machine: Machine) -> Reply:
        """Starts a machine of our own accord."""
        if self.begun.like(run) is not None and not self.replaying:
            raise PeerError(run.hex(), "a run of this name was already begun")
        self.begun.add(run)
        self._machines[run] = machine
        self._rounds[run] = 0
        return self._carry_out(run, machine.start())

    def resume(self, run: bytes, machine: Machine) -> Reply:
        """Starts another machine in a run that was begun before; rounds go on counting."""
        self._over.pop(run, None)
        self._machines[run] = machine
        return self._carry_out(run, machine.start())

    def handle(self, message: Message) -> Reply:
        """Takes one message. A batch that is rejected is taken again one by one, so that only
        the senders at fault are refused.

        Raises `NotWritten` while the run's last step is unpaid: the message may be sent again.
        """
        outcome = Reply(message.run)
        if not self.is_addressed(message):
            outcome.refused.append(Rejected(message.sender, f"{message.receiver} is elsewhere"))
            return outcome
        run = message.run
        if self.was_asked(message):
            return self._asked_again(message)
        if message.phase is Phase.QUERY and self._may_begin(run):
            try:
                if message.sender_role is not Role.COORDINATOR:
                    raise PeerError(message.sender, "only the coordinator asks")
                machine = self.open(message)
            except PeerError as error:
                outcome.refused.append(Rejected(error.sender, error.reason))
                return outcome
            self.begun.add(run)
            self._machines[run] = machine
            self._queries[run] = message.body[0].tobytes()
            self._hear(message)
            return self._carry_out(run, machine.start())
        known = self._machines.get(run)
        if known is None:
            outcome.refused.append(self._refusal(message))
            return outcome
        if run in self._unpaid:
            raise NotWritten(self._unpaid[run].reason)
        if message.round > self._last_round(message, known):
            reason = f"round {message.round} was not asked for"
            outcome.refused.append(Rejected(message.sender, reason))
            return outcome
        step = self._receive(known, message)
        if not isinstance(step, Rejected):
            self._hear(message)
        elif message.links > 1:
            for single in message.split():
                if run in self._machines:
                    step = self._receive(known, single)
                    if not isinstance(step, Rejected):
                        self._hear(single)
                    self._merge(outcome, self._carried_out(single, step))
                else:
                    outcome.refused.append(self._refusal(single))
            return outcome
        return self._carried_out(message, step)

    def _carried_out(self, message: Message, step: Step) -> Reply:
        reply = self._carry_out(message.run, step)
        if isinstance(step, Continue) and step.repeated:
            reply.repeated = message.links
        return reply

    def _receive(self, machine: Machine, message: Message) -> Step:
        """A message for a run's machine, unless the participant itself sees to it."""
        return machine.receive(message)

    def _last_round(self, message: Message, machine: Machine) -> int:
        """The last round in which this may be said: a party could drive the rounds up otherwise.

        A party must not be ahead of what was heard or sent here by more than its answer. A station
        hears nothing of what parties say to each other, but knows for how many rounds they may.
        Another server may be ahead by what the coordinator told it first; not by so much that what
        we answer would be past the last round of all, as if that were our fault.
        """
        run = message.run
        if message.sender_role is not Role.PARTY:
            return LAST_OF_SERVERS if message.between_servers else MAX_ROUND
        if message.between_parties:
            return max(self._rounds.get(run, 0), self._sent.get(run, 0)) + 1
        unseen: int = getattr(machine, "unseen_rounds", 0)
        return self._asked.get(run, 0) + unseen + 1

    def forgets_for(self, message: Message) -> bool:
        """Whether it is a question for which those before it may be forgotten. Those of a stream
        decide what may still be asked."""
        machine = self._machines.get(message.run)
        return message.phase is Phase.ASK and bool(getattr(machine, "forgets_questions", False))

    def is_early(self, message: Message) -> bool:
        """Whether a message of a party to another, or of a server, overtook what would make it
        understood: its run is not known here yet, or has not come so far. Told later, it may be
        taken."""
        if not message.between_parties and not message.between_servers:
            return False
        if (known := self.begun.like(message.run)) is None:
            return True
        if known != message.run:
            return False
        machine = self._machines.get(message.run)
        if machine is None or message.between_servers:
            return False
        return message.round > self._last_round(message, machine)

    def is_open(self, run: bytes) -> bool:
        """Whether a run was begun here and is not over."""
        return run in self._machines

    def awaits(self, message: Message) -> bool:
        """Whether there is anything to tell of a message: if not, `handle` refuses it."""
        known = self.is_open(message.run) or message.run in self._queries
        return known or (message.phase is Phase.QUERY and self._may_begin(message.run))

    def was_asked(self, message: Message) -> bool:
        """Whether it is a query that was heard before."""
        return message.phase is Phase.QUERY and message.run in self._queries

    def _may_begin(self, run: bytes) -> bool:
        """A journal tells of runs that were begun, however old they are by now."""
        if self.replaying:
            return run not in self._machines
        timely = not self.begun.is_ahead(run) and not self.begun.is_outdated(run)
        return timely and self.begun.like(run) is None

    def _refusal(self, message: Message) -> Rejected:
        """Why a message is not taken whose run is not open here."""
        run, known = message.run, self.begun.like(message.run)
        if self.begun.is_ahead(run):
            return Rejected(message.sender, f"run {run.hex()} is numbered ahead of our clock")
        if message.phase is Phase.QUERY and known is None and self.begun.is_outdated(run):
            return Rejected(message.sender, f"run {run.hex()} is numbered long before our clock")
        if known is None:
            return Rejected(message.sender, f"run {run.hex()} is unknown")
        if known == run:
            why = self._over.get(run)
            return Rejected(message.sender, why or f"run {run.hex()} is over")
        verb = "asks" if message.phase is Phase.QUERY else "was asked"
        theirs, ours = run[NONCE_BYTES:].hex(), known[NONCE_BYTES:].hex()
        return Rejected(
            message.sender,
            f"{verb} another question in run {run[:NONCE_BYTES].hex()}: "
            f"its digest is {theirs}, here it is {ours}",
        )

    def _asked_again(self, message: Message) -> Reply:
        """A coordinator that was restarted asks as before, and hears again what it was told."""
        run = message.run
        if message.body[0].tobytes() != self._queries[run]:
            refusal = Rejected(message.sender, f"run {run.hex()} was begun with another query")
            return Reply(run, refused=[refusal])
        return Reply(run, list(self._said.get(run, ())))

    def told(self, run: bytes) -> list[Message]:
        """What parties were told in a run after its query, for those that may have missed it."""
        return self._told.get(run, [])

    def kept_runs(self) -> list[bytes]:
        """Runs of which there is anything left but their names."""
        return list(self._queries)

    def open_runs(self) -> list[bytes]:
        return list(self._machines)

    def perform(self, kind: JobKind, run: bytes, message: Message | None = None) -> Reply:
        """A job of the message loop. Only parties that set a deadline hear that it passed: others
        wait for the servers for as long as the run goes."""
        if message is not None:
            return self.handle(message)
        if kind is JobKind.PROCEED:
            return self.proceed(run)
        timed = self.deadlines.pop(run, None) is not None
        return self.expire(run) if timed or self.role is not Role.PARTY else Reply(run)

    def proceed(self, run: bytes) -> Reply:
        """What comes after a reply with `more`, once that is sent."""
        return Reply(run)

    def expire(self, run: bytes) -> Reply:
        """The deadline of a run has passed."""
        return self.advance(run, lambda machine: machine.expire())

    def advance(self, run: bytes, move: Callable[[Machine], Step]) -> Reply:
        """Lets a run's machine make a move of its own; nothing happens if the run is over. A move
        waits for the step before it to be paid for."""
        machine = self._machines.get(run)
        if (unpaid := self._unpaid.get(run)) is not None:
            unpaid.later.append(move)
            return Reply(run)
        return self._carry_out(run, move(machine)) if machine else Reply(run)

    def unpaid(self, run: bytes) -> str:
        """Why a run waits for its last step to be paid for; empty if it does not."""
        return self._unpaid[run].reason if run in self._unpaid else ""

    @property
    def waiting(self) -> int:
        """How many runs wait for their last step to be paid for."""
        return len(self._unpaid)

    def pay(self, run: bytes) -> Reply:
        """Tries again to write what an unpaid step spends, and goes on from there.

        Should the ledger refuse it by now, the others hear of it: what caused it was accepted.
        """
        unpaid = self._unpaid.pop(run, None)
        if unpaid is None:
            return Reply(run)
        outcome = self._settle(run, unpaid.step)
        if outcome.unpaid:
            self._unpaid[run].later = unpaid.later
            return outcome
        if isinstance(outcome.finished, Failed):
            outcome.messages += self._farewell(run, outcome.finished.reason)
        for move in unpaid.later:
            self._merge(outcome, self.advance(run, move))
        return outcome

    def abandon(self, run: bytes) -> None:
        """Drops a run's machine; its messages are refused from now on."""
        self._unpaid.pop(run, None)
        with self._ending:
            if self._machines.pop(run, None) is not None:
                self._over[run] = ""
            while len(self._over) > MOST_OVER:
                oldest = next(iter(self._over))
                del self._over[oldest]
                self.forget(oldest)

    def forget(self, run: bytes) -> None:
        """Drops all there is of a run but that it was."""
        self.abandon(run)
        self.begun.add(run)
        self._over.pop(run, None)
        for kept in (
            self._rounds,
            self._queries,
            self._said,
            self._told,
            self._asked,
            self._sent,
            self.meters,
            self.deadlines,
        ):
            kept.pop(run, None)

    def _hear(self, message: Message) -> None:
        """Only of what was taken: a refused message must not cost memory or move the rounds."""
        if message.sender_role is Role.COORDINATOR:
            self._asked[message.run] = max(self._asked.get(message.run, 0), message.round)
        self.meters.setdefault(message.run, Meter()).record(Direction.RECEIVED, message)
        if message.phase is Phase.PREPARE:  # beside the rounds of all others, in its own
            return
        self._rounds[message.run] = max(self._rounds.get(message.run, 0), message.round)

    def _carry_out(self, run: bytes, step: Step) -> Reply:
        match step:
            case Rejected():
                return Reply(run, refused=[step])
            case Failed(reason):
                self.abandon(run)
                if run in self._over:
                    self._over[run] = reason
                return Reply(run, self._farewell(run, reason), finished=step)
            case Continue() | Done():
                return self._settle(run, step)

    def _settle(self, run: bytes, step: Continue | Done) -> Reply:
        """Nothing of a step leaves before what it spends is written."""
        try:
            self._record_spends(step.spends)
        except TallyError as error:
            if self.patient and isinstance(error, NotWritten):
                self._unpaid[run] = _Unpaid(step, str(error))
                return Reply(run, unpaid=str(error))
            self.abandon(run)
            return Reply(run, refused=[Rejected("ledger", str(error))], finished=Failed(str(error)))
        outgoing = self._send(run, step.messages)
        self._remember(run, outgoing)
        if isinstance(step, Continue):
            if step.deadline is not None:
                self.deadlines[run] = step.deadline
            return Reply(run, outgoing, more=step.more)
        self.abandon(run)
        return Reply(run, outgoing, finished=step)

    def _farewell(self, run: bytes, reason: str) -> list[Message]:
        """What is said of a run that has failed here."""
        return []

    def _send(self, run: bytes, messages: Sequence[Message]) -> list[Message]:
        """Messages as they go out, metered: one round after the last that was heard, but for those
        whose round the protocol fixes."""
        following = self._rounds.get(run, 0) + 1
        outgoing = [replace(message, round=message.round or following) for message in messages]
        meter = self.meters.setdefault(run, Meter())
        for message in outgoing:
            meter.record(Direction.SENT, message)
            self._sent[run] = max(self._sent.get(run, 0), message.round)
        return outgoing

    def _remember(self, run: bytes, outgoing: list[Message]) -> None:
        """What may have to be said again, and up to which round parties may answer."""
        to_coordinator = [m for m in outgoing if m.receiver_role is Role.COORDINATOR]
        self._said.setdefault(run, []).extend(to_coordinator)
        to_parties = [m for m in outgoing if m.receiver_role is Role.PARTY]
        if to_parties:
            self._asked[run] = max(self._asked.get(run, 0), to_parties[0].round)
        if self.role is not Role.PARTY:
            later = [m for m in to_parties if m.phase is not Phase.QUERY]
            self._told.setdefault(run, []).extend(later)

    @staticmethod
    def _merge(outcome: Reply, more: Reply) -> None:
        outcome.messages += more.messages
        outcome.refused += more.refused
        outcome.repeated += more.repeated
        outcome.finished = outcome.finished or more.finished
        outcome.unpaid = outcome.unpaid or more.unpaid
